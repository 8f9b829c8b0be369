//! Files that processes have mapped, kept open so that they can be read when the processes have
//! ended and the files are deleted.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::elf::{Headers, Refusal};
use super::reader::{Numbered, Origin, Reader};
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::mounts;
use gpuprobe_os::proc::Mapping;
use gpuprobe_os::regular::{open_mapped, open_regular_in_root};

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
    file: Option<Numbered>,
    /// The file as it was when it was opened; also when it is not open any more.
    origin: Option<Origin>,
    version: Option<Version>,
    headers: Result<Headers, Refusal>,
}

impl Module {
    /// The module that is in `file`, which may be missing.
    pub(super) fn new(
        id: ModuleId,
        key: FileKey,
        origin: (u32, PathBuf),
        file: Option<File>,
        reader: &Reader,
    ) -> Self {
        let (pid, path) = origin;
        let version = file.as_ref().and_then(Version::of);
        let file = file.and_then(|file| Numbered::new(file, &path));
        let cannot = || Refusal::Damaged(Cow::Borrowed("it cannot be opened"));
        let headers = file.as_ref().ok_or_else(cannot);
        Self {
            id,
            key,
            path,
            pid,
            headers: headers.and_then(|file| reader.headers(file)),
            version,
            origin: file.as_ref().map(|file| file.origin.clone()),
            file,
        }
    }

    /// The same, whose file is not open any more.
    pub(super) fn closed(&self) -> Self {
        Self {
            path: self.path.clone(),
            origin: self.origin.clone(),
            headers: self.headers.clone(),
            file: None,
            ..*self
        }
    }

    /// The same, opened again by way of process `pid`; none if `file` is another, or has been changed.
    pub(super) fn reopened(&self, pid: u32, file: &File) -> Option<Self> {
        let file = Numbered::new(file.try_clone().ok()?, &self.path)?;
        let is_it = self.file.is_none() && self.origin.as_ref() == Some(&file.origin);
        is_it.then(|| Self {
            pid,
            file: Some(file),
            ..self.closed()
        })
    }

    /// A module of its own, of no process.
    pub fn of_file(path: PathBuf, file: File, reader: &Reader) -> Self {
        let key = FileKey {
            device: 0,
            inode: 0,
        };
        Self::new(ModuleId(u32::MAX), key, (0, path), Some(file), reader)
    }

    /// The open file.
    pub fn file(&self) -> Option<&File> {
        Some(&self.file.as_ref()?.file)
    }

    /// The file, for readers.
    pub(crate) fn numbered(&self) -> Option<&Numbered> {
        self.file.as_ref()
    }

    /// A path by which this very file can be opened again.
    pub fn open_path(&self) -> Option<PathBuf> {
        Some(format!("/proc/self/fd/{}", self.file()?.as_raw_fd()).into())
    }

    /// The ELF headers, without the sections.
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
        self.file().and_then(Version::of) != self.version
    }

    /// Bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, Headers::size);
        size_of::<Self>() + self.path.as_os_str().len() + headers
    }
}

/// Opens the file that process `pid` has mapped.
pub(super) fn open(pid: u32, map: &Mapping<'_>) -> Option<File> {
    let path = map.path_without_mark()?;
    let opened = open_mapped(pid, (map.start, map.end)).or_else(|error| match error.kind() {
        // It reaches the very file, also when it was deleted, but needs the most rights.
        ErrorKind::PermissionDenied => open_by_path(pid, map),
        _ => Err(error),
    });
    if opened.as_ref().is_err_and(mounts::is_foreign) {
        mounts::say_foreign(path);
    }
    opened.ok()
}

fn open_by_path(pid: u32, map: &Mapping<'_>) -> io::Result<File> {
    let path = map.path_without_mark().ok_or(ErrorKind::NotFound)?;
    let file = open_regular_in_root(pid, path)?;
    let metadata = file.metadata()?;
    // btrfs and overlayfs have device numbers of their own for files; none is a real device.
    let is_device = metadata.dev() == map.device
        || [metadata.dev(), map.device].map(nix::sys::stat::major) == [0, 0];
    let is_it = is_device && metadata.ino() == map.inode;
    is_it
        .then_some(file)
        .ok_or_else(|| ErrorKind::NotFound.into())
}
