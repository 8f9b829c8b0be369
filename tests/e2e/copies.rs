//! Several copies and names of the CUDA libraries.

use std::fs;
use std::os::unix::fs::symlink;

use crate::harness::report::Totals;
use crate::harness::{Backend, OwnCopy, Setup, Workload, copy_program, standin};

/// Runs the workload of each folder in turn under one tracer.
fn run_in_turn(programs: &[String]) -> crate::harness::Report {
    let script: Vec<_> = programs
        .iter()
        .map(|program| format!("{program} -c 'alloc 4096 3; free 0; exit' >&2"))
        .collect();
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", &script.join(" && ")]).start();
    let report = gpuprobe.final_report();
    assert_eq!(gpuprobe.exit_code(), 0);
    report
}

/// Asserts one of every call for each of `processes` programs.
fn check(report: &crate::harness::Report, processes: u64) {
    report.assert_totals(Totals {
        alloc_calls: 3 * processes,
        free_calls: processes,
        live_bytes: 8192 * processes,
        live_allocations: 2 * processes,
        ..Totals::default()
    });
    report.assert_calls(&[("cudaMalloc", 3 * processes)]);
}

#[test]
fn root_each_copy_of_a_library_is_probed() {
    let (first, second) = (OwnCopy::new(), OwnCopy::new());
    let programs =
        [standin(), first.standin(), second.standin()].map(|s| s.program_text(Backend::Shared));
    check(&run_in_turn(&programs), 3);
}

#[test]
fn root_library_with_several_names_is_probed_once() {
    let copy = OwnCopy::new();
    let hard = OwnCopy::made_with(|original, link| {
        let source = copy
            .standin()
            .path(original.file_name().unwrap().to_str().unwrap());
        fs::hard_link(source, link).unwrap();
    });
    let soft = OwnCopy::made_with(|original, link| {
        let source = copy
            .standin()
            .path(original.file_name().unwrap().to_str().unwrap());
        // A program finds its libraries beside its real path, so the copy has to be here.
        if link.extension().is_some() {
            symlink(source, link).unwrap();
        } else {
            copy_program(source, link);
        }
    });
    let programs = [&copy, &hard, &soft].map(|c| c.standin().program_text(Backend::Shared));
    check(&run_in_turn(&programs), 3);
}

#[test]
fn root_one_process_may_have_two_copies() {
    let copy = OwnCopy::new();
    let mut gpuprobe =
        Setup::command_without_stacks([standin().program_text(Backend::Dlopen)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say(&format!("load {}", standin().runtime()));
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe
        .talk
        .say(&format!("load {}", copy.standin().runtime()));
    gpuprobe.talk.say("alloc 512 2");
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(truth.allocs, 5);
    report.assert_totals(truth);
    report.assert_calls(&[("cudaMalloc", 5)]);
    report.assert_holds(pid, 13_312, 5);
}

#[test]
fn root_a_deleted_library_is_probed() {
    let copy = OwnCopy::new();
    let program = copy.standin().program(Backend::Shared);
    let mut workload = Workload::spawn(&mut std::process::Command::new(program));
    workload.say("freenull");
    copy.delete_files();
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 4096 3");
    workload.say("free 0");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    report.assert_calls(&[("cudaMalloc", 3)]);
    report.assert_holds(workload.pid, 8192, 2);
}
