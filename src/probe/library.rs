//! The collector as a file that a CUDA program loads.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use flate2::read::ZlibDecoder;
use nix::sys::statvfs::{FsFlags, statvfs};
use tempfile::TempDir;

use gpuprobe_stacks::functions as elf;
use gpuprobe_wire::BATCH_FUNCTION;

/// The library built from `collector/`.
static COLLECTOR: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let compressed: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libgpuprobe_collector.so.z"));
    let mut file = Vec::new();
    // The bytes are the build's own, and whoever gets them checks them.
    if let Err(error) = ZlibDecoder::new(compressed).read_to_end(&mut file) {
        tracing::error!("cannot decompress the collector: {error}");
    }
    file
});

const FILE: &str = "libgpuprobe-collector.so";

/// Folders for the file, best first: in memory and writable by root only before world-writable ones.
const FOLDERS: &[&str] = &["/run", "/tmp", "/dev/shm"];

/// The collector's file in a new folder, writable by this user only and readable by all, as the traced
/// program may run as any user. Both are removed on drop; programs that have loaded it keep it.
#[derive(Debug)]
pub struct CollectorLibrary {
    /// The path for `CUDA_INJECTION64_PATH`.
    pub path: PathBuf,
    /// The open file, for the probe: if gpuprobe runs with capabilities of another user, that user can replace the
    /// path.
    pub file: File,
    /// File offset of [`BATCH_FUNCTION`], for the probe.
    pub batch_offset: u64,
    _folder: TempDir,
}

impl CollectorLibrary {
    /// Writes the file.
    ///
    /// # Errors
    /// Returns an error if no folder is writable and allows execution.
    pub fn write() -> Result<Self> {
        Self::write_in(FOLDERS.iter().map(Path::new))
    }

    fn write_in<'a>(folders: impl Iterator<Item = &'a Path>) -> Result<Self> {
        let mut reasons = Vec::new();
        for folder in folders {
            match Self::write_to(folder) {
                Ok(library) => return Ok(library),
                Err(error) => reasons.push(format!("{}: {error:#}", folder.display())),
            }
        }
        bail!("cannot write the CUPTI collector: {}", reasons.join("; "))
    }

    fn write_to(parent: &Path) -> Result<Self> {
        let flags = statvfs(parent).context("it cannot be used")?.flags();
        if flags.contains(FsFlags::ST_NOEXEC) {
            bail!("it is mounted noexec");
        }
        let folder = tempfile::Builder::new()
            .prefix("gpuprobe-")
            .tempdir_in(parent)?;
        let path = folder.path().join(FILE);
        let mut file = File::create_new(&path)?;
        file.write_all(&COLLECTOR)?;
        // Independent of the umask.
        file.set_permissions(Permissions::from_mode(0o755))?;
        // By descriptor, as another file may have taken the path.
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let offset = elf::exported_function(&COLLECTOR, BATCH_FUNCTION)?;
        Ok(Self {
            path,
            file,
            batch_offset: offset
                .with_context(|| format!("the collector has no {BATCH_FUNCTION}"))?,
            _folder: folder,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_file_is_readable_by_all_and_removed_on_drop() {
        let library = CollectorLibrary::write().unwrap();
        let (file, folder) = (library.path.clone(), library.path.parent().unwrap());
        let folder = folder.to_owned();
        for path in [&file, &folder] {
            let metadata = fs::metadata(path).unwrap();
            assert_eq!(metadata.mode() & 0o7777, 0o755);
            assert_eq!(metadata.uid(), nix::unistd::geteuid().as_raw());
        }
        assert_eq!(fs::read(&file).unwrap(), *COLLECTOR);
        drop(library);
        assert!(!file.exists());
        assert!(!folder.exists());
    }

    #[test]
    fn the_probed_file_is_the_written_one_after_a_rename() {
        let library = CollectorLibrary::write().unwrap();
        let moved = library.path.with_extension("moved");
        fs::rename(&library.path, &moved).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", &library.path).unwrap();
        let probed = library.file.as_raw_fd();
        let probed = format!("/proc/self/fd/{probed}");
        assert_eq!(fs::read(probed).unwrap(), *COLLECTOR);
        fs::remove_file(moved).unwrap();
    }

    #[test]
    fn the_probed_function_begins_with_emulated_instructions() {
        let library = CollectorLibrary::write().unwrap();
        let at = usize::try_from(library.batch_offset).unwrap();
        if cfg!(target_arch = "x86_64") {
            // push %rbp; mov %rsp,%rbp; pop %rbp; ret
            assert_eq!(COLLECTOR[at..at + 6], [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3]);
        }
        let entry = elf::exported_function(&COLLECTOR, "InitializeInjection").unwrap();
        assert!(entry.is_some());
    }

    #[test]
    fn unusable_folders_are_skipped() {
        let usable = tempfile::tempdir().unwrap();
        let folders = [Path::new("/proc"), Path::new("/nowhere"), usable.path()];
        let library = CollectorLibrary::write_in(folders.into_iter()).unwrap();
        assert!(library.path.starts_with(usable.path()));
        let refused = CollectorLibrary::write_in(folders[..2].iter().copied());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("/proc: "), "{refused}");
        assert!(refused.contains("/nowhere: it cannot be used"), "{refused}");
    }
}
