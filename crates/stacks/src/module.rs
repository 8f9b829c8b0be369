//! Mapped files, kept open so that they can be read after their processes have ended and the files are
//! deleted.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::elf::{Headers, Refusal};
use super::helper::{FileReader, FileVersion, NumberedFile};
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::mounts;
use gpuprobe_os::proc::Mapping;
use gpuprobe_os::regular::{open_mapped, open_regular_in_root};

/// Identity of a file while it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Device number, as in `/proc/PID/maps`.
    pub device: u64,
    /// Inode number, unique within the file system.
    pub inode: u64,
}

/// Identity of a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModuleVersion {
    size: u64,
    modified: (i64, i64),
}

impl ModuleVersion {
    fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

/// A file with mapped code.
#[derive(Debug)]
pub struct Module {
    /// Number within the session.
    pub id: ModuleId,
    /// Identity of the file.
    pub key: FileKey,
    /// Path as seen by the first process found with it.
    pub path: PathBuf,
    /// A process that has or had it mapped.
    pub pid: u32,
    file: Option<NumberedFile>,
    /// The file as it was when it was opened; also when it is not open any more.
    origin: Option<FileVersion>,
    version: Option<ModuleVersion>,
    headers: Result<Headers, Refusal>,
}

impl Module {
    /// The module in `file`, which is `None` if it could not be opened. `origin` is a process that has it
    /// mapped, and the path there.
    pub(super) fn new(
        id: ModuleId,
        key: FileKey,
        origin: (u32, PathBuf),
        file: Option<File>,
        reader: &FileReader,
    ) -> Self {
        let (pid, path) = origin;
        let version = file.as_ref().and_then(ModuleVersion::of);
        let file = file.and_then(|file| NumberedFile::new(file, &path));
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
        let file = NumberedFile::new(file.try_clone().ok()?, &self.path)?;
        let is_it = self.file.is_none() && self.origin.as_ref() == Some(&file.origin);
        is_it.then(|| Self {
            pid,
            file: Some(file),
            ..self.closed()
        })
    }

    /// A module outside of any process.
    pub fn of_file(path: PathBuf, file: File, reader: &FileReader) -> Self {
        let key = FileKey {
            device: 0,
            inode: 0,
        };
        Self::new(ModuleId(u32::MAX), key, (0, path), Some(file), reader)
    }

    /// The open file; `None` if it could not be opened.
    pub fn file(&self) -> Option<&File> {
        Some(&self.file.as_ref()?.file)
    }

    /// The file with its number, for reader processes.
    pub(crate) fn numbered(&self) -> Option<&NumberedFile> {
        self.file.as_ref()
    }

    /// The ELF headers, without the sections.
    ///
    /// # Errors
    /// Returns the [`Refusal`] of the file if it cannot be used.
    pub fn headers(&self) -> Result<&Headers, &Refusal> {
        self.headers.as_ref()
    }

    /// The GNU build id.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.headers.as_ref().ok()?.build_id.as_deref()
    }

    /// File name without folders.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Whether the file was written to since it was opened.
    pub(super) fn was_changed(&self) -> bool {
        self.file().and_then(ModuleVersion::of) != self.version
    }

    /// Size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, Headers::size);
        size_of::<Self>() + self.path.as_os_str().len() + headers
    }
}

/// Opens a file that process `pid` has mapped.
pub(super) fn open(pid: u32, map: &Mapping<'_>) -> Option<File> {
    let path = map.path_without_mark()?;
    let opened = open_mapped(pid, (map.start, map.end)).or_else(|error| match error.kind() {
        // /proc/PID/map_files also reaches a deleted file, but takes CAP_SYS_ADMIN.
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
    // btrfs and overlayfs have anonymous device numbers (major 0) per file, which maps and stat report
    // differently.
    let is_device = metadata.dev() == map.device
        || [metadata.dev(), map.device].map(nix::sys::stat::major) == [0, 0];
    let is_it = is_device && metadata.ino() == map.inode;
    is_it
        .then_some(file)
        .ok_or_else(|| ErrorKind::NotFound.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::elf::LoadSegment;
    use crate::elf::sample::ElfSample;

    fn module(path: &Path) -> Module {
        let file = File::open(path).ok();
        let key = FileKey {
            device: 1,
            inode: 2,
        };
        let origin = (7, path.to_owned());
        Module::new(ModuleId(3), key, origin, file, &FileReader::default())
    }

    #[test]
    fn a_module_is_as_large_as_its_path_and_headers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so");
        let sample = ElfSample::default()
            .code(0x1000, &[0xc3])
            .data(0x2000, &[0])
            .build_id(&[5; 20]);
        std::fs::write(&path, sample.bytes()).unwrap();
        let found = module(&path);
        assert_eq!((found.name().as_str(), found.pid), ("libx.so", 7));
        assert_eq!(found.build_id(), Some(&[5; 20][..]));
        let headers = 2 * size_of::<LoadSegment>() + 20;
        let of_path = path.as_os_str().len();
        assert_eq!(found.size(), size_of::<Module>() + of_path + headers);
        let absent = module(&folder.path().join("none"));
        let of_path = of_path - "libx.so".len() + "none".len();
        assert_eq!(absent.size(), size_of::<Module>() + of_path);
        assert!(absent.file().is_none());
        assert!(absent.headers().is_err() && !absent.was_changed());
        let opened = found.file().unwrap().metadata().unwrap();
        assert_eq!(opened.ino(), std::fs::metadata(&path).unwrap().ino());
    }

    #[test]
    fn a_closed_module_is_opened_again_if_its_file_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so");
        let bytes = ElfSample::default().code(0x1000, &[0xc3]).bytes();
        std::fs::write(&path, &bytes).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, &bytes).unwrap();
        let [file, other] = [&path, &other].map(|path| File::open(path).unwrap());
        let open = module(&path);
        assert!(!open.was_changed());
        assert!(open.reopened(9, &file).is_none(), "it is open");
        let closed = open.closed();
        assert!(closed.file().is_none() && closed.was_changed());
        assert_eq!(closed.headers(), open.headers());
        assert!(closed.reopened(9, &other).is_none());
        let again = closed.reopened(9, &file).unwrap();
        assert_eq!((again.id, again.pid), (open.id, 9));
        assert!(again.file().is_some() && !again.was_changed());
        std::fs::write(&path, b"shorter").unwrap();
        assert!(again.was_changed());
        assert!(closed.reopened(9, &File::open(&path).unwrap()).is_none());
    }

    #[test]
    fn a_file_opened_by_its_path_is_the_one_that_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so");
        std::fs::write(&path, b"text").unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        let (device, inode) = (metadata.dev(), metadata.ino());
        let [major, minor] = [nix::sys::stat::major(device), nix::sys::stat::minor(device)];
        let opened = |major: u64, inode: u64, name: &str| {
            let path = folder.path().join(name);
            let line = format!(
                "0-1000 r-xp 0 {major:x}:{minor:x} {inode} {}",
                path.display()
            );
            let map = Mapping::parse(line.as_bytes()).unwrap();
            open_by_path(std::process::id(), &map).is_ok()
        };
        assert!(opened(major, inode, "libx.so"));
        assert!(!opened(major, inode + 1, "libx.so"), "another file");
        assert!(!opened(major + 1, inode, "libx.so"), "another device");
        assert!(!opened(major, inode, "none"));
    }
}
