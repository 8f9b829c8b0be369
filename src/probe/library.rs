//! The collector as a file that a CUDA program loads.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::mkdtemp;

use flate2::read::ZlibDecoder;
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
    path: PathBuf,
    /// The open file: if gpuprobe runs with capabilities of another user, that user can replace the path.
    file: Option<File>,
    batch_offset: u64,
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
        let offset = elf::exported_function(&COLLECTOR, BATCH_FUNCTION)?;
        let batch_offset =
            offset.with_context(|| format!("the collector has no {BATCH_FUNCTION}"))?;
        let mut reasons = Vec::new();
        for folder in folders {
            let filled = fresh_folder(folder).and_then(|fresh| {
                // Created first, so that the folder is removed after an error.
                let mut library = Self {
                    path: fresh.join(FILE),
                    file: None,
                    batch_offset,
                };
                library.file = Some(library.fill()?);
                Ok(library)
            });
            match filled {
                Ok(library) => return Ok(library),
                Err(error) => reasons.push(format!("{}: {error:#}", folder.display())),
            }
        }
        bail!("cannot write the CUPTI collector: {}", reasons.join("; "))
    }

    fn fill(&self) -> io::Result<File> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(&COLLECTOR)?;
        // Independent of the umask.
        file.set_permissions(Permissions::from_mode(0o755))?;
        // By descriptor, as another file may have taken the path.
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if let Some(folder) = self.path.parent() {
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        Ok(file)
    }

    /// The open file, for the probe.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The path for `CUDA_INJECTION64_PATH`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File offset of [`BATCH_FUNCTION`], for the probe.
    #[must_use]
    pub fn batch_offset(&self) -> u64 {
        self.batch_offset
    }
}

impl Drop for CollectorLibrary {
    fn drop(&mut self) {
        // A failure leaves a few hundred kilobytes behind.
        let _gone = fs::remove_file(&self.path);
        if let Some(folder) = self.path.parent() {
            let _gone = fs::remove_dir(folder);
        }
    }
}

fn fresh_folder(parent: &Path) -> Result<PathBuf> {
    let flags = statvfs(parent).context("it cannot be used")?.flags();
    if flags.contains(FsFlags::ST_NOEXEC) {
        bail!("it is mounted noexec");
    }
    Ok(mkdtemp(&parent.join("gpuprobe-XXXXXX"))?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_file_is_readable_by_all_and_removed_on_drop() {
        let library = CollectorLibrary::write().unwrap();
        let (file, folder) = (library.path().to_owned(), library.path().parent().unwrap());
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
        let moved = library.path().with_extension("moved");
        fs::rename(library.path(), &moved).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", library.path()).unwrap();
        let probed = library.file().unwrap().as_raw_fd();
        let probed = format!("/proc/self/fd/{probed}");
        assert_eq!(fs::read(probed).unwrap(), *COLLECTOR);
        fs::remove_file(moved).unwrap();
    }

    #[test]
    fn the_probed_function_begins_with_emulated_instructions() {
        let library = CollectorLibrary::write().unwrap();
        let at = usize::try_from(library.batch_offset()).unwrap();
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
        assert!(library.path().starts_with(usable.path()));
        let refused = CollectorLibrary::write_in(folders[..2].iter().copied());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("/proc: "), "{refused}");
        assert!(refused.contains("/nowhere: it cannot be used"), "{refused}");
    }
}
