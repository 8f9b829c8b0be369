//! Trust in the content of directories, by ownership and permissions.

use std::fs;
use std::io;
use std::iter;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, lstat};
use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::getxattr;

use super::walk::kind;
use crate::privileges;

/// Extended attribute of an access control list (`acl(5)`).
const ACL: &str = "system.posix_acl_access";

/// Ownership and permissions of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folder {
    status: FileStat,
    /// It has an access control list: users may be named in it, and the group permissions of the
    /// mode are the upper limit for all of them.
    has_acl: bool,
}

impl Folder {
    /// Reads the status of the open directory.
    ///
    /// # Errors
    /// Returns the file system's error.
    pub(super) fn of(folder: &OwnedFd) -> io::Result<Self> {
        // The list cannot be read through an `O_PATH` descriptor.
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(Self {
            status: fstat(folder)?,
            has_acl: has_acl(path.as_ref()),
        })
    }

    /// Reads the status of `path`, which is not a symbolic link.
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self {
            status: lstat(path)?,
            has_acl: has_acl(path),
        })
    }

    /// Whether only root, gpuprobe's user and the user who called sudo can have created its
    /// entries.
    pub(super) fn is_ours(&self) -> bool {
        is_of_system(&self.status) && !self.is_shared()
    }

    /// Whether `thing` is owned by the directory's owner and only the owner can write to the
    /// directory.
    pub(super) fn has_for_owner(&self, thing: &FileStat) -> bool {
        thing.st_uid == self.status.st_uid && !self.is_shared()
    }

    /// Whether users other than the owner can create entries.
    fn is_shared(&self) -> bool {
        let Self { status, has_acl } = self;
        let mode = Mode::from_bits_truncate(status.st_mode);
        let is_of_one = || !has_acl && has_private_group(status.st_uid, status.st_gid);
        mode.contains(Mode::S_IWOTH) || (mode.contains(Mode::S_IWGRP) && !is_of_one())
    }
}

/// Whether `path` has an access control list; `true` if that cannot be determined.
fn has_acl(path: &Path) -> bool {
    use rustix::io::Errno;
    let mut none: [u8; 0] = [];
    let found = getxattr(path, ACL, &mut none);
    !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Whether a file is owned by root, gpuprobe's user or the user who called sudo.
pub(super) fn is_trusted(thing: &FileStat) -> bool {
    let owner = Uid::from_raw(thing.st_uid);
    owner.is_root()
        || owner == Uid::effective()
        || privileges::owner().is_some_and(|(uid, _)| owner == uid)
}

/// As [`is_trusted`], for directories: in a container, root of the host may be unmapped, so that
/// its directories appear to belong to the overflow user.
fn is_of_system(folder: &FileStat) -> bool {
    static SYSTEM: OnceLock<Option<u32>> = OnceLock::new();
    let system = *SYSTEM.get_or_init(|| fs::metadata("/").ok().map(|root| root.uid()));
    is_trusted(folder) || system == Some(folder.st_uid)
}

/// Whether a group is root's or has its owner as the only member: most systems give each user a
/// private group and make directories writable for it.
fn has_private_group(owner: u32, gid: u32) -> bool {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    let invoker = privileges::owner().map(|(uid, _)| uid);
    let mut users = [Some(Uid::from_raw(owner)), Some(Uid::effective()), invoker]
        .into_iter()
        .flatten();
    gid == 0
        || users.any(|uid| match (User::from_uid(uid).ok().flatten(), &group) {
            (Some(user), Some(group)) => {
                let mut members = group.mem.iter();
                group.name == user.name && members.all(|member| *member == user.name)
            }
            _ => uid.as_raw() == gid,
        })
}

/// Whether other users can replace the file `path`, which contains no symbolic links, or one of the
/// files with `suffixes` appended to the name.
///
/// # Errors
/// Returns the file system's error.
pub fn can_be_replaced(path: &Path, suffixes: &[&str]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    for above in folder.ancestors() {
        let above = Folder::at(above)?;
        // In a sticky directory, for example `/tmp`, other users cannot replace trusted files.
        let is_sticky = above.status.st_mode & Mode::S_ISVTX.bits() != 0;
        let stays = !above.is_shared() || is_sticky;
        if !is_of_system(&above.status) || !stays {
            return Ok(true);
        }
    }
    if Folder::at(folder)?.is_ours() {
        return Ok(false);
    }
    for suffix in iter::once(&"").chain(suffixes) {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match lstat(&*name) {
            Ok(status) if is_ours_alone(&status) => {}
            // A missing file could be created at any time.
            Ok(_) | Err(Errno::ENOENT) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Whether it is a trusted regular file without hard links.
fn is_ours_alone(status: &FileStat) -> bool {
    is_trusted(status) && kind(status) == SFlag::S_IFREG && status.st_nlink == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(uid: u32, gid: u32, mode: u32) -> Folder {
        let mut status = lstat("/").unwrap();
        (status.st_uid, status.st_gid, status.st_mode) = (uid, gid, SFlag::S_IFDIR.bits() | mode);
        let has_acl = false;
        Folder { status, has_acl }
    }

    /// A list that gives user 65,534 all permissions of owner and group.
    fn list_with_nobody() -> Vec<u8> {
        const OWNER: u16 = 1;
        const USER: u16 = 2;
        const GROUP: u16 = 4;
        const MASK: u16 = 16;
        const OTHERS: u16 = 32;
        let nobody = 65_534;
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in [
            (OWNER, 7u16, u32::MAX),
            (USER, 7, nobody),
            (GROUP, 0, u32::MAX),
            (MASK, 7, u32::MAX),
            (OTHERS, 0, u32::MAX),
        ] {
            list.extend(tag.to_le_bytes());
            list.extend(permissions.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        list
    }

    #[test]
    fn an_access_control_list_makes_a_folder_shared() {
        use rustix::fs::{XattrFlags, setxattr};
        let made = tempfile::tempdir().unwrap();
        let opened: OwnedFd = fs::File::open(made.path()).unwrap().into();
        let is_ours = || {
            let both = [
                Folder::of(&opened).unwrap(),
                Folder::at(made.path()).unwrap(),
            ];
            both.map(|folder| folder.is_ours())
        };
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(is_ours(), [true; 2]);
        setxattr(made.path(), ACL, &list_with_nobody(), XattrFlags::empty()).unwrap();
        assert_eq!(fs::metadata(made.path()).unwrap().mode() & 0o777, 0o770);
        assert_eq!(is_ours(), [false; 2]);
        assert!(can_be_replaced(&made.path().join("file"), &[]).unwrap());
        // Without the group's write permission, no user in the list has it.
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(is_ours(), [true; 2]);
    }

    #[test]
    fn a_group_of_one_does_not_make_a_folder_shared() {
        let we = Uid::effective().as_raw();
        for (status, expected) in [
            (folder(0, 0, 0o755), true),
            (folder(0, 0, 0o775), true),
            (folder(0, 0, 0o1777), false),
            (folder(0, 0, 0o757), false),
            (folder(we, 54_321, 0o755), true),
            (folder(we, 54_321, 0o775), false),
            (folder(we, 54_321, 0o1775), false),
            (folder(54_321, 54_321, 0o700), false),
        ] {
            let mode = status.status.st_mode;
            assert_eq!(status.is_ours(), expected, "{mode:o}");
        }
        // As in a container without names of groups.
        assert!(has_private_group(54_321, 54_321));
        assert!(!has_private_group(54_321, 54_322));
    }
}
