//! Mapped files, kept open so that they can be read after their processes have ended and the files are
//! deleted.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::elf::{Headers, Refusal};
use super::helper::{FileReader, OpenFile};
use gpuprobe_model::stack::ModuleId;
use gpuprobe_os::mounts;
use gpuprobe_os::proc::Mapping;
use gpuprobe_os::regular::open_mapped;

/// A file with mapped code.
#[derive(Clone, Debug)]
pub struct Module {
    /// Number within the session.
    pub id: ModuleId,
    /// Path as seen by the first process found with it.
    pub path: PathBuf,
    /// A process that has or had it mapped.
    pub pid: u32,
    pub(super) file: Option<OpenFile>,
    contents: Option<(u64, i64, i64)>,
    headers: Result<Headers, Refusal>,
}

impl Module {
    /// The module in `file`, which is `None` if it could not be opened. `origin` is a process that has it
    /// mapped, and the path there.
    pub(super) fn new(
        id: ModuleId,
        (pid, path): (u32, PathBuf),
        file: Option<OpenFile>,
        reader: &FileReader,
    ) -> Self {
        let unopened = || Refusal::Damaged("it cannot be opened".into());
        let headers = file.as_ref().ok_or_else(unopened);
        Self {
            id,
            path,
            pid,
            headers: headers.and_then(|file| reader.headers(file)),
            contents: file.as_ref().and_then(|file| contents(&file.file)),
            file,
        }
    }

    /// A module outside of any process.
    pub fn of_file(path: PathBuf, file: File, reader: &FileReader) -> Self {
        let file = OpenFile::new(file, &path);
        Self::new(ModuleId(u32::MAX), (0, path), file, reader)
    }

    /// The open file; `None` if it could not be opened.
    pub fn file(&self) -> Option<&File> {
        Some(&self.file.as_ref()?.file)
    }

    /// The open file, to have it read.
    pub(crate) fn opened(&self) -> Option<&OpenFile> {
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

    /// Whether the file is open, and was not written to since.
    pub(super) fn is_current(&self) -> bool {
        self.file()
            .is_some_and(|file| contents(file) == self.contents)
    }
}

/// Size and time of the last change: other contents have others.
fn contents(file: &File) -> Option<(u64, i64, i64)> {
    let metadata = file.metadata().ok()?;
    Some((metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Opens a file that process `pid` has mapped.
pub(super) fn open(pid: u32, map: &Mapping<'_>) -> Option<File> {
    let path = map.path_without_mark()?;
    let (range, file) = ((map.start, map.end), (map.device, map.inode));
    let opened = open_mapped(pid, range, file, path);
    if opened.as_ref().is_err_and(mounts::is_foreign) {
        mounts::say_foreign(path);
    }
    opened.ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::elf::sample::ElfSample;

    fn module(path: &Path) -> Module {
        let file = File::open(path).ok();
        let file = file.and_then(|file| OpenFile::new(file, path));
        let origin = (7, path.to_owned());
        Module::new(ModuleId(3), origin, file, &FileReader::default())
    }

    #[test]
    fn a_module_is_current_until_its_file_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libx.so");
        let sample = || ElfSample::default().code(0x1000, &[0xc3]);
        std::fs::write(&path, sample().build_id(&[5; 20]).bytes()).unwrap();
        let found = module(&path);
        assert_eq!((found.name().as_str(), found.pid), ("libx.so", 7));
        assert_eq!(found.build_id(), Some(&[5; 20][..]));
        assert!(found.is_current());
        std::fs::write(&path, b"shorter").unwrap();
        assert!(!found.is_current());
        let absent = module(&folder.path().join("none"));
        assert!(absent.file().is_none() && absent.headers().is_err() && !absent.is_current());
    }
}
