//! Path resolution that follows only trusted symbolic links.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::Uid;

use super::trust::{Folder, is_trusted};

/// Maximum number of symbolic links in one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// An open directory and a name in it.
#[derive(Debug)]
pub(super) struct FolderEntry {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
}

/// Type of a directory entry.
#[derive(Debug)]
pub(super) enum WalkStep {
    /// The entry does not exist.
    Nothing,
    /// A symbolic link that may be followed.
    Link(OsString),
    /// A magic link of `/proc`, whose target has no path.
    Special,
    /// Any other file, as an `O_PATH` descriptor.
    Thing(OwnedFd, FileStat),
}

const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// Looks up `name` in `folder`.
pub(super) fn step(folder: &OwnedFd, name: &OsStr) -> io::Result<WalkStep> {
    let thing = match openat(folder, name, PLACE | OFlag::O_NOFOLLOW, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(WalkStep::Nothing),
        opened => opened?,
    };
    let status = fstat(&thing)?;
    if kind(&status) != SFlag::S_IFLNK {
        return Ok(WalkStep::Thing(thing, status));
    }
    if fstatfs(folder)?.filesystem_type() == PROC_SUPER_MAGIC {
        return Ok(WalkStep::Special);
    }
    if !Folder::of(folder)?.is_ours() && !is_trusted(&status) {
        let name = Path::new(name).display();
        let owner = Uid::from_raw(status.st_uid);
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "'{name}' is a symbolic link of user {owner}, in a folder where others may write"
            ),
        ));
    }
    Ok(WalkStep::Link(readlinkat(&thing, "")?))
}

/// Resolves `path` up to its last component; with `follows_last`, a symbolic link as last component
/// is followed.
pub(super) fn find(path: &Path, follows_last: bool) -> io::Result<FolderEntry> {
    // The last element is the next component.
    let mut left: Vec<_> = parts(path).collect();
    let mut links = 0;
    let mut place = FolderEntry {
        folder: start_of(path)?,
        name: next(&mut left),
    };
    while follows_last || !left.is_empty() {
        match step(&place.folder, &place.name)? {
            WalkStep::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                let target = Path::new(&target);
                if target.is_absolute() {
                    place.folder = start_of(target)?;
                }
                left.extend(parts(target));
            }
            _ if left.is_empty() => break,
            step => place.folder = enter(&place, step)?,
        }
        place.name = next(&mut left);
    }
    Ok(place)
}

/// Opens the directory `path`.
pub(super) fn folder(path: &Path) -> io::Result<OwnedFd> {
    let place = find(path, true)?;
    enter(&place, step(&place.folder, &place.name)?)
}

/// Opens the directory at `place`, which has been looked up.
fn enter(place: &FolderEntry, step: WalkStep) -> io::Result<OwnedFd> {
    match step {
        WalkStep::Thing(thing, status) if kind(&status) == SFlag::S_IFDIR => Ok(thing),
        WalkStep::Special => {
            let flags = PLACE | OFlag::O_DIRECTORY;
            Ok(openat(&place.folder, &*place.name, flags, Mode::empty())?)
        }
        WalkStep::Nothing => Err(Errno::ENOENT.into()),
        WalkStep::Thing(..) | WalkStep::Link(_) => Err(Errno::ENOTDIR.into()),
    }
}

/// Opens the directory at which `path` starts.
fn start_of(path: &Path) -> io::Result<OwnedFd> {
    let start = if path.is_absolute() { "/" } else { "." };
    Ok(open(start, PLACE | OFlag::O_DIRECTORY, Mode::empty())?)
}

/// Components of a path in reverse order.
fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

/// The next component; `.` for a path without one (`/`, `.`).
fn next(left: &mut Vec<OsString>) -> OsString {
    left.pop().unwrap_or_else(|| ".".into())
}

/// File type of a status.
pub(super) fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_where_the_kernel_would_go() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::write(at("a/file"), "").unwrap();
        for (target, name) in [
            ("a/b", "to-b"),
            ("../file", "a/b/to-file"),
            ("to-b/to-file", "twice"),
            (".", "a/here"),
            ("/", "a/root"),
            ("loop", "loop"),
            ("a/absent", "to-absent"),
        ] {
            symlink(target, at(name)).unwrap();
        }
        symlink(at("to-b"), at("a/b/c/back")).unwrap();
        for path in [
            "a/file",
            "to-b/c/../to-file",
            "twice",
            "a/here/b/c/back/c",
            "a/root/proc/self/root",
            "a/root/..",
            "to-b/.",
            "",
        ] {
            let path = at(path);
            let place = find(&path, true).unwrap();
            let found = format!("/proc/self/fd/{}", place.folder.as_raw_fd());
            let found = fs::canonicalize(Path::new(&found).join(&place.name)).unwrap();
            assert_eq!(found, fs::canonicalize(&path).unwrap(), "{path:?}");
            assert_eq!(super::folder(&path).is_ok(), path.is_dir(), "{path:?}");
        }
        let absent = find(&at("to-absent"), true).unwrap();
        assert_eq!(absent.name, "absent");
        assert_eq!(find(&at("to-absent"), false).unwrap().name, "to-absent");
        for (path, error) in [
            ("loop", Errno::ELOOP),
            ("a/file/x", Errno::ENOTDIR),
            ("absent/x", Errno::ENOENT),
        ] {
            let found = find(&at(path), true).unwrap_err();
            assert_eq!(found.raw_os_error(), Some(error as i32), "{path}");
        }
    }
}
