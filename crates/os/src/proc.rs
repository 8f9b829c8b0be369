//! The files of a process in `/proc`, byte for byte. Names and paths there are the process's own
//! choice: nothing may depend on these being text, or on what they look like.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Once;

/// Bytes that are read of the mappings of a process at once: a million without a name, or a KiB of
/// each where the kernel allows as many as it does by default. Its lines can be four times as long.
const MAX_MAPS: u64 = 64 << 20;
/// Bytes that are read of an environment: `exec` gives a process 6 MiB at most, but afterwards it
/// can call any part of its memory its environment.
const MAX_ENVIRONMENT: u64 = 8 << 20;
/// Bytes that are read of anything else. Groups are the most that a process can have many of: 65,536.
const MAX_OTHER: u64 = 1 << 20;

/// The beginning of a file of `/proc`, which has as many bytes as its process likes.
struct Limited {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Limited {
    fn read(path: &str, limit: u64) -> io::Result<Self> {
        Self::of(File::open(path)?, limit)
    }

    fn of(source: impl Read, limit: u64) -> io::Result<Self> {
        let mut bytes = Vec::new();
        source.take(limit + 1).read_to_end(&mut bytes)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_cut = bytes.len() > limit;
        bytes.truncate(limit);
        Ok(Self { bytes, is_cut })
    }

    /// Without the part of a line that is left where it was cut.
    fn whole_lines(mut self) -> Vec<u8> {
        if self.is_cut {
            let end = self.bytes.iter().rposition(|&byte| byte == b'\n');
            self.bytes.truncate(end.map_or(0, |end| end + 1));
        }
        self.bytes
    }

    /// Says of the first file that was cut that it was.
    fn warn_if_cut(&self, path: &str, said: &Once) {
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

/// Whether `error` says that there is no such process any more, and not that we could not look.
pub fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

/// The error of a file that is `path`. A process that ends while it is read is one that is not there.
fn named(error: &io::Error, path: &str) -> io::Error {
    let kind = if is_gone(error) {
        ErrorKind::NotFound
    } else {
        error.kind()
    };
    io::Error::new(kind, format!("{path}: {error}"))
}

/// The variables that process `pid` was started with, each followed by a byte of 0.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn environment(pid: u32) -> io::Result<Vec<u8>> {
    static SAID: Once = Once::new();
    let path = format!("/proc/{pid}/environ");
    let read = Limited::read(&path, MAX_ENVIRONMENT)?;
    read.warn_if_cut(&path, &SAID);
    Ok(read.bytes)
}

/// The bytes of the file `name` of process `pid`, one that the kernel keeps short.
///
/// # Errors
/// The process has ended, or may not be looked at.
pub fn short(pid: u32, name: &str) -> io::Result<Vec<u8>> {
    Ok(Limited::read(&format!("/proc/{pid}/{name}"), MAX_OTHER)?.bytes)
}

/// All that a process has mapped, as it was when it was read.
pub struct Mappings(Vec<u8>);

impl fmt::Debug for Mappings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A line of `/proc/PID/maps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// It can be read.
    pub is_readable: bool,
    /// It can be written.
    pub is_writable: bool,
    /// It can be executed.
    pub is_code: bool,
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// The device of the file, as `makedev` puts it together.
    pub device: u64,
    /// The file's inode; 0 if it is of no file.
    pub inode: u64,
    /// Its name: a path, `[heap]`, or nothing.
    name: &'a [u8],
}

/// The lines of `maps`, an open `/proc/PID/maps`. The kernel lists a part for each read: of a process
/// that ends meanwhile, or runs another program, the rest is missing, and nothing says so but that
/// its beginning is not there any more either.
fn listed(maps: &File) -> io::Result<Limited> {
    let read = Limited::of(maps, MAX_MAPS)?;
    if !read.bytes.is_empty() && maps.read_at(&mut [0], 0)? == 0 {
        return Err(io::Error::new(ErrorKind::NotFound, "the process has ended"));
    }
    Ok(read)
}

impl Mappings {
    /// The mappings of process `pid`. One that has ended and waits to be reaped has none.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        static SAID: Once = Once::new();
        let path = format!("/proc/{pid}/maps");
        let read = File::open(&path).and_then(|file| listed(&file));
        let read = read.map_err(|error| named(&error, &path))?;
        read.warn_if_cut(&path, &SAID);
        Ok(Self(read.whole_lines()))
    }

    /// Bytes of the kernel's list of them.
    pub fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    /// By address.
    pub fn iter(&self) -> impl Iterator<Item = Mapping<'_>> {
        let lines = self.0.split(|&byte| byte == b'\n');
        lines.filter_map(Mapping::parse)
    }

    /// The one that has `address`.
    pub fn at(&self, address: u64) -> Option<Mapping<'_>> {
        self.iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

/// The mappings of a process, one after the other, as each was when it was read: however many there
/// are, others need not wait until all are read.
#[derive(Debug)]
pub struct MappingLines {
    lines: BufReader<File>,
    line: Vec<u8>,
}

impl MappingLines {
    /// The mappings of process `pid`.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/maps");
        let file = File::open(&path).map_err(|error| named(&error, &path))?;
        Ok(Self {
            lines: BufReader::new(file),
            line: Vec::new(),
        })
    }

    /// The next one; the inner `None` for a line that is none, the outer at the end.
    ///
    /// # Errors
    /// The process has ended.
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
    /// A line `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE   NAME`, numbers but the inode
    /// hexadecimal; none if it is no such line.
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

    /// The path of the file, as the process sees it; where that has been deleted, the kernel's mark
    /// stands behind it.
    pub fn path(&self) -> Option<&'a Path> {
        let is_file = self.name.starts_with(b"/");
        is_file.then(|| Path::new(OsStr::from_bytes(self.name)))
    }

    /// The kernel's mark of files that are deleted is no part of the path.
    pub fn path_without_mark(&self) -> Option<&'a Path> {
        let bytes = self.path()?.as_os_str().as_bytes();
        let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
        Some(Path::new(OsStr::from_bytes(bytes)))
    }

    /// Whether it is a page of the kernel's that every process shares, at which nothing is mapped.
    pub fn is_vsyscall(&self) -> bool {
        self.name == b"[vsyscall]"
    }
}

/// `/proc/PID/status`, as it was when it was read.
#[derive(Debug)]
pub struct Status(Vec<u8>);

impl Status {
    /// The status of process or thread `pid`.
    ///
    /// # Errors
    /// There is none of this id.
    pub fn of(pid: u32) -> io::Result<Self> {
        short(pid, "status").map(Self)
    }

    /// The value behind `NAME:`, without the space around it, if it is there and text. The name of
    /// a process has no line of its own to pretend with: the kernel writes `\n` for a new line.
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
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn mappings_of_a_process_that_ends_meanwhile_are_none() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let open = || File::open(format!("/proc/{}/maps", child.id())).unwrap();
        let (whole, ended) = (open(), open());
        let mut first = [0; 32];
        (&whole).read_exact(&mut first).unwrap();
        assert!(listed(&whole).unwrap().bytes.len() > 100);
        (&ended).read_exact(&mut first).unwrap();
        child.kill().unwrap();
        // It is not reaped yet: of one that is, the kernel says so.
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        let error = listed(&ended).map(|read| read.bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        child.wait().unwrap();
    }

    #[test]
    fn lines() {
        let maps = Mappings(
            b"7f00-7fff r-xp 00001000 fe:0a 4242                       /usr/lib/libc uda.so (deleted)\n\
              8000-9000 rw-p 00000000 00:00 0 \n\
              9000-a000 ---p 00000000 00:00 0                          [heap]\n\
              a000-b000 r--s 00000000 00:05 7                          /SYSV\xff\n\
              not a line\n\
              ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n"
                .to_vec(),
        );
        let all: Vec<_> = maps.iter().collect();
        let [library, anonymous, heap, odd, vsyscall] = all[..] else {
            panic!("{all:?}");
        };
        assert_eq!((library.start, library.end), (0x7f00, 0x7fff));
        assert!(library.is_readable && !library.is_writable && library.is_code);
        assert_eq!((library.offset, library.inode), (0x1000, 4242));
        assert_eq!(library.device, nix::sys::stat::makedev(0xfe, 0x0a));
        let path = Path::new("/usr/lib/libc uda.so (deleted)");
        assert_eq!(library.path(), Some(path));
        let path = Path::new("/usr/lib/libc uda.so");
        assert_eq!(library.path_without_mark(), Some(path));
        assert!(anonymous.path().is_none() && anonymous.is_writable);
        assert!(heap.path().is_none() && !heap.is_readable);
        // Longer names of this kind are those of shared memory; this is anybody's file.
        assert_eq!(odd.path().unwrap().as_os_str().as_bytes(), b"/SYSV\xff");
        assert!(vsyscall.is_vsyscall() && vsyscall.is_code);
        assert_eq!(maps.at(0x8fff), Some(anonymous));
        assert_eq!(maps.at(0x7f00 - 1), None);
    }

    #[test]
    fn our_own() {
        let maps = Mappings::of(std::process::id()).unwrap();
        let here = our_own as fn() as usize as u64;
        let mapping = maps.at(here).unwrap();
        assert!(mapping.is_code);
        let program = std::env::current_exe().unwrap();
        assert_eq!(mapping.path(), Some(program.as_path()));
        let absent = Mappings::of(u32::MAX).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_too_long_is_cut() {
        // It never ends.
        let read = Limited::of(io::repeat(b'x'), 4096).unwrap();
        assert_eq!((read.bytes.len(), read.is_cut), (4096, true));
        let of = |limit| Limited::of(&b"one\ntwo\n"[..], limit).unwrap();
        assert!(!of(8).is_cut);
        assert_eq!(of(8).whole_lines(), b"one\ntwo\n");
        assert_eq!(of(7).whole_lines(), b"one\n");
        assert_eq!(of(3).whole_lines(), b"");
    }

    #[test]
    fn only_the_dead_are_gone() {
        let gone = Status::of(u32::MAX).unwrap_err();
        assert!(is_gone(&gone));
        let error = |number| is_gone(&io::Error::from_raw_os_error(number));
        assert!(error(nix::libc::ESRCH));
        assert!(!error(nix::libc::EMFILE) && !error(nix::libc::EACCES));
    }

    #[test]
    fn fields() {
        let lines = b"Name:\t\xff\\nVmExe: 1 kB\nVmExe:\t   12 kB\nNSpid:\t7\t1\n";
        let status = Status(lines.to_vec());
        assert_eq!(status.field("VmExe"), Some("12 kB"));
        assert_eq!(status.field("NSpid"), Some("7\t1"));
        assert_eq!(status.field("Vm"), None);
        assert_eq!(status.field("Name"), None);
    }
}
