//! Copies beyond the ring size are counted as lost.

use std::fs;

use nix::sys::signal::Signal;

use super::{COPIES, copies_of};
use crate::harness::report::number;
use crate::harness::{Backend, Gpuprobe, Setup, Workload, alone, wait_for};
use crate::losses::{lost_in_csv, lost_in_text, pause};

const SETTINGS: [(&str, &str); 1] = [("STANDIN_COPY_GBPS", "0")];

fn workload() -> Workload {
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &SETTINGS));
    workload.say("freenull");
    workload
}

#[test]
fn root_copies_beyond_a_full_ring_are_counted_exactly_and_shown() {
    let _alone = alone();
    let mut workload = workload();
    let start = |format: &str| {
        let setup = Setup::pid(workload.pid).modes(COPIES).format(format);
        setup.start()
    };
    let (mut json, mut text, mut csv) = (start("json"), start("text"), start("csv"));
    workload.say("copy h2d 512 100");
    [&json, &text, &csv].into_iter().for_each(pause);
    workload.say("copy h2d 512 250000");
    workload.say("set 512 1000");
    let truth = workload.status();
    assert_eq!((truth.copies, truth.sets), (250_100, 1000));
    for gpuprobe in [&json, &text, &csv] {
        gpuprobe.child.signal(Signal::SIGCONT);
    }
    let report = json.stop();
    let lost = report.lost("copies");
    assert!(lost > 100_000, "{lost} copies lost");
    let seen = &report["bandwidth_util"];
    let seen = seen["copies"].as_u64().unwrap() + seen["sets"].as_u64().unwrap();
    assert_eq!(seen + lost, truth.copies + truth.sets);
    text.interrupt();
    assert!(lost_in_text(&mut text, "copies") > 100_000);
    csv.interrupt();
    assert!(lost_in_csv(&mut csv, "copies") > 100_000);
}

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

#[test]
fn root_copy_batches_of_unknown_size_are_counted_as_lost() {
    let _alone = alone();
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for function in ["cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2"] {
        // Too many copies in a batch, and elements of an array whose size is unknown.
        workload.say(&format!("copy batch-3d 100000 3 via={function} parts=257"));
        workload.say(&format!("copy batch-3d-array 100000 2 via={function}"));
        workload.say(&format!("copy batch-3d 100000 4 via={function}"));
    }
    let report = gpuprobe.stop();
    assert_eq!(report.lost("copies"), 2 * (3 + 2));
    assert_eq!(
        report.moved(workload.pid),
        [("unknown", "async", 2 * 4, 2 * 4 * 100_000)]
    );
}

/// Number of copies of a batch that the BPF side sums.
#[test]
fn root_the_largest_copy_batch_of_known_size_is_exact() {
    const MOST: u64 = 256;
    let _alone = alone();
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    let functions = [
        "cuMemcpyBatchAsync",
        "cuMemcpyBatchAsync_v2",
        "cuMemcpy3DBatchAsync",
        "cuMemcpy3DBatchAsync_v2",
    ];
    for function in functions {
        let kind = if function.contains("3D") {
            "batch-3d"
        } else {
            "batch"
        };
        workload.say(&format!(
            "copy {kind} 100000 5 via={function} parts={}",
            MOST + 1
        ));
        workload.say(&format!("copy {kind} 100000 7 via={function} parts={MOST}"));
        workload.say(&format!("copy {kind} 100000 3 via={function} parts=1"));
    }
    let report = gpuprobe.stop();
    assert_eq!(report.lost("copies"), 4 * 5);
    assert_eq!(
        report.moved(workload.pid),
        [("unknown", "async", 4 * 10, 4 * 10 * 100_000)]
    );
}
