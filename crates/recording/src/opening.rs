//! Opening of files for reading by SQLite.
//!
//! If a file has a write-ahead log, SQLite opens and creates files beside it by name, even for
//! reading. As root in a directory that other users can write to, this could open or change a file
//! to which such a name was linked.

use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use rusqlite::{Connection, OpenFlags};

use gpuprobe_os::files;

const LOG: &str = "-wal";
const INDEX: &str = "-shm";
const JOURNAL: &str = "-journal";

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
            tracing::debug!("others may write beside {}: read alone", path.display());
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
    if !files::can_be_replaced(&real, &[LOG, INDEX]).with_context(why)? {
        return Ok(Way::Usual(real));
    }
    let owner = fs::metadata(&real).with_context(why)?.uid();
    for suffix in [LOG, JOURNAL] {
        let mut name = real.as_os_str().to_owned();
        name.push(suffix);
        // Files of other owners do not belong to the database.
        let belongs = fs::symlink_metadata(&name)
            .is_ok_and(|beside| beside.is_file() && beside.uid() == owner && beside.len() > 0);
        if belongs {
            bail!(
                "{shown} was not closed, and others may write where it is, so that root does not \
                 open it there: copy it, with its {suffix} file, into a folder of yours, or read it \
                 as its user (sudo -u '#{owner}' gpuprobe ...)"
            );
        }
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

    #[test]
    fn root_opens_a_file_alone_where_others_may_write() {
        use std::os::unix::fs::PermissionsExt;
        let uri = alone(Path::new("/a b/c-1"));
        assert_eq!(uri, "file:/a%20b/c%2D1?immutable=1");
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.sqlite");
        fs::write(&path, b"").unwrap();
        let usual = Way::Usual(path.clone());
        assert_eq!(way(&path).unwrap(), usual);
        let mode = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.path(), mode(0o777)).unwrap();
        if !Uid::effective().is_root() {
            assert_eq!(way(&path).unwrap(), usual);
            return;
        }
        assert_eq!(way(&path).unwrap(), Way::Alone(path.clone()));
        assert!(open(&path).is_ok());
        for suffix in [LOG, JOURNAL] {
            let beside = folder.path().join(format!("a.sqlite{suffix}"));
            fs::write(&beside, b"").unwrap();
            assert_eq!(way(&path).unwrap(), Way::Alone(path.clone()));
            fs::write(&beside, b"log").unwrap();
            let error = way(&path).unwrap_err().to_string();
            assert!(
                error.contains(&format!("with its {suffix} file")),
                "{error}"
            );
            // Another user's does not belong to it.
            std::os::unix::fs::chown(&beside, Some(1234), None).unwrap();
            assert_eq!(way(&path).unwrap(), Way::Alone(path.clone()));
            fs::remove_file(&beside).unwrap();
        }
    }
}
