//! Making the files that are written to.
//!
//! gpuprobe often runs as root in folders where everybody may put things. So a file is reached step
//! by step, with the rules of the kernel's `protected_symlinks`, `protected_regular` and
//! `protected_hardlinks` (see `proc_sys_fs(5)`) whatever these are set to, and without their trust
//! in whoever owns a folder: where anybody may write but root, we, and the user who called sudo, no
//! symbolic link of others is followed, and no file that has another name, or that is a third
//! user's, is written to. A new file is the user's who called sudo.

mod trust;
mod walk;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlink};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, fchown, unlinkat};

use crate::privileges;
use trust::{Folder, is_trusted};
use walk::{Place, Step, kind, step};

pub use trust::can_be_replaced;

/// Permissions of a new file, before the umask.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o666);
/// Permissions of a new folder, before the umask.
const FOLDER_MODE: Mode = Mode::from_bits_truncate(0o777);

/// Whether `path` stands for standard output: `-`, as everywhere.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens `path` for writing and makes it empty; makes it if it is not there.
///
/// # Errors
/// Returns the file system's error, `PermissionDenied` if others could have put there what there
/// is, or `AlreadyExists` if that is an SQLite database: what took a run to record is not worth a
/// slip of the completion of file names.
pub fn create(path: &Path) -> io::Result<File> {
    loop {
        let place = walk::find(path, true)?;
        match step(&place.folder, &place.name)? {
            Step::Nothing => match make(&place.folder, &place.name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            },
            Step::Special => {
                let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
                return Ok(openat(&place.folder, &*place.name, flags, Mode::empty())?.into());
            }
            // It was put there just now.
            Step::Link(_) => {}
            Step::Thing(thing, status) => return overwrite(&place.folder, &thing, &status),
        }
    }
}

/// Where a new file is.
#[derive(Debug)]
pub struct New {
    /// A path that reaches it without any symbolic link.
    pub path: PathBuf,
    place: Place,
    /// Names of files made beside it.
    beside: Vec<OsString>,
}

impl New {
    /// Makes a new, empty file beside this one, whose name is longer by `suffix`.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if there is something of that name, or the file system's error.
    pub fn beside(&mut self, suffix: &str) -> io::Result<File> {
        let mut name = self.place.name.clone();
        name.push(suffix);
        let made = make(&self.place.folder, &name)?;
        self.beside.push(name);
        Ok(made)
    }

    /// Removes it, and what was made beside it.
    pub fn remove(self) {
        let names = self.beside.iter().chain([&self.place.name]);
        for name in names {
            let removed = unlinkat(&self.place.folder, &**name, UnlinkatFlags::NoRemoveDir);
            if let Err(error) = removed {
                tracing::debug!("cannot remove {}: {error}", self.path.display());
            }
        }
    }

    /// The folder that it is in.
    ///
    /// # Errors
    /// Returns the file system's error.
    pub fn folder(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.place.folder)?)
    }
}

/// Makes the new file `path`, open for writing.
///
/// # Errors
/// Returns `AlreadyExists` if there is something of that name, even a symbolic link, or the file
/// system's error.
pub fn create_new(path: &Path) -> io::Result<(New, File)> {
    let place = walk::find(path, false)?;
    let file = make(&place.folder, &place.name)?;
    let folder = readlink(&*format!("/proc/self/fd/{}", place.folder.as_raw_fd()))?;
    let new = New {
        path: Path::new(&folder).join(&place.name),
        place,
        beside: Vec::new(),
    };
    Ok((new, file))
}

/// Makes the folder `path` and those above it, as far as they are not there.
///
/// # Errors
/// Returns the file system's error, or `PermissionDenied` if others could have put there what there
/// is.
pub fn create_folder(path: &Path) -> io::Result<()> {
    match walk::folder(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found.map(|_| ()),
    }
    if let Some(above) = path.parent().filter(|above| *above != Path::new("")) {
        create_folder(above)?;
    }
    let place = walk::find(path, false)?;
    match mkdirat(&place.folder, &*place.name, FOLDER_MODE) {
        Ok(()) => {
            let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let made = openat(&place.folder, &*place.name, flags, Mode::empty())?;
            give_away(&place.folder, &made)
        }
        Err(Errno::EEXIST) => walk::folder(path).map(|_| ()),
        Err(error) => Err(error.into()),
    }
}

/// Makes a file that is not there.
fn make(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(folder, name, flags, FILE_MODE)?;
    give_away(folder, &made)?;
    Ok(made.into())
}

/// Makes what is new the property of the user who called sudo, if somebody did.
fn give_away(folder: &OwnedFd, made: &OwnedFd) -> io::Result<()> {
    let Some((uid, gid)) = privileges::owner() else {
        return Ok(());
    };
    // Where the folder says whose group its files have, they keep it.
    let inherits = fstat(folder)?.st_mode & 0o2000 != 0;
    match fchown(made, Some(uid), (!inherits).then_some(gid)) {
        // Some file systems know no owners, or not this one, and we may lack the right.
        Err(Errno::EPERM | Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

/// What every SQLite database begins with.
const SQLITE_MAGIC: [u8; 16] = *b"SQLite format 3\0";

/// Whether the plain file `path` is an SQLite database; one that cannot be read is none that we
/// know of.
fn is_database(path: &str) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()) else {
        return false;
    };
    let mut begin = [0; SQLITE_MAGIC.len()];
    File::from(file).read_exact(&mut begin).is_ok() && begin == SQLITE_MAGIC
}

/// Opens what is there already, and makes it empty.
fn overwrite(folder: &OwnedFd, thing: &OwnedFd, status: &FileStat) -> io::Result<File> {
    if kind(status) == SFlag::S_IFDIR {
        return Err(Errno::EISDIR.into());
    }
    let folder = Folder::of(folder)?;
    if !folder.is_ours() {
        let owner = Uid::from_raw(status.st_uid);
        // What is in somebody's own folder is theirs to give.
        if !is_trusted(status) && !folder.has_for_owner(status) {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                format!("it is a file of user {owner}, in a folder where others may write"),
            ));
        }
        if kind(status) == SFlag::S_IFREG && status.st_nlink > 1 {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "it has another name too (a hard link), in a folder where others may write",
            ));
        }
    }
    let path = format!("/proc/self/fd/{}", thing.as_fd().as_raw_fd());
    if kind(status) == SFlag::S_IFREG && is_database(&path) {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "it is an SQLite database, as recordings are; write to another file, or remove it first",
        ));
    }
    let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    Ok(open(&*path, flags, Mode::empty())?.into())
}
