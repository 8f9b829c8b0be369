//! Creation of output files.
//!
//! gpuprobe often runs as root in directories where other users can create files. Paths are
//! therefore resolved step by step, with the rules of the kernel's `protected_symlinks`,
//! `protected_regular` and `protected_hardlinks` (see `proc_sys_fs(5)`), whatever these are set to,
//! and without their trust in the owner of a directory: where anybody but root, gpuprobe's user and
//! the user who called sudo may write, no symbolic link of other users is followed, and no file
//! with hard links or of a third user is written to. New files are owned by the user who called
//! sudo.

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
use walk::{FolderEntry, WalkStep, kind, step};

pub use trust::can_be_replaced;

/// Permissions of a new file, before the umask.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o666);
/// Permissions of a new directory, before the umask.
const FOLDER_MODE: Mode = Mode::from_bits_truncate(0o777);

/// Whether `path` is `-`, which stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens `path` for writing and truncates it; creates it if it does not exist.
///
/// # Errors
/// Returns the file system's error, `PermissionDenied` if another user could have placed the file
/// there, or `AlreadyExists` if it is an SQLite database: a recording must not be lost to a mistake
/// in file name completion.
pub fn create(path: &Path) -> io::Result<File> {
    loop {
        let place = walk::find(path, true)?;
        match step(&place.folder, &place.name)? {
            WalkStep::Nothing => match make(&place.folder, &place.name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            },
            WalkStep::Special => {
                let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
                return Ok(openat(&place.folder, &*place.name, flags, Mode::empty())?.into());
            }
            // It was created just now.
            WalkStep::Link(_) => {}
            WalkStep::Thing(thing, status) => return overwrite(&place.folder, &thing, &status),
        }
    }
}

/// A newly created file.
#[derive(Debug)]
pub struct NewFile {
    /// Path of the file without symbolic links.
    pub path: PathBuf,
    place: FolderEntry,
    /// Names of files created beside it.
    beside: Vec<OsString>,
}

impl NewFile {
    /// Creates an empty file beside this one, with `suffix` appended to the name.
    ///
    /// # Errors
    /// Returns `AlreadyExists` if the name is taken, or the file system's error.
    pub fn beside(&mut self, suffix: &str) -> io::Result<File> {
        let mut name = self.place.name.clone();
        name.push(suffix);
        let made = make(&self.place.folder, &name)?;
        self.beside.push(name);
        Ok(made)
    }

    /// Removes the file and the files created beside it.
    pub fn remove(self) {
        let names = self.beside.iter().chain([&self.place.name]);
        for name in names {
            let removed = unlinkat(&self.place.folder, &**name, UnlinkatFlags::NoRemoveDir);
            if let Err(error) = removed {
                tracing::debug!("cannot remove {}: {error}", self.path.display());
            }
        }
    }

    /// Status of the directory that contains the file.
    ///
    /// # Errors
    /// Returns the file system's error.
    pub fn folder(&self) -> io::Result<FileStat> {
        Ok(fstat(&self.place.folder)?)
    }
}

/// Creates the file `path` and opens it for writing.
///
/// # Errors
/// Returns `AlreadyExists` if the name is taken, even by a symbolic link, or the file system's
/// error.
pub fn create_new(path: &Path) -> io::Result<(NewFile, File)> {
    let place = walk::find(path, false)?;
    let file = make(&place.folder, &place.name)?;
    let folder = readlink(&*format!("/proc/self/fd/{}", place.folder.as_raw_fd()))?;
    let new = NewFile {
        path: Path::new(&folder).join(&place.name),
        place,
        beside: Vec::new(),
    };
    Ok((new, file))
}

/// Creates the directory `path` and its missing parents.
///
/// # Errors
/// Returns the file system's error, or `PermissionDenied` if another user could have placed an
/// existing part of the path there.
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

/// Creates a file that does not exist.
fn make(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(folder, name, flags, FILE_MODE)?;
    give_away(folder, &made)?;
    Ok(made.into())
}

/// Changes the owner of a new file to the user who called sudo, if any.
fn give_away(folder: &OwnedFd, made: &OwnedFd) -> io::Result<()> {
    let Some((uid, gid)) = privileges::owner() else {
        return Ok(());
    };
    // With the set-group-ID bit, the directory determines the group.
    let inherits = fstat(folder)?.st_mode & 0o2000 != 0;
    match fchown(made, Some(uid), (!inherits).then_some(gid)) {
        // Some file systems have no owners, or not this one, and the capability may be missing.
        Err(Errno::EPERM | Errno::EINVAL | Errno::EOPNOTSUPP) => Ok(()),
        done => Ok(done?),
    }
}

/// First bytes of every SQLite database.
const SQLITE_MAGIC: [u8; 16] = *b"SQLite format 3\0";

/// Whether the regular file `path` is an SQLite database; `false` if it cannot be read.
fn is_database(path: &str) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()) else {
        return false;
    };
    let mut begin = [0; SQLITE_MAGIC.len()];
    File::from(file).read_exact(&mut begin).is_ok() && begin == SQLITE_MAGIC
}

/// Opens and truncates an existing file.
fn overwrite(folder: &OwnedFd, thing: &OwnedFd, status: &FileStat) -> io::Result<File> {
    if kind(status) == SFlag::S_IFDIR {
        return Err(Errno::EISDIR.into());
    }
    let folder = Folder::of(folder)?;
    if !folder.is_ours() {
        let owner = Uid::from_raw(status.st_uid);
        // In a directory that only its owner can write, the owner's files are trusted.
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
