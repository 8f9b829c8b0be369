//! Calls after a ring was full.

use nix::sys::signal::Signal;

use crate::harness::{Backend, Setup, Workload, alone};
use crate::losses::pause;

#[test]
fn root_calls_after_a_loss_are_seen() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Driver);
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid)
        .interval("50ms")
        .start();
    pause(&gpuprobe);
    workload.say("race 2 200000 4096");
    let made = workload.status();
    gpuprobe.child.signal(Signal::SIGCONT);
    // The ring may be full until it has been read.
    let report = gpuprobe.report_where("each call to be seen or lost", |report| {
        let (totals, lost) = (report.totals(), report.lost("memory"));
        let seen = totals.alloc_calls + totals.free_calls;
        lost > 0 && seen + lost == made.allocs + made.frees
    });
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
