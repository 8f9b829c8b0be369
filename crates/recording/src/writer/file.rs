//! The file of a recording: how it survives being killed, and a full disk.
//!
//! Rows go to a write-ahead log in transactions of at most half a second, each of which is on the
//! disk when it is committed: after a kill or a power loss, what was committed is there. At the end
//! everything is moved into the one file. Should the disk fill up, that takes some room: it is kept
//! in reserve by a file without a name, which goes with the process.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FallocateFlags, fallocate};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::opened::{self, Made};
use gpuprobe_os::files;
use gpuprobe_os::privileges::WriteRights;

/// Room that is kept for the end.
const RESERVE: i64 = 16 << 20;
/// Pages of the write-ahead log after which they are moved into the file: 4 MiB.
const LOG_PAGES: i32 = 1024;

/// What SQLite appends to the name of a file for those beside it: the write-ahead log, its index,
/// and the journal that is used instead of these without them.
const LOG: &str = "-wal";
const INDEX: &str = "-shm";
const JOURNAL: &str = "-journal";

/// Bytes of a page.
const PAGE: usize = 4096;

/// A database in which nothing is yet, and which has a write-ahead log: one page that is a header
/// and the empty table of tables (<https://sqlite.org/fileformat2.html>, 1.3 and 1.6).
fn empty_database() -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"SQLite format 3\0");
    put(16, &4096u16.to_be_bytes());
    // Readers and writers know logs; fractions of payloads, which are fixed.
    put(18, &[2, 2, 0, 64, 32, 32]);
    // Counter of changes, and the number of pages, which is valid for that.
    put(24, &1u32.to_be_bytes());
    put(28, &1u32.to_be_bytes());
    put(92, &1u32.to_be_bytes());
    // Version of the schema's form; UTF-8.
    put(44, &4u32.to_be_bytes());
    put(56, &1u32.to_be_bytes());
    // A leaf of a table, without cells, whose content would begin at its end.
    put(100, &[13, 0, 0, 0, 0]);
    put(105, &4096u16.to_be_bytes());
    page
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// An open recording.
#[derive(Debug)]
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    /// The same without symbolic links.
    file: PathBuf,
    reserve: Option<File>,
    /// What it takes to go on writing.
    pub(super) rights: WriteRights,
}

impl RecordingFile {
    /// Makes the new file `path`.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        if fs::symlink_metadata(path).is_ok() {
            bail!("{shown} exists; a recording goes into a new file");
        }
        let why = || format!("cannot write to {shown}");
        let (mut new, mut file) = files::create_new(path).with_context(why)?;
        file.write_all(&empty_database()).with_context(why)?;
        let rights = WriteRights::in_folder(&new.folder().with_context(why)?);
        let mut made = vec![Made::of(&file).with_context(why)?];
        // These are ours before SQLite looks for them: others could have left some in the folder.
        for suffix in [LOG, INDEX, JOURNAL] {
            match new.beside(suffix) {
                Ok(_) if suffix == JOURNAL => {}
                Ok(beside) => made.push(Made::of(&beside).with_context(why)?),
                Err(error) => {
                    new.remove();
                    let beside =
                        format!("cannot make {shown}{suffix}, which belongs to the recording");
                    return Err(error).context(beside);
                }
            }
        }
        // To close it later would take from SQLite the locks that it has on it by then.
        drop(file);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&new.path, flags).with_context(why)?;
        let prepared = connection
            .pragma_update(None, "synchronous", "FULL")
            .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES))
            .and_then(|()| connection.pragma_update(None, "journal_size_limit", RESERVE))
            .and_then(|()| connection.pragma_update(None, "temp_store", "MEMORY"))
            .and_then(|()| connection.query_row("PRAGMA schema_version", [], |_| Ok(())));
        prepared.with_context(why)?;
        // It has gone by their names, and where others may write these can have been given to
        // something else meanwhile.
        if !opened::are_open(&made).with_context(why)? {
            drop(connection);
            new.remove();
            bail!("cannot write to {shown}: somebody has put another file in its place");
        }
        // By now it has read the file and opened the log, and has no use for a journal.
        let _ = fs::remove_file(with_suffix(&new.path, JOURNAL));
        let reserve = reserve(new.path.parent().unwrap_or(Path::new("/")));
        Ok(Self {
            path: path.to_owned(),
            file: new.path,
            connection,
            reserve,
            rights,
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
            .pragma_update(None, "journal_mode", "MEMORY")
    }
}

impl RecordingFile {
    /// Bytes of the file, with what is in the log only so far.
    pub(super) fn bytes(&self) -> rusqlite::Result<u64> {
        let pages = |row: &rusqlite::Row<'_>| row.get::<_, u32>(0);
        let pages = self.connection.query_row("PRAGMA page_count", [], pages)?;
        Ok(u64::from(pages) * PAGE as u64)
    }

    /// Removes the file.
    pub(super) fn remove(self) {
        let path = self.file.clone();
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
