//! Device numbers of a process under `CUDA_VISIBLE_DEVICES`, and the host's GPUs behind them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::report::list;
use crate::harness::{Backend, Family, Nvml, Root, Setup, Workload};

/// Number, number on the host, UUID, bytes of each device of a process or of all.
fn devices(of: &Value) -> Vec<[Value; 4]> {
    let keys = ["device", "physical_index", "uuid", "bytes"];
    let rows = list(of, "devices").iter();
    rows.map(|d| keys.map(|key| d[key].clone())).collect()
}

fn row(device: u32, gpu: u32, bytes: u64) -> [Value; 4] {
    [
        json!(device),
        json!(gpu),
        json!(Nvml::uuid(gpu)),
        json!(bytes),
    ]
}

const MIG: &str = "MIG-41b3359c-e721-56e5-8009-12e5797ed514";

#[test]
fn root_the_gpus_of_the_host_are_named_for_each_process() {
    let unknown = |device: u32, bytes: u64| [json!(device), json!(null), json!(null), json!(bytes)];
    let third = Nvml::uuid(3);
    let (by_uuid, cut) = (format!("{third},1"), format!("2,9,{third}"));
    // `CUDA_VISIBLE_DEVICES` on a host with four GPUs, and the GPUs of the devices.
    let visible: [(&str, &[u32]); 7] = [
        ("0,1,2,3", &[0, 1, 2, 3]),
        ("2,0", &[2, 0]),
        ("3", &[3]),
        ("1,-1,0", &[1]),
        (&third, &[3]),
        (&by_uuid, &[3, 1]),
        (&cut, &[2]),
    ];
    // The environment of each process, and its devices; each allocates once on each.
    let bytes = |device: u32| 1000 + u64::from(device);
    let mut rows: Vec<(String, Vec<[Value; 4]>)> = Vec::new();
    for (list, gpus) in visible {
        let environment = format!("CUDA_VISIBLE_DEVICES={list} STANDIN_DEVICES=4");
        let devices = (0..).zip(gpus);
        let expected = devices.map(|(device, &gpu)| row(device, gpu, bytes(device)));
        rows.push((environment, expected.collect()));
    }
    let all = (0..4).map(|device| row(device, device, bytes(device)));
    rows.push(("STANDIN_DEVICES=4".to_owned(), all.collect()));
    // As after `os.environ["CUDA_VISIBLE_DEVICES"] = ...`: CUDA sees fewer devices than the
    // environment at exec shows.
    for seen in 1..=2 {
        let environment = format!("STANDIN_DEVICES={seen}");
        rows.push((environment, vec![unknown(0, bytes(0))]));
    }
    let of_part = [json!(0), json!(3), json!(MIG), json!(bytes(0))];
    let environment = format!("CUDA_VISIBLE_DEVICES={MIG} STANDIN_DEVICES=4");
    rows.push((environment, vec![of_part]));

    let nvml = Nvml::with_gpus(4);
    let members = (0..).zip(&rows);
    let script = members.map(|(number, (environment, _))| format!("{environment} @row{number} & "));
    let family = Family::start(&(script.collect::<String>() + "wait"));
    let setup = Setup::pid_without_stacks(family.root()).args(["--children"]);
    let mut gpuprobe = nvml.given_to(setup).interval("50ms").start();
    let mut running = Vec::new();
    for (number, (_, expected)) in (0..).zip(&rows) {
        let mut member = family.member(&format!("row{number}"));
        for device in 0..expected.len() {
            member.say(&format!("setdevice {device}"));
            member.say(&format!("alloc {}", 1000 + device));
        }
        member.say("pinned 4096");
        running.push(member);
    }
    let pids: Vec<_> = running.iter().map(|member| member.pid).collect();
    gpuprobe.report_where("all processes", |report| {
        pids.iter().all(|&pid| !report.entries(pid).is_empty())
    });
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let mut by_gpu = BTreeMap::new();
    for (pid, (environment, expected)) in pids.into_iter().zip(&rows) {
        assert_eq!(&devices(report.process(pid)), expected, "{environment}");
        for [_, gpu, uuid, bytes] in expected {
            let key = (gpu.as_u64(), uuid.to_string());
            *by_gpu.entry(key).or_insert(0) += bytes.as_u64().unwrap();
        }
    }
    // Processes with different device numbers add up by GPU.
    for [_, gpu, uuid, bytes] in devices(&report["memleak"]) {
        let known = (gpu.as_u64(), uuid.to_string());
        if gpu.is_u64() {
            assert_eq!(by_gpu.get(&known).copied(), bytes.as_u64(), "{gpu} {uuid}");
        }
    }
}

#[test]
fn root_container_lists_its_assigned_gpus() {
    let root = Root::new();
    fs::create_dir(root.path("dev")).unwrap();
    // The third and the fourth, under numbers that no real device has.
    for node in ["dev/nvidia102", "dev/nvidia103"] {
        fs::write(root.path(node), "").unwrap();
    }
    let nvml = Nvml::with_gpus(4);
    let [env, words @ ..] = root.words(Backend::Shared);
    let mut command = Command::new(env);
    let mut workload = Workload::spawn(command.arg("STANDIN_DEVICES=2").args(words));
    workload.say("freenull");
    let setup = Setup::pid_without_stacks(workload.pid).env("STANDIN_NVML_MINORS", "100");
    let mut gpuprobe = nvml.given_to(setup).start();
    workload.say("setdevice 0");
    workload.say("alloc 4096");
    let report = gpuprobe.stop();
    assert_eq!(devices(report.process(workload.pid)), [row(0, 2, 4096)]);
}
