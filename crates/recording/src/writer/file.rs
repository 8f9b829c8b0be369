//! The file of a recording, and its robustness against kills and full disks.
//!
//! Rows go to a write-ahead log in transactions of at most half a second, each of which is on disk
//! when it is committed: after a kill or a power loss, committed rows are readable. At the end
//! everything is moved into one file. On a full disk this needs some space, which is reserved by an
//! unnamed file that disappears with the process.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FallocateFlags, fallocate};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::opening::{INDEX, JOURNAL, LOG, beside};
use gpuprobe_os::files;
use gpuprobe_os::privileges::User;

/// Size of the reserved space, bytes.
const RESERVE: i64 = 16 << 20;
/// Checkpoint interval of the write-ahead log, pages: 4 MiB.
const LOG_PAGES: i32 = 1024;

/// Page size, bytes.
const PAGE: usize = 4096;

/// An empty database with a write-ahead log: one page with the header and the empty schema table
/// (<https://sqlite.org/fileformat2.html>, 1.3 and 1.6).
fn empty_database() -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"SQLite format 3\0");
    put(16, &4096u16.to_be_bytes());
    // Versions for reading and writing (WAL), and the fixed payload fractions.
    put(18, &[2, 2, 0, 64, 32, 32]);
    // Change counter, and the number of pages, which is valid for it.
    put(24, &1u32.to_be_bytes());
    put(28, &1u32.to_be_bytes());
    put(92, &1u32.to_be_bytes());
    // Schema format number; UTF-8.
    put(44, &4u32.to_be_bytes());
    put(56, &1u32.to_be_bytes());
    // A table leaf page without cells, whose content starts at the end of the page.
    put(100, &[13, 0, 0, 0, 0]);
    put(105, &4096u16.to_be_bytes());
    page
}

/// An open recording.
#[derive(Debug)]
pub(super) struct RecordingFile {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    /// The folder of the file, without symbolic links.
    pub(super) folder: PathBuf,
    /// Space for the end on a full disk.
    pub(super) reserve: Option<File>,
    /// As whom it is written: the thread that writes drops all rights but those of this user.
    pub(super) user: User,
}

impl RecordingFile {
    /// Creates the new file `path`.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        if fs::symlink_metadata(path).is_ok() {
            bail!("{shown} exists; a recording goes into a new file");
        }
        let why = || format!("cannot write to {shown}");
        let (file, user) = files::create_new(path).with_context(why)?;
        // SQLite opens files by name: as that user, so that a link leads only where that user may write.
        let opened = user.act(|| Self::open(path, file, user.clone()));
        opened.with_context(why)?
    }

    /// Opens the new and empty `file` with SQLite.
    fn open(path: &Path, mut file: File, user: User) -> Result<Self> {
        let shown = path.display();
        let why = || format!("cannot write to {shown}");
        file.write_all(&empty_database()).with_context(why)?;
        let mut created = vec![path.to_owned()];
        // Before SQLite looks for them: other users could have placed some in the directory.
        for suffix in [LOG, INDEX, JOURNAL] {
            let file = beside(path, suffix);
            if let Err(error) = File::create_new(&file) {
                for path in created {
                    let _ = fs::remove_file(path);
                }
                let file = file.display();
                let why = format!("cannot create {file}, which belongs to the recording");
                return Err(error).context(why);
            }
            created.push(file);
        }
        // Closing it later would release SQLite's POSIX locks on the file.
        drop(file);
        let absolute = std::path::absolute(path).with_context(why)?;
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        let folder = fs::canonicalize(folder).with_context(why)?;
        let name = absolute.file_name().unwrap_or_default();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(folder.join(name), flags);
        let connection = connection.with_context(why)?;
        let pragmas = format!(
            "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {LOG_PAGES}; \
             PRAGMA journal_size_limit = {RESERVE}; PRAGMA temp_store = MEMORY; PRAGMA schema_version"
        );
        connection.execute_batch(&pragmas).with_context(why)?;
        // SQLite has read the file and opened the log by now, and does not need a journal.
        let _ = fs::remove_file(beside(path, JOURNAL));
        let reserve = reserve(&folder);
        Ok(Self {
            path: path.to_owned(),
            connection,
            folder,
            reserve,
            user,
        })
    }

    /// Moves everything into one file, for readers that do not support write-ahead logs.
    pub(super) fn close(mut self) -> Result<(), rusqlite::Error> {
        self.reserve = None;
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection.query_row(checkpoint, [], |_| Ok(()))?;
        self.connection
            .pragma_update(None, "journal_mode", "MEMORY")
    }

    /// Size of the file including committed pages in the log, bytes.
    pub(super) fn bytes(&self) -> rusqlite::Result<u64> {
        let pages = |row: &rusqlite::Row<'_>| row.get::<_, u32>(0);
        let pages = self.connection.query_row("PRAGMA page_count", [], pages)?;
        Ok(u64::from(pages) * PAGE as u64)
    }

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

/// An unnamed file that reserves space; `None` where that is not supported.
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
    // On a small disk, most of the space is for the recording.
    let size = free.unwrap_or(i64::MAX).min(RESERVE * 4) / 4;
    fallocate(&file, FallocateFlags::empty(), 0, size).ok()?;
    Some(file)
}

/// Reason of an error, for messages.
pub(super) fn explain(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full".to_owned(),
        _ => error.to_string(),
    }
}
