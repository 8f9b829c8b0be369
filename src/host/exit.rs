//! Whether a process has exited.

use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::process::ProcessHandle;

/// A process whose exit is waited for.
#[derive(Debug)]
pub struct AwaitedProcess {
    process: ProcessHandle,
    /// It stays with the process, and tells in one system call whether all its threads have exited. `None` if the
    /// system gives none, or the process had exited.
    pidfd: Option<OwnedFd>,
}

impl AwaitedProcess {
    /// Begins to wait for `process`.
    pub fn new(process: ProcessHandle) -> Self {
        let pid = Pid::from_raw(process.pid.cast_signed());
        let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self {
            // The id was not reused if the process is alive once there is a descriptor.
            pidfd: pidfd.filter(|_| process.is_alive()),
            process,
        }
    }

    /// Whether it has exited; false if that cannot be read.
    pub fn has_exited(&self) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return !self.process.is_alive();
        };
        let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|exited| exited > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_exit_is_seen_with_and_without_a_descriptor() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = ProcessHandle::of(child.id()).unwrap();
        let with = AwaitedProcess::new(process);
        let without = AwaitedProcess {
            process,
            pidfd: None,
        };
        assert!(with.pidfd.is_some());
        assert!(!with.has_exited() && !without.has_exited());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(with.has_exited() && without.has_exited());
        let late = AwaitedProcess::new(process);
        assert!(late.pidfd.is_none() && late.has_exited());
    }
}
