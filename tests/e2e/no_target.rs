//! Runs that trace nothing: the message names what did not match, and the exit status is distinct.

use std::process::Command;

use crate::harness::child::Guarded;
use crate::harness::gpuprobe::NOTHING;
use crate::harness::{Backend, Setup, Workload, standin};

/// The messages of a run of `setup` about having traced nothing, and its exit status.
fn ending(setup: Setup, commands: &[&str]) -> (Option<String>, i32) {
    let mut gpuprobe = setup.start();
    for command in commands {
        gpuprobe.talk.send(command);
    }
    gpuprobe.talk.close();
    let status = gpuprobe.exit_code();
    let said = gpuprobe.said();
    let why = |line: &String| {
        let why = line.strip_prefix("gpuprobe: nothing was traced: ");
        why.map(str::to_owned)
    };
    (said.iter().find_map(why), status)
}

#[test]
fn root_command_without_cuda_traces_nothing() {
    let script = |script: &str| Setup::command_without_stacks(["sh", "-c", script]);
    // The command's own failure has priority.
    let why = "sh never loaded CUDA (libcuda, libcudart)".to_owned();
    assert_eq!(ending(script("exit 7"), &[]), (Some(why), 7));
    // A child that loads CUDA is enough, even without a call.
    let child = script(&format!(
        "{}; exit",
        standin().program_text(Backend::Driver)
    ));
    assert_eq!(ending(child, &["exit"]), (None, 0));
}

/// The messages about the other options are checked in `src/live/empty_run.rs`.
#[test]
fn root_unmatched_selection_is_named() {
    let workload = |options: &[&str]| {
        let setup = Setup::workload(Backend::Static).without_stacks();
        let setup = setup.args(options.iter().copied());
        ending(setup, &["alloc 4096", "exit"])
    };
    let why = "no process meets --container nope (seen: workload_static)".to_owned();
    let expected = (Some(why), NOTHING);
    assert_eq!(workload(&["--container", "nope"]), expected);
    let why = "libcudart is not loaded (programs may have it linked in); use --api auto".to_owned();
    assert_eq!(workload(&["--api", "runtime"]), (Some(why), NOTHING));
    let options = "--api driver --comm workload_static --uid 0";
    let options: Vec<_> = options.split(' ').collect();
    assert_eq!(workload(&options), (None, 0));
}

#[test]
fn root_process_without_cuda_traces_nothing() {
    let mut sleeps = Guarded::spawn(Command::new("sleep").arg("1")).unwrap();
    let pid = sleeps.pid();
    let why = format!("process {pid} never loaded CUDA (libcuda, libcudart)");
    assert_eq!(
        ending(Setup::pid_without_stacks(pid), &[]),
        (Some(why), NOTHING)
    );
    sleeps.wait();
    // A process with CUDA loaded could have been traced.
    let mut idle = Workload::start(Backend::Shared);
    let setup = Setup::pid_without_stacks(idle.pid).args(["--duration", "100ms"]);
    assert_eq!(ending(setup, &[]), (None, 0));
    idle.say("exit");
}
