//! gpuprobe is killed while it holds a process at exec or dlopen, and while it traces a command.

use nix::sys::signal::Signal;
use procfs::process::Process;

use crate::harness::child::{children_of, raw, state_of};
use crate::harness::{Backend, Gpuprobe, Setup, standin, wait_for};

/// Whether the process `pid` is stopped at the program's entry.
fn is_held(pid: u32, program: &str) -> bool {
    let path = Process::new(raw(pid).as_raw()).and_then(|process| process.exe());
    state_of(pid) == Some('T') && path.is_ok_and(|path| path.as_os_str() == program)
}

/// A shell runs `last`, a program that gpuprobe has not attached to and so holds; gpuprobe is then
/// killed.
fn killed_while_holding_at_exec(last: &str) {
    let program = standin().program(Backend::Shared).canonicalize().unwrap();
    let program = program.to_str().unwrap();
    let script = last.replace("PROGRAM", program);
    let script = format!("echo ready $$; read -r line; {script}");
    let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
    let shell = gpuprobe.talk.ready();
    let tracer = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(tracer) == Some('T')).then_some(())
    });
    gpuprobe.talk.send("go on");
    let held = wait_for("the program to be held", || {
        let mut all = [shell].into_iter().chain(children_of(shell));
        all.find(|&pid| is_held(pid, program))
    });
    gpuprobe.child.signal(Signal::SIGKILL);
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    assert_eq!(gpuprobe.talk.ready(), held);
    gpuprobe.talk.say("alloc 4096 3");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.live), (3, 3));
}

#[test]
fn root_command_held_at_exec_survives_a_kill_of_gpuprobe() {
    killed_while_holding_at_exec("exec PROGRAM");
}

#[test]
fn root_child_held_at_exec_survives_a_kill_of_gpuprobe() {
    killed_while_holding_at_exec("PROGRAM; exit 0");
}

#[test]
fn root_command_survives_a_kill_of_gpuprobe() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)]).start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("alloc 4096 3");
    gpuprobe.child.signal(Signal::SIGKILL);
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    gpuprobe.talk.say("free 0");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.frees), (3, 1));
}

/// Kills gpuprobe while the process `pid`, which `load`s a library, is held.
pub(crate) fn killed_while_holding(gpuprobe: &mut Gpuprobe, pid: u32, runtime: &str) {
    gpuprobe.child.signal(Signal::SIGSTOP);
    gpuprobe.talk.send(&format!("load {runtime}"));
    wait_for("the process to be held", || {
        (state_of(pid) == Some('T')).then_some(())
    });
    gpuprobe.child.signal(Signal::SIGKILL);
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    assert_eq!(gpuprobe.talk.hear(), "ok", "the reply to load");
    gpuprobe.talk.say("alloc 4096 3");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.live), (3, 3));
}

#[test]
fn root_command_held_at_dlopen_survives_a_kill_of_gpuprobe() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Dlopen)]).start();
    let pid = gpuprobe.talk.ready();
    killed_while_holding(&mut gpuprobe, pid, &standin().runtime());
}

#[test]
fn root_grandchild_held_at_dlopen_survives_a_kill_of_gpuprobe() {
    let script = format!("{}; exit 0", standin().program_text(Backend::Dlopen));
    let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
    let pid = gpuprobe.talk.ready();
    assert_ne!(pid, gpuprobe.child.pid());
    killed_while_holding(&mut gpuprobe, pid, &standin().runtime());
}
