//! File access as the user of a process.

use std::io;

use nix::libc;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::proc::Status;

/// File system credentials of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// File system user id.
    pub uid: u32,
    /// File system group id.
    pub gid: u32,
    /// Supplementary group ids of the user.
    pub groups: Vec<u32>,
}

impl User {
    /// Reads the credentials of process `pid`.
    ///
    /// # Errors
    /// Returns the system's error if the process has exited.
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = Status::of(pid)?;
        let numbers = |name| -> Vec<u32> {
            let field: &str = status.field(name).unwrap_or_default();
            let numbers = field.split_whitespace();
            numbers.filter_map(|number| number.parse().ok()).collect()
        };
        // The last of real, effective, saved and file system id.
        let last = |name| numbers(name).last().copied();
        let missing = || io::Error::other("/proc/PID/status has no user");
        Ok(Self {
            uid: last("Uid").ok_or_else(missing)?,
            gid: last("Gid").ok_or_else(missing)?,
            groups: numbers("Groups"),
        })
    }

    /// Runs `action` with the file system credentials of this user, on this thread only. `None` if
    /// this thread may not change to that user. The supplementary groups stay changed afterwards.
    pub fn act<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        let (own_uid, own_gid) = (Uid::effective(), Gid::effective());
        let is_own = (self.uid, self.gid) == (own_uid.as_raw(), own_gid.as_raw());
        if !is_own {
            set_groups(&self.groups)?;
        }
        setfsgid(Gid::from_raw(self.gid));
        setfsuid(Uid::from_raw(self.uid));
        // Each returns the previous id, and has no effect if it is not permitted.
        let uid = setfsuid(Uid::from_raw(self.uid)).as_raw();
        let gid = setfsgid(Gid::from_raw(self.gid)).as_raw();
        let result = ((uid, gid) == (self.uid, self.gid)).then(action);
        setfsuid(own_uid);
        setfsgid(own_gid);
        result
    }
}

/// Uses the raw system call: the libc function changes all threads.
fn set_groups(groups: &[u32]) -> Option<()> {
    // SAFETY: the pointer is valid for `groups.len()` ids.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    (result == 0).then_some(())
}
