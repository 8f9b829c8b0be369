//! Mappings of a process.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;
use super::{Limited, MAX_MAPS, named};

/// A snapshot of all mappings of a process.
pub struct Mappings(Vec<u8>);

impl fmt::Debug for Mappings {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

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
pub(super) fn listed(maps: &File) -> io::Result<Limited> {
    let read = Limited::of(maps, MAX_MAPS)?;
    if !read.bytes.is_empty() && maps.read_at(&mut [0], 0)? == 0 {
        return Err(io::Error::new(ErrorKind::NotFound, "the process has ended"));
    }
    Ok(read)
}

impl Mappings {
    /// Reads the mappings of process `pid`. A zombie has none.
    ///
    /// # Errors
    /// Returns the system's error if the process has exited or may not be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        static SAID: Once = Once::new();
        let path = format!("/proc/{pid}/maps");
        let read = File::open(&path).and_then(|file| listed(&file));
        let read = read.map_err(|error| named(&error, &path))?;
        read.warn_if_truncated(&path, &SAID);
        Ok(Self(read.whole_lines()))
    }

    /// Size of the kernel's list, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// Mappings in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = Mapping<'_>> {
        let lines = self.0.split(|&byte| byte == b'\n');
        lines.filter_map(Mapping::parse)
    }

    /// The mapping that contains `address`.
    pub fn at(&self, address: u64) -> Option<Mapping<'_>> {
        self.iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

/// Reads the mappings of a process one by one, each as it is at that time: other work need not wait
/// until a long list is read.
#[derive(Debug)]
pub struct MappingLines {
    lines: BufReader<File>,
    line: Vec<u8>,
}

impl MappingLines {
    /// Opens the mappings of process `pid`.
    ///
    /// # Errors
    /// Returns the system's error if the process has exited or may not be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/maps");
        let file = File::open(&path).map_err(|error| named(&error, &path))?;
        Ok(Self {
            lines: BufReader::new(file),
            line: Vec::new(),
        })
    }

    /// Reads the next mapping; the inner `None` is a malformed line, the outer `None` the end.
    ///
    /// # Errors
    /// Returns the system's error if the process has exited.
    pub fn read(&mut self) -> io::Result<Option<Option<Mapping<'_>>>> {
        self.line.clear();
        if self.lines.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(Mapping::parse(line)))
    }
}

impl<'a> Mapping<'a> {
    /// Parses a line `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE NAME`, with all numbers but
    /// the inode in hexadecimal; `None` if it is malformed.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let end = rest.iter().position(|&byte| byte == b' ');
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            rest = after.strip_prefix(b" ").unwrap_or(after);
            str::from_utf8(word).ok()
        };
        let (start, end) = word()?.split_once('-')?;
        let permissions = word()?.as_bytes();
        let offset = word()?;
        let (major, minor) = word()?.split_once(':')?;
        let inode = word()?;
        let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            is_readable: permissions.first() == Some(&b'r'),
            is_writable: permissions.get(1) == Some(&b'w'),
            is_code: permissions.get(2) == Some(&b'x'),
            offset: hexadecimal(offset)?,
            device: nix::sys::stat::makedev(hexadecimal(major)?, hexadecimal(minor)?),
            inode: inode.parse().ok()?,
            name: rest.trim_ascii_start(),
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
