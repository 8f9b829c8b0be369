//! Concurrent launches by many threads.

use crate::cudatrace::{KERNELS, LAUNCHES, name, traced};
use crate::harness::{Backend, Report, Setup, Workload, alone, said};

/// Asserts that the counts of the three kernels equal those in a storm's reply.
fn check(report: &Report, pid: u32, reply: &str, launches: u64) {
    report.assert_nothing_lost();
    assert_eq!(report.launches(), [launches, 0, 0]);
    let mut expected: Vec<_> = (0..3)
        .map(|n| (name(n), said(reply, KERNELS[n].0).parse().unwrap()))
        .collect();
    expected.sort_unstable();
    assert_eq!(report.launched(pid), expected);
}

fn storm(kind: &str) {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    workload.say("launch 0");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(LAUNCHES)
        .args(["--attach", kind])
        .start();
    let reply = workload.say("launchstorm 2 200000");
    assert_eq!(said(&reply, "launches"), "400000");
    check(&gpuprobe.stop(), workload.pid, &reply, 400_000);
}

#[test]
fn root_a_storm_on_two_processors_is_exact() {
    ["session", "multi", "perf"].into_iter().for_each(storm);
}

#[test]
fn root_a_storm_of_more_threads_than_processors_is_exact() {
    let _alone = alone();
    for (backend, arguments, via) in [
        (Backend::Driver, ["--api", "auto"], "ex"),
        (Backend::Static, ["--api", "auto"], "kernel"),
        (Backend::Shared, ["--api", "runtime"], "nvcc"),
    ] {
        let command = format!("launchstorm 32 5000 via={via}");
        let (report, run) = traced(Setup::workload(backend).args(arguments), &command);
        assert_eq!(run.truth.launches, 160_000);
        check(&report, run.pid, &run.replies[0], 160_000);
    }
}

#[test]
fn root_a_storm_while_reports_are_made_is_exact() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    workload.say("launch 0");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(LAUNCHES)
        .interval("5ms")
        .start();
    let reply = workload.say("launchstorm 4 100000");
    let report = gpuprobe.stop();
    check(&report, workload.pid, &reply, 400_000);
    let counts: Vec<_> = gpuprobe
        .reports()
        .iter()
        .map(|report| report.launches()[0])
        .collect();
    assert!(counts.is_sorted(), "launches never become fewer");
    let partial = counts.iter().filter(|&&c| c > 0 && c < 400_000);
    assert!(
        partial.count() > 0,
        "no report during the storm: {counts:?}"
    );
}
