//! Device numbers of a process under `CUDA_VISIBLE_DEVICES`, and the host's GPUs behind them.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::report::list;
use crate::harness::{Backend, Family, Nvml, Report, Root, Setup, Workload, nvml, standin};

/// A workload with this `CUDA_VISIBLE_DEVICES` on a host with four GPUs.
fn words(visible: Option<&str>) -> Vec<String> {
    let mut words = vec!["env".to_owned(), "STANDIN_DEVICES=4".to_owned()];
    words.extend(visible.map(|list| format!("CUDA_VISIBLE_DEVICES={list}")));
    words.push(standin().program_text(Backend::Shared));
    words
}

fn start(visible: Option<&str>) -> Workload {
    let words = words(visible);
    Workload::spawn(Command::new(&words[0]).args(&words[1..]))
}

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

#[test]
fn root_the_gpus_of_the_host_are_named() {
    let third = Nvml::uuid(3);
    let (by_uuid, cut) = (format!("{third},1"), format!("2,9,{third}"));
    let table: [(Option<&str>, &[u32]); 7] = [
        (None, &[0, 1, 2, 3]),
        (Some("2,0"), &[2, 0]),
        (Some("3"), &[3]),
        (Some("1,-1,0"), &[1]),
        (Some(&third), &[3]),
        (Some(&by_uuid), &[3, 1]),
        (Some(&cut), &[2]),
    ];
    let nvml = Nvml::with_gpus(4);
    for (visible, gpus) in table {
        let mut gpuprobe = nvml
            .given_to(Setup::command_without_stacks(words(visible)))
            .interval("50ms")
            .start();
        let pid = gpuprobe.talk.ready();
        for (device, _) in gpus.iter().enumerate() {
            gpuprobe.talk.say(&format!("setdevice {device}"));
            gpuprobe.talk.say(&format!("alloc {}", 1000 + device));
        }
        gpuprobe.talk.say("pinned 4096");
        gpuprobe.report_where("the process", |r| !r.entries(pid).is_empty());
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        report.assert_nothing_lost();
        let expected: Vec<_> = (0..)
            .zip(gpus)
            .map(|(device, &gpu)| row(device, gpu, 1000 + u64::from(device)))
            .collect();
        assert_eq!(devices(report.process(pid)), expected, "{visible:?}");
    }
}

/// The devices in a report of a late tracer.
fn attached_late(setup: impl FnOnce(Setup) -> Setup, visible: &str) -> (Report, u32) {
    let mut workload = start(Some(visible));
    workload.say("freenull");
    let mut gpuprobe = setup(Setup::pid_without_stacks(workload.pid)).start();
    workload.say("setdevice 0");
    workload.say("alloc 4096");
    (gpuprobe.stop(), workload.pid)
}

#[test]
fn root_without_nvml_only_the_process_device_number_is_known() {
    let mut folder = None;
    let without = |setup| {
        let (kept, setup) = nvml::broken(setup);
        folder = Some(kept);
        setup
    };
    let (report, pid) = attached_late(without, "2");
    let expected = [json!(0), json!(null), json!(null), json!(4096)];
    assert_eq!(devices(report.process(pid)), [expected]);
    assert!(report.process(pid).get("nvml").is_none());
}

#[test]
fn root_an_nvml_without_gpus_names_none() {
    let nvml = Nvml::with_gpus(0);
    let (report, pid) = attached_late(|setup| nvml.given_to(setup), "2");
    let expected = [json!(0), json!(null), json!(null), json!(4096)];
    assert_eq!(devices(report.process(pid)), [expected]);
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

#[test]
fn root_devices_set_by_the_program_itself_are_unknown() {
    // As after `os.environ["CUDA_VISIBLE_DEVICES"] = ...`: CUDA sees fewer devices than the
    // environment at exec shows.
    let nvml = Nvml::with_gpus(4);
    for seen in 1..=2 {
        let mut words = words(None);
        words[1] = format!("STANDIN_DEVICES={seen}");
        let mut gpuprobe = nvml.given_to(Setup::command_without_stacks(words)).start();
        let pid = gpuprobe.talk.ready();
        gpuprobe.talk.say("setdevice 0");
        gpuprobe.talk.say("alloc 4096");
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        let expected = [json!(0), json!(null), json!(null), json!(4096)];
        assert_eq!(devices(report.process(pid)), [expected], "{seen} of 4");
    }
}

#[test]
fn root_mig_device_has_its_uuid_and_the_gpus_number() {
    let part = "MIG-41b3359c-e721-56e5-8009-12e5797ed514";
    let nvml = Nvml::with_gpus(4);
    let (report, pid) = attached_late(|setup| nvml.given_to(setup), part);
    let expected = [json!(0), json!(3), json!(part), json!(4096)];
    assert_eq!(devices(report.process(pid)), [expected]);
}

#[test]
fn root_processes_with_different_device_numbers_add_up_by_gpu() {
    let nvml = Nvml::with_gpus(4);
    let family = Family::start(
        "CUDA_VISIBLE_DEVICES=2 STANDIN_DEVICES=4 @one & \
         CUDA_VISIBLE_DEVICES=0,2 STANDIN_DEVICES=4 @two & wait",
    );
    let [mut one, mut two] = family.members(["one", "two"]);
    let setup = Setup::pid_without_stacks(family.root()).args(["--children"]);
    let mut gpuprobe = nvml.given_to(setup).start();
    one.say("setdevice 0");
    one.say("alloc 4096 3");
    two.say("setdevice 1");
    two.say("alloc 512 2");
    two.say("setdevice 0");
    two.say("alloc 64");
    let report = gpuprobe.stop();
    assert_eq!(devices(report.process(one.pid)), [row(0, 2, 12_288)]);
    assert_eq!(
        devices(report.process(two.pid)),
        [row(0, 0, 64), row(1, 2, 1024)]
    );
    let mut all = devices(&report["memleak"]);
    all.sort_by_key(|d| d[1].as_u64());
    let sum = |gpu: u32, bytes: u64| {
        [
            json!(null),
            json!(gpu),
            json!(Nvml::uuid(gpu)),
            json!(bytes),
        ]
    };
    assert_eq!(all, [sum(0, 64), sum(2, 13_312)]);
}
