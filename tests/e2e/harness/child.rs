//! Child processes that are killed with their test.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::wait_for;

/// A child in its own process group, which is killed as a whole on drop: this ends the child's
/// descendants as well, stopped or not, even if the child itself has exited.
pub(crate) struct Guarded(Child);

impl Guarded {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        Ok(Self(command.process_group(0).spawn()?))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, to take its streams from.
    pub(crate) fn streams(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Sends a signal to the child alone.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(raw(self.pid()), signal).expect("the child is there to be signalled");
    }

    /// Waits for the child's exit.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let what = format!("the end of process {}", self.pid());
        wait_for(&what, || self.0.try_wait().unwrap())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The group is empty if everything has exited, as it should.
        let _ = killpg(raw(self.pid()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

pub(crate) fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap())
}

/// The exit status as a shell reports it.
pub(crate) fn shell_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The state letter of a process, or `None` if there is none.
pub(crate) fn state_of(pid: u32) -> Option<char> {
    let process = procfs::process::Process::new(raw(pid).as_raw()).ok()?;
    process.stat().ok().map(|stat| stat.state)
}

/// The live children of a process, except gpuprobe's file readers.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let readers = readers_of(pid);
    let mut children = all_children_of(pid);
    children.retain(|child| !readers.contains(child));
    children
}

/// A running gpuprobe that traces every process of the host.
pub(crate) fn host_wide_tracer() -> Option<u32> {
    let mut all = procfs::process::all_processes().unwrap().flatten();
    let tracer = all.find(|process| {
        let attaches = |task: procfs::process::Task| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", task.tid));
            name.is_ok_and(|name| name == "gpuprobe-attach\n")
        };
        let is_limited =
            |word: &String| word == "--" || word.starts_with("-p") || word.starts_with("--pid");
        let mut tasks = process.tasks().into_iter().flatten().flatten();
        let words = process.cmdline();
        tasks.any(attaches) && words.is_ok_and(|words| !words.iter().any(is_limited))
    });
    tracer.map(|process| u32::try_from(process.pid).unwrap())
}

/// The helper processes of a gpuprobe.
pub(crate) fn readers_of(pid: u32) -> Vec<u32> {
    let mut children = all_children_of(pid);
    children.retain(|child| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).nth(1) == Some(b"__helper")
    });
    children
}

fn all_children_of(pid: u32) -> Vec<u32> {
    let all = procfs::process::all_processes().unwrap().flatten();
    all.filter_map(|process| process.stat().ok())
        .filter(|stat| stat.ppid == raw(pid).as_raw())
        .map(|stat| u32::try_from(stat.pid).unwrap())
        .collect()
}
