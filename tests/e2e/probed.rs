//! What is not needed is not probed.

use std::fs;
use std::process::Command;

use gpuprobe_cuda::FUNCTIONS;
use serde_json::json;

use crate::harness::objects::{counted_runs, probed, runs};
use crate::harness::{Gpuprobe, Setup, Workload, wait_for};
use crate::tensors::program;

/// A step of training whose tensors come from the allocator's cache.
const STEP: &str = "tmalloc step 4096 5; getdevice; launch all 3; tfree step";
/// Graphs may allocate.
const GRAPHS: &str = "cuGraphLaunch";
const LAUNCHES: [&str; 4] = [
    GRAPHS,
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
];

/// The probed functions that steps of training may call; `None` if the kernel does not say (before Linux 6.17).
fn of_step(gpuprobe: &Gpuprobe) -> Option<Vec<&'static str>> {
    let is_of_step = |symbol: &&str| {
        let function = FUNCTIONS.iter().find(|it| it.symbol == *symbol);
        let op = function.unwrap().op;
        op.is_launch() || op.is_copy() || op.is_device_query() || op.is_of_framework()
    };
    let all = probed(gpuprobe.child.pid());
    (!all.is_empty()).then(|| all.into_iter().filter(is_of_step).collect())
}

/// A program with a variable in its environment that runs already, and a gpuprobe that traces it.
fn traced(variable: &str, mode: &'static str, tensors: &str) -> (Workload, Gpuprobe) {
    let mut program = Workload::spawn(Command::new("env").args([variable, &program()]));
    program.play(&format!("module k; {STEP}"));
    let setup = Setup::pid_without_stacks(program.pid).modes([mode]);
    let setup = setup.args(["-v", "--tensors", tensors]);
    let setup = setup.interval("100ms");
    (program, setup.start())
}

#[test]
fn root_what_a_step_calls_is_probed_where_it_is_needed() {
    let _counting = counted_runs();
    let of_tensors = [
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
        GRAPHS,
    ];
    for (mode, tensors, expected, hits) in [
        ("--memleak", "off", &[GRAPHS][..], 0),
        ("--memleak", "on", &of_tensors, 20 * 10),
        ("--cudatrace", "on", &LAUNCHES, 20 * 3),
    ] {
        let (mut program, gpuprobe) = traced("CUDA_VISIBLE_DEVICES=0", mode, tensors);
        if let Some(found) = of_step(&gpuprobe) {
            assert_eq!(found, expected, "{mode}, tensors {tensors}");
        }
        let before = runs(gpuprobe.child.pid());
        program.play(&[STEP; 20].join("; "));
        let seen = runs(gpuprobe.child.pid()) - before;
        assert_eq!(seen, hits, "{mode}, tensors {tensors}");
    }
    let (_program, gpuprobe) = traced("CUDA_VISIBLE_DEVICES=0", "--bandwidth-util", "on");
    let mut copies = of_step(&gpuprobe).into_iter().flatten();
    assert!(copies.all(|copy| copy.starts_with("cuMem")));
}

#[test]
fn root_known_devices_are_not_queried() {
    // With one GPU nothing is queried.
    if fs::read_dir("/proc/driver/nvidia/gpus").is_ok_and(|gpus| gpus.count() == 1) {
        return;
    }
    let [(_of_single, single), (mut program, gpuprobe)] =
        ["CUDA_VISIBLE_DEVICES=0", "STANDIN_DEVICES=4"]
            .map(|variable| traced(variable, "--memleak", "off"));
    let (few, all) = (single.announced().0, gpuprobe.announced().0);
    assert!(few < all, "{few} functions, {all} with queries");
    wait_for("the device", || {
        program.play("getdevice; alloc 1000");
        let report = gpuprobe.next_report();
        let mut all = report.allocations(program.pid).into_iter();
        all.any(|it| it["device"] == json!(0)).then_some(())
    });
    let is_queried = || of_step(&gpuprobe).is_some_and(|found| found != [GRAPHS]);
    wait_for("no queries", || (!is_queried()).then_some(()));
    // They would be probed twice in this time.
    for _ in 0..25 {
        program.play(STEP);
        gpuprobe.next_report_while(|| assert!(!is_queried()));
    }
}
