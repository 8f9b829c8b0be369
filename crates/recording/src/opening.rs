//! Opening of files for reading by SQLite.
//!
//! If a file has a write-ahead log, SQLite opens and creates files beside it by name, even for
//! reading. As root in a directory of another user, this could open or change a file to which such
//! a name was linked.

use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use rusqlite::{Connection, OpenFlags};

use gpuprobe_os::privileges::invoker;

/// Suffixes of SQLite's auxiliary files: the write-ahead log, its index, and the rollback journal.
pub(crate) const LOG: &str = "-wal";
pub(crate) const INDEX: &str = "-shm";
pub(crate) const JOURNAL: &str = "-journal";

/// The auxiliary file of `path` with a suffix.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens `path` read-only, without giving other users access to anything.
pub(super) fn open(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if !is_alone(path)? {
        return Ok(Connection::open_with_flags(path, flags)?);
    }
    // Only the file itself (<https://sqlite.org/uri.html>), whatever its name.
    let file = File::open(path)?;
    let uri = format!("file:/proc/self/fd/{}?immutable=1", file.as_raw_fd());
    let flags = flags | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri, flags)?)
}

/// Whether a file is opened without those beside it.
fn is_alone(path: &Path) -> Result<bool> {
    // Other users gain nothing from an unprivileged process.
    if !Uid::effective().is_root() {
        return Ok(false);
    }
    let shown = path.display();
    let why = || format!("cannot open {shown}");
    let real = fs::canonicalize(path).with_context(why)?;
    let owner = fs::metadata(&real).with_context(why)?.uid();
    let beside = |suffix| fs::symlink_metadata(beside(&real, suffix)).ok();
    let is_trusted = owner == 0 || invoker().is_some_and(|user| user.uid == owner);
    let is_ours = |file: Metadata| file.is_file() && file.nlink() == 1 && file.uid() == owner;
    let mut all = ["", LOG, INDEX, JOURNAL].into_iter();
    if is_trusted && all.all(|suffix| beside(suffix).is_none_or(is_ours)) {
        return Ok(false);
    }
    // Files of other owners do not belong to the database.
    let belongs = |file: Metadata| file.is_file() && file.uid() == owner && file.len() > 0;
    let mut needed = [LOG, JOURNAL].into_iter();
    if let Some(suffix) = needed.find(|suffix| beside(suffix).is_some_and(belongs)) {
        bail!(
            "{shown} was not closed, and root reads no files of others beside it: copy it, with its {suffix} file, \
             into a folder of yours, or read it as its user (sudo -u '#{owner}' gpuprobe ...)"
        );
    }
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A folder with a database that has had a write-ahead log, its path, and those of files beside it.
    fn database() -> (tempfile::TempDir, PathBuf, impl Fn(&str) -> PathBuf) {
        let folder = tempfile::TempDir::new().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let path = real.join("a ?#%41.sqlite");
        let made = Connection::open(&path).unwrap();
        made.pragma_update(None, "journal_mode", "WAL").unwrap();
        made.close().unwrap();
        (folder, path, move |suffix| {
            real.join(format!("a ?#%41.sqlite{suffix}"))
        })
    }

    #[test]
    fn root_opens_no_files_of_others_beside_a_file() {
        let (_folder, path, at) = database();
        if !Uid::effective().is_root() {
            assert!(!is_alone(&path).unwrap());
            return;
        }
        assert!(!is_alone(&path).unwrap());
        let own = |path: &Path, owner| std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        for suffix in [LOG, JOURNAL] {
            let beside = at(suffix);
            fs::write(&beside, b"log").unwrap();
            assert!(!is_alone(&path).unwrap());
            // Another user's log does not belong to it.
            own(&beside, 1234);
            assert!(is_alone(&path).unwrap());
            // Another user's recording.
            own(&path, 1234);
            let refused = is_alone(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("with its {suffix} file")));
            fs::write(&beside, b"").unwrap();
            assert!(is_alone(&path).unwrap());
            own(&path, 0);
            fs::remove_file(&beside).unwrap();
        }
        fs::hard_link(&path, at("-twice")).unwrap();
        assert!(is_alone(&path).unwrap());
    }

    #[test]
    fn root_reading_touches_nothing_beside_a_file() {
        let (_folder, path, at) = database();
        if !Uid::effective().is_root() {
            return;
        }
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        // SQLite would truncate it, and change its owner.
        fs::write(at("-precious"), b"precious").unwrap();
        fs::hard_link(at("-precious"), at(INDEX)).unwrap();
        let tables =
            open(&path)
                .unwrap()
                .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0));
        assert_eq!(tables, Ok(0));
        assert_eq!(fs::read(at("-precious")).unwrap(), b"precious");
        assert_eq!(fs::metadata(at("-precious")).unwrap().uid(), 0);
        assert!(!at(LOG).exists());
    }
}
