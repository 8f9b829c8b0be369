//! What happens to gpuprobe while it traces: it is suspended, killed beside another one, and its
//! clock is set.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::Programs;
use crate::harness::child::state_of;
use crate::harness::report::number;
use crate::harness::{Backend, Objects, Setup, Workload, alone, standin, wait_for};

/// Suspends the reader for a while under a load of 50,000 calls a second, and gives what was lost.
fn suspended_for(pause: Duration) -> u64 {
    let _alone = alone();
    let stressor = standin().path("stressor").to_str().unwrap().to_owned();
    let options = ["--throughput", "50000", "--threads", "2", "--duration", "0"];
    let words = [stressor].into_iter().chain(options.map(str::to_owned));
    let mut gpuprobe = Setup::command(words).interval("50ms").start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.report_where("calls", |report| report.totals().alloc_calls > 5000);
    let reader = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(reader) == Some('T')).then_some(())
    });
    // This is the fault, and not a wait for something.
    sleep(pause);
    gpuprobe.child.signal(Signal::SIGCONT);
    gpuprobe.next_report();
    gpuprobe.next_report();
    nix::sys::signal::kill(crate::harness::child::raw(pid), Signal::SIGTERM).unwrap();
    let truth: Value = serde_json::from_str(&gpuprobe.talk.hear()).unwrap();
    let report = gpuprobe.final_report();
    let totals = report.totals();
    let lost = report.lost("memory");
    assert_eq!(
        totals.alloc_calls + totals.free_calls + lost,
        number(&truth, "calls")
    );
    let others: u64 = report["lost"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "memory")
        .map(|(_, count)| count.as_u64().unwrap())
        .sum();
    assert_eq!(others, 0, "{}", report["lost"]);
    if lost == 0 {
        assert_eq!(totals.live_allocations, number(&truth, "live"));
    }
    lost
}

#[test]
fn root_a_short_suspension_under_load_loses_nothing() {
    assert_eq!(suspended_for(Duration::from_secs(2)), 0);
}

/// `cargo test --test e2e -- --ignored suspension`
#[test]
#[ignore = "ten seconds of nothing: the full ring is in `losses`"]
fn root_a_suspension_of_ten_seconds_under_load_is_counted_exactly() {
    assert!(suspended_for(Duration::from_secs(10)) > 0);
}

#[test]
fn root_the_death_of_one_tracer_does_not_disturb_another() {
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

fn time_of(text: &Value) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text.as_str().unwrap()).unwrap()
}

#[test]
fn root_a_step_of_the_clock_moves_no_event() {
    const DAY_S: i64 = 86_400;
    let programs = Programs::built(&["clock_step.c"]);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("step");
    let step = |seconds: i64| fs::write(&file, seconds.to_string()).unwrap();
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let recording = folder.path().join("run.sqlite");
    step(0);
    let mut gpuprobe = Setup::pid(workload.pid)
        .env("LD_PRELOAD", &programs.text("clock_step"))
        .env("CLOCK_STEP", file.to_str().unwrap())
        .interval("50ms")
        .args(["--record", recording.to_str().unwrap()])
        .start();
    let begun = time_of(&gpuprobe.next_report()["time"]);
    // Each step, ahead and back, comes between two allocations.
    for seconds in [0, DAY_S, -DAY_S] {
        step(seconds);
        workload.say("alloc 4096");
        // Reports go on, and say when they were made by the clock as it is.
        gpuprobe.report_where("the step", |report| {
            let ahead = time_of(&report["time"]) - begun;
            (seconds - 60..=seconds + 60).contains(&ahead.num_seconds())
        });
        gpuprobe.next_report();
    }
    workload.say("free 0");
    let last = gpuprobe.stop();
    last.assert_totals(workload.status());
    // What was seen keeps its time, by the clock as it was when tracing began.
    for allocation in last.allocations(workload.pid) {
        let after = time_of(&allocation["time"]) - begun;
        assert!((-1..60).contains(&after.num_seconds()), "{allocation}");
    }
    let connection = rusqlite::Connection::open(&recording).unwrap();
    let mut rows = connection
        .prepare("SELECT start FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY rowid")
        .unwrap();
    let starts: Vec<i64> = rows
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(starts.len(), 4);
    assert!(starts.is_sorted(), "{starts:?}");
    assert!(starts[3] - starts[0] < 60_000_000_000, "{starts:?}");
}
