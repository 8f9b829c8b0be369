//! Events beyond the ring size are counted as lost.

use std::fs;

use nix::sys::signal::Signal;

use crate::harness::child::state_of;
use crate::harness::{Backend, Gpuprobe, Setup, Workload, alone, wait_for};

/// The number before `what` in a line that lists losses.
fn lost_in(line: &str, what: &str) -> u64 {
    let before = line.split(what).next().unwrap().trim_end();
    let number = before.rsplit([' ', ',']).next().unwrap();
    number
        .parse()
        .unwrap_or_else(|_| panic!("no number of {what} in '{line}'"))
}

/// The losses in text reports: the line is `LOST ...`.
pub(crate) fn lost_in_text(gpuprobe: &mut Gpuprobe, what: &str) -> u64 {
    gpuprobe.wait();
    let shown = fs::read_to_string(&gpuprobe.reports).unwrap();
    let line = shown.lines().rfind(|line| line.starts_with("LOST EVENTS"));
    let line = line.unwrap_or_else(|| {
        panic!(
            "no line about losses: {shown} {:#?}",
            gpuprobe.stderr.so_far()
        )
    });
    lost_in(line, what)
}

/// The losses on standard error, where reports are in CSV.
pub(crate) fn lost_in_csv(gpuprobe: &mut Gpuprobe, what: &str) -> u64 {
    let said = gpuprobe.said();
    let mut lines = said.iter().rev();
    let line = lines.find(|line| line.starts_with("gpuprobe: lost events: "));
    let line = line.unwrap_or_else(|| panic!("no line about losses: {said:#?}"));
    lost_in(line, what)
}

/// Suspends gpuprobe, so that new events stay in the rings.
pub(crate) fn pause(gpuprobe: &Gpuprobe) {
    let pid = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(pid) == Some('T')).then_some(())
    });
}

#[test]
fn root_calls_beyond_a_full_ring_are_counted_exactly_and_shown() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    workload.say("alloc 4096 2");
    let start = |format: &str| {
        Setup::pid_without_stacks(workload.pid)
            .args(["--map-entries", "memory_ring=1048576"])
            .format(format)
            .start()
    };
    let (mut json, mut text, mut csv) = (start("json"), start("text"), start("csv"));
    workload.say("free 0");
    let seen_before = workload.status();
    [&json, &text, &csv].into_iter().for_each(pause);
    workload.say("race 2 10000 4096");
    let truth = workload.status();
    let calls = truth.allocs + truth.frees - seen_before.allocs - seen_before.frees + 1;
    for gpuprobe in [&json, &text, &csv] {
        gpuprobe.child.signal(Signal::SIGCONT);
    }
    let report = json.stop();
    let lost = report.lost("memory");
    let totals = report.totals();
    assert!(lost > 20_000, "{lost} of {calls} calls lost");
    assert_eq!(totals.alloc_calls + totals.free_calls + lost, calls);
    assert_eq!(totals.failed_calls, 0);

    text.interrupt();
    assert!(lost_in_text(&mut text, "memory calls") > 20_000);
    csv.interrupt();
    assert!(lost_in_csv(&mut csv, "memory calls") > 20_000);
}
