//! Figures that depend on time: rates since the start and since the last report.

use std::time::Instant;

use crate::harness::report::list;
use crate::harness::{Backend, Report, Setup};

const MIB: u64 = 1 << 20;

fn setup() -> Setup {
    Setup::workload(Backend::Driver).modes(["--cudatrace", "--bandwidth-util"])
}

/// Launches per second of the first kernel in a report.
fn launch_rate(report: &Report) -> f64 {
    let kernels = list(&report["cudatrace"], "kernels");
    kernels[0]["per_second"].as_f64().unwrap()
}

#[test]
fn root_rates_are_since_the_start_in_the_last_report() {
    let outside = Instant::now();
    let mut gpuprobe = setup().start();
    let inside = Instant::now();
    let pid = gpuprobe.talk.ready();
    let script = "copy d2d 1048576 5; launch 0 1000; sleep 0.3";
    gpuprobe.talk.play(script);
    let at_least = inside.elapsed().as_secs_f64();
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    let at_most = outside.elapsed().as_secs_f64();
    let copied = report.direction(pid, "D2D", "async");
    let wall = copied["wall_bytes_per_second"].as_f64().unwrap();
    for (count, rate) in [(5.0 * MIB as f64, wall), (1000.0, launch_rate(&report))] {
        assert!(
            (count / at_most..=count / at_least).contains(&rate),
            "{rate} where {count} took {at_least} to {at_most} s"
        );
    }
}

#[test]
fn root_current_rates_are_since_the_last_report() {
    let (mut gpuprobe, pid) = setup().interval("50ms").started();
    gpuprobe.talk.play("copy d2h 1048576 5; launch 0 1000");
    let has_all =
        |report: &Report| report["bandwidth_util"]["copies"] == 5 && report.launches()[0] == 1000;
    gpuprobe.report_where("the copies and the launches", has_all);
    let copied = |report: &Report| report.direction(pid, "D2H", "sync").clone();
    let is_now = |report: &&Report| {
        let copies = report["bandwidth_util"]["copies"] == 5;
        copies && copied(report)["now_bytes_per_second"].is_f64()
    };
    let reports = gpuprobe.reports();
    assert_eq!(reports.iter().filter(is_now).count(), 1);
    let later = gpuprobe.next_report();
    let found = copied(&later);
    assert!(found["now_bytes_per_second"].is_null(), "{found}");
    assert!(found["bytes_per_second"].is_f64());
    assert_eq!(later.launches()[0], 1000);
    assert!(launch_rate(&later).abs() < f64::EPSILON, "nothing since");
    gpuprobe.talk.done();
    gpuprobe.final_report();
}
