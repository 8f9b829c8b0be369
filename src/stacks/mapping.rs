//! What code a process has mapped.

use std::path::PathBuf;

use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use super::module::FileKey;

/// Code in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeRange {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The process can write there, too.
    pub(super) is_writable: bool,
    /// Where in the file it begins.
    pub(super) offset: u64,
    /// The file that it is from.
    pub(super) file: Option<(FileKey, PathBuf)>,
}

/// The kernel's count of the pages of code that process `pid` has mapped. To be read before the
/// mappings: what is mapped in between makes a count that fits no more.
pub(super) fn exec_pages(pid: u32) -> Option<u64> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let status = process.status().ok()?;
    // The kernel splits it in two: of the program itself, and of everything else.
    let kib = status.vmexe?.checked_add(status.vmlib?)?;
    Some(kib * 1024 / procfs::page_size())
}

/// The code of process `pid`, by address. None if the process cannot be looked at, or has ended
/// (a process that waits to be reaped has no memory).
pub(super) fn read(pid: u32) -> Option<Vec<CodeRange>> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let maps = process.maps().ok()?;
    if maps.len() == 0 {
        return None;
    }
    let mut ranges: Vec<_> = maps.iter().filter_map(code).collect();
    ranges.sort_unstable_by_key(|range| range.start);
    Some(ranges)
}

fn code(map: &MemoryMap) -> Option<CodeRange> {
    let is_code = map.perms.contains(MMPermissions::EXECUTE);
    // Nothing is mapped there: a page of the kernel's that every process shares.
    let is_ours = !matches!(map.pathname, MMapPath::Vsyscall);
    (is_code && is_ours).then_some(())?;
    let file = match &map.pathname {
        MMapPath::Path(path) if map.inode != 0 => Some((key(map), without_mark(path))),
        _ => None,
    };
    Some(CodeRange {
        start: map.address.0,
        end: map.address.1,
        is_writable: map.perms.contains(MMPermissions::WRITE),
        offset: map.offset,
        file,
    })
}

fn key(map: &MemoryMap) -> FileKey {
    let (major, minor) = map.dev;
    FileKey {
        device: nix::sys::stat::makedev(
            u64::from(major.cast_unsigned()),
            u64::from(minor.cast_unsigned()),
        ),
        inode: map.inode,
    }
}

/// The kernel's mark of files that are deleted is no part of the path.
fn without_mark(path: &std::path::Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    std::ffi::OsStr::from_bytes(bytes).into()
}
