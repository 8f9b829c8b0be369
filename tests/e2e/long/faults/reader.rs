//! gpuprobe or its readers are suspended while it traces, or it is killed beside another instance.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};

use crate::harness::child::{raw, readers_of, state_of};
use crate::harness::promises::assert_reports_come;
use crate::harness::{Backend, Objects, Report, Setup, Truth, Workload, alone, standin, wait_for};

/// Suspends the reader while a program makes `calls` calls; returns the losses.
fn suspended_for(calls: u64) -> u64 {
    const THREADS: u64 = 2;
    let _alone = alone();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)])
        .interval("50ms")
        .start();
    gpuprobe.talk.ready();
    let made = |truth: Truth| truth.allocs + truth.frees;
    let seen = |report: &Report| {
        let totals = report.totals();
        totals.alloc_calls + totals.free_calls
    };
    gpuprobe.talk.say(&format!("churn {THREADS} 1000 4096 10"));
    let before = made(gpuprobe.talk.status());
    gpuprobe.report_where("the first calls", |report| seen(report) == before);
    let reader = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(reader) == Some('T')).then_some(())
    });
    // One call in ten keeps its memory: these are 19 calls.
    let allocations = calls.div_ceil(19 * THREADS) * 10;
    gpuprobe
        .talk
        .say(&format!("churn {THREADS} {allocations} 4096 10"));
    let during = made(gpuprobe.talk.status());
    assert!(during - before >= calls, "{} calls", during - before);
    assert_eq!(state_of(reader), Some('T'), "it is suspended all the while");
    gpuprobe.child.signal(Signal::SIGCONT);
    let caught_up = |report: &Report| seen(report) + report.lost("memory") == during;
    let lost = gpuprobe.report_where("the rest", caught_up).lost("memory");
    // Later calls are seen.
    gpuprobe.talk.say("alloc 4096 1000");
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(seen(&report) + lost, during + 1000);
    // Where calls are lost, exits of their threads may be lost, too.
    let losses = report["lost"].as_object().unwrap().iter();
    let others = losses.filter(|(name, _)| *name != "memory" && *name != "tasks");
    assert!(
        others.into_iter().all(|(_, count)| *count == 0),
        "{}",
        report["lost"]
    );
    assert!(report.lost("tasks") <= if lost == 0 { 0 } else { THREADS });
    assert_eq!(report.lost("memory"), lost);
    if lost == 0 {
        assert_eq!(report.totals(), truth.into());
    }
    lost
}

/// Two seconds at 50,000 calls a second.
#[test]
fn root_reader_suspended_for_100_000_calls_loses_nothing() {
    assert_eq!(suspended_for(100_000), 0);
}

/// Ten seconds at 50,000 calls a second.
#[test]
fn root_reader_suspended_for_500_000_calls_counts_losses_exactly() {
    assert!(suspended_for(500_000) > 0);
}

#[test]
fn root_stopped_readers_cost_no_memory_event() {
    const INTERVAL: Duration = Duration::from_millis(250);
    let _alone = alone();
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--stacks", "auto", "--top", "5"])
        .interval("250ms")
        .start();
    // They have not been asked about a stack.
    let readers = readers_of(gpuprobe.child.pid());
    assert_eq!(readers.len(), 2, "{readers:?}");
    for &reader in &readers {
        kill(raw(reader), Signal::SIGSTOP).unwrap();
        wait_for("a reader to stop", || {
            (state_of(reader) == Some('T')).then_some(())
        });
    }
    workload.send("race 2 250000 4096");
    assert_reports_come(&gpuprobe, INTERVAL, 4);
    workload.hear();
    workload.say("alloc 4096 10");
    let report = gpuprobe.stop();
    assert_eq!(report.lost("memory"), 0);
    report.assert_holds(workload.pid, 10 * 4096, 10);
    let (totals, truth) = (report.totals(), workload.status());
    assert_eq!(
        (totals.alloc_calls, totals.free_calls),
        (truth.allocs, truth.frees)
    );
}

#[test]
fn root_kill_of_one_tracer_does_not_disturb_another() {
    for kind in ["session", "multi"] {
        let mut workload = Workload::start(Backend::Shared);
        workload.say("freenull");
        let traced = || Setup::pid(workload.pid).args(["--attach", kind]);
        let (mut first, mut second) = (traced().start(), traced().start());
        workload.say("alloc 4096 10");
        let objects = Objects::of_stopped(&first);
        assert!(!objects.links.is_empty() && !objects.maps.is_empty());
        first.child.signal(Signal::SIGKILL);
        workload.say("free 2 5");
        assert_eq!(first.exit_code(), 128 + 9);
        workload.say("alloc 512 3");
        objects.wait_until_gone(crate::harness::DEADLINE);
        workload.say("free 0");
        let report = second.stop();
        report.assert_totals(workload.status());
        report.assert_calls(&[("cudaMalloc", 13)]);
    }
}
