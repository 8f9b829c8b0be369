//! gpuprobe is killed while it holds a process at exec or dlopen, and while it traces a command.

use nix::sys::signal::Signal;
use procfs::process::Process;

use crate::harness::child::{raw, state_of};
use crate::harness::{Backend, Gpuprobe, Setup, standin, wait_for};

/// Whether the process `pid` is stopped at the program's entry.
fn is_held(pid: u32, program: &str) -> bool {
    let path = Process::new(raw(pid).as_raw()).and_then(|process| process.exe());
    state_of(pid) == Some('T') && path.is_ok_and(|path| path.as_os_str() == program)
}

/// A shell becomes a program that gpuprobe has not attached to and so holds; gpuprobe is then killed.
#[test]
fn root_command_held_at_exec_survives_a_kill_of_gpuprobe() {
    let program = standin().program(Backend::Shared).canonicalize().unwrap();
    let program = program.to_str().unwrap();
    let script = format!("echo ready $$; read -r line; exec {program}");
    let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
    let pid = gpuprobe.talk.ready();
    let tracer = gpuprobe.child.pid();
    gpuprobe.child.signal(Signal::SIGSTOP);
    wait_for("gpuprobe to stop", || {
        (state_of(tracer) == Some('T')).then_some(())
    });
    gpuprobe.talk.send("go on");
    wait_for("the program to be held", || {
        is_held(pid, program).then_some(())
    });
    gpuprobe.child.signal(Signal::SIGKILL);
    assert_eq!(gpuprobe.exit_code(), 128 + 9);
    assert_eq!(gpuprobe.talk.ready(), pid);
    gpuprobe.talk.say("alloc 4096 3");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.live), (3, 3));
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
