//! Detaching.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{fork, getpid, getppid, pause};

use super::attach::AT_A_TIME;
use super::load::Probe;

impl Probe {
    /// Stops holding processes from now on.
    pub fn stop_holding(&mut self) {
        if let Ok(bss) = self.bss() {
            bss.ending = 1;
        }
    }

    /// Detaches all probes. The rings can still be read.
    pub fn detach(&mut self) {
        // Each removal waits for a grace period; parallel removals share it.
        let mut links = std::mem::take(&mut self.links);
        let share = links.len().div_ceil(AT_A_TIME).max(1);
        std::thread::scope(|scope| {
            while !links.is_empty() {
                let some = links.split_off(links.len().saturating_sub(share));
                scope.spawn(move || drop(some));
            }
        });
    }

    /// Detaches all probes at the exit of this process, or soon after if that is slow: removing a
    /// perf-event uprobe takes the kernel 100 ms, even in parallel.
    pub fn detach_at_exit(&mut self) {
        if !self.kind.is_one_by_one() {
            self.detach();
        } else if let Err(error) = leave_descriptors_behind() {
            tracing::debug!("detaching before the exit: {error:#}");
            self.detach();
        }
    }
}

/// Leaves the descriptors to a child that the kernel kills after the exit of this process, which then does
/// not wait for their close.
fn leave_descriptors_behind() -> Result<()> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let own_pid = getpid();
    // SAFETY: the threads that attach have ended, and the child makes a few system calls only.
    #[allow(unsafe_code)]
    let forked = unsafe { fork() }.context("cannot fork")?;
    if forked.is_parent() {
        return Ok(());
    }
    // Readers of the output must see its end.
    let _ = nix::unistd::dup2_stdin(null.as_fd());
    let _ = nix::unistd::dup2_stdout(null.as_fd());
    let _ = nix::unistd::dup2_stderr(null.as_fd());
    let _ = nix::unistd::setsid();
    if prctl::set_pdeathsig(Signal::SIGKILL).is_ok() {
        while getppid() == own_pid {
            pause();
        }
    }
    std::process::exit(0);
}
