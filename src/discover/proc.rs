//! What `/proc` says of a process, byte for byte. Names and paths there are the process's own
//! choice: nothing may depend on these being text, or on what they look like.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fmt, fs};

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
    /// What the kernel calls it: a path, `[heap]`, or nothing.
    name: &'a [u8],
}

impl Mappings {
    /// Those of process `pid`. One that has ended and waits to be reaped has none.
    ///
    /// # Errors
    /// The process has ended, or may not be looked at.
    pub fn of(pid: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/maps");
        let bytes = fs::read(&path).map_err(|error| {
            // A process that ends while it is read is one that is not there.
            let is_gone = error.raw_os_error() == Some(nix::libc::ESRCH);
            let kind = if is_gone {
                ErrorKind::NotFound
            } else {
                error.kind()
            };
            io::Error::new(kind, format!("{path}: {error}"))
        })?;
        Ok(Self(bytes))
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

impl<'a> Mapping<'a> {
    /// `START-END PERMISSIONS OFFSET MAJOR:MINOR INODE   NAME`, numbers but the inode hexadecimal.
    fn parse(line: &'a [u8]) -> Option<Self> {
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

    /// Reaches the very file, also when it was deleted, or another is at its path by now.
    pub fn link(&self, pid: u32) -> String {
        format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end)
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
    /// That of process or thread `pid`.
    ///
    /// # Errors
    /// There is none of this id.
    pub fn of(pid: u32) -> io::Result<Self> {
        fs::read(format!("/proc/{pid}/status")).map(Self)
    }

    /// What stands behind `NAME:`, without the space around it, if it is there and text. The name of
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
    use super::*;

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
        assert_eq!(library.link(12), "/proc/12/map_files/7f00-7fff");
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
    fn fields() {
        let lines = b"Name:\t\xff\\nVmExe: 1 kB\nVmExe:\t   12 kB\nNSpid:\t7\t1\n";
        let status = Status(lines.to_vec());
        assert_eq!(status.field("VmExe"), Some("12 kB"));
        assert_eq!(status.field("NSpid"), Some("7\t1"));
        assert_eq!(status.field("Vm"), None);
        assert_eq!(status.field("Name"), None);
    }
}
