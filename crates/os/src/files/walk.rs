//! Going to where a file is, or is to be, without being led astray.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::Uid;

use super::trust::{is_ours, is_trusted};

/// Links that are followed in one path at most, as in the kernel.
const MAX_LINKS: usize = 40;

/// An open folder, and a name in it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    /// Links that were followed on the way.
    pub(super) links: usize,
}

/// What a name in a folder is.
#[derive(Debug)]
pub(super) enum Step {
    /// There is no such name.
    Nothing,
    /// A symbolic link that may be followed.
    Link(OsString),
    /// A link of `/proc`, which leads where no path does.
    Special,
    /// Anything else: an `O_PATH` descriptor.
    Thing(OwnedFd, FileStat),
}

const PLACE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// Looks at `name` in `folder`.
pub(super) fn step(folder: &OwnedFd, name: &OsStr) -> io::Result<Step> {
    let thing = match openat(folder, name, PLACE | OFlag::O_NOFOLLOW, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(Step::Nothing),
        opened => opened?,
    };
    let status = fstat(&thing)?;
    if kind(&status) != SFlag::S_IFLNK {
        return Ok(Step::Thing(thing, status));
    }
    if fstatfs(folder)?.filesystem_type() == PROC_SUPER_MAGIC {
        return Ok(Step::Special);
    }
    if !is_ours(&fstat(folder)?) && !is_trusted(&status) {
        let name = Path::new(name).display();
        let owner = Uid::from_raw(status.st_uid);
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "'{name}' is a symbolic link of user {owner}, in a folder where others may write"
            ),
        ));
    }
    Ok(Step::Link(readlinkat(&thing, "")?))
}

/// Goes to the folder that `path` is in.
pub(super) fn find(path: &Path) -> io::Result<Place> {
    let start = Place {
        folder: open(".", PLACE | OFlag::O_DIRECTORY, Mode::empty())?,
        name: OsString::new(),
        links: 0,
    };
    walk(start, path)
}

/// Goes to where the link `target`, which is at `place`, leads.
pub(super) fn find_from(place: Place, target: &OsStr) -> io::Result<Place> {
    let links = place.links + 1;
    if links > MAX_LINKS {
        return Err(Errno::ELOOP.into());
    }
    walk(Place { links, ..place }, Path::new(target))
}

/// Opens the folder `path`.
pub(super) fn folder(path: &Path) -> io::Result<OwnedFd> {
    // The folder in which `.` is, is the folder itself.
    Ok(find(&path.join("."))?.folder).and_then(|found| {
        let status = fstat(&found)?;
        match kind(&status) {
            SFlag::S_IFDIR => Ok(found),
            _ => Err(Errno::ENOTDIR.into()),
        }
    })
}

fn walk(start: Place, path: &Path) -> io::Result<Place> {
    let mut place = start;
    let mut left = VecDeque::new();
    enter(&mut place, &mut left, path)?;
    let Some(mut name) = left.pop_front() else {
        return Err(Errno::ENOENT.into());
    };
    while let Some(next) = left.pop_front() {
        match step(&place.folder, &name)? {
            Step::Nothing => return Err(Errno::ENOENT.into()),
            Step::Thing(thing, status) if kind(&status) == SFlag::S_IFDIR => {
                place.folder = thing;
            }
            Step::Thing(..) => return Err(Errno::ENOTDIR.into()),
            Step::Special => {
                let flags = PLACE | OFlag::O_DIRECTORY;
                place.folder = openat(&place.folder, &*name, flags, Mode::empty())?;
            }
            Step::Link(target) => {
                place.links += 1;
                if place.links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                left.push_front(next);
                enter(&mut place, &mut left, Path::new(&target))?;
                name = left.pop_front().unwrap_or_default();
                continue;
            }
        }
        name = next;
    }
    place.name = name;
    Ok(place)
}

/// Puts the parts of `path` before those that are left; one that begins at the root begins there.
fn enter(place: &mut Place, left: &mut VecDeque<OsString>, path: &Path) -> io::Result<()> {
    if path.is_absolute() {
        place.folder = open("/", PLACE | OFlag::O_DIRECTORY, Mode::empty())?;
    }
    let mut parts: Vec<OsString> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name.to_owned()),
            Component::ParentDir => parts.push("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    // The path itself ends here, in a folder: `/`, `.` and the like.
    if parts.is_empty() || path.as_os_str().as_encoded_bytes().ends_with(b"/.") {
        parts.push(".".into());
    }
    parts
        .into_iter()
        .rev()
        .for_each(|part| left.push_front(part));
    Ok(())
}

/// The type of a file.
pub(super) fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT
}
