//! The user who ran gpuprobe through sudo or pkexec.

use std::env;
use std::ffi::{CString, OsString};
use std::sync::LazyLock;

use anyhow::Result;
use nix::unistd::{Gid, Uid, User as Entry, getgrouplist};

use super::User;

impl User {
    /// Finds the user who ran gpuprobe, from the variables that sudo and pkexec set; `None` if gpuprobe does not
    /// run as root through one of them. With all groups: GPU device files are often accessible to one of them.
    ///
    /// # Errors
    /// Returns the system's error if the user or its groups cannot be looked up.
    pub fn invoker() -> Result<Option<Self>> {
        let Some((uid, gid)) = ids() else {
            return Ok(None);
        };
        let entry = Entry::from_uid(uid.into())?;
        let gid = gid.or_else(|| Some(entry.as_ref()?.gid.as_raw()));
        let gid = gid.unwrap_or(uid);
        let groups = match entry {
            Some(entry) => getgrouplist(&CString::new(entry.name)?, gid.into())?,
            None => vec![gid.into()],
        };
        let groups = groups.into_iter().map(Gid::as_raw).collect();
        Ok(Some(Self { uid, gid, groups }))
    }

    /// Variables that sudo has set to root's values, with the values for the user.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let entry = |uid: u32| Entry::from_uid(uid.into()).ok().flatten();
        let (Some(user), Some(root)) = (entry(self.uid), entry(0)) else {
            return Vec::new();
        };
        let values = |entry: &Entry| -> [(&'static str, OsString); 5] {
            [
                ("USER", (&entry.name).into()),
                ("LOGNAME", (&entry.name).into()),
                ("HOME", (&entry.dir).into()),
                ("SHELL", (&entry.shell).into()),
                ("MAIL", format!("/var/mail/{}", entry.name).into()),
            ]
        };
        let all = values(&root).into_iter().zip(values(&user));
        all.filter(|((name, of_root), _)| env::var_os(name).as_ref() == Some(of_root))
            .map(|(_, of_user)| of_user)
            .collect()
    }
}

/// User and, if present, group.
fn ids() -> Option<(u32, Option<u32>)> {
    let id = |name| env::var(name).ok()?.parse().ok();
    let (uid, gid) = match id("SUDO_UID") {
        Some(uid) => (uid, id("SUDO_GID")),
        None => (id("PKEXEC_UID")?, None),
    };
    (uid != 0 && Uid::effective().is_root()).then_some((uid, gid))
}

/// The user who ran gpuprobe through sudo or pkexec, as whom it writes files.
pub fn invoker() -> Option<&'static User> {
    static INVOKER: LazyLock<Option<User>> = LazyLock::new(|| {
        let found = User::invoker().inspect_err(|error| tracing::warn!("{error:#}"));
        found.unwrap_or_default()
    });
    INVOKER.as_ref()
}
