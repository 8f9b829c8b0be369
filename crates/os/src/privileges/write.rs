//! Rights to make and remove files in a folder, once others are given up.

use nix::sys::stat::FileStat;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use super::{WRITE_ANYWHERE, keep_only_here, owner};

/// Rights to make and remove files in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteRights {
    /// None: it is our own.
    Own,
    /// To do so as the user who called sudo.
    As(Uid, Gid),
    /// To override the rights of its owner.
    Anywhere,
}

impl WriteRights {
    /// The rights for `folder`.
    pub fn in_folder(folder: &FileStat) -> Self {
        Self::decide(folder.st_uid, folder.st_mode, Uid::effective(), owner())
    }

    fn decide(uid: u32, mode: u32, we: Uid, invoker: Option<(Uid, Gid)>) -> Self {
        let is_open = mode & 0o003 == 0o003;
        match invoker {
            // Others than root have no rights to give up that help.
            _ if !we.is_root() || uid == 0 => Self::Own,
            // Where it is sticky, only the owner of a file may remove that.
            Some((user, group)) if user.as_raw() == uid || is_open => Self::As(user, group),
            None if is_open => Self::Own,
            _ => Self::Anywhere,
        }
    }

    /// Has this thread give up all others.
    pub fn take_on(self) {
        if let Self::As(uid, gid) = self {
            // Of this thread only, and of its dealings with files only.
            setfsgid(gid);
            setfsuid(uid);
        }
        let kept: &[_] = match self {
            Self::Anywhere => &[WRITE_ANYWHERE],
            _ => &[],
        };
        keep_only_here(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_the_owner_of_the_folder() {
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
