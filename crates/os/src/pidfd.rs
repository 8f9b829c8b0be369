//! Descriptors of processes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A descriptor of a process (`pidfd_open`(2)): its id may be reused, the descriptor stays with the process.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// Opens one of the process whose id is `pid` now.
    ///
    /// # Errors
    /// Returns the system's error, or `InvalidInput` if `pid` cannot be an id.
    pub fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether all threads of the process have exited; one system call.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn has_exited(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_has_exited_before_it_is_waited_for() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = Pidfd::open(child.id()).unwrap();
        assert!(!pidfd.has_exited().unwrap());
        drop(child.stdin.take());
        let mut polled = [PollFd::new(pidfd.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::NONE).unwrap();
        assert!(pidfd.has_exited().unwrap());
        child.wait().unwrap();
        assert!(pidfd.has_exited().unwrap());
    }

    #[test]
    fn ids_that_cannot_be_are_errors() {
        for pid in [0, u32::MAX] {
            let error = Pidfd::open(pid).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
