//! Containers: mount namespaces, PID namespaces and cgroups.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::harness::child::children_of;
use crate::harness::{Backend, Cgroup, Setup, Workload, standin};

/// Runs the workload in PID namespaces; returns its innermost PID.
fn namespaces() -> [(Vec<String>, u32); 3] {
    let program = standin().program_text(Backend::Shared);
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    let second = format!("{program}; exit");
    let words = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect();
    [
        (words(&[&unshare[..], &[&program]].concat()), 1),
        (words(&[&unshare[..], &["sh", "-c", &second]].concat()), 2),
        (
            words(&[&unshare[..], &unshare, &["sh", "-c", &second]].concat()),
            2,
        ),
    ]
}

/// The last descendant of `pid`: the workload.
fn innermost(pid: u32) -> u32 {
    let mut pid = pid;
    while let Some(&child) = children_of(pid).last() {
        pid = child;
    }
    pid
}

#[test]
fn root_pids_are_host_pids_with_the_namespace_pid_beside() {
    for (words, inner) in namespaces() {
        let mut gpuprobe = Setup::command_without_stacks(&words)
            .interval("50ms")
            .start();
        assert_eq!(gpuprobe.talk.ready(), inner);
        let outer = innermost(gpuprobe.child.pid());
        gpuprobe.talk.say("alloc 4096 3");
        gpuprobe.report_where("the process", |r| !r.entries(outer).is_empty());
        gpuprobe.talk.say("free 0");
        let truth = gpuprobe.talk.done();
        assert_eq!(gpuprobe.exit_code(), 0);
        let report = gpuprobe.final_report();
        report.assert_totals(truth);
        report.assert_holds(outer, 8192, 2);
        assert!(report.entries(inner).is_empty(), "an id of the container");
        assert_eq!(report.process(outer)["comm"], "workload");
        assert_eq!(report.process(outer)["container_pid"], inner, "{words:?}");
        assert_eq!(report.process(outer)["threads"][0]["tid"], outer);
    }
}

#[test]
fn root_late_attach_to_a_process_in_a_pid_namespace() {
    for (words, inner) in namespaces() {
        let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
        assert_eq!(workload.pid, inner);
        workload.say("freenull");
        let outer = innermost(workload.child.pid());
        let mut gpuprobe = Setup::pid_without_stacks(outer).start();
        workload.say("alloc 4096 3");
        let report = gpuprobe.stop();
        report.assert_totals(workload.status());
        report.assert_holds(outer, 12_288, 3);
        assert_eq!(report.process(outer)["container_pid"], inner, "{words:?}");
    }
}

#[test]
fn root_processes_of_the_host_namespace_have_one_pid() {
    let mut workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 4096");
    let report = gpuprobe.stop();
    assert_eq!(report.process(workload.pid)["container_pid"], json!(null));
    assert_eq!(report.process(workload.pid)["container"], json!(null));
}

#[test]
fn root_short_lived_processes_have_their_container_too() {
    let cgroup = Cgroup::new();
    let program = standin().program_text(Backend::Shared);
    let script = format!("{program} -c 'alloc 4096; exit' >&2; :");
    let words = cgroup.words(&["unshare", "--pid", "--fork", "sh", "-c", &script]);
    let mut gpuprobe = Setup::command_without_stacks(&words).start();
    let report = gpuprobe.final_report();
    let process = &report["memleak"]["processes"][0];
    assert_eq!(process["live_bytes"], 4096);
    let said = ["container_pid", "cgroup", "container"].map(|key| process[key].clone());
    assert_eq!(said, [json!(2), json!(cgroup.path()), json!(cgroup.id)]);
    let mut gpuprobe = Setup::command_without_stacks(&words)
        .args(["--container", &cgroup.id])
        .start();
    assert_eq!(gpuprobe.final_report()["memleak"]["alloc_calls"], 1);
}

#[test]
fn root_cgroup_and_container_are_reported() {
    let cgroup = Cgroup::new();
    let program = standin().program_text(Backend::Shared);
    let namespace = ["unshare", "--pid", "--fork", &program];
    for (words, inner) in [(&[&program[..]][..], None), (&namespace[..], Some(1))] {
        let words = cgroup.words(words);
        let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
        workload.say("freenull");
        let pid = innermost(workload.child.pid());
        let mut gpuprobe = Setup::pid_without_stacks(pid).start();
        let mut text = Setup::pid_without_stacks(pid).format("text").start();
        workload.say("alloc 4096");
        let report = gpuprobe.stop();
        let process = report.process(pid);
        assert_eq!(process["cgroup"], cgroup.path());
        assert_eq!(process["container"], cgroup.id);
        assert_eq!(process["container_pid"], json!(inner));
        text.interrupt();
        text.wait();
        let text = fs::read_to_string(&text.reports).unwrap();
        let there = inner.map_or(String::new(), |inner| format!(" (pid {inner})"));
        let id = &cgroup.id[..12];
        let expected = format!("  pid {pid} root  container {id}{there}  ");
        assert!(text.lines().any(|line| line.contains(&expected)), "{text}");
    }
}

/// Copies the stand-in into a mount namespace that only the program can see, and starts it there.
fn hidden_program() -> [String; 5] {
    let files = standin().path("*");
    let script = format!(
        "mount -t tmpfs none /mnt && cp {} /mnt 2>/dev/null; exec /mnt/workload",
        files.display()
    );
    ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned)
}

#[test]
fn root_libraries_of_a_private_mount_namespace_are_probed() {
    let words = hidden_program();
    let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
    workload.say("freenull");
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    report.assert_calls(&[("cudaMalloc", 3)]);
}

#[test]
fn root_a_command_may_enter_another_mount_namespace() {
    let mut gpuprobe = Setup::command_without_stacks(hidden_program()).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.talk.say("free 0");
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    report.assert_totals(truth);
    report.assert_holds(pid, 8192, 2);
}
