//! Which of the files that interest us a process has mapped.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use procfs::ProcError;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use super::{FileId, Library, Role};

/// A mapped file, as `/proc/PID/maps` tells it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappingId {
    device: (i32, i32),
    inode: u64,
}

impl MappingId {
    /// Whether `file` certainly is the one that is mapped. On some file systems (btrfs) the two
    /// device numbers never agree.
    fn is(&self, file: &FileId) -> bool {
        let (major, minor) = self.device;
        let device = nix::sys::stat::makedev(
            u64::from(major.cast_unsigned()),
            u64::from(minor.cast_unsigned()),
        );
        file.device == device && file.inode == self.inode
    }
}

/// A file that a process has mapped.
#[derive(Debug)]
pub struct Mapped {
    /// Which it is.
    pub id: MappingId,
    /// What it is.
    pub role: Role,
    /// Its path as the process sees it.
    pub path: PathBuf,
    /// Paths that reach it from here, best first.
    openable: [PathBuf; 3],
}

impl Mapped {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be opened by any of its paths.
    pub fn open(&self) -> anyhow::Result<Library> {
        let [first, others @ ..] = &self.openable;
        let mut opened = self.open_by(first);
        for other in others {
            opened = opened.or_else(|_| self.open_by(other));
        }
        opened
    }

    fn open_by(&self, openable: &Path) -> anyhow::Result<Library> {
        let library = Library::open(openable, &self.path, self.role)?;
        // By its plain path, another file may be found: in another mount namespace, or newer.
        if openable == self.path && !self.id.is(&library.id) {
            bail!("{} is another file by now", self.path.display());
        }
        Ok(library)
    }
}

/// The CUDA libraries and the dynamic loader that process `pid` has mapped.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn mapped(pid: u32) -> Result<Vec<Mapped>, ProcError> {
    let process = Process::new(i32::try_from(pid).unwrap_or(i32::MAX))?;
    let mut seen = HashSet::new();
    let maps = process.maps()?;
    Ok(maps
        .iter()
        .filter_map(|map| mapped_file(pid, map))
        .filter(|mapped| seen.insert(mapped.id))
        .collect())
}

fn mapped_file(pid: u32, map: &MemoryMap) -> Option<Mapped> {
    let MMapPath::Path(path) = &map.pathname else {
        return None;
    };
    if !map.perms.contains(MMPermissions::EXECUTE) {
        return None;
    }
    let role = Role::of(path)?;
    // The first needs no rights over the process, but may be another file. The second reaches the
    // very file, also when it was deleted, but needs the most rights.
    let (start, end) = map.address;
    let by_mapping = format!("/proc/{pid}/map_files/{start:x}-{end:x}").into();
    let relative = path.strip_prefix("/").unwrap_or(path);
    let by_root = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(relative);
    Some(Mapped {
        id: MappingId {
            device: map.dev,
            inode: map.inode,
        },
        role,
        path: path.clone(),
        openable: [path.clone(), by_mapping, by_root],
    })
}

/// All processes that can be looked at.
pub fn all_pids() -> Vec<u32> {
    let Ok(processes) = procfs::process::all_processes() else {
        return Vec::new();
    };
    processes
        .flatten()
        .filter_map(|p| u32::try_from(p.pid).ok())
        .collect()
}

/// The living processes that descend from `pid`.
pub fn descendants(pid: u32) -> Vec<u32> {
    let Ok(processes) = procfs::process::all_processes() else {
        return Vec::new();
    };
    let parents: Vec<_> = processes
        .flatten()
        .filter_map(|p| {
            let stat = p.stat().ok()?;
            Some((
                u32::try_from(stat.pid).ok()?,
                u32::try_from(stat.ppid).ok()?,
            ))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        let children = parents.iter().filter(|(_, ppid)| *ppid == parent);
        found.extend(children.map(|(child, _)| child));
        next += 1;
    }
    found.split_off(1)
}

/// One certain process: its id may later be given to another.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// Process id.
    pub pid: u32,
    start_ticks: u64,
}

impl Handle {
    /// The process of which `id` is a thread.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(id: u32) -> Result<Self, ProcError> {
        let process = Process::new(i32::try_from(id).unwrap_or(i32::MAX))?;
        let pid = u32::try_from(process.status()?.tgid).unwrap_or(id);
        let leader = Process::new(i32::try_from(pid).unwrap_or(i32::MAX))?;
        Ok(Self {
            pid,
            start_ticks: leader.stat()?.starttime,
        })
    }

    /// Whether it is still running.
    pub fn is_alive(&self) -> bool {
        let pid = i32::try_from(self.pid).unwrap_or(i32::MAX);
        let stat = Process::new(pid).and_then(|p| p.stat());
        stat.is_ok_and(|s| s.starttime == self.start_ticks && !matches!(s.state, 'Z' | 'X'))
    }
}
