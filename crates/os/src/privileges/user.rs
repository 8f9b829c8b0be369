//! Acting as the user of a process.

use std::io;

use nix::libc;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::proc::Status;

/// The user whose rights a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user id that counts for files.
    pub uid: u32,
    /// The group id that does.
    pub gid: u32,
    /// The other groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Of process `pid`.
    ///
    /// # Errors
    /// Returns the system's error if it has ended.
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = Status::of(pid)?;
        let numbers = |name| -> Vec<u32> {
            let field: &str = status.field(name).unwrap_or_default();
            let numbers = field.split_whitespace();
            numbers.filter_map(|number| number.parse().ok()).collect()
        };
        // Real, effective, saved, of the file system.
        let last = |name| numbers(name).last().copied();
        let missing = || io::Error::other("it has no user");
        Ok(Self {
            uid: last("Uid").ok_or_else(missing)?,
            gid: last("Gid").ok_or_else(missing)?,
            groups: numbers("Groups"),
        })
    }

    /// Does what `action` does to files as this user, on this thread alone. None if this thread may
    /// not become that user. The thread keeps the groups.
    pub fn act<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        let (own_uid, own_gid) = (Uid::effective(), Gid::effective());
        let is_own = (self.uid, self.gid) == (own_uid.as_raw(), own_gid.as_raw());
        if !is_own {
            set_groups(&self.groups)?;
        }
        setfsgid(Gid::from_raw(self.gid));
        setfsuid(Uid::from_raw(self.uid));
        // Each gives what was before, and changes nothing if it may not.
        let uid = setfsuid(Uid::from_raw(self.uid)).as_raw();
        let gid = setfsgid(Gid::from_raw(self.gid)).as_raw();
        let result = ((uid, gid) == (self.uid, self.gid)).then(action);
        setfsuid(own_uid);
        setfsgid(own_gid);
        result
    }
}

/// The system call: the library's function has all threads do it.
fn set_groups(groups: &[u32]) -> Option<()> {
    // SAFETY: the pointer is to as many numbers as are said.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    (result == 0).then_some(())
}
