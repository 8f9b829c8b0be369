//! The file of a recording: how it survives being killed, and a full disk.
//!
//! Rows go to a write-ahead log in transactions of at most half a second, each of which is on the
//! disk when it is committed: after a kill or a power loss, what was committed is there. At the end
//! everything is moved into the one file. Should the disk fill up, that takes some room: it is kept
//! in reserve by a file without a name, which goes with the process.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FallocateFlags, fallocate};
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// Room that is kept for the end.
const RESERVE: i64 = 16 << 20;
/// Pages of the write-ahead log after which they are moved into the file: 4 MiB.
const LOG_PAGES: i32 = 1024;

/// An open recording.
#[derive(Debug)]
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    reserve: Option<File>,
}

impl RecordingFile {
    /// Makes the new file `path`.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        if fs::symlink_metadata(path).is_ok() {
            bail!("{shown} exists; a recording goes into a new file");
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let why = || format!("cannot write to {shown}");
        let connection = Connection::open_with_flags(path, flags).with_context(why)?;
        let prepared = connection
            .pragma_update(None, "journal_mode", "WAL")
            .and_then(|()| connection.pragma_update(None, "synchronous", "FULL"))
            .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES))
            .and_then(|()| connection.pragma_update(None, "journal_size_limit", RESERVE))
            .and_then(|()| connection.pragma_update(None, "temp_store", "MEMORY"));
        prepared.with_context(why)?;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let reserve = reserve(folder.unwrap_or(Path::new(".")));
        Ok(Self {
            path: path.to_owned(),
            connection,
            reserve,
        })
    }

    /// Gives up the room that was kept.
    pub(super) fn release_reserve(&mut self) {
        self.reserve = None;
    }

    /// Moves everything into the one file, so that readers that do not know about logs see it.
    pub(super) fn close(mut self) -> Result<(), rusqlite::Error> {
        self.release_reserve();
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection.query_row(checkpoint, [], |_| Ok(()))?;
        self.connection
            .pragma_update(None, "journal_mode", "DELETE")
    }
}

impl RecordingFile {
    /// Removes the file.
    pub(super) fn remove(self) {
        let path = self.path.clone();
        if let Err(error) = self.close() {
            tracing::debug!("{}: {}", path.display(), explain(&error));
        }
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
    }
}

/// Moves what is committed into the file, as far as readers let it: those that do not know about
/// logs see it, too, should we be killed.
pub(super) fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// A file without a name that takes up room. None where that cannot be had.
fn reserve(folder: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_TMPFILE)
        .mode(0o600)
        .open(folder);
    let file = file
        .map_err(|error| tracing::debug!("no reserve: {error}"))
        .ok()?;
    let free = nix::sys::statvfs::fstatvfs(&file).ok()?;
    let free = i64::try_from(free.blocks_available().saturating_mul(free.fragment_size()));
    // On a small disk, most of the room is for the recording.
    let size = free.unwrap_or(i64::MAX).min(RESERVE * 4) / 4;
    fallocate(&file, FallocateFlags::empty(), 0, size).ok()?;
    Some(file)
}

/// What went wrong, for the user.
pub(super) fn explain(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
        _ => error.to_string(),
    }
}
