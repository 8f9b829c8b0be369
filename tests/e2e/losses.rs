//! What cannot be kept up with is counted.

use std::fs;

use nix::sys::signal::Signal;

use crate::harness::child::state_of;
use crate::harness::{Backend, Setup, Workload, alone, wait_for};

/// The number before `what` in a line that lists losses.
fn lost_in(line: &str, what: &str) -> u64 {
    let before = line.split(what).next().unwrap().trim_end();
    let number = before.rsplit([' ', ',']).next().unwrap();
    number
        .parse()
        .unwrap_or_else(|_| panic!("no number of {what} in '{line}'"))
}

#[test]
fn root_calls_beyond_a_full_ring_are_counted_exactly_and_shown() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    workload.say("alloc 4096 2");
    let start = |format: &str| Setup::pid(workload.pid).format(format).start();
    let (mut json, mut text, mut csv) = (start("json"), start("text"), start("csv"));
    workload.say("free 0");
    let seen_before = workload.status();
    for gpuprobe in [&json, &text, &csv] {
        let pid = gpuprobe.child.pid();
        gpuprobe.child.signal(Signal::SIGSTOP);
        wait_for("gpuprobe to stop", || {
            (state_of(pid) == Some('T')).then_some(())
        });
    }
    workload.say("race 2 120000 4096");
    let truth = workload.status();
    let calls = truth.allocs + truth.frees - seen_before.allocs - seen_before.frees + 1;
    for gpuprobe in [&json, &text, &csv] {
        gpuprobe.child.signal(Signal::SIGCONT);
    }
    let report = json.stop();
    let lost = report.lost("memory");
    let totals = report.totals();
    assert!(lost > 100_000, "{lost} of {calls} calls lost");
    assert_eq!(totals.alloc_calls + totals.free_calls + lost, calls);
    assert_eq!(totals.failed_calls, 0);

    text.interrupt();
    text.wait();
    let shown = fs::read_to_string(&text.reports).unwrap();
    let line = shown
        .lines()
        .find(|l| l.contains("LOST"))
        .expect("a line about losses");
    assert!(lost_in(line, "memory calls") > 100_000, "{line}");
    assert!(text.said().iter().all(|l| !l.contains("panicked")));

    csv.interrupt();
    let said = csv.said();
    let line = said
        .iter()
        .find(|l| l.contains("lost"))
        .expect("a line about losses");
    assert!(line.starts_with("gpuprobe: "), "{line}");
    assert!(lost_in(line, "memory calls") > 100_000, "{line}");
}

#[test]
fn root_after_a_loss_the_rest_is_seen() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    let mut gpuprobe = Setup::pid(workload.pid).interval("50ms").start();
    gpuprobe.child.signal(Signal::SIGSTOP);
    workload.say("race 2 200000 4096");
    gpuprobe.child.signal(Signal::SIGCONT);
    let report = gpuprobe.report_where("the loss", |report| report.lost("memory") > 0);
    let lost = report.lost("memory");
    workload.say("alloc 12345 1000");
    let truth = workload.status();
    let report = gpuprobe.stop();
    let totals = report.totals();
    assert_eq!(report.lost("memory"), lost, "nothing more was lost");
    assert_eq!(
        totals.alloc_calls + totals.free_calls + lost,
        truth.allocs + truth.frees
    );
    let found = report.allocations(workload.pid);
    assert_eq!(found.iter().filter(|a| a["bytes"] == 12_345).count(), 1000);
}
