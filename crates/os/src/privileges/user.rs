//! File access as the user of a process.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::libc;
use nix::unistd::{Gid, Uid, getgroups, setfsgid, setfsuid, setgid, setuid};

use super::{WRITE_ANYWHERE, keep_only_here};
use crate::proc;

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
        let status = proc::status(pid)?;
        Ok(Self {
            uid: status.fuid,
            gid: status.fgid,
            groups: status.groups,
        })
    }

    /// The current user.
    pub fn own() -> Self {
        let groups = getgroups().unwrap_or_default();
        Self {
            uid: Uid::effective().as_raw(),
            gid: Gid::effective().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }

    /// Runs `action` with the file system credentials of this user, on this thread only. `None` if
    /// this thread may not change to that user.
    pub fn act<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        let own = Self::own();
        if (self.uid, self.gid) == (own.uid, own.gid) {
            return Some(action());
        }
        let result = self.assume().then(action);
        own.assume();
        result
    }

    /// Keeps only what this thread needs to create and remove files in `folder` as this user.
    pub fn stay_in(&self, folder: &Path) {
        let is_owner = fs::metadata(folder).is_ok_and(|folder| folder.uid() == self.uid);
        let is_own = self.uid == Uid::effective().as_raw();
        if !is_own {
            self.assume();
        }
        keep_only_here(match is_own && !is_owner {
            true => &[WRITE_ANYWHERE],
            false => &[],
        });
    }

    /// Makes this process the user's, for good: system calls only, no allocation.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn become_for_good(&self) -> io::Result<()> {
        set_groups(&self.groups).ok_or_else(io::Error::last_os_error)?;
        setgid(self.gid.into())?;
        Ok(setuid(self.uid.into())?)
    }

    /// Changes the file system credentials of this thread; returns whether that was permitted.
    fn assume(&self) -> bool {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        if set_groups(&self.groups).is_none() {
            return false;
        }
        setfsgid(gid);
        setfsuid(uid);
        // Each returns the previous id, and has no effect if it is not permitted.
        (setfsuid(uid), setfsgid(gid)) == (uid, gid)
    }
}

/// Uses the raw system call: the libc function changes all threads.
fn set_groups(groups: &[u32]) -> Option<()> {
    // SAFETY: the pointer is valid for `groups.len()` ids.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    (result == 0).then_some(())
}
