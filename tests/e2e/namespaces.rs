//! Programs in containers, which see other files and other process ids than we do.

use std::process::Command;

use crate::harness::report::Totals;
use crate::harness::{Backend, Setup, Workload, standin};

/// Copies the stand-in to where only the program itself can see it, and starts it there.
fn hidden_program() -> [String; 5] {
    let files = standin().path("*");
    let script = format!(
        "mount -t tmpfs none /mnt && cp {} /mnt 2>/dev/null; exec /mnt/workload",
        files.display()
    );
    ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned)
}

#[test]
fn root_libraries_that_only_the_process_can_see_are_probed() {
    let words = hidden_program();
    let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    report.assert_calls(&[("cudaMalloc", 3)]);
}

#[test]
fn root_a_command_may_enter_another_mount_namespace() {
    let mut gpuprobe = Setup::command(hidden_program()).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.talk.say("free 0");
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    report.assert_holds(pid, 8192, 2);
}

#[test]
fn root_process_ids_are_ours() {
    let program = standin().program_text(Backend::Shared);
    let mut gpuprobe = Setup::command(["unshare", "--pid", "--fork", &program]).start();
    assert_eq!(gpuprobe.talk.ready(), 1);
    gpuprobe.talk.say("alloc 4096 3");
    let truth = gpuprobe.talk.done();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_totals(Totals::from(truth));
    assert!(report.entries(1).is_empty());
    assert_eq!(report["memleak"]["processes"][0]["comm"], "workload");
}
