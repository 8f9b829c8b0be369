//! gpuprobe is killed at every stage of a run. Nothing of it stays in the kernel, the traced
//! program goes on unharmed, and the recording can be read.

pub(crate) mod command;
pub(crate) mod stage;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::harness::breakpoints::is_unprobed;
use crate::harness::gpuprobe::BINARY;
use crate::harness::{Backend, Objects, OwnCopy, Setup, Workload, wait_within};
use crate::rounds;
use stage::{KilledTracer, Stage, count};

/// Timeout of removing perf-event uprobes.
const REMOVAL: Duration = Duration::from_secs(300);

/// Attempts at a stage that is over too soon on a busy machine.
const TRIES: usize = 20;

/// Allocations whose report exceeds the capacity of a pipe.
const ALLOCATIONS: u64 = 5000;

/// Asserts that the recording, if any, is consistent; that of a run that traced can be read.
fn check_recording(file: &Path, traced: bool) {
    if !file.exists() {
        assert!(!traced, "there is a recording");
        return;
    }
    let database = rusqlite::Connection::open(file).unwrap();
    let check: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let report = Command::new(BINARY).arg("report").arg(file).output();
    let report = report.unwrap();
    let said = String::from_utf8_lossy(&report.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert!(report.status.success() || !traced, "{said}");
}

/// Waits until a process has no breakpoints. A process that is killed while it removes probes
/// leaves some behind: the kernel does not change code for an exiting process. The next tracer
/// removes those.
fn wait_until_unprobed(pid: u32, kind: &str, stage: Stage) {
    if stage == Stage::Ending {
        let next = Setup::pid(pid).args(["--attach", kind, "--api", "driver"]);
        next.start().stop();
    }
    wait_within(REMOVAL, "the breakpoints to go", || {
        is_unprobed(pid).then_some(())
    });
}

/// Runs `round`, which kills one gpuprobe and returns whether that was in its stage, until enough
/// were. `all` is the number of hits with every round enabled.
fn until_hit(stage: Stage, all: usize, mut round: impl FnMut(usize) -> bool) {
    let wanted = rounds(all);
    let mut tried = 0;
    let mut hit = 0;
    while hit < wanted {
        assert!(tried < wanted * TRIES, "{stage:?}: only {hit} of {tried}");
        hit += usize::from(round(tried));
        tried += 1;
    }
}

/// Kills one gpuprobe at each of the stages, this many times.
pub(crate) fn killed_at(kind: &str, stages: &[(Stage, usize)]) {
    let copy = OwnCopy::for_attach(kind);
    let folder = TempDir::new().unwrap();
    let mut workload = Workload::of(&copy, Backend::Shared);
    workload.say("alloc 512 20000");
    let mut allocations = 20_000;
    for &(stage, wanted) in stages {
        until_hit(stage, wanted, |round| {
            let recording = folder.path().join(format!("{stage:?}{round}.sqlite"));
            let setup = Setup::pid(workload.pid)
                .args(["--attach", kind, "--api", "driver", "--record"])
                .args([recording.to_str().unwrap()]);
            let mut doomed = KilledTracer::spawn(setup, stage);
            doomed.reach(
                |_| {
                    workload.say(&format!("alloc 64 {ALLOCATIONS}"));
                    allocations += ALLOCATIONS;
                },
                |doomed| doomed.gpuprobe.interrupt(),
            );
            let objects = doomed.stop();
            doomed.kill();
            workload.say("alloc 4096 10");
            allocations += 10;
            let (was_in, traced) = doomed.wait(&objects);
            wait_until_unprobed(workload.pid, kind, stage);
            check_recording(&recording, traced);
            assert_eq!(workload.status().allocs, allocations, "{stage:?}");
            was_in
        });
    }
    let truth = workload.done();
    assert_eq!((truth.failed, truth.frees), (0, 0));
}

/// The number of its links, programs and maps after attaching.
fn all_objects(kind: &str) -> usize {
    let copy = OwnCopy::for_attach(kind);
    let workload = Workload::of(&copy, Backend::Shared);
    let traced = Setup::pid(workload.pid).args(["--attach", kind, "--api", "driver"]);
    let mut gpuprobe = traced.start();
    let all = count(&Objects::of(gpuprobe.child.pid()));
    gpuprobe.stop();
    all
}

/// Kills one gpuprobe at each of the moments, in percent of all of its objects. More than half of these are maps,
/// then a few are programs, then links: one for each function with perf events.
pub(crate) fn killed_while_it_starts(kind: &str, moments: &[usize]) {
    let all = all_objects(kind);
    let stages = moments
        .iter()
        .map(|&part| (Stage::Starting(all * part / 100), 1));
    killed_at(kind, &stages.collect::<Vec<_>>());
}

#[test]
fn root_killed_at_any_stage_it_leaves_nothing() {
    killed_while_it_starts("session", &[95, 50]);
    let stages = [
        Stage::Tracing,
        Stage::Reporting,
        Stage::LastReport,
        Stage::Ending,
    ];
    killed_at("session", &stages.map(|stage| (stage, 1)));
}
