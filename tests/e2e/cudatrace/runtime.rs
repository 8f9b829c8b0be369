//! Launches traced at the runtime.

use serde_json::json;

use super::{KERNELS, LAUNCHES, name};
use crate::harness::{Backend, Report, Setup, Workload, said};

const RUNTIME: [&str; 2] = ["--api", "runtime"];

/// Every launch function of the runtime, with one kernel for each group of functions.
const COMMANDS: [&str; 8] = [
    "launch 0 10 via=kernel grid=1,2,3 block=4,5,6",
    "launch 1 20 via=ex grid=7,8,9 block=10,11,9",
    "launch 2 30 via=coop grid=13,14,15 block=16,17,3",
    "launch 3 40 via=nvcc grid=19,20,21 block=22,23,2",
    "launch 0 50 via=ptsz",
    "launch 1 60 via=ex-ptsz",
    "launch 2 70 via=coop-ptsz",
    "launch 3 80 via=nvcc-ptsz",
];

/// Runs commands on a program that is still alive when the report is made: symbols of an exited
/// process can no longer be read.
fn traced(arguments: &[&str], commands: &[&str]) -> (Report, u32) {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(LAUNCHES)
        .args(arguments.iter().copied())
        .start();
    for command in commands {
        workload.say(command);
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let truth = workload.status();
    let expected = [truth.launches, truth.graph_launches, truth.captured];
    assert_eq!(report.launches(), expected);
    (report, workload.pid)
}

/// Launches, function and shape of each kernel after these commands.
type Expected<'a> = [(usize, u64, &'a str, [u32; 3], [u32; 3]); 4];

fn check(arguments: &[&str], expected: Expected<'_>, calls: &[(&str, u64)]) {
    let (report, pid) = traced(arguments, &COMMANDS);
    report.assert_launch_calls(calls);
    assert_eq!(report.kernels(pid).len(), 4);
    for (number, launches, api, grid, block) in expected {
        let kernel = report.kernel(pid, name(number));
        assert_eq!(kernel["mangled"], KERNELS[number].0);
        assert_eq!(kernel["launches"], launches);
        assert_eq!(kernel["api"], api);
        assert_eq!(kernel["grid"], json!(grid));
        assert_eq!(kernel["block"], json!(block));
    }
}

#[test]
fn root_every_launch_function_is_counted_once_in_the_runtime() {
    // A jump into cudaLaunchKernel is no launch of its own.
    check(
        &RUNTIME,
        [
            (0, 60, "cudaLaunchKernel", [1, 2, 3], [4, 5, 6]),
            (1, 80, "cudaLaunchKernelExC", [7, 8, 9], [10, 11, 9]),
            (
                2,
                100,
                "cudaLaunchCooperativeKernel",
                [13, 14, 15],
                [16, 17, 3],
            ),
            (3, 120, "cudaLaunchKernel", [19, 20, 21], [22, 23, 2]),
        ],
        &[
            ("cudaLaunchKernel", 180),
            ("cudaLaunchKernelExC", 80),
            ("cudaLaunchCooperativeKernel", 100),
        ],
    );
}

#[test]
fn root_every_runtime_launch_is_counted_once_in_the_driver() {
    let expected = [
        (0, 60, "cuLaunchKernel", [1, 2, 3], [4, 5, 6]),
        (1, 80, "cuLaunchKernelEx", [7, 8, 9], [10, 11, 9]),
        (
            2,
            100,
            "cuLaunchCooperativeKernel",
            [13, 14, 15],
            [16, 17, 3],
        ),
        (3, 120, "cuLaunchKernel", [19, 20, 21], [22, 23, 2]),
    ];
    let calls = [
        ("cuLaunchKernel", 180),
        ("cuLaunchKernelEx", 80),
        ("cuLaunchCooperativeKernel", 100),
    ];
    check(&[], expected, &calls);
    check(&["--api", "driver"], expected, &calls);
}

#[test]
fn root_host_functions_are_named_by_symbols_after_late_attach() {
    let mut workload = Workload::start(Backend::Shared);
    for number in 0..4 {
        workload.say(&format!("launch {number}"));
    }
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(LAUNCHES)
        .args(RUNTIME)
        .start();
    for number in 0..4 {
        let reply = workload.say(&format!("launch {number} {}", 10 + number));
        assert_ne!(said(&reply, "host"), said(&reply, "handle"));
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    for (number, (mangled, name)) in KERNELS.into_iter().enumerate() {
        let kernel = report.kernel(workload.pid, name);
        assert_eq!(kernel["mangled"], mangled);
        assert_eq!(kernel["launches"], 10 + number);
    }
}

#[test]
fn root_a_kernel_launched_by_host_function_and_by_handle_is_one() {
    let commands = ["launch 1 3 via=nvcc", "launch 1 4 via=kernel"];
    let (report, pid) = traced(&RUNTIME, &commands);
    assert_eq!(report.launched(pid), [(name(1), 7)]);
    report.assert_launch_calls(&[("cudaLaunchKernel", 7)]);
}

#[test]
fn root_graph_launches_are_distinguished_in_the_runtime() {
    let (report, pid) = traced(&RUNTIME, &["graph 5 23", "graph 6 2 fork", "launch 0 7"]);
    assert_eq!(report.launches(), [7, 25, 11]);
    assert_eq!(report.kernel(pid, name(0))["captured_launches"], 4);
    assert_eq!(report["cudatrace"]["graphs"][0]["launches"], 25);
}

#[test]
fn root_static_runtime_is_seen_at_the_driver_only() {
    let mut workload = Workload::start(Backend::Static);
    workload.say("launch 0");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(LAUNCHES)
        .args(RUNTIME)
        .start();
    workload.say("launch 0 5");
    let report = gpuprobe.stop();
    assert_eq!(report.launches(), [0, 0, 0]);
}
