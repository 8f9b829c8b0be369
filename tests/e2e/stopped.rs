//! Only processes that gpuprobe itself started are ever stopped.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::harness::standin::compiled;
use crate::harness::talk::Talk;
use crate::harness::transcript::Transcript;
use crate::harness::{Backend, OwnCopy, Setup, Workload, host_wide, said, wait_for};

/// A program that starts others and observes whether they are stopped.
pub(crate) fn parent() -> String {
    static PARENT: OnceLock<PathBuf> = OnceLock::new();
    let program = PARENT.get_or_init(|| compiled("parent"));
    program.to_str().unwrap().to_owned()
}

/// How its child gets CUDA: linked with the libraries, or with dlopen.
const WAYS: [Backend; 2] = [Backend::Shared, Backend::Dlopen];

/// Runs a program and libraries that gpuprobe has not attached to, and that are attached to before
/// they exit. Returns the child's PID, and whether it was ever stopped.
fn run_new_program(parent: &mut Talk, stderr: &Transcript, backend: Backend) -> (u32, bool) {
    let copy = OwnCopy::new();
    let folder = TempDir::new().unwrap();
    let input = folder.path().join("input");
    mkfifo(&input, Mode::S_IRWXU).unwrap();
    let program = copy.standin().program_text(backend);
    parent.send(&format!("run {program} {}", input.display()));
    let mut input = OpenOptions::new()
        .read(true)
        .write(true)
        .open(input)
        .unwrap();
    if backend == Backend::Dlopen {
        writeln!(input, "load {}", copy.standin().runtime()).unwrap();
    }
    let path = copy.standin().runtime();
    wait_for("its runtime to be probed", || {
        let said = stderr.so_far();
        let probed = |line: &String| line.contains(&path) && line.ends_with("are probed");
        said.iter().any(probed).then_some(())
    });
    writeln!(input, "alloc 4096 3\nexit 3").unwrap();
    let reply = parent.hear();
    assert_eq!(said(&reply, "status"), "3", "{reply}");
    let pid = said(&reply, "pid").parse().unwrap();
    (pid, said(&reply, "stopped") == "1")
}

/// [`run_new_program`] in every way, by a parent that gpuprobe did not start.
fn nobody_is_stopped(mut parent: Workload, setup: Setup) {
    let mut gpuprobe = setup.env("GPUPROBE_LOG", "info").start();
    let mut children = Vec::new();
    for backend in WAYS {
        let (pid, stopped) = run_new_program(&mut parent, &gpuprobe.stderr, backend);
        assert!(!stopped, "{backend:?}: it was stopped");
        children.push(pid);
    }
    let report = gpuprobe.stop();
    for pid in children {
        report.assert_holds(pid, 3 * 4096, 3);
    }
}

#[test]
fn root_children_of_attached_processes_are_never_stopped() {
    let parent = Workload::spawn(&mut Command::new(parent()));
    let setup = Setup::pid_without_stacks(parent.pid).args(["--children"]);
    nobody_is_stopped(parent, setup);
}

#[test]
fn root_host_wide_stops_no_process() {
    let _shared = host_wide();
    let parent = Workload::spawn(&mut Command::new(parent()));
    nobody_is_stopped(parent, Setup::everything());
}

#[test]
fn root_programs_of_a_command_are_stopped() {
    // The other tests would see it. A process that is resumed before it stops itself never stops,
    // which is equivalent: it has run nothing meanwhile.
    let mut gpuprobe = Setup::command_without_stacks([parent()])
        .env("GPUPROBE_LOG", "info")
        .start();
    gpuprobe.talk.ready();
    for backend in WAYS {
        let is_stopped = |_| run_new_program(&mut gpuprobe.talk, &gpuprobe.stderr, backend).1;
        assert!((0..5).any(is_stopped), "{backend:?}: none was stopped");
    }
}
