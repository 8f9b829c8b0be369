//! Who may have put something where it is.

use std::fs;
use std::io;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, Mode, SFlag, lstat};
use nix::unistd::{Gid, Group, Uid, User};

use super::walk::kind;
use crate::privileges;

/// Whether nobody can have put anything into `folder` but root, we, and the user who called sudo.
pub(super) fn is_ours(folder: &FileStat) -> bool {
    is_of_system(folder) && !is_shared(folder)
}

/// Whether something belongs to root, to us, or to the user who called sudo.
pub(super) fn is_trusted(thing: &FileStat) -> bool {
    let owner = Uid::from_raw(thing.st_uid);
    owner.is_root()
        || owner == Uid::effective()
        || privileges::owner().is_some_and(|(uid, _)| owner == uid)
}

/// Whether something in another user's folder, in which nobody else may write, is that user's.
pub(super) fn is_of_folders_owner(folder: &FileStat, thing: &FileStat) -> bool {
    thing.st_uid == folder.st_uid && !is_shared(folder)
}

/// As [`is_trusted`]. In a container root may be unknown, and all of the machine's be nobody's.
fn is_of_system(folder: &FileStat) -> bool {
    static SYSTEM: OnceLock<Option<u32>> = OnceLock::new();
    let system = *SYSTEM.get_or_init(|| fs::metadata("/").ok().map(|root| root.uid()));
    is_trusted(folder) || system == Some(folder.st_uid)
}

/// Whether others than its owner can put things into a folder.
fn is_shared(folder: &FileStat) -> bool {
    let mode = Mode::from_bits_truncate(folder.st_mode);
    mode.contains(Mode::S_IWOTH)
        || (mode.contains(Mode::S_IWGRP) && !has_private_group(folder.st_uid, folder.st_gid))
}

/// Whether a group is root's, or has one member, who may write there anyway: most systems give each
/// user a group, and leave folders open to it.
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

/// Whether others can put something else in the place of the file `path`, which has no symbolic
/// links in it, or of those beside it whose names are longer by one of `suffixes`.
///
/// # Errors
/// Returns the file system's error.
pub fn can_be_replaced(path: &Path, suffixes: &[&str]) -> io::Result<bool> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    for above in folder.ancestors() {
        let status = lstat(above)?;
        // What is ours in a folder such as `/tmp` is not replaced by others.
        let stays = !is_shared(&status) || status.st_mode & Mode::S_ISVTX.bits() != 0;
        if !is_of_system(&status) || !stays {
            return Ok(true);
        }
    }
    if is_ours(&lstat(folder)?) {
        return Ok(false);
    }
    for suffix in iter::once(&"").chain(suffixes) {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match lstat(&*name) {
            Ok(status) if is_ours_alone(&status) => {}
            // One that is not there yet could be put there just now.
            Ok(_) | Err(Errno::ENOENT) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// A file that is ours and has no other name.
fn is_ours_alone(status: &FileStat) -> bool {
    is_trusted(status) && kind(status) == SFlag::S_IFREG && status.st_nlink == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn folder(uid: u32, gid: u32, mode: u32) -> FileStat {
        let mut status = lstat("/").unwrap();
        (status.st_uid, status.st_gid, status.st_mode) = (uid, gid, SFlag::S_IFDIR.bits() | mode);
        status
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
            assert_eq!(is_ours(&status), expected, "{:o}", status.st_mode);
        }
        // As a container has them that knows no names.
        assert!(has_private_group(54_321, 54_321));
        assert!(!has_private_group(54_321, 54_322));
    }
}
