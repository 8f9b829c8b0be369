//! Finding the CUDA libraries that programs use.

pub mod budget;
pub mod cupti;
pub mod gpus;
pub mod identity;
pub mod nvml;
pub mod process;
pub mod system;
pub mod world;

use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};

use gpuprobe_cuda::Layer;
use gpuprobe_os::regular::open_regular;
use gpuprobe_stacks::functions;
use gpuprobe_stacks::reader::{Opener, Reader, Wanted};

/// A file, whatever its names: the same library seen through containers and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// What a file looks like through every overlay that it is in. An overlay has a device number of
/// its own for the files of its layers, while probes are placed at the files in the layers: to
/// probe a library for each container of an image would see every call that often. When the inode
/// last changed, to the nanosecond, no copy of the file can have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Likeness {
    inode: u64,
    size_bytes: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

/// Overlays of several file systems number these in the upper bits of their inodes.
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

/// What a mapped file is to us, by its name. Anybody can give a file another name, in a mount namespace of
/// their own: what is known of a file in one role says nothing about it in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A CUDA library.
    Cuda(Layer),
    /// A library of a framework with an allocator of its own.
    Framework,
    /// One that may have places where such an allocator says what was asked for.
    Requests,
    /// The dynamic loader.
    Loader,
}

impl Role {
    /// The role of a file of this name, if it has one. Wheels rename the runtime
    /// (`libcudart-d0da41ae.so.11.0`, `libcudart.faf08d9a.so.13`).
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        if name.starts_with("libcuda.so") {
            Some(Self::Cuda(Layer::Driver))
        } else if name.starts_with("libcudart") && name.contains(".so") {
            Some(Self::Cuda(Layer::Runtime))
        } else if name.starts_with("libc10.so") || name.starts_with("libtensorflow_framework.so") {
            Some(Self::Framework)
        } else if name.starts_with("libc10_cuda.so") {
            Some(Self::Requests)
        } else if name.starts_with("ld-") && name.contains(".so") {
            // ld-linux-x86-64.so.2, ld-2.31.so, ld-musl-x86_64.so.1
            Some(Self::Loader)
        } else {
            None
        }
    }
}

/// A file in one of its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LibraryId {
    file: FileId,
    role: Role,
}

impl LibraryId {
    /// Whether the file has the name `path` here, which somebody else has chosen: `owner`, whose file it
    /// is, can see it there. Takes a second if whoever serves what is there does not answer.
    pub fn is_at(&self, path: &Path, owner: u32, opener: &Opener) -> bool {
        let path = path.as_os_str().as_bytes().to_vec();
        let found = opener.open(&Wanted::At(path, None, owner), None);
        let found = found.and_then(|file| file.metadata().ok());
        found.is_some_and(|found| FileId::of(&found) == self.file)
    }
}

/// An open library. The descriptor keeps the very file that was found, also when its path is
/// given to another file meanwhile.
#[derive(Debug)]
pub struct Library {
    /// Which file it is.
    pub id: FileId,
    /// How messages call it.
    pub path: PathBuf,
    /// What it is.
    pub role: Role,
    /// What it looks like through overlays.
    pub likeness: Likeness,
    /// It was found through an overlay.
    pub in_overlay: bool,
    /// The user whose file it is.
    pub owner: u32,
    file: File,
}

impl Library {
    /// Opens `openable`, which messages call `path`.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(openable: &Path, path: &Path, role: Role) -> Result<Self> {
        let file = open_regular(openable);
        Self::of(
            file.with_context(|| format!("cannot open {}", path.display()))?,
            path,
            role,
        )
    }

    /// The library in `file`, which messages call `path`.
    ///
    /// # Errors
    /// Returns the system's error if it says nothing of the file.
    pub fn of(file: File, path: &Path, role: Role) -> Result<Self> {
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

    /// The file, in its role.
    pub fn id(&self) -> LibraryId {
        LibraryId {
            file: self.id,
            role: self.role,
        }
    }

    /// A path by which the kernel reaches this very file.
    pub fn attach_path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// The number of its descriptor: no fewer files are open, as it has the first that was free.
    pub fn descriptor(&self) -> u64 {
        u64::try_from(self.file.as_raw_fd()).unwrap_or_default()
    }

    /// The functions of the table that the library exports, each file offset once.
    ///
    /// # Errors
    /// The file is no ELF file for this machine, or cannot be read.
    pub fn functions(&self, reader: &Reader, layer: Layer) -> Result<Vec<functions::Function>> {
        reader
            .functions(&self.file, &self.path, layer)
            .with_context(|| format!("cannot read {}", self.path.display()))
    }

    /// The loader's rendezvous, if the file has one.
    ///
    /// # Errors
    /// The file is no ELF file for this machine.
    pub fn rendezvous(&self, reader: &Reader) -> Result<Option<functions::Rendezvous>> {
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
    fn what_is_no_file_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("gpuprobe-fifo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let fifo = folder.join("libcuda.so.1 (deleted)");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let role = Role::Cuda(Layer::Driver);
        let error = Library::open(&fifo, &fifo, role).unwrap_err();
        assert!(
            format!("{error:#}").contains("no regular file"),
            "{error:#}"
        );
        assert!(Library::open(&folder, &folder, role).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn roles_by_name() {
        let role = |name: &str| Role::of(&Path::new("/some/where").join(name));
        let (runtime, driver) = (Role::Cuda(Layer::Runtime), Role::Cuda(Layer::Driver));
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
        assert_eq!(role("libc10.so"), Some(Role::Framework));
        let tensorflow = role("libtensorflow_framework.so.2");
        assert_eq!(tensorflow, Some(Role::Framework));
        assert_eq!(role("libc10_cuda.so"), Some(Role::Requests));
        for name in ["ld-linux-x86-64.so.2", "ld-2.31.so", "ld-musl-x86_64.so.1"] {
            assert_eq!(role(name), Some(Role::Loader), "{name}");
        }
        for name in [
            "libcudadebugger.so.1",
            "libcublas.so.12",
            "ld.bfd",
            "python3",
        ] {
            assert_eq!(role(name), None, "{name}");
        }
    }
}
