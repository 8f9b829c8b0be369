//! Check that SQLite, which opens files by name, has opened the files that were created for it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat};

/// A created file, held by an `O_PATH` descriptor, so that closing it releases no locks.
#[derive(Debug)]
pub(super) struct Made {
    held: OwnedFd,
    at_first: FileStat,
}

impl Made {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let held = open(&*path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let at_first = fstat(&held)?;
        Ok(Self { held, at_first })
    }

    /// Whether the file was neither removed nor linked elsewhere.
    fn has_one_name(&self) -> io::Result<bool> {
        Ok(fstat(&self.held)?.st_nlink == self.at_first.st_nlink)
    }
}

/// Whether all of `made` are open in this process and still have exactly one name.
pub(super) fn are_open(made: &[Made]) -> io::Result<bool> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let is_held = |made: &Made| Some(made.held.as_raw_fd()) == number;
        // Other threads may close descriptors meanwhile.
        if let (None, Ok(file)) = (made.iter().position(is_held), fs::metadata(entry.path())) {
            open.push((file.dev(), file.ino()));
        }
    }
    for file in made {
        let is_open = open.contains(&(file.at_first.st_dev, file.at_first.st_ino));
        if !is_open || !file.has_one_name()? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn replaced_files_are_detected() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("made");
        let make = || Made::of(&File::create_new(&path).unwrap()).unwrap();
        let made = [make()];
        assert!(!are_open(&made).unwrap());
        let opened = File::open(&path).unwrap();
        assert!(are_open(&made).unwrap());
        let other = folder.path().join("other");
        fs::hard_link(&path, &other).unwrap();
        assert!(!are_open(&made).unwrap());
        fs::remove_file(&other).unwrap();
        assert!(are_open(&made).unwrap());
        drop(opened);
        // Another file with the same name.
        fs::rename(&path, &other).unwrap();
        let beside = make();
        let opened = File::open(&path).unwrap();
        assert!(are_open(&[beside]).unwrap());
        assert!(!are_open(&made).unwrap());
        drop(opened);
    }
}
