//! The collector as a file that a CUDA program can load.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::mkdtemp;

use gpuprobe_stacks::functions as elf;
use gpuprobe_wire::BATCH_FUNCTION;

/// What the build has made of `collector/`.
const BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libgpuprobe_collector.so"));

const FILE: &str = "libgpuprobe-collector.so";

/// Where it may be written, best first: what is in memory and only root's before what others may
/// write to.
const FOLDERS: &[&str] = &["/run", "/tmp", "/dev/shm"];

/// The collector, written to a fresh folder that only this user can write to and every user can
/// read, because the traced program may run as any. Dropping it removes both; a program that has
/// loaded it keeps it.
#[derive(Debug)]
pub struct Library {
    path: PathBuf,
    /// The file itself: where we have more rights than our user, that user may give its name to another.
    file: Option<File>,
    batch_offset: u64,
}

impl Library {
    /// Writes it.
    ///
    /// # Errors
    /// There is no folder that can be written to and that programs may be loaded from.
    pub fn write() -> Result<Self> {
        Self::write_in(FOLDERS.iter().map(Path::new))
    }

    fn write_in<'a>(folders: impl Iterator<Item = &'a Path>) -> Result<Self> {
        let offset = elf::exported_function(BYTES, BATCH_FUNCTION)?;
        let batch_offset =
            offset.with_context(|| format!("the collector has no {BATCH_FUNCTION}"))?;
        let mut reasons = Vec::new();
        for folder in folders {
            match fresh_folder(folder) {
                Ok(fresh) => {
                    // Made first, so that whatever comes next the folder goes again.
                    let mut library = Self {
                        path: fresh.join(FILE),
                        file: None,
                        batch_offset,
                    };
                    match library.fill() {
                        Ok(file) => {
                            library.file = Some(file);
                            return Ok(library);
                        }
                        Err(error) => reasons.push(format!("{}: {error}", folder.display())),
                    }
                }
                Err(error) => reasons.push(format!("{}: {error:#}", folder.display())),
            }
        }
        bail!(
            "cannot write the library that the program is to load: {}",
            reasons.join("; ")
        )
    }

    fn fill(&self) -> io::Result<File> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.path)?;
        file.write_all(BYTES)?;
        // Whatever the umask says.
        file.set_permissions(Permissions::from_mode(0o755))?;
        // Whose name it has by now may be another's.
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if let Some(folder) = self.path.parent() {
            fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        }
        Ok(file)
    }

    /// A path by which the kernel reaches this very file, for the probe.
    #[must_use]
    pub fn attach_path(&self) -> String {
        let number = self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        format!("/proc/self/fd/{number}")
    }

    /// For `CUDA_INJECTION64_PATH`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where in the file [`BATCH_FUNCTION`] is, for the probe.
    #[must_use]
    pub fn batch_offset(&self) -> u64 {
        self.batch_offset
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // What is left when this fails is a few hundred kilobytes of memory.
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
    fn every_user_can_load_it_and_it_goes_again() {
        let library = Library::write().unwrap();
        let (file, folder) = (library.path().to_owned(), library.path().parent().unwrap());
        let folder = folder.to_owned();
        for path in [&file, &folder] {
            let metadata = fs::metadata(path).unwrap();
            assert_eq!(metadata.mode() & 0o7777, 0o755);
            assert_eq!(metadata.uid(), nix::unistd::geteuid().as_raw());
        }
        assert_eq!(fs::read(&file).unwrap(), BYTES);
        drop(library);
        assert!(!file.exists());
        assert!(!folder.exists());
    }

    #[test]
    fn what_is_probed_is_what_was_written_whoever_has_its_name() {
        let library = Library::write().unwrap();
        let moved = library.path().with_extension("moved");
        fs::rename(library.path(), &moved).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", library.path()).unwrap();
        assert_eq!(fs::read(library.attach_path()).unwrap(), BYTES);
        fs::remove_file(moved).unwrap();
    }

    #[test]
    fn the_probed_function_begins_with_what_the_kernel_emulates() {
        let library = Library::write().unwrap();
        let at = usize::try_from(library.batch_offset()).unwrap();
        if cfg!(target_arch = "x86_64") {
            // push %rbp; mov %rsp,%rbp; pop %rbp; ret
            assert_eq!(BYTES[at..at + 6], [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3]);
        }
        let entry = elf::exported_function(BYTES, "InitializeInjection").unwrap();
        assert!(entry.is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_passed_over() {
        let usable = tempfile::tempdir().unwrap();
        let folders = [Path::new("/proc"), Path::new("/nowhere"), usable.path()];
        let library = Library::write_in(folders.into_iter()).unwrap();
        assert!(library.path().starts_with(usable.path()));
        let refused = Library::write_in(folders[..2].iter().copied());
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("/proc: "), "{refused}");
        assert!(refused.contains("/nowhere: it cannot be used"), "{refused}");
    }
}
