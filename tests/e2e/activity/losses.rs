//! GPU records beyond the collector's ring size are counted as lost.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{process, setup, sum};
use crate::harness::Backend;
use crate::harness::report::{list, number};
use crate::losses::pause;

const LAUNCHES: u64 = 40_000;

fn kernels(process: &Value, name: &str) -> u64 {
    sum(process, "kernels", "count", |kernel| kernel["name"] == name)
}

#[test]
fn root_records_beyond_a_full_ring_are_counted_exactly_and_later_ones_are_seen() {
    let (mut gpuprobe, pid) = setup(Backend::Shared)
        .modes(["--activity=kernel"])
        .args(["--map-entries", "batch_ring=262144"])
        .interval("50ms")
        .started();
    gpuprobe
        .talk
        .play("module many later; launch many 10; synchronize");
    pause(&gpuprobe);
    let each = LAUNCHES / 1000;
    for _ in 0..each {
        gpuprobe.talk.say("launch many 1000");
    }
    gpuprobe.child.signal(Signal::SIGCONT);
    let truth = gpuprobe.talk.status();
    // CUPTI has delivered all of them, so the ring is free for the next ones.
    let report = gpuprobe.report_where("each launch to be seen or lost", |report| {
        let is_there = !list(&report["activity"], "processes").is_empty();
        let seen = || kernels(process(report, pid), "many");
        is_there && seen() + report.lost("activity") >= truth.launches
    });
    let lost = report.lost("activity");
    assert!(lost > LAUNCHES / 2, "{lost} lost");
    gpuprobe.talk.say("launch later 500");
    gpuprobe.talk.done();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    assert_eq!(report.lost("activity"), lost, "nothing more was lost");
    let process = process(&report, pid);
    assert_eq!(kernels(process, "many") + lost, truth.launches);
    assert_eq!(kernels(process, "later"), 500);
    assert_eq!(process["complete"], true, "{}", number(process, "records"));
}
