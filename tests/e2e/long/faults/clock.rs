//! Steps of the wall clock during tracing.

use std::fs;
use std::path::PathBuf;

use chrono::{DateTime, FixedOffset};
use serde_json::Value;

use super::Programs;
use crate::harness::report::{list, number};
use crate::harness::{Backend, Setup, Workload, wait_for};

fn time_of(text: &Value) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text.as_str().unwrap()).unwrap()
}

const DAY_S: i64 = 86_400;

/// A wall clock that can be set.
struct Steps {
    programs: Programs,
    file: PathBuf,
}

impl Steps {
    fn new() -> Self {
        let programs = Programs::built(&["clock_step.c"]);
        let file = programs.path("step");
        let steps = Self { programs, file };
        steps.set(0);
        steps
    }

    /// Makes `setup` use this clock.
    fn of(&self, setup: Setup) -> Setup {
        setup
            .env("LD_PRELOAD", &self.programs.text("clock_step"))
            .env("CLOCK_STEP", self.file.to_str().unwrap())
            .interval("50ms")
    }

    /// Steps the clock to `seconds` ahead of the real one.
    fn set(&self, seconds: i64) {
        fs::write(&self.file, seconds.to_string()).unwrap();
    }
}

/// Whether a report was made this long after `begun`, by the clock's current offset.
fn is_ahead(report: &Value, begun: DateTime<FixedOffset>, seconds: i64) -> bool {
    let ahead = time_of(&report["time"]) - begun;
    (seconds - 60..=seconds + 60).contains(&ahead.num_seconds())
}

#[test]
fn root_a_step_of_the_clock_moves_no_event() {
    let steps = Steps::new();
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let recording = steps.programs.path("run.sqlite");
    let mut gpuprobe = steps
        .of(Setup::pid(workload.pid))
        .modes(["--memleak", "--bandwidth-util"])
        .args(["--record", recording.to_str().unwrap()])
        .start();
    let begun = time_of(&gpuprobe.next_report()["time"]);
    // Each step, forward and back, is between two allocations.
    for seconds in [0, DAY_S, -DAY_S] {
        steps.set(seconds);
        workload.say("alloc 4096");
        workload.say("copy h2d 1048576 2");
        // Reports go on and are stamped with the current clock.
        gpuprobe.report_where("the step", |report| is_ahead(report, begun, seconds));
        gpuprobe.next_report();
    }
    workload.say("free 0");
    let last = gpuprobe.stop();
    let truth = workload.status();
    last.assert_totals(truth);
    // Events keep their time by the clock as it was at the start.
    for allocation in last.allocations(workload.pid) {
        let after = time_of(&allocation["time"]) - begun;
        assert!((-1..60).contains(&after.num_seconds()), "{allocation}");
    }
    let copies = last.direction(workload.pid, "H2D", "sync");
    assert_eq!(copies["calls"], 6);
    let seconds = copies["seconds"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&seconds), "{copies}");
    let connection = rusqlite::Connection::open(&recording).unwrap();
    let mut rows = connection
        .prepare("SELECT start FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY rowid")
        .unwrap();
    let starts: Vec<i64> = rows
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(starts.len() as u64, truth.allocs + truth.frees);
    assert!(starts.is_sorted(), "{starts:?}");
    let took = starts.last().unwrap() - starts[0];
    assert!(took < 60_000_000_000, "{starts:?}");
}

#[test]
fn root_a_step_of_the_clock_makes_nothing_older_or_younger() {
    let steps = Steps::new();
    for (seconds, older_than, is_listed) in [(DAY_S, "1h", false), (-DAY_S, "100ms", true)] {
        steps.set(0);
        let mut workload = Workload::start(Backend::Shared);
        workload.say("freenull");
        let gpuprobe = steps
            .of(Setup::pid(workload.pid))
            .args(["--older-than", older_than])
            .start();
        let begun = time_of(&gpuprobe.next_report()["time"]);
        workload.say("alloc 4096");
        steps.set(seconds);
        // Matching allocations of the live process in each report since the step.
        let listed = || -> Vec<usize> {
            let text = fs::read_to_string(&gpuprobe.reports).unwrap();
            let whole = text.rsplit_once('\n').unwrap_or_default().0;
            let reports = whole
                .lines()
                .map(|line| serde_json::from_str(line).unwrap());
            let stepped = reports.filter(|report| is_ahead(report, begun, seconds));
            let living = |r: &Value| number(&r["memleak"], "live_allocations") == 1;
            let threads = stepped
                .filter(living)
                .map(|mut r: Value| r["memleak"]["processes"][0]["threads"][0].take());
            threads
                .map(|thread| list(&thread, "allocations").len())
                .collect()
        };
        wait_for("an allocation by its age", || {
            let listed = listed();
            let expected = usize::from(is_listed);
            (listed.len() > 3 && listed.last() == Some(&expected)).then_some(())
        });
        assert!(is_listed || listed().iter().all(|&count| count == 0));
    }
}
