//! Program headers.

use super::{ReadAt, Refusal, Table, u16_at, u32_at, u64_at};

/// What the kernel maps, or something that the loader wants to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(super) kind: u32,
    /// Code may run in it.
    pub is_executable: bool,
    /// Where it begins in the file.
    pub offset: u64,
    /// Where it begins in memory, as the file states it.
    pub address: u64,
    /// Bytes of it that are in the file.
    pub file_size: u64,
}

const SIZE: usize = 56;
/// The kernel refuses programs with more than 64 KiB of program headers.
const LIMIT: usize = 65536 / SIZE;

pub(super) fn read(file: &dyn ReadAt, header: &[u8]) -> Result<Vec<Segment>, Refusal> {
    let damaged = Refusal::Damaged("its program headers cannot be read");
    let table = || {
        Some(Table {
            offset: u64_at(header, 32)?,
            entry_size: usize::from(u16_at(header, 54)?),
            count: usize::from(u16_at(header, 56)?),
        })
    };
    let table = table().filter(|table| table.count > 0);
    let table = table.ok_or(damaged.clone())?;
    let bytes = table.read(file, SIZE, LIMIT).ok_or(damaged)?;
    Ok(bytes.chunks(table.entry_size).filter_map(segment).collect())
}

fn segment(bytes: &[u8]) -> Option<Segment> {
    Some(Segment {
        kind: u32_at(bytes, 0)?,
        is_executable: u32_at(bytes, 4)? & object::elf::PF_X.0 != 0,
        offset: u64_at(bytes, 8)?,
        address: u64_at(bytes, 16)?,
        file_size: u64_at(bytes, 32)?,
    })
}
