//! If we are killed while a process of the traced command is held, nobody lets it go on; worse,
//! our death may orphan its process group, and the kernel then hangs up on a group that has a
//! stopped member. So a guard waits outside the group for our end. It keeps one member of the
//! group as its child, by which the group is not orphaned, and lets all traced processes go on.

use std::env;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{bpf_map_delete_elem, bpf_map_get_next_key};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, getpgrp};

use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{BPF, SIGNAL};

/// The first argument by which our executable is asked to be a guard or its group member.
const ROLE: &str = "__guard";
const MEMBER: &str = "member";
/// What the guard reads when it is not needed any more.
const DONE: u8 = b'd';
/// How often the targets are emptied at most, while there are new ones.
const ROUNDS: u32 = 1000;
/// What was on its way to stop a process has arrived after the first of these, or where the machine
/// is very busy after the second.
const ON_THE_WAY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];

/// A waiting guard. It ends when this is dropped, and acts if this vanishes instead.
pub(super) struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard over the processes in `targets`, the BPF map of traced processes. It inherits
    /// that: to open one by its id takes `CAP_SYS_ADMIN`.
    pub(super) fn start(targets: BorrowedFd<'_>) -> Result<Self> {
        // A copy of ours, which is not to be closed at exec.
        let targets = targets.try_clone_to_owned()?;
        let inherit = || FcntlArg::F_SETFD(FdFlag::empty());
        let number = targets.as_raw_fd();
        let mut command = Command::new("/proc/self/exe");
        // SAFETY: it makes one system call.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || {
                fcntl(&targets, inherit())?;
                Ok(())
            });
        }
        let mut child = command
            .args([ROLE, &number.to_string(), &getpgrp().to_string()])
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
        privileges::keep_only(&[]).and_then(|()| wait_for_end().map(|_| ()))
    } else {
        let group = arguments.next()?;
        guard(&first, &group)
    };
    Some(outcome.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn guard(targets: &str, group: &str) -> Result<()> {
    ignore_terminal()?;
    let number: RawFd = targets.parse()?;
    // SAFETY: whoever started us left it open for us, and nobody else here knows of it.
    #[allow(unsafe_code)]
    let targets = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&targets, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let mut member = Command::new("/proc/self/exe")
        .args([ROLE, MEMBER])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(group.parse()?)
        .spawn()?;
    // Closing the last copy of our output says that we are ready.
    nix::unistd::close(1)?;
    privileges::keep_only(&[BPF, SIGNAL])?;
    if !wait_for_end()? {
        let_go(&targets);
    }
    drop(member.stdin.take());
    member.wait()?;
    Ok(())
}

/// Lets all traced processes go on, for good: the kernel removes the probes of one that was killed
/// later than it closes our input, but stops nothing that is no target any more.
fn let_go(targets: &OwnedFd) {
    let mut all = Vec::new();
    // Those that were being born meanwhile are in the next.
    for _ in 0..ROUNDS {
        let some = keys(targets);
        if some.is_empty() {
            break;
        }
        for pid in &some {
            // SAFETY: the keys of the map are as long as this one.
            #[allow(unsafe_code)]
            unsafe {
                bpf_map_delete_elem(targets.as_raw_fd(), (&raw const *pid).cast());
            }
        }
        all.extend(some);
    }
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

/// The keys of a map of process ids.
fn keys(targets: &OwnedFd) -> Vec<i32> {
    let mut keys: Vec<i32> = Vec::new();
    loop {
        let mut next = 0i32;
        let before = keys
            .last()
            .map_or(std::ptr::null(), |last| &raw const *last);
        // SAFETY: the keys of the map are as long as these.
        #[allow(unsafe_code)]
        let result = unsafe {
            bpf_map_get_next_key(targets.as_raw_fd(), before.cast(), (&raw mut next).cast())
        };
        // A map that changes meanwhile may begin again.
        if result != 0 || keys.contains(&next) {
            return keys;
        }
        keys.push(next);
    }
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
