//! gpuprobe is killed while it holds a process that has executed another program.

use nix::sys::signal::Signal;
use procfs::process::Process;

use crate::harness::child::{children_of, raw, state_of};
use crate::harness::{Backend, Setup, standin, wait_for};

/// Whether the process `pid` is stopped at the start of the program.
fn is_held(pid: u32, program: &str) -> bool {
    let path = Process::new(raw(pid).as_raw()).and_then(|process| process.exe());
    state_of(pid) == Some('T') && path.is_ok_and(|path| path.as_os_str() == program)
}

/// A shell does `last` with a program that gpuprobe has not seen yet, and so holds; then it is
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
fn root_a_command_that_is_held_at_exec_survives_us() {
    killed_while_holding_at_exec("exec PROGRAM");
}

#[test]
fn root_a_child_that_is_held_at_exec_survives_us() {
    killed_while_holding_at_exec("PROGRAM; exit 0");
}

#[test]
fn root_no_child_stays_stopped_when_we_are_killed() {
    let (program, runtime) = (standin().program_text(Backend::Dlopen), standin().runtime());
    let child = format!("{program} -c 'load {runtime}; exit' >/dev/null");
    // At any moment some are held, and more are about to be.
    let script = format!(
        "echo ready $$; while read -r line; do echo begun; \
         for i in 1 2 3 4 5 6 7 8; do (for j in 1 2 3 4 5 6 7 8; do {child}; done) & done; \
         wait; echo ended; done"
    );
    for round in 0..20 {
        let mut gpuprobe = Setup::command(["sh", "-c", &script]).start();
        let shell = gpuprobe.talk.ready();
        gpuprobe.talk.send("go on");
        assert_eq!(gpuprobe.talk.hear(), "begun");
        wait_for("children", || {
            (children_of(shell).len() > round % 8).then_some(())
        });
        gpuprobe.child.signal(Signal::SIGKILL);
        assert_eq!(gpuprobe.exit_code(), 128 + 9);
        assert_eq!(gpuprobe.talk.hear(), "ended", "all of them have gone on");
    }
}
