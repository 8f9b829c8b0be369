//! Opening of files for reading by SQLite.
//!
//! If a file has a write-ahead log, SQLite opens and creates files beside it by name, even for
//! reading. As root in a directory of another user, this could open or change a file to which such
//! a name was linked.

use std::fmt::Write;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
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

/// How SQLite opens a file.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    /// With its write-ahead log.
    Usual(PathBuf),
    /// Only the file itself is accessed.
    Alone(PathBuf),
}

/// Opens `path` read-only, without giving other users access to anything.
pub(super) fn open(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match way(path)? {
        Way::Usual(path) => Connection::open_with_flags(path, flags),
        Way::Alone(path) => {
            Connection::open_with_flags(alone(&path), flags | OpenFlags::SQLITE_OPEN_URI)
        }
    };
    Ok(connection?)
}

fn way(path: &Path) -> Result<Way> {
    // Other users gain nothing from an unprivileged process.
    if !Uid::effective().is_root() {
        return Ok(Way::Usual(path.to_owned()));
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
        return Ok(Way::Usual(real));
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
    Ok(Way::Alone(real))
}

/// A URI for the file alone (<https://sqlite.org/uri.html>).
fn alone(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for &byte in path.as_os_str().as_bytes() {
        if byte == b'/' || byte.is_ascii_alphanumeric() {
            uri.push(byte.into());
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri + "?immutable=1"
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn any_file_name_makes_a_valid_uri() {
        let folder = tempfile::TempDir::new().unwrap();
        for name in ["a", "a b?c#d%41&e=f", "ü", "..."] {
            let path = folder.path().join(name);
            Connection::open(&path)
                .and_then(|file| file.execute_batch("CREATE TABLE t (x)"))
                .unwrap();
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
            let opened = Connection::open_with_flags(alone(&path), flags).unwrap();
            let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            let tables = opened.query_row("SELECT count(*) FROM sqlite_master", [], count);
            assert_eq!(tables, Ok(1), "{name}");
        }
    }

    /// A folder with a database that has had a write-ahead log, its path, and those of files beside it.
    fn database() -> (tempfile::TempDir, PathBuf, impl Fn(&str) -> PathBuf) {
        let folder = tempfile::TempDir::new().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let path = real.join("a.sqlite");
        let made = Connection::open(&path).unwrap();
        made.pragma_update(None, "journal_mode", "WAL").unwrap();
        made.close().unwrap();
        (folder, path, move |suffix| {
            real.join(format!("a.sqlite{suffix}"))
        })
    }

    #[test]
    fn root_opens_no_files_of_others_beside_a_file() {
        let uri = alone(Path::new("/a b/c-1"));
        assert_eq!(uri, "file:/a%20b/c%2D1?immutable=1");
        let (_folder, path, at) = database();
        let [usual, alone] = [Way::Usual(path.clone()), Way::Alone(path.clone())];
        if !Uid::effective().is_root() {
            assert_eq!(way(&path).unwrap(), usual);
            return;
        }
        assert_eq!(way(&path).unwrap(), usual);
        let own = |path: &Path, owner| std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        for suffix in [LOG, JOURNAL] {
            let beside = at(suffix);
            fs::write(&beside, b"log").unwrap();
            assert_eq!(way(&path).unwrap(), usual);
            // Another user's log does not belong to it.
            own(&beside, 1234);
            assert_eq!(way(&path).unwrap(), alone);
            // Another user's recording.
            own(&path, 1234);
            let refused = way(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("with its {suffix} file")));
            fs::write(&beside, b"").unwrap();
            assert_eq!(way(&path).unwrap(), alone);
            own(&path, 0);
            fs::remove_file(&beside).unwrap();
        }
        fs::hard_link(&path, at("-twice")).unwrap();
        assert_eq!(way(&path).unwrap(), alone);
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
