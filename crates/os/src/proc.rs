//! Files of a process in `/proc`, read up to a bound and parsed by `procfs`. Names and paths in them are chosen
//! by the process: they are bytes, not necessarily UTF-8, and must not be trusted.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;

use procfs::process::{MMPermissions, MemoryMaps};
pub use procfs::process::{Stat, Status};
use procfs::{FromBufRead, FromRead};

/// Bytes that are read of a process's mappings: a million mappings without a name, or 1 KiB for each mapping of
/// the kernel's default maximum. Lines can be four times as long.
const MAX_MAPS: usize = 64 << 20;
/// Bytes that are read of an environment: `exec` passes 6 MiB at most, but afterwards a process can
/// declare any part of its memory its environment.
const MAX_ENVIRONMENT: usize = 8 << 20;
/// Bytes of a variable that is read.
const MAX_VARIABLE: usize = 16 << 10;
/// Bytes that are read of a command line.
const MAX_COMMAND_LINE: usize = 8192;
/// Bytes that are read of any other file. Groups are the longest list: 65,536.
const MAX_OTHER: usize = 1 << 20;

/// The first bytes of a file, whose length the process controls.
fn beginning(source: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read(pid: u32, name: &str, limit: usize) -> io::Result<Vec<u8>> {
    beginning(File::open(format!("/proc/{pid}/{name}"))?, limit)
}

/// Whether `error` means that the process has exited, and not that access was refused.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

/// Reads these variables from the initial environment of process `pid`; `None` for those that are not
/// set, or longer than 16 KiB.
///
/// This takes the lock of the process's address space, which the process can make others wait for.
///
/// # Errors
/// Returns the system's error if the process has exited or may not be read.
pub fn variables(pid: u32, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
    let environment = read(pid, "environ", MAX_ENVIRONMENT)?;
    let value = |name: &String| {
        let mut entries = environment.split(|&byte| byte == 0);
        let value = entries.find_map(|entry| {
            let rest = entry.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b"=")
        });
        Some(value.filter(|value| value.len() < MAX_VARIABLE)?.to_vec())
    };
    Ok(names.iter().map(value).collect())
}

/// Reads the beginning of the command line of process `pid`: words, each terminated by a zero byte.
///
/// This takes a lock of the process, as [`variables`] does.
///
/// # Errors
/// Returns the system's error if the process has exited.
pub fn command_line(pid: u32) -> io::Result<Vec<u8>> {
    read(pid, "cmdline", MAX_COMMAND_LINE)
}

/// Reads the file `name` of process `pid`, for files that the kernel keeps short, and that are not in the
/// process's memory.
///
/// # Errors
/// Returns the system's error if the process has exited or may not be read.
pub fn short(pid: u32, name: &str) -> io::Result<String> {
    let bytes = read(pid, name, MAX_OTHER)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the state, times and memory of process or thread `pid`.
///
/// # Errors
/// Returns the system's error if there is none.
pub fn stat(pid: u32) -> io::Result<Stat> {
    Stat::from_read(short(pid, "stat")?.as_bytes()).map_err(io::Error::other)
}

/// Reads the ids and users of process or thread `pid`. A name cannot forge a field: the kernel escapes newlines in
/// it as `\n`.
///
/// # Errors
/// Returns the system's error if there is none.
pub fn status(pid: u32) -> io::Result<Status> {
    Status::from_buf_read(short(pid, "status")?.as_bytes()).map_err(io::Error::other)
}

/// The id of process or thread `pid` in its own PID namespace.
///
/// # Errors
/// Returns the system's error if there is none.
pub fn inner_id(pid: u32) -> io::Result<u32> {
    let ids = status(pid)?.nspid.unwrap_or_default();
    let inner = ids.last().and_then(|&inner| u32::try_from(inner).ok());
    Ok(inner.unwrap_or(pid))
}

/// A snapshot of all mappings of a process, as the kernel writes them.
#[derive(Debug)]
pub struct Mappings(Vec<u8>);

/// A line of `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address of the mapping.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// The mapping is readable.
    pub is_readable: bool,
    /// The mapping is writable.
    pub is_writable: bool,
    /// The mapping is executable.
    pub is_code: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device number of the file, as from `makedev`.
    pub device: u64,
    /// Inode of the file; 0 for anonymous memory.
    pub inode: u64,
    /// A path, `[heap]` or a similar name, or empty.
    name: &'a [u8],
}

/// Reads `/proc/PID/maps`. The kernel generates the list piecewise: if the process exits or
/// executes another program meanwhile, the rest is missing without an error. Reading its beginning
/// again then returns nothing, which is how this is detected.
fn listed(maps: &File) -> io::Result<Vec<u8>> {
    static SAID: Once = Once::new();
    let lines = beginning(maps, MAX_MAPS)?;
    if !lines.is_empty() && maps.read_at(&mut [0], 0)? == 0 {
        return Err(io::Error::new(ErrorKind::NotFound, "the process has ended"));
    }
    if lines.len() == MAX_MAPS {
        SAID.call_once(|| {
            tracing::warn!(
                "mappings of a process beyond {MAX_MAPS} bytes of its list are not read"
            );
        });
    }
    Ok(lines)
}

impl Mappings {
    /// Reads the mappings of process `pid`. A zombie has none.
    ///
    /// # Errors
    /// Returns the system's error if the process has exited or may not be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        listed(&File::open(format!("/proc/{pid}/maps"))?).map(Self)
    }

    /// Mappings in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = Mapping<'_>> {
        // Of a list that is cut, the last line is no whole one.
        let lines = self.0.split_inclusive(|&byte| byte == b'\n');
        lines.filter_map(|line| Mapping::parse(line.strip_suffix(b"\n")?))
    }

    /// The mapping that contains `address`.
    pub fn at(&self, address: u64) -> Option<Mapping<'_>> {
        self.iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

impl<'a> Mapping<'a> {
    /// Parses a line `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`; `None` if it is malformed.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut spaces = line.iter().enumerate().filter(|(_, byte)| **byte == b' ');
        let (at, _) = spaces.nth(4)?;
        // Without the name, which the process chooses: procfs panics at some (`/SYSV`), and takes no other bytes
        // than UTF-8.
        let (fields, name) = line.split_at(at + 1);
        let map = MemoryMaps::from_buf_read(fields).ok()?.0.pop()?;
        let number = |part: i32| u64::try_from(part).ok();
        Some(Self {
            start: map.address.0,
            end: map.address.1,
            is_readable: map.perms.contains(MMPermissions::READ),
            is_writable: map.perms.contains(MMPermissions::WRITE),
            is_code: map.perms.contains(MMPermissions::EXECUTE),
            offset: map.offset,
            device: nix::sys::stat::makedev(number(map.dev.0)?, number(map.dev.1)?),
            inode: map.inode,
            name: name.trim_ascii_start(),
        })
    }

    /// Path of the file as the process sees it; for a deleted file, followed by ` (deleted)`.
    pub fn path(&self) -> Option<&'a Path> {
        let is_file = self.name.starts_with(b"/");
        is_file.then(|| Path::new(OsStr::from_bytes(self.name)))
    }

    /// Path of the file without the ` (deleted)` mark.
    pub fn path_without_mark(&self) -> Option<&'a Path> {
        let bytes = self.path()?.as_os_str().as_bytes();
        let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
        Some(Path::new(OsStr::from_bytes(bytes)))
    }

    /// Whether it is the kernel's vsyscall page, which every process has without mapping it.
    pub fn is_vsyscall(&self) -> bool {
        self.name == b"[vsyscall]"
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
