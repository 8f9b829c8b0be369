//! Files that processes have mapped, kept open so that they can be read when the processes have
//! ended and the files are deleted.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::cache::Cache;
use super::elf::{Headers, Refusal};
use super::unwind::Tables;
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::proc::Mapping;
use gpuprobe_os::regular::{open_regular, open_regular_in_root};

/// Identifies a file while it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The file system's device number, as `/proc/PID/maps` has it.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    size: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// A file that code was mapped from.
#[derive(Debug)]
pub struct Module {
    /// Its number within the run.
    pub id: ModuleId,
    /// Which file it is.
    pub key: FileKey,
    /// Its path as the process that was seen first with it sees it.
    pub path: PathBuf,
    /// A process that has had it mapped; it may have ended.
    pub pid: u32,
    file: Option<File>,
    version: Option<Version>,
    headers: Result<Headers, Refusal>,
    tables: TableCache,
    /// Bytes of tables that were read, again and again if there is no room for those of all modules.
    read: AtomicU64,
}

/// The unwinding tables of all modules of a run, as far as there is room; none for those that have
/// none.
pub(super) type TableCache = Arc<Mutex<Cache<ModuleId, Option<Arc<Tables>>>>>;

/// Bytes of all tables in memory. Those of a large program of `PyTorch`'s take 200 MB.
const TABLES_LIMIT: u64 = 512 << 20;
/// Bytes that are read of a module's tables: a hundred times those of the largest libraries. With
/// more, reading them is all that is done.
const READ_LIMIT: u64 = 4 << 30;

/// Room for the tables of a run.
pub(super) fn table_cache() -> TableCache {
    Arc::new(Mutex::new(Cache::new(usize::MAX, TABLES_LIMIT)))
}

impl Module {
    /// The module that is in `file`, which may be missing.
    pub(super) fn new(
        id: ModuleId,
        key: FileKey,
        origin: (u32, PathBuf),
        file: Option<File>,
        tables: TableCache,
    ) -> Self {
        let headers = match &file {
            Some(file) => Headers::read(file).map(Headers::without_needless_sections),
            None => Err(Refusal::Damaged("it cannot be opened")),
        };
        let (pid, path) = origin;
        Self {
            id,
            key,
            path,
            pid,
            version: file.as_ref().and_then(Version::of),
            file,
            headers,
            tables,
            read: AtomicU64::new(0),
        }
    }

    /// A module of its own, of no process.
    pub fn of_file(path: PathBuf, file: File) -> Self {
        let key = FileKey {
            device: 0,
            inode: 0,
        };
        Self::new(
            ModuleId(u32::MAX),
            key,
            (0, path),
            Some(file),
            table_cache(),
        )
    }

    /// The open file.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// A path by which this very file can be opened again.
    pub fn open_path(&self) -> Option<PathBuf> {
        let file = self.file.as_ref()?;
        Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }

    /// The ELF headers, of the sections those that unwinding needs.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn headers(&self) -> Result<&Headers, &Refusal> {
        self.headers.as_ref()
    }

    /// The GNU build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.headers.as_ref().ok()?.build_id.as_deref()
    }

    /// The file's name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Whether somebody has written to the file since it was opened.
    pub(super) fn was_changed(&self) -> bool {
        self.file.as_ref().and_then(Version::of) != self.version
    }

    /// The unwinding tables, read when they are not in memory; none once that was too often.
    pub fn tables(&self) -> Option<Arc<Tables>> {
        let cached = || self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached().get(&self.id) {
            return known.clone();
        }
        let (headers, file) = (self.headers.as_ref().ok()?, self.file.as_ref()?);
        let before = self.read.load(Ordering::Relaxed);
        (before <= READ_LIMIT).then_some(())?;
        // Others need not wait meanwhile.
        let tables = Tables::read(headers, file).map(Arc::new);
        let size = tables.as_ref().map_or(0, |tables| tables.size());
        if self.read.fetch_add(size, Ordering::Relaxed) + size > READ_LIMIT {
            let path = self.path.display();
            tracing::warn!("call stacks will end at {path}: its tables take too much memory");
        }
        let mut cached = cached();
        cached.make_room(size);
        cached.insert(self.id, size, tables).clone()
    }

    /// Bytes of memory that it takes, without its tables.
    pub(super) fn size(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, Headers::size);
        size_of::<Self>() + self.path.as_os_str().len() + headers
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let mut cached = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        cached.remove(&self.id);
    }
}

/// Opens the file that process `pid` has mapped.
pub(super) fn open(pid: u32, map: &Mapping<'_>) -> Option<File> {
    // It reaches the very file, also when it was deleted, but needs the most rights.
    if let Ok(file) = open_regular(map.link(pid).as_ref()) {
        return Some(file);
    }
    let file = open_regular_in_root(pid, map.path_without_mark()?).ok()?;
    let metadata = file.metadata().ok()?;
    // btrfs and overlayfs have device numbers of their own for files; none is a real device.
    let is_device = metadata.dev() == map.device
        || [metadata.dev(), map.device].map(nix::sys::stat::major) == [0, 0];
    (is_device && metadata.ino() == map.inode).then_some(file)
}
