//! Files that processes have mapped, kept open so that they can be read when the processes have
//! ended and the files are deleted.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use super::ModuleId;
use super::elf::{Headers, Refusal};
use super::unwind::Tables;

/// What tells files apart while they are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The file system's device number, as `/proc/PID/maps` has it.
    pub device: u64,
    /// The file's inode number.
    pub inode: u64,
}

/// What tells versions of a file apart.
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
    tables: Mutex<Read>,
}

/// What has been read of the tables.
#[derive(Debug, Default)]
enum Read {
    #[default]
    NotYet,
    Done(Option<Arc<Tables>>),
}

impl Module {
    /// The module that is in `file`, which may be missing.
    pub(super) fn new(
        id: ModuleId,
        key: FileKey,
        origin: (u32, PathBuf),
        file: Option<File>,
    ) -> Self {
        let headers = match &file {
            Some(file) => Headers::read(file),
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
            tables: Mutex::default(),
        }
    }

    /// A module of its own, of no process.
    pub fn of_file(path: PathBuf, file: File) -> Self {
        let key = FileKey {
            device: 0,
            inode: 0,
        };
        Self::new(ModuleId(u32::MAX), key, (0, path), Some(file))
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

    /// The ELF headers.
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

    /// The unwinding tables, read when first asked for.
    pub fn tables(&self) -> Option<Arc<Tables>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Read::Done(tables) = &*tables {
            return tables.clone();
        }
        let read = || {
            let (headers, file) = (self.headers.as_ref().ok()?, self.file.as_ref()?);
            Tables::read(headers, file).map(Arc::new)
        };
        let read = read();
        *tables = Read::Done(read.clone());
        read
    }

    /// Gives the tables' memory back; they are read again when asked for.
    pub(super) fn drop_tables(&self) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*tables, Read::Done(Some(_))) {
            *tables = Read::NotYet;
        }
    }
}

/// Opens the file that process `pid` has mapped at `range`, under `path`.
pub(super) fn open(pid: u32, range: (u64, u64), path: &Path, key: FileKey) -> Option<File> {
    let (start, end) = range;
    // It reaches the very file, also when it was deleted, but needs the most rights.
    let by_mapping = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    if let Some(file) = open_regular(Path::new(&by_mapping)) {
        return Some(file);
    }
    let file = open_in_root(pid, path)?;
    let metadata = file.metadata().ok()?;
    // btrfs and overlayfs have device numbers of their own for files; none is a real device.
    let is_device = metadata.dev() == key.device
        || [metadata.dev(), key.device].map(nix::sys::stat::major) == [0, 0];
    (is_device && metadata.ino() == key.inode).then_some(file)
}

/// Opens `path` as process `pid` would: links lead to where they lead there, never out of its
/// root.
pub(crate) fn open_in_root(pid: u32, path: &Path) -> Option<File> {
    let root = File::open(format!("/proc/{pid}/root")).ok()?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | WITHOUT_WAITING)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let file = File::from(openat2(root, path, how).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// A path may lead to a pipe by now, which would have us wait for a writer.
const WITHOUT_WAITING: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOCTTY);

/// Opens `path` if it is a file, without waiting for anything.
pub(crate) fn open_regular(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(WITHOUT_WAITING.bits());
    let file = options.open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}
