//! Processes, libraries, cgroups and GPUs of this host.

pub mod budget;
pub mod cupti;
pub mod exit;
pub mod gpus;
pub mod host_info;
pub mod identity;
pub mod nvml;
pub mod process;
pub mod system;

use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};

use gpuprobe_cuda::{FUNCTIONS, Framework, LIBRARIES, Layer};
use gpuprobe_os::regular::open_regular;
use gpuprobe_stacks::functions;
use gpuprobe_stacks::helper::{FileReader, ProcessReader, Wanted};

/// Identity of a file under any of its names, through containers and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[cfg(test)]
    pub(crate) fn numbered(inode: u64) -> Self {
        Self { device: 0, inode }
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// Identity of a file through any overlay. An overlay reports a device number of its own for files of
/// its layers, while a uprobe is placed on the inode of the layer: probing a library once per
/// container of an image would see every call as many times. The time of the last inode change, in
/// nanoseconds, tells copies of a file apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Likeness {
    inode: u64,
    size_bytes: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// Overlays of several file systems put the number of the file system in the upper bits of their inodes.
const LOWER_INODE: u64 = (1 << 40) - 1;

impl Likeness {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino() & LOWER_INODE,
            size_bytes: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Role of a mapped file, by its name. Any user can map a file under another name in a mount namespace of
/// their own, so the state of a file in one role does not apply to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LibraryRole {
    /// A library of the CUDA runtime or driver.
    Cuda(Layer),
    /// A library on top of CUDA with handles of its own.
    Library,
    /// A framework library with an allocator of its own.
    Framework,
    /// A library that may have static probes for the requested sizes of that allocator.
    Requests,
    /// The dynamic loader, with a rendezvous for debuggers.
    Loader,
}

impl LibraryRole {
    /// The role of a file of this name, if it has one. Python wheels rename the runtime
    /// (`libcudart-d0da41ae.so.11.0`, `libcudart.faf08d9a.so.13`).
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        let begins = |start: &str| name.starts_with(start);
        Some(match name.contains(".so") {
            false => return None,
            _ if begins("libcuda.so") => Self::Cuda(Layer::Driver),
            _ if begins("libcudart") => Self::Cuda(Layer::Runtime),
            _ if Framework::of_library(path).is_some() => Self::Framework,
            _ if LIBRARIES.iter().any(|library| begins(library)) => Self::Library,
            _ if begins("libc10_cuda.so") => Self::Requests,
            // ld-linux-x86-64.so.2, ld-2.31.so, ld-musl-x86_64.so.1
            _ if begins("ld-") => Self::Loader,
            _ => return None,
        })
    }
}

/// A file in one of its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LibraryId {
    file: FileId,
    role: LibraryRole,
}

impl LibraryId {
    /// Whether the file is at `path` on this host, a path chosen by another process. It is opened as user
    /// `owner`, the owner of the file. Takes up to a second if a file system does not answer.
    pub fn is_at(&self, path: &Path, owner: u32, opener: &ProcessReader) -> bool {
        let path = path.as_os_str().as_bytes().to_vec();
        let found = opener.open(&Wanted::At(path, None, (owner, owner, Vec::new())), None);
        let found = found.and_then(|file| file.metadata().ok());
        found.is_some_and(|found| FileId::of(&found) == self.file)
    }
}

/// An open library.
#[derive(Debug)]
pub struct MappedLibrary {
    /// Identity of the file.
    pub id: FileId,
    /// Path shown in messages.
    pub path: PathBuf,
    /// Role of the file.
    pub role: LibraryRole,
    /// Identity of the file through any overlay.
    pub likeness: Likeness,
    /// Whether it was found through an overlay.
    pub in_overlay: bool,
    /// Uid of the owner.
    pub owner: u32,
    /// Stays on the file that was found, even if another takes its path.
    pub file: File,
}

impl MappedLibrary {
    /// Opens the library at `openable`, shown as `path` in messages.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened, or is not a regular file.
    pub fn open(openable: &Path, path: &Path, role: LibraryRole) -> Result<Self> {
        let file = open_regular(openable);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        Self::of(file, path, role)
    }

    /// The library in `file`, shown as `path` in messages.
    ///
    /// # Errors
    /// Returns the error of `fstat`.
    pub fn of(file: File, path: &Path, role: LibraryRole) -> Result<Self> {
        let metadata = file.metadata()?;
        let in_overlay =
            fstatfs(&file).is_ok_and(|system| system.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
        Ok(Self {
            id: FileId::of(&metadata),
            path: path.to_owned(),
            role,
            likeness: Likeness::of(&metadata),
            in_overlay,
            owner: metadata.uid(),
            file,
        })
    }

    /// The file with its role.
    pub fn id(&self) -> LibraryId {
        LibraryId {
            file: self.id,
            role: self.role,
        }
    }

    /// The traced functions that the library exports, without duplicate file offsets.
    ///
    /// # Errors
    /// Returns an error if the file is no ELF file for this machine, or cannot be read.
    pub fn functions(
        &self,
        reader: &FileReader,
        layer: Layer,
    ) -> Result<Vec<functions::FunctionInFile>> {
        // XLA's has 80 MB of names.
        let reader = match layer {
            Layer::Framework => reader.slow(),
            _ => reader.clone(),
        };
        let found = reader.functions(&self.file, &self.path, layer);
        let mut found = found.with_context(|| format!("cannot read {}", self.path.display()))?;
        let framework = self.framework();
        let is_known = framework.is_none_or(|framework| framework.is_known(&self.path));
        found.retain(|f| is_known && FUNCTIONS[usize::from(f.row)].framework == framework);
        Ok(found)
    }

    /// The framework whose library it is, if it is one's.
    pub fn framework(&self) -> Option<Framework> {
        Framework::of_library(&self.path)
    }

    /// The loader's rendezvous (`_dl_debug_state`), if the file has one.
    ///
    /// # Errors
    /// Returns an error if the file is no ELF file for this machine, or cannot be read.
    pub fn rendezvous(&self, reader: &FileReader) -> Result<Option<functions::Rendezvous>> {
        reader
            .rendezvous(&self.file, &self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_rejected_without_blocking() {
        let folder = std::env::temp_dir().join(format!("gpuprobe-fifo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fifo = folder.join("libcuda.so.1 (deleted)");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let role = LibraryRole::Cuda(Layer::Driver);
        let error = MappedLibrary::open(&fifo, &fifo, role).unwrap_err();
        assert!(
            format!("{error:#}").contains("no regular file"),
            "{error:#}"
        );
        assert!(MappedLibrary::open(&folder, &folder, role).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn roles_are_found_by_file_name() {
        let role = |name: &str| LibraryRole::of(&Path::new("/some/where").join(name));
        let (runtime, driver) = (
            LibraryRole::Cuda(Layer::Runtime),
            LibraryRole::Cuda(Layer::Driver),
        );
        for name in [
            "libcudart.so.12",
            "libcudart.so.13.0.96",
            "libcudart.faf08d9a.so.13",
            "libcudart-d0da41ae.so.11.0",
            "libcudart.so.12 (deleted)",
        ] {
            assert_eq!(role(name), Some(runtime), "{name}");
        }
        assert_eq!(role("libcuda.so.1"), Some(driver));
        assert_eq!(role("libcuda.so.580.159.04"), Some(driver));
        assert_eq!(role("libc10.so"), Some(LibraryRole::Framework));
        let tensorflow = role("libtensorflow_framework.so.2");
        assert_eq!(tensorflow, Some(LibraryRole::Framework));
        for name in [
            "cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so",
            "libonnxruntime.so.1.31.1 (deleted)",
            "onnxruntime_pybind11_state.cpython-312-x86_64-linux-gnu.so",
        ] {
            assert_eq!(role(name), Some(LibraryRole::Framework), "{name}");
        }
        assert_eq!(role("libc10_cuda.so"), Some(LibraryRole::Requests));
        for name in ["libcublas.so.12", "libcudnn.so.9", "libnccl.so.2"] {
            assert_eq!(role(name), Some(LibraryRole::Library), "{name}");
        }
        for name in ["ld-linux-x86-64.so.2", "ld-2.31.so", "ld-musl-x86_64.so.1"] {
            assert_eq!(role(name), Some(LibraryRole::Loader), "{name}");
        }
        for name in [
            "libcudadebugger.so.1",
            "libcurl.so.4",
            "ld.bfd",
            "python3",
            "memory.cpython-312.so",
        ] {
            assert_eq!(role(name), None, "{name}");
        }
    }
}
