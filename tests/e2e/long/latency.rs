//! Delay until a library that is opened during tracing is attached to.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::child::Guarded;
use crate::harness::report::number;
use crate::harness::talk::Talk;
use crate::harness::{Backend, Family, OwnCopy, Setup, alone, host_wide, standin};

/// A pair of calls each millisecond, for a second and a half.
const PACE: &str = "pace 2000 1.5 64";

/// The design limit is a fifth of this; a busy machine needs the margin.
const BOUND_MS: u64 = 1000;

/// Prints the number of missed calls on standard error, and asserts that it is small.
#[allow(clippy::print_stderr)]
fn check(what: &str, made: u64, seen: u64) {
    let missed = made.saturating_sub(seen);
    eprintln!("{what}: {missed} of {made} pairs were missed, one each millisecond");
    assert!(seen > 0 && seen <= made, "{what}: {seen} of {made}");
    assert!(missed < BOUND_MS, "{what}: {missed} ms");
}

/// Opens a library in a workload of the name `what` and calls it at once; checks the number of
/// calls that a tracer missed.
fn measure(what: &str, setup: impl FnOnce(u32) -> Setup, before: &[String], library: &str) {
    let program = standin().program(Backend::Dlopen);
    let family = Family::of(&program, &format!("exec @{what}"));
    let mut workload = family.member(what);
    before
        .iter()
        .for_each(|command| drop(workload.say(command)));
    let mut gpuprobe = setup(workload.pid).start();
    let start = workload.status();
    workload.send(&format!("load {library}"));
    workload.say_next(PACE);
    let made = workload.status().allocs - start.allocs;
    // From here on no call is missed.
    workload.say("alloc 12345 7");
    let report = gpuprobe.stop();
    report.assert_nothing_lost_of([workload.pid]);
    let found = report.allocations(workload.pid);
    assert_eq!(found.iter().filter(|a| a["bytes"] == 12_345).count(), 7);
    let calls = &report["memleak"]["calls"];
    check(what, made, number(calls, "cudaMalloc") - 7);
}

#[test]
fn root_second_library_of_a_process_is_probed_soon() {
    let copy = OwnCopy::new();
    let before = [format!("load {}", standin().runtime()), "freenull".into()];
    measure(
        "another_library",
        Setup::pid,
        &before,
        &copy.standin().runtime(),
    );
}

#[test]
fn root_library_is_probed_soon_with_children() {
    let library = standin().runtime();
    let setup = |pid| Setup::pid_without_stacks(pid).args(["--children"]);
    measure("with_children", setup, &[], &library);
}

#[test]
fn root_library_is_probed_soon_host_wide() {
    let _shared = host_wide();
    let copy = OwnCopy::new();
    let library = copy.standin().runtime();
    let setup = |_| Setup::everything().args(["--comm", "everything"]);
    measure("everything", setup, &[], &library);
}

/// A program that changes its mappings continuously, 200 MB at a time, and so has to be rescanned
/// each time.
fn noisy(folder: &Path) -> Guarded {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/programs/noisy.c");
    let program = folder.join("noisy");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-ldl");
    assert!(cc.status().expect("cc can be run").success());
    let deep = folder.join([["x"; 250].concat().as_str(); 15].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let file = deep.join("file");
    fs::write(&file, [0; 4096]).unwrap();
    let mut command = Command::new(&program);
    command.arg(&file).arg("50000").stdout(Stdio::piped());
    let mut child = Guarded::spawn(&mut command).unwrap();
    assert_eq!(Talk::new(&mut child).hear(), "ready");
    child
}

#[test]
fn root_library_is_probed_soon_beside_a_process_that_remaps_constantly() {
    let _alone = alone();
    let folder = TempDir::new().unwrap();
    let _noisy = noisy(folder.path());
    let copy = OwnCopy::new();
    let library = copy.standin().runtime();
    let setup = |_| Setup::everything().args(["--comm", "attention"]);
    measure("attention", setup, &[], &library);
}

#[test]
fn root_a_command_misses_nothing_after_it_opens_a_library() {
    let copies: Vec<_> = (0..6).map(|_| OwnCopy::new()).collect();
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Dlopen)]).start();
    let talk = &mut gpuprobe.talk;
    talk.ready();
    for (round, copy) in copies.iter().enumerate() {
        let load = format!("load {}", copy.standin().runtime());
        if round % 2 == 0 {
            talk.send(&load);
            talk.say_next("alloc 64 50");
        } else {
            // On another thread.
            talk.say(&format!("thread t{round}"));
            talk.send(&format!("@t{round} {load}"));
            talk.say_next(&format!("@t{round} alloc 64 50"));
        }
    }
    let truth = talk.done();
    assert_eq!(truth.allocs, 300);
    gpuprobe.final_report().assert_totals(truth);
}
