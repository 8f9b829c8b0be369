//! gpuprobe is killed at every stage of a run. Nothing of it stays in the kernel, the traced program
//! goes on unharmed, and what was recorded can be read.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::killed::has_breakpoints;
use crate::harness::gpuprobe::BINARY;
use crate::harness::{
    Backend, Gpuprobe, Objects, OwnCopy, Setup, Workload, alone, wait_for, wait_within,
};

/// Removing perf-event uprobes takes long.
const REMOVAL: Duration = Duration::from_secs(300);

/// A moment at which gpuprobe is killed.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// When it has so many links, programs and maps in the kernel.
    Having(usize),
    /// When it says that it traces.
    Tracing,
    /// So long after a report was begun of very many allocations.
    Reporting(Duration),
    /// So long after it was told to end.
    Ending(Duration),
}

/// Busy, so that the moments are spread evenly.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn objects_of(gpuprobe: &Gpuprobe) -> usize {
    let objects = Objects::of(gpuprobe.child.pid());
    objects.links.len() + objects.programs.len() + objects.maps.len()
}

/// Whether it says that it traces.
fn traces(gpuprobe: &Gpuprobe) -> bool {
    let said = gpuprobe.stderr.so_far();
    said.iter().any(|l| l.starts_with("gpuprobe: tracing"))
}

fn reach(stage: Stage, gpuprobe: &Gpuprobe) {
    match stage {
        Stage::Having(count) => wait_for("gpuprobe to go on", || {
            (objects_of(gpuprobe) >= count || traces(gpuprobe)).then_some(())
        }),
        Stage::Tracing => drop(gpuprobe.stderr.line_starting("gpuprobe: tracing")),
        Stage::Reporting(after) => {
            gpuprobe.stderr.line_starting("gpuprobe: tracing");
            wait_for("a report", || {
                let length = gpuprobe.reports.metadata().map_or(0, |file| file.len());
                (length > 0).then_some(())
            });
            spin(after);
        }
        Stage::Ending(after) => {
            gpuprobe.stderr.line_starting("gpuprobe: tracing");
            gpuprobe.interrupt();
            spin(after);
        }
    }
}

/// What there is of a recording is whole; one of a run that traced can be read.
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

/// Kills one gpuprobe at each of the stages.
fn killed_at(kind: &str, stages: &[Stage]) {
    let _alone = alone();
    let copy = OwnCopy::new();
    let folder = TempDir::new().unwrap();
    let mut workload = Workload::spawn(&mut Command::new(copy.standin().program(Backend::Shared)));
    workload.say("alloc 512 20000");
    let mut attached = 0;
    for (round, &stage) in stages.iter().enumerate() {
        let recording = folder.path().join(format!("{round}.sqlite"));
        let before = workload.status();
        let mut gpuprobe = Setup::pid(workload.pid)
            .interval("5ms")
            .args(["--attach", kind, "--api", "driver", "--record"])
            .args([recording.to_str().unwrap()])
            .spawn();
        if matches!(stage, Stage::Reporting(_)) {
            gpuprobe.stderr.line_starting("gpuprobe: tracing");
            workload.say("alloc 64 5000");
        }
        reach(stage, &gpuprobe);
        let objects = Objects::of_stopped(&gpuprobe);
        attached += usize::from(!objects.links.is_empty());
        let traced = traces(&gpuprobe);
        gpuprobe.child.signal(Signal::SIGKILL);
        workload.say("alloc 4096 10");
        wait_within(REMOVAL, "the end of gpuprobe", || {
            gpuprobe.child.streams().try_wait().unwrap()
        });
        objects.wait_until_gone(REMOVAL);
        wait_within(REMOVAL, "the breakpoints to go", || {
            (!has_breakpoints(workload.pid)).then_some(())
        });
        check_recording(&recording, traced);
        let after = workload.status();
        let reported = if matches!(stage, Stage::Reporting(_)) {
            5000
        } else {
            0
        };
        assert_eq!(after.allocs - before.allocs, 10 + reported, "{stage:?}");
    }
    assert!(attached > 0, "none of them had attached anything");
    let truth = workload.done();
    assert_eq!((truth.failed, truth.frees), (0, 0));
}

/// Moments, so far apart.
fn moments(count: u32, step: Duration) -> impl Iterator<Item = Duration> {
    (0..count).map(move |n| step * n)
}

#[test]
fn root_killed_while_it_starts_and_attaches_it_leaves_nothing() {
    // It begins with some twenty maps, then come a few programs, then links: with perf events one
    // for each function.
    let few: &[usize] = &[0, 10, 21, 27, 30, 32, 34, 36];
    for (kind, counts) in [("session", few), ("multi", &few[4..]), ("perf", &[40])] {
        let stages: Vec<_> = counts.iter().copied().map(Stage::Having).collect();
        killed_at(kind, &stages);
    }
}

#[test]
fn root_killed_while_it_traces_and_reports_it_leaves_nothing() {
    let stages = moments(4, Duration::from_millis(10)).map(Stage::Reporting);
    let stages: Vec<_> = [Stage::Tracing].into_iter().chain(stages).collect();
    killed_at("session", &stages);
}

#[test]
fn root_killed_while_it_ends_it_leaves_nothing() {
    // With perf events what is left to do takes so long that `killed` has it.
    for (kind, count) in [("session", 5), ("multi", 3)] {
        let stages = moments(count, Duration::from_millis(100) / count).map(Stage::Ending);
        killed_at(kind, &stages.collect::<Vec<_>>());
    }
}
