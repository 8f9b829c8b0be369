//! Threads that race for addresses.

use crate::harness::report::Report;
use crate::harness::{Backend, Setup, Truth, Workload, alone, standin};

/// Asserts that the totals are exact, or that the difference equals the counted losses.
fn check(report: &Report, truth: Truth) {
    let totals = report.totals();
    let lost = report.lost("memory");
    if lost == 0 {
        report.assert_totals(truth);
        return;
    }
    let seen = totals.alloc_calls + totals.free_calls + totals.failed_calls;
    assert_eq!(seen + lost, truth.allocs + truth.frees + truth.failed);
}

/// Two threads, 200,000 pairs each; addresses are reused at once by the other thread.
fn race(backend: Backend, settings: &[(&str, &str)]) {
    let _alone = alone();
    let mut workload = Workload::spawn(&mut Workload::command(backend, settings));
    workload.say("freenull");
    let before = workload.status();
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.say("race 2 200000 4096");
    let truth = workload.status();
    assert_eq!(
        (truth.allocs, truth.frees, truth.live),
        (400_000, 400_000, 0)
    );
    assert_eq!((before.allocs, before.frees), (0, 0));
    let report = gpuprobe.stop();
    check(&report, truth);
    if report.lost("memory") == 0 {
        report.assert_calls(&[(backend.allocates_with(), 400_000)]);
        report.assert_holds(workload.pid, 0, 0);
    }
}

#[test]
fn root_a_race_for_addresses_ends_exact() {
    race(Backend::Shared, &[]);
    race(Backend::Driver, &[]);
    // Frees that have not returned.
    race(Backend::Shared, &[("STANDIN_FREE_LINGER_NS", "2000")]);
}

#[test]
fn root_frees_by_another_thread_at_full_speed_end_exact() {
    let _alone = alone();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("crossfree 100000 512");
    gpuprobe.talk.say("churn 2 20000 4096 10");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.live), (140_000, 4000));
    let report = gpuprobe.final_report();
    check(&report, truth);
    if report.lost("memory") == 0 {
        report.assert_holds(pid, truth.bytes, truth.live);
    }
}
