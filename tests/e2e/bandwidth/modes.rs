//! Copy modes, and the throughput figures that depend on time.

use std::time::Instant;

use super::COPIES;
use crate::harness::{Backend, Report, Setup, Workload, standin};

const MIB: u64 = 1 << 20;

#[test]
fn root_copies_that_return_early_have_no_throughput() {
    let mut workload = Workload::start(Backend::Driver);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for command in [
        "copy h2d 65536 3",
        "copy h2d 1048576 2 via=cuMemcpyHtoDAsync_v2",
        "copy d2h 1048576 4 via=cuMemcpyDtoHAsync_v2",
        "copy d2d 1048576 5",
        "copy d2d 1048576 6 via=cuMemcpyDtoDAsync_v2",
        "copy h2h 4096 7",
        "set 1048576 8",
    ] {
        workload.say(command);
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    // Every report is checked to have no throughput for these.
    assert_eq!(
        report.moved(workload.pid),
        [
            ("D2D", "async", 11, 11 * MIB),
            ("D2H", "async", 4, 4 * MIB),
            ("H2D", "async", 5, 3 * 65_536 + 2 * MIB),
            ("H2H", "async", 7, 7 * 4096),
            ("set", "async", 8, 8 * MIB),
        ]
    );
}

#[test]
fn root_only_small_h2d_copies_are_staged() {
    let mut workload = Workload::start(Backend::Driver);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for command in [
        "copy h2d 65536",
        "copy h2d 65537",
        "copy d2h 1",
        "copy d2h 65536",
        "copy h2a 65536",
        "copy h2a 65537",
        "copy a2h 512",
    ] {
        workload.say(command);
    }
    let report = gpuprobe.stop();
    assert_eq!(
        report.moved(workload.pid),
        [
            ("A2H", "sync", 1, 512),
            ("D2H", "sync", 2, 65_537),
            ("H2A", "async", 1, 65_536),
            ("H2A", "sync", 1, 65_537),
            ("H2D", "async", 1, 65_536),
            ("H2D", "sync", 1, 65_537),
        ]
    );
}

#[test]
fn root_wall_clock_rate_is_since_the_start() {
    let outside = Instant::now();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(COPIES)
        .start();
    let inside = Instant::now();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("copy d2d 1048576 5");
    gpuprobe.talk.say("sleep 0.3");
    let at_least = inside.elapsed().as_secs_f64();
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    let at_most = outside.elapsed().as_secs_f64();
    let found = report.direction(pid, "D2D", "async");
    let wall = found["wall_bytes_per_second"].as_f64().unwrap();
    let bytes = 5.0 * MIB as f64;
    assert!(
        (bytes / at_most..=bytes / at_least).contains(&wall),
        "{wall}"
    );
}

#[test]
fn root_current_throughput_is_since_the_last_report() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(COPIES)
        .interval("50ms")
        .start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("copy d2h 1048576 5");
    let moved = |report: &Report| report["bandwidth_util"]["copies"] == 5;
    let report = gpuprobe.report_where("the copies", moved);
    assert!(report.direction(pid, "D2H", "sync")["now_bytes_per_second"].is_f64());
    let later = gpuprobe.next_report();
    let found = later.direction(pid, "D2H", "sync");
    assert!(found["now_bytes_per_second"].is_null(), "{found}");
    assert!(found["bytes_per_second"].is_f64());
    gpuprobe.talk.done();
    gpuprobe.final_report();
}
