//! If we are killed while a process of the traced command is held, nobody lets it go on; worse,
//! our death may orphan its process group, and the kernel then hangs up on a group that has a
//! stopped member. So a guard waits outside the group for our end. It keeps one member of the
//! group as its child, by which the group is not orphaned, and lets all traced processes go on.

use std::env;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, getpgrp};

/// The first argument by which our executable is asked to be a guard or its group member.
const ROLE: &str = "__guard";
const MEMBER: &str = "member";
/// What the guard reads when it is not needed any more.
const DONE: u8 = b'd';

/// A waiting guard. It ends when this is dropped, and acts if this vanishes instead.
pub(super) struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard over the processes in the BPF map of traced processes with id `targets`.
    pub(super) fn start(targets: u32) -> Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args([ROLE, &targets.to_string(), &getpgrp().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start the guard")?;
        let input = child.stdin.take();
        // It closes its output once it is ready.
        let mut ready = Vec::new();
        if let Some(mut output) = child.stdout.take() {
            output.read_to_end(&mut ready)?;
        }
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

/// Is a guard, if our executable was started as one.
pub fn guard_if_asked() -> Option<ExitCode> {
    let mut arguments = env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let first = arguments.next()?;
    let outcome = if first == MEMBER {
        wait_for_end().map(|_| ())
    } else {
        let group = arguments.next()?;
        guard(&first, &group)
    };
    Some(outcome.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn guard(targets: &str, group: &str) -> Result<()> {
    ignore_terminal()?;
    let targets = MapHandle::from_map_id(targets.parse()?)?;
    let mut member = Command::new("/proc/self/exe")
        .args([ROLE, MEMBER])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(group.parse()?)
        .spawn()?;
    // Closing the last copy of our output says that we are ready.
    nix::unistd::close(1)?;
    if !wait_for_end()? {
        for key in targets.keys() {
            if let Ok(pid) = key.as_slice().try_into().map(i32::from_ne_bytes) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
        }
    }
    drop(member.stdin.take());
    member.wait()?;
    Ok(())
}

/// Waits until it is said on standard input that all is well, which gives true, or its other end is
/// closed. What is said counts at once: a process that outlives us may have the other end too.
fn wait_for_end() -> Result<bool> {
    ignore_terminal()?;
    let mut said = [0];
    let count = std::io::stdin().read(&mut said)?;
    Ok(count > 0 && said[0] == DONE)
}

/// What the terminal sends is not for us.
fn ignore_terminal() -> Result<()> {
    for ignored in [
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGTERM,
        Signal::SIGTSTP,
    ] {
        // SAFETY: no handler is installed.
        #[allow(unsafe_code)]
        unsafe {
            signal(ignored, SigHandler::SigIgn)?;
        }
    }
    Ok(())
}
