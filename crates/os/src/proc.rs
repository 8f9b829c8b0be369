//! Files of a process in `/proc`. Names and paths in them are chosen by the process: they are
//! bytes, not necessarily UTF-8, and must not be trusted.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;

/// Bytes that are read of a process's mappings at once: a million mappings without a name, or 1 KiB
/// for each mapping of the kernel's default maximum. Lines can be four times as long.
const MAX_MAPS: u64 = 64 << 20;
/// Bytes that are read of an environment: `exec` passes 6 MiB at most, but afterwards a process can
/// declare any part of its memory its environment.
const MAX_ENVIRONMENT: u64 = 8 << 20;
/// Bytes of a variable that is read.
const MAX_VARIABLE: u64 = 16 << 10;
/// Bytes that are read of a command line.
const MAX_COMMAND_LINE: u64 = 8192;
/// Bytes that are read of any other file. Groups are the longest list: 65,536.
const MAX_OTHER: u64 = 1 << 20;

/// Bytes of most files.
const USUAL: usize = 4 << 10;

/// The beginning of a `/proc` file, whose length the process controls.
struct Limited {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Limited {
    fn read(path: &str, limit: u64) -> io::Result<Self> {
        Self::of(File::open(path)?, limit)
    }

    fn of(source: impl Read, limit: u64) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(USUAL);
        source.take(limit + 1).read_to_end(&mut bytes)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_cut = bytes.len() > limit;
        bytes.truncate(limit);
        Ok(Self { bytes, is_cut })
    }

    /// The content without a line that was cut at the end.
    fn whole_lines(mut self) -> Vec<u8> {
        if self.is_cut {
            let end = self.bytes.iter().rposition(|&byte| byte == b'\n');
            self.bytes.truncate(end.map_or(0, |end| end + 1));
        }
        self.bytes
    }

    /// Prints a warning, once, for the first file that was cut.
    fn warn_if_truncated(&self, path: &str, said: &Once) {
        if self.is_cut {
            said.call_once(|| {
                let mib = self.bytes.len() >> 20;
                tracing::warn!(
                    "{path} has more than {mib} MiB, of which the rest is not read, here and \
                     wherever else it is so long"
                );
            });
        }
    }
}

/// Whether `error` means that the process has exited, and not that access was refused.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

/// Adds the path to an error. An exit during the read counts as `NotFound`.
fn named(error: &io::Error, path: &str) -> io::Error {
    let kind = if is_gone(error) {
        ErrorKind::NotFound
    } else {
        error.kind()
    };
    io::Error::new(kind, format!("{path}: {error}"))
}

/// Reads these variables from the initial environment of process `pid`; `None` for those that are not
/// set, or longer than 16 KiB.
///
/// This takes the lock of the process's address space, which the process can make others wait for.
///
/// # Errors
/// Returns the system's error if the process has exited or may not be read.
pub fn variables(pid: u32, names: &[String]) -> io::Result<Vec<Option<Vec<u8>>>> {
    let file = File::open(format!("/proc/{pid}/environ"))?;
    let mut entries = BufReader::new(file.take(MAX_ENVIRONMENT));
    let mut values = vec![None; names.len()];
    let mut entry = Vec::new();
    loop {
        entry.clear();
        if (&mut entries)
            .take(MAX_VARIABLE)
            .read_until(0, &mut entry)?
            == 0
        {
            return Ok(values);
        }
        if entry.pop_if(|last| *last == 0).is_none() {
            entries.skip_until(0)?;
            continue;
        }
        for (name, value) in names.iter().zip(&mut values) {
            let found = entry.strip_prefix(name.as_bytes());
            if let Some(found) = found.and_then(|rest| rest.strip_prefix(b"="))
                && value.is_none()
            {
                *value = Some(found.to_vec());
            }
        }
    }
}

/// Reads the beginning of the command line of process `pid`: words, each terminated by a zero byte.
///
/// This takes a lock of the process, as [`variables`] does.
///
/// # Errors
/// Returns the system's error if the process has exited.
pub fn command_line(pid: u32) -> io::Result<Vec<u8>> {
    Ok(Limited::read(&format!("/proc/{pid}/cmdline"), MAX_COMMAND_LINE)?.bytes)
}

/// Reads the file `name` of process `pid`, for files that the kernel keeps short, and that are not in the
/// process's memory.
///
/// # Errors
/// Returns the system's error if the process has exited or may not be read.
pub fn short(pid: u32, name: &str) -> io::Result<Vec<u8>> {
    Ok(Limited::read(&format!("/proc/{pid}/{name}"), MAX_OTHER)?.bytes)
}

/// The fields of `/proc/PID/stat` behind the name, of which the first is the state; `None` if the process has
/// exited. A name can have spaces and brackets.
#[must_use]
pub fn stat_after_name(pid: u32) -> Option<Vec<String>> {
    let stat = String::from_utf8_lossy(&short(pid, "stat").ok()?).into_owned();
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_ascii_whitespace().map(str::to_owned);
    Some(fields.collect())
}

/// A snapshot of all mappings of a process.
pub struct Mappings(Vec<u8>);

impl fmt::Debug for Mappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
fn listed(maps: &File) -> io::Result<Limited> {
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

/// A snapshot of `/proc/PID/status`.
#[derive(Debug)]
pub struct Status(Vec<u8>);

impl Status {
    /// Reads the status of process or thread `pid`.
    ///
    /// # Errors
    /// Returns the system's error if there is no such process or thread.
    pub fn of(pid: u32) -> io::Result<Self> {
        short(pid, "status").map(Self)
    }

    /// The value after `NAME:`, trimmed; `None` if there is no such field or it is not UTF-8. A
    /// process name cannot forge a field: the kernel escapes newlines in it as `\n`.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.split(|&byte| byte == b'\n');
        let value = lines.find_map(|line| {
            let rest = line.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b":")
        })?;
        Some(str::from_utf8(value).ok()?.trim())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
