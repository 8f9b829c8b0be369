//! Containers: mount namespaces, PID namespaces, roots and cgroups.

use std::fs;
use std::process::Command;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::harness::child::children_of;
use crate::harness::{Backend, Cgroup, OwnCopy, Root, Session, Setup, Truth, Workload, standin};
use crate::versions::replaced_while_mapped;

/// Shell commands that run the workload in PID namespaces, each with its innermost PID.
fn namespaces() -> [(String, u32); 3] {
    let program = standin().program_text(Backend::Shared);
    let unshare = "unshare --pid --fork --mount-proc";
    [
        (format!("{unshare} {program}"), 1),
        (format!("{unshare} sh -c '{program}; exit'"), 2),
        (format!("{unshare} {unshare} sh -c '{program}; exit'"), 2),
    ]
}

/// Copies the stand-in into a mount namespace that only the program can see, and starts it there.
fn hidden_program() -> String {
    let files = standin().path("*");
    let mount = format!("mount -t tmpfs none /mnt && cp {} /mnt", files.display());
    format!("unshare --mount sh -c '{mount} 2>/dev/null; exec /mnt/workload'")
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
fn root_a_command_may_enter_other_namespaces_and_roots() {
    let backends = [Backend::Shared, Backend::Driver, Backend::Dlopen];
    let roots = backends.map(|backend| (backend, Root::new()));
    let in_root =
        |(backend, root): &(Backend, Root)| (root.words(*backend).join(" "), *backend, None);
    let in_namespace = |(words, inner)| (words, Backend::Shared, Some(inner));
    let mut rows: Vec<_> = roots.iter().map(in_root).collect();
    rows.extend(namespaces().map(in_namespace));
    rows.push((hidden_program(), Backend::Shared, None));
    let mut session = Session::start(Setup::without_stacks);
    let ended: Vec<_> = rows
        .into_iter()
        .map(|(words, backend, inner)| {
            let mut member = session.program(&words);
            let outer = innermost(session.gpuprobe.child.pid());
            assert_eq!(member.pid, inner.unwrap_or(outer), "{words}");
            // There the runtime finds no driver, and fails.
            member.play(match backend {
                Backend::Dlopen => "load /libcudart.so.12; alloc 4096 3",
                _ => "alloc 4096 3; free 0",
            });
            session.done(member);
            (outer, inner, backend)
        })
        .collect();
    let (report, truth) = session.end();
    assert_eq!((truth.allocs, truth.failed), (18, 3));
    report.assert_totals(truth);
    report.assert_calls(&[("cuMemAlloc_v2", 3), ("cudaMalloc", 15)]);
    let succeeded = ended
        .into_iter()
        .filter(|(_, _, backend)| *backend != Backend::Dlopen);
    for (outer, inner, backend) in succeeded {
        report.assert_holds(outer, 8192, 2);
        let process = report.process(outer);
        assert_eq!(process["comm"], backend.program());
        assert_eq!(process["container_pid"], json!(inner));
        assert_eq!(process["threads"][0]["tid"], outer);
        // The PID of the container is none of the host's.
        assert!(inner.is_none_or(|inner| report.entries(inner).is_empty()));
    }
}

#[test]
fn root_processes_are_attached_to_wherever_their_files_and_pids_are() {
    let spawn = |words: &str| {
        let words = format!("exec {words}");
        Workload::spawn(Command::new("sh").args(["-c", &words]))
    };
    let root = Root::new();
    let mut workloads = vec![root.start(Backend::Shared), spawn(&hidden_program())];
    workloads.extend(namespaces().map(|(words, _)| spawn(&words)));
    let [(one, _kept), (other, _kept_too)] = [false, true].map(replaced_while_mapped);
    workloads.extend([one, other]);
    // A FIFO at the path under which the kernel shows the deleted library that the process has mapped.
    let copy = OwnCopy::new();
    let runtime = copy.standin().path("libcudart.so.12");
    let mut behind_fifo = Workload::start(Backend::Dlopen);
    behind_fifo.say(&format!("load {}", runtime.display()));
    workloads.push(behind_fifo);
    for workload in &mut workloads {
        workload.say("freenull");
    }
    fs::remove_file(&runtime).unwrap();
    let fifo = runtime.with_file_name("libcudart.so.12 (deleted)");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();

    let pids: Vec<_> = workloads
        .iter()
        .map(|workload| innermost(workload.child.pid()))
        .collect();
    let setup = Setup::pids_without_stacks(pids.iter().copied());
    let mut gpuprobe = setup.args(["-v"]).start();
    // Two of each program, of which the PID namespaces have one.
    assert_eq!(gpuprobe.announced().1, 2 * 6);
    for workload in &mut workloads {
        workload.play("alloc 4096 3; free 0");
    }
    let report = gpuprobe.stop();
    let truths = workloads.iter_mut().map(|workload| workload.status());
    report.assert_totals(truths.fold(Truth::default(), |sum, truth| sum + truth));
    report.assert_calls(&[("cudaMalloc", 24)]);
    for (pid, workload) in pids.into_iter().zip(&workloads) {
        report.assert_holds(pid, 8192, 2);
        let inner = (workload.pid != pid).then_some(workload.pid);
        assert_eq!(report.process(pid)["container_pid"], json!(inner));
    }
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
    let start = |words: &[&str]| {
        let words = cgroup.words(words);
        let mut workload = Workload::spawn(Command::new(&words[0]).args(&words[1..]));
        workload.say("freenull");
        (innermost(workload.child.pid()), workload)
    };
    let namespace = ["unshare", "--pid", "--fork", &program];
    let mut workloads = [(start(&[&program]), None), (start(&namespace), Some(1))];
    let setup = || Setup::pids_without_stacks(workloads.iter().map(|((pid, _), _)| *pid));
    let (mut gpuprobe, mut text) = (setup().start(), setup().format("text").start());
    for ((_, workload), _) in &mut workloads {
        workload.say("alloc 4096");
    }
    let report = gpuprobe.stop();
    text.interrupt();
    text.wait();
    let text = fs::read_to_string(&text.reports).unwrap();
    for ((pid, _), inner) in workloads {
        let process = report.process(pid);
        assert_eq!(process["cgroup"], cgroup.path());
        assert_eq!(process["container"], cgroup.id);
        assert_eq!(process["container_pid"], json!(inner));
        let there = inner.map_or(String::new(), |inner| format!(" (pid {inner})"));
        let id = &cgroup.id[..12];
        let expected = format!("  pid {pid} root  container {id}{there}  ");
        assert!(text.lines().any(|line| line.contains(&expected)), "{text}");
    }
}
