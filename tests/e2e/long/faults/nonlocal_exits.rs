//! Calls that never return (exceptions, thread exit, cancellation, fork, exec, kill) and the calls
//! after them.

use super::Programs;
use crate::harness::report::{Report, Totals, number};
use crate::harness::{Gpuprobe, Setup};

/// perf-event attach takes seconds: where the BPF code is the same, one mode suffices.
const QUICK: [&str; 2] = ["session", "multi"];
const ALL: [&str; 3] = ["session", "multi", "perf"];

/// The output and exit status of `leave HOW` without tracing.
fn alone(programs: &Programs, how: &str) -> (Vec<String>, Option<i32>) {
    let done = std::process::Command::new(programs.path("leave"))
        .arg(how)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    (
        text.lines().map(str::to_owned).collect(),
        done.status.code(),
    )
}

/// The output and exit status of `leave HOW` with tracing.
fn traced(programs: &Programs, how: &str, kind: &str) -> (Gpuprobe, Vec<String>, i32) {
    let mut gpuprobe = Setup::command([programs.text("leave"), how.to_owned()])
        .args(["--attach", kind])
        .start();
    let code = gpuprobe.exit_code();
    let printed = gpuprobe.talk.to_end();
    (gpuprobe, printed, code)
}

/// Asserts that the program prints `lines` and its last line as it does without tracing, and that
/// `allocations` allocations are counted.
fn check(how: &str, lines: &[&str], kinds: &[&str], allocations: u64, bytes: u64) -> Vec<Report> {
    let programs = Programs::built(&["leave.cc"]);
    let (expected, status) = alone(&programs, how);
    assert_eq!(status, Some(0));
    assert_eq!(expected[..expected.len() - 1], *lines);
    let check = |&kind: &&str| {
        let (mut gpuprobe, printed, code) = traced(&programs, how, kind);
        assert_eq!((&printed, code), (&expected, 0), "{how} with {kind}");
        let report = gpuprobe.final_report();
        report.assert_totals(Totals {
            alloc_calls: allocations,
            live_bytes: bytes,
            live_allocations: allocations,
            ..Totals::default()
        });
        report
    };
    kinds.iter().map(check).collect()
}

#[test]
fn root_exceptions_caught_within_a_call_are_unaffected() {
    check("catch", &[], &ALL, 7, 2 * 10 + 3 * 1000 + 2 * 20);
}

/// The kernel replaces the return address of a probed call with its trampoline, which no unwinder
/// can cross. CUDA functions do not call back, so no exception passes through them. If this test
/// fails because the exceptions are caught, the kernel supports it now and the documentation has to
/// change.
#[test]
fn root_exceptions_through_a_probed_call_are_a_known_limit() {
    let programs = Programs::built(&["leave.cc"]);
    let (printed, status) = alone(&programs, "throw");
    assert_eq!((&printed[0][..], status), ("caught 3", Some(0)));
    for kind in ALL {
        let (mut gpuprobe, printed, code) = traced(&programs, "throw", kind);
        assert_eq!((printed.len(), code), (0, 128 + 6), "{kind}");
        gpuprobe.final_report().assert_nothing_lost();
    }
}

/// Three threads exit within a call; after each, a new thread gets the same TID.
fn check_threads(how: &str, kinds: &[&str]) {
    let bytes = 2 * 10 + 3 * 100 + 3 * 200 + 2 * 20;
    for report in check(how, &["its id again"; 3], kinds, 2 + 2 * 3 + 2, bytes) {
        // Their calls never returned: results are unknown.
        assert_eq!(number(&report["memleak"], "failed_calls"), 0);
    }
}

#[test]
fn root_thread_exit_within_a_call_disturbs_nothing() {
    check_threads("exit", &ALL);
    check_threads("end", &QUICK);
}

#[test]
fn root_thread_cancelled_within_a_call_exits() {
    check_threads("cancel", &QUICK);
}

#[test]
fn root_fork_within_a_call_returns_twice() {
    // The call counts once and returned in the parent; the child's calls are its own.
    check(
        "fork",
        &["end fork"],
        &QUICK,
        2 + 1 + 2 + 2,
        2 * 10 + 1000 + 2 * 2 * 20,
    );
}

#[test]
fn root_exec_within_a_call_starts_a_new_entry() {
    check("exec", &[], &QUICK, 2 + 2 + 2, 2 * 10 + 2 * 10 + 2 * 20);
}

#[test]
fn root_process_killed_within_a_call_keeps_its_live_memory() {
    let programs = Programs::built(&["leave.cc"]);
    for kind in QUICK {
        let (mut gpuprobe, printed, code) = traced(&programs, "die", kind);
        assert_eq!((printed.len(), code), (0, 128 + 9));
        gpuprobe.final_report().assert_totals(Totals {
            alloc_calls: 2,
            live_bytes: 20,
            live_allocations: 2,
            ..Totals::default()
        });
    }
}
