//! Holders of GPU memory when a request is refused.

use serde_json::Value;

use super::{MIB, incidents, said, short};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Nvml, Setup, Workload};

/// Memory of the stand-in's GPUs.
const GPU_BYTES: u64 = 128 << 30;

fn other(incident: &Value, pid: u32) -> &Value {
    let others = list(incident, "others").iter();
    let mut found = others.filter(|other| other["pid"] == pid);
    let other = found
        .next()
        .unwrap_or_else(|| panic!("no {pid} in {incident}"));
    assert!(found.next().is_none());
    other
}

#[test]
fn root_holders_of_the_gpu_are_named() {
    let nvml = Nvml::with_gpus(1);
    let mut refused = Workload::start(Backend::Shared);
    let mut large = Workload::start(Backend::Driver);
    let idle = Workload::start(Backend::Shared);
    let setup = Setup::pids([refused.pid, large.pid]);
    let mut gpuprobe = nvml.given_to(setup).start();
    refused.play("setdevice 0; alloc 1048576 4");
    large.play("ctx create 0; alloc 67108864 2");
    nvml.says(&[
        (0, refused.pid, 500 * MIB),
        (0, large.pid, 700 * MIB),
        (0, idle.pid, 300 * MIB),
    ]);
    refused.play("fail cudaMalloc 1 2; alloc 8388608");
    let told = format!("workload (pid {}", refused.pid);
    gpuprobe
        .stderr
        .line_with(&["gpuprobe: out of memory #", &told]);
    // Too late for the incident.
    nvml.says(&[]);
    refused.play("alloc 100");
    let report = gpuprobe.stop();
    assert_eq!(
        short(incidents(&report)),
        [("cudaMalloc", 8 * MIB, 1, "continued")]
    );
    let one = &incidents(&report)[0];
    assert_eq!(one["used_bytes"], 500 * MIB);
    assert_eq!(one["live_bytes"], 4 * MIB);
    assert_eq!(one["device_bytes"], 4 * MIB);
    let gpu = &one["gpu"];
    assert_eq!(number(gpu, "total_bytes"), GPU_BYTES);
    assert_eq!(number(gpu, "used_bytes"), 1500 * MIB);
    assert_eq!(number(gpu, "free_bytes"), GPU_BYTES - 1500 * MIB);
    assert_eq!(list(one, "others").len(), 2, "{one}");
    // Largest first; one is traced and holds something, the other is known to NVML only.
    assert_eq!(list(one, "others")[0]["pid"], large.pid);
    assert_eq!(number(other(one, large.pid), "used_bytes"), 700 * MIB);
    assert_eq!(number(other(one, large.pid), "live_bytes"), 128 * MIB);
    assert_eq!(number(other(one, idle.pid), "used_bytes"), 300 * MIB);
    assert!(other(one, idle.pid)["live_bytes"].is_null());
    assert_eq!(other(one, idle.pid)["comm"], "workload");
    let said = said(&mut gpuprobe);
    let says = |what: &str| said.iter().any(|line| line.contains(what));
    assert!(
        says("GPU 0 Stand-in GPU: 126.54 GiB free of 128.00 GiB"),
        "{said:#?}"
    );
    assert!(
        says(&format!("300.00 MiB  workload (pid {}", idle.pid)),
        "{said:#?}"
    );
}

#[test]
fn root_host_memory_incident_has_no_gpu() {
    let nvml = Nvml::with_gpus(1);
    let mut program = Workload::start(Backend::Shared);
    nvml.says(&[(0, program.pid, MIB)]);
    let mut gpuprobe = nvml.given_to(Setup::pid(program.pid)).start();
    program.play("alloc 4096; pinned 100; fail cudaMallocHost 1 2; pinned 8192");
    let report = gpuprobe.stop();
    let one = &incidents(&report)[0];
    assert_eq!(
        (&one["host_memory"], &one["kind"]),
        (&true.into(), &"pinned".into())
    );
    assert!(one["device"].is_null() && one.get("gpu").is_none());
    assert!(list(one, "others").is_empty());
    assert_eq!(one["host_bytes"], 100);
    // Its call sites held host memory, too.
    assert_eq!(one["sites"][0]["bytes"], 100);
    let said = said(&mut gpuprobe);
    assert!(
        said[0].contains("was refused 8.00 KiB on the host"),
        "{said:#?}"
    );
}
