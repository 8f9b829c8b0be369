//! Throughput figures that depend on time.

use std::time::Instant;

use super::COPIES;
use crate::harness::{Backend, Report, Setup, standin};

const MIB: u64 = 1 << 20;

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
