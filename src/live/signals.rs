//! Signal handling and forwarding.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{self, Pid};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};

/// Signals that end a session.
pub(super) struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl StopSignals {
    pub(super) fn install() -> Result<Self> {
        let install = |kind| signal(kind).context("cannot handle signals");
        Ok(Self {
            interrupt: install(SignalKind::interrupt())?,
            terminate: install(SignalKind::terminate())?,
            hangup: install(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.hangup.recv() => Signal::SIGHUP,
        }
    }
}

/// Forwards a signal to the command, unless the terminal sent it to the whole process group.
pub(super) fn pass_on(signal: Signal, child: &Child) {
    let from_terminal = signal != Signal::SIGTERM
        && unistd::tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == unistd::getpgrp());
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let (false, Some(pid)) = (from_terminal, pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}
