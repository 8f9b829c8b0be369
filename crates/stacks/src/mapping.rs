//! What code a process has mapped.

use std::path::Path;

use super::module::FileKey;
use gpuprobe_os::proc::{Mapping, Mappings, Status};

/// Code in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeRange<'maps> {
    pub(super) start: u64,
    pub(super) end: u64,
    /// The process can write there, too.
    pub(super) is_writable: bool,
    /// Where in the file it begins.
    pub(super) offset: u64,
    /// The file that it is from.
    pub(super) file: Option<(FileKey, &'maps Path)>,
}

/// The kernel's count of the pages of code that process `pid` has mapped. To be read before the
/// mappings: what is mapped in between makes a count that fits no more.
pub(super) fn exec_pages(pid: u32) -> Option<u64> {
    let status = Status::of(pid).ok()?;
    let kib = |name| -> Option<u64> { status.field(name)?.strip_suffix(" kB")?.parse().ok() };
    // The kernel splits it in two: of the program itself, and of everything else.
    let bytes = kib("VmExe")?
        .checked_add(kib("VmLib")?)?
        .checked_mul(1024)?;
    Some(bytes / procfs::page_size())
}

/// What process `pid` has mapped. None if the process cannot be looked at, or has ended (a process
/// that waits to be reaped has no memory).
pub(super) fn read(pid: u32) -> Option<Mappings> {
    let maps = Mappings::of(pid).ok()?;
    maps.iter().next()?;
    Some(maps)
}

/// The code among it, by address, as the kernel lists it.
pub(super) fn code_of(maps: &Mappings) -> impl Iterator<Item = CodeRange<'_>> {
    maps.iter().filter_map(code)
}

fn code(map: Mapping<'_>) -> Option<CodeRange<'_>> {
    // At a page of the kernel's that every process shares nothing is mapped.
    (map.is_code && !map.is_vsyscall()).then_some(())?;
    let path = map.path_without_mark().filter(|_| map.inode != 0);
    let key = FileKey {
        device: map.device,
        inode: map.inode,
    };
    Some(CodeRange {
        start: map.start,
        end: map.end,
        is_writable: map.is_writable,
        offset: map.offset,
        file: path.map(|path| (key, path)),
    })
}
