//! PID reuse.

use std::process::Command;

use super::Programs;
use crate::harness::report::number;
use crate::harness::{Backend, OwnCopy, Report, Setup, Truth, Workload, standin};

/// Bytes of the programs with this PID, sorted.
fn held(report: &Report, pid: u32) -> Vec<u64> {
    let entries = report.entries(pid).into_iter();
    let mut held: Vec<_> = entries.map(|p| number(p, "live_bytes")).collect();
    held.sort_unstable();
    held
}

#[test]
fn root_pid_reuse_gives_separate_process_entries() {
    let programs = Programs::built(&["reuse.c"]);
    let workload = standin().program_text(Backend::Shared);
    let words = [&programs.text("reuse"), "4", &workload].map(str::to_owned);
    let mut gpuprobe = Setup::command(words).start();
    let pid = gpuprobe.talk.ready();
    let mut truth = Truth::default();
    for round in 1..=4 {
        if round > 1 {
            assert_eq!(gpuprobe.talk.ready(), pid, "the id again");
        }
        gpuprobe.talk.say(&format!("alloc {} 3", round * 1000));
        gpuprobe.talk.say("free 0");
        truth = truth + gpuprobe.talk.done();
    }
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    assert_eq!(held(&report, pid), [2000, 4000, 6000, 8000]);
}

#[test]
fn root_process_with_a_reused_pid_is_not_traced() {
    let programs = Programs::built(&["reuse.c"]);
    for kind in ["session", "perf"] {
        let copy = OwnCopy::for_attach(kind);
        let workload = copy.standin().program(Backend::Shared);
        let mut reuse = Command::new(programs.path("reuse"));
        let mut talk = Workload::spawn(reuse.arg("2").arg(workload));
        let pid = talk.pid;
        let mut gpuprobe = Setup::pid(pid).args(["--attach", kind]).start();
        talk.say("alloc 4096 3");
        let truth = talk.done();
        assert_eq!(talk.ready(), pid, "the id again");
        talk.say("alloc 512 5");
        assert_eq!(gpuprobe.exit_code(), 0, "the end of the first is ours");
        gpuprobe.final_report().assert_totals(truth);
        assert_eq!(talk.done().allocs, 5);
    }
}
