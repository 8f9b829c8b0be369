//! Copies beyond the ring size are counted as lost.

use std::fs;

use nix::sys::signal::Signal;

use crate::bandwidth::losses::workload;
use crate::bandwidth::{COPIES, copies_of};
use crate::harness::report::number;
use crate::harness::{Gpuprobe, Setup, alone, wait_for};
use crate::losses::pause;

#[test]
fn root_copies_after_a_loss_are_seen() {
    let _alone = alone();
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(COPIES)
        .interval("50ms")
        .start();
    pause(&gpuprobe);
    workload.say("copy h2d 512 250000");
    gpuprobe.child.signal(Signal::SIGCONT);
    // The ring may be full until it has been read.
    let report = gpuprobe.report_where("each copy to be seen or lost", |report| {
        let lost = report.lost("copies");
        lost > 0 && number(&report["bandwidth_util"], "copies") + lost == 250_000
    });
    let lost = report.lost("copies");
    workload.say("copy d2h 12345 1000");
    let report = gpuprobe.stop();
    assert_eq!(report.lost("copies"), lost, "nothing more was lost");
    let found = report.direction(workload.pid, "D2H", "sync");
    assert_eq!(found["calls"], 1000);
    assert_eq!(found["bytes"], 12_345_000);
    let to_device = report.direction(workload.pid, "H2D", "async");
    assert_eq!(to_device["calls"], 250_000 - lost);
}

#[test]
fn root_steady_stream_of_copies_loses_nothing() {
    let _alone = alone();
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(COPIES)
        .args(["--per-call"])
        .start();
    // In steps that fit into the ring, however slow the reader is.
    for step in 1..=10 {
        workload.say(&format!("copy h2d {} 20000", 1000 + step));
        let copied = 20_000 * step;
        wait_for("the copies to be written", || {
            (copies_of_so_far(&gpuprobe) >= copied).then_some(())
        });
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    assert_eq!(
        report.moved(workload.pid),
        [("H2D", "async", 200_000, 20_000 * 10_055)]
    );
    assert_eq!(copies_of(&gpuprobe).len(), 200_000);
}

/// Number of lines written so far.
fn copies_of_so_far(gpuprobe: &Gpuprobe) -> u64 {
    let bytes = fs::read(&gpuprobe.reports).unwrap();
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}
