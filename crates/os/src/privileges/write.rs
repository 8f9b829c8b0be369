//! Permission to create and remove files in a directory after dropping capabilities.

use nix::sys::stat::FileStat;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::{WRITE_ANYWHERE, keep_only_here, owner};

/// Credentials needed to create and remove files in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRights {
    /// The current user's own permissions are sufficient.
    Own,
    /// File system ids of the user who called sudo.
    As(Uid, Gid),
    /// The capabilities [`WRITE_ANYWHERE`](super::WRITE_ANYWHERE).
    Anywhere,
}

impl WriteRights {
    /// Credentials needed for `folder`.
    pub fn in_folder(folder: &FileStat) -> Self {
        Self::decide(folder.st_uid, folder.st_mode, Uid::effective(), owner())
    }

    fn decide(uid: u32, mode: u32, we: Uid, invoker: Option<(Uid, Gid)>) -> Self {
        let is_open = mode & 0o003 == 0o003;
        match invoker {
            // Users other than root have no capabilities for this.
            _ if !we.is_root() || uid == 0 => Self::Own,
            // In a sticky directory, only the owner of a file may remove it.
            Some((user, group)) if user.as_raw() == uid || is_open => Self::As(user, group),
            None if is_open => Self::Own,
            _ => Self::Anywhere,
        }
    }

    /// Applies the credentials to this thread and drops all other capabilities.
    pub fn apply(self) {
        if let Self::As(uid, gid) = self {
            // Affects this thread's file access only.
            setfsgid(gid);
            setfsuid(uid);
        }
        keep_only_here(match self {
            Self::Anywhere => &[WRITE_ANYWHERE],
            Self::Own | Self::As(..) => &[],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_the_owner_of_the_directory() {
        let root = Uid::from_raw(0);
        let user = (Uid::from_raw(1000), Gid::from_raw(100));
        let as_user = WriteRights::As(user.0, user.1);
        for (uid, mode, invoker, expected) in [
            (0, 0o755, Some(user), WriteRights::Own),
            (0, 0o1777, Some(user), WriteRights::Own),
            (1000, 0o700, Some(user), as_user),
            (1000, 0o700, None, WriteRights::Anywhere),
            (1001, 0o755, Some(user), WriteRights::Anywhere),
            (1001, 0o1777, Some(user), as_user),
            (1001, 0o1777, None, WriteRights::Own),
        ] {
            let rights = WriteRights::decide(uid, mode, root, invoker);
            assert_eq!(rights, expected, "{uid} {mode:o}");
        }
        let nobody = Uid::from_raw(65_534);
        assert_eq!(
            WriteRights::decide(1000, 0o777, nobody, None),
            WriteRights::Own
        );
    }
}
