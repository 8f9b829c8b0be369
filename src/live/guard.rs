//! The guard process, which resumes held processes if gpuprobe is killed. Otherwise they would stay
//! stopped; worse, gpuprobe's death may orphan the command's process group, and the kernel sends SIGHUP to
//! an orphaned group with a stopped member. The guard waits outside of the group for gpuprobe's end. A
//! child of the guard is a member of the group, which is therefore not orphaned.

use std::env;
use std::io::{self, Read, Write};
use std::iter;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::ptr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{bpf_map_delete_elem, bpf_map_get_next_key};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp};

use gpuprobe_os::confined;
use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{BPF, SIGNAL};

/// The first argument with which the executable becomes the guard or its group member.
const ROLE: &str = "__guard";
const MEMBER: &str = "member";
/// Written to the guard when it is no longer needed.
const DONE: u8 = b'd';
/// Maximum number of processes that are taken out of the map of targets, which may grow meanwhile.
const MAX_TARGETS: usize = 1 << 17;
/// Pauses before the process are resumed again: a stop signal in flight has arrived after the first, or
/// on a very busy machine after the second.
const ON_THE_WAY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// A running guard. It ends when this is dropped, and acts if its input closes without that.
pub(super) struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard for the processes in `targets`, the BPF map of traced processes, which is its standard error:
    /// opening a map by its id takes `CAP_SYS_ADMIN`.
    pub(super) fn start(targets: BorrowedFd<'_>) -> Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args([ROLE, &getpgrp().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(targets.try_clone_to_owned()?)
            .process_group(0)
            .spawn()
            .context("cannot start the guard")?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.write_all(&[DONE]);
        }
        let _ = self.child.wait();
    }
}

/// Runs as the guard or its group member if the first argument is `__guard`; else returns `None`.
pub fn guard_if_asked() -> Option<ExitCode> {
    let mut arguments = env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let first = arguments.next()?;
    let outcome = if first == MEMBER {
        privileges::keep_only(&[]).and_then(|()| wait_for_end().map(|_| ()))
    } else {
        guard(&first)
    };
    Some(outcome.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn guard(group: &str) -> Result<()> {
    confined::ignore_signals()?;
    let mut member = Command::new("/proc/self/exe")
        .args([ROLE, MEMBER])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(group.parse()?)
        .spawn()?;
    privileges::keep_only(&[BPF, SIGNAL])?;
    if !wait_for_end()? {
        resume_held(io::stderr().as_fd());
    }
    drop(member.stdin.take());
    member.wait()?;
    Ok(())
}

/// Resumes all traced processes for good. The kernel removes the probes of a killed process after it
/// closes this process's input, but stops no process that is not in the map.
fn resume_held(targets: BorrowedFd<'_>) {
    // Children forked meanwhile are among them.
    let all: Vec<_> = iter::from_fn(|| take(targets)).take(MAX_TARGETS).collect();
    let resume = || {
        for &pid in &all {
            let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
        }
    };
    resume();
    for pause in ON_THE_WAY {
        sleep(pause);
        resume();
    }
}

/// Takes a process out of the map, if there is one.
fn take(targets: BorrowedFd<'_>) -> Option<i32> {
    let mut pid = 0i32;
    let map = targets.as_raw_fd();
    // SAFETY: the keys of the map are as long as this one.
    #[allow(unsafe_code)]
    unsafe {
        let found = bpf_map_get_next_key(map, ptr::null(), (&raw mut pid).cast());
        bpf_map_delete_elem(map, (&raw const pid).cast());
        (found == 0).then_some(pid)
    }
}

/// Waits for [`DONE`] on standard input, which gives true, or for its end. `DONE` counts at once: a
/// process that outlives gpuprobe may hold the other end too.
fn wait_for_end() -> Result<bool> {
    confined::ignore_signals()?;
    let mut said = [0];
    let count = io::stdin().read(&mut said)?;
    Ok(count > 0 && said[0] == DONE)
}
