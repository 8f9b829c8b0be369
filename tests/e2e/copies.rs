//! Several copies and names of the CUDA libraries.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::harness::report::Totals;
use crate::harness::standin::Standin;
use crate::harness::{Backend, OwnCopy, Setup, Workload, copy_program, standin};

#[test]
fn root_each_copy_of_a_library_is_probed_once_whatever_its_names() {
    let (copy, other) = (OwnCopy::new(), OwnCopy::new());
    let file = |original: &Path| {
        let name = original.file_name().unwrap().to_str().unwrap();
        copy.standin().path(name)
    };
    let hard = OwnCopy::made_with(|original, link| fs::hard_link(file(original), link).unwrap());
    let soft = OwnCopy::made_with(|original, link| {
        let source = file(original);
        // A program finds its libraries beside its real path, so the copy has to be here.
        if link.extension().is_some() {
            symlink(source, link).unwrap();
        } else {
            copy_program(source, link);
        }
    });
    let copies = [&copy, &other, &hard, &soft].map(OwnCopy::standin);
    let all = copies.into_iter().chain([standin()]);
    let run = |standin: &Standin| {
        let program = standin.program_text(Backend::Shared);
        format!("{program} -c 'alloc 4096 3; free 0; exit' >&2")
    };
    let script = all.map(run).collect::<Vec<_>>().join(" && ");
    let mut gpuprobe = Setup::command_without_stacks(["sh", "-c", &script]).start();
    let report = gpuprobe.final_report();
    assert_eq!(gpuprobe.exit_code(), 0);
    report.assert_totals(Totals {
        alloc_calls: 3 * 5,
        free_calls: 5,
        live_bytes: 8192 * 5,
        live_allocations: 2 * 5,
        ..Totals::default()
    });
    report.assert_calls(&[("cudaMalloc", 3 * 5)]);
}

#[test]
fn root_a_deleted_library_is_probed() {
    let copy = OwnCopy::new();
    let program = copy.standin().program(Backend::Shared);
    let mut workload = Workload::spawn(&mut std::process::Command::new(program));
    workload.say("freenull");
    copy.delete_files();
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.play("alloc 4096 3; free 0");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    report.assert_calls(&[("cudaMalloc", 3)]);
    report.assert_holds(workload.pid, 8192, 2);
}
