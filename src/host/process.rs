//! Processes of this host, and the CUDA libraries that they have mapped.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::Context;

use super::{FileId, LibraryId, LibraryRole, MappedLibrary};
use gpuprobe_model::event::Task;
use gpuprobe_os::proc::{self, Mapping, Mappings, Stat};
use gpuprobe_os::regular::open_mapped;

/// A file that a process has mapped.
#[derive(Debug)]
pub struct Mapped {
    /// By the numbers in `maps`. On some file systems (btrfs) they are never those of `stat`.
    id: FileId,
    /// Role of the file.
    pub role: LibraryRole,
    /// Path as the process sees it.
    pub path: PathBuf,
    pid: u32,
    /// Address range of the mapping.
    range: (u64, u64),
}

impl Mapped {
    #[cfg(test)]
    pub(crate) fn numbered(inode: u64, role: LibraryRole) -> Self {
        Self {
            id: FileId::numbered(inode),
            role,
            path: PathBuf::new(),
            pid: 0,
            range: (0, 0),
        }
    }

    /// The file with its role.
    pub fn id(&self) -> LibraryId {
        LibraryId {
            file: self.id,
            role: self.role,
        }
    }

    /// Opens the mapped file.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, or its path is that of another file by now.
    /// [`gpuprobe_os::mounts::is_foreign`] is true of the cause if another user serves the file system.
    pub fn open(&self) -> anyhow::Result<MappedLibrary> {
        let FileId { device, inode } = self.id;
        let file = open_mapped(self.pid, self.range, (device, inode), &self.path);
        let file = file.with_context(|| format!("cannot open {}", self.path.display()))?;
        MappedLibrary::of(file, &self.path, self.role)
    }
}

/// The CUDA libraries and the dynamic loader that process `pid` has mapped, each once.
///
/// # Errors
/// Returns an error if the process has ended, or its mappings must not be read.
pub fn mapped(pid: u32) -> io::Result<Vec<Mapped>> {
    let maps = Mappings::of(pid)?;
    let mut seen = HashSet::new();
    let found = maps.iter().filter_map(|map| mapped_file(pid, &map));
    Ok(found.filter(|found| seen.insert(found.id)).collect())
}

fn mapped_file(pid: u32, map: &Mapping<'_>) -> Option<Mapped> {
    let path = map.path_without_mark().filter(|_| map.is_code)?;
    Some(Mapped {
        id: FileId {
            device: map.device,
            inode: map.inode,
        },
        role: LibraryRole::of(path)?,
        path: path.to_owned(),
        pid,
        range: (map.start, map.end),
    })
}

/// Ids of all processes in `/proc`.
pub fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// The live descendants of process `pid`.
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<_> = all_pids()
        .into_iter()
        .filter_map(|pid| Some((pid, proc::stat(pid).ok()?.ppid)))
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents
            .iter()
            .filter(|(_, ppid)| u32::try_from(*ppid) == Ok(parent));
        found.extend(children.map(|(child, _)| child));
        next += 1;
    }
    found.split_off(1)
}

/// A process told apart from others with the same id (PID reuse) by its start time.
#[derive(Clone, Copy, Debug)]
pub struct ProcessHandle {
    /// Process id on the host.
    pub pid: u32,
    start_ticks: u64,
}

impl ProcessHandle {
    /// The process to which thread `id` belongs.
    ///
    /// # Errors
    /// Returns an error if there is no such process.
    pub fn of(id: u32) -> io::Result<Self> {
        let pid = u32::try_from(proc::status(id)?.tgid).unwrap_or(id);
        Ok(Self {
            pid,
            start_ticks: proc::stat(pid)?.starttime,
        })
    }

    /// When it started, on `CLOCK_BOOTTIME`, to a hundredth of a second.
    pub fn start_boot_ns(&self) -> u64 {
        let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
        self.start_ticks.saturating_mul(tick_ns)
    }

    /// Whether it is running; true if that cannot be read.
    pub fn is_alive(&self) -> bool {
        is_running(self.pid, |stat| stat.starttime == self.start_ticks)
    }
}

/// Process `pid` as the task of a kernel-side record.
///
/// # Errors
/// Returns an error if there is no such process.
pub fn task_of(pid: u32) -> io::Result<Task> {
    Ok(Task {
        pid,
        tid: pid,
        uid: proc::status(pid)?.ruid,
        process: 0,
        from_birth: false,
        inner_pid: proc::inner_id(pid)?,
        cgroup: 0,
        time_ns: 0,
        comm: proc::stat(pid)?.comm,
    })
}

/// Whether a process with this id is running; true if that cannot be read.
pub fn is_alive(pid: u32) -> bool {
    is_running(pid, |_| true)
}

fn is_running(pid: u32, is_it: impl FnOnce(&Stat) -> bool) -> bool {
    match proc::stat(pid) {
        Ok(stat) => !matches!(stat.state, 'Z' | 'X') && is_it(&stat),
        Err(error) => !proc::is_gone(&error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn this_process_is_alive() {
        let handle = ProcessHandle::of(std::process::id()).unwrap();
        assert_eq!(handle.pid, std::process::id());
        assert!(handle.is_alive() && is_alive(handle.pid));
        assert!(!is_alive(u32::MAX));
    }

    #[test]
    fn the_loader_of_this_process_is_found_once() {
        let found = mapped(std::process::id()).unwrap();
        let loaders = found.iter().filter(|it| it.role == LibraryRole::Loader);
        assert_eq!(loaders.count(), 1);
    }

    #[test]
    fn a_process_that_cannot_be_read_is_not_gone() {
        let is_gone = |error: Errno| proc::is_gone(&error.into());
        assert!(
            ![Errno::EMFILE, Errno::ENOMEM, Errno::EACCES]
                .into_iter()
                .any(is_gone)
        );
        assert!([Errno::ENOENT, Errno::ESRCH].into_iter().all(is_gone));
    }
}
