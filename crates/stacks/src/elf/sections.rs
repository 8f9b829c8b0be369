//! Section headers.

use super::{ReadAt, Table, u16_at, u32_at, u64_at};

/// A part of the file that linkers and debuggers know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name; empty if it is no text.
    pub name: String,
    /// Its type (`SHT_*`).
    pub kind: u32,
    /// Its flags (`SHF_*`).
    pub flags: u64,
    /// Where it is in memory, as the file states it.
    pub address: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its bytes in the file.
    pub size: u64,
}

const SIZE: usize = 64;
/// Object files may have more; what runs has some dozens.
const LIMIT: usize = 0xff00;
/// Bytes of all names together.
const NAMES_LIMIT: u64 = 4 << 20;
const NAME_LIMIT: usize = 256;

pub(super) fn read(file: &dyn ReadAt, header: &[u8]) -> Option<Vec<Section>> {
    let table = Table {
        offset: u64_at(header, 40)?,
        entry_size: usize::from(u16_at(header, 58)?),
        count: usize::from(u16_at(header, 60)?),
    };
    let names_index = usize::from(u16_at(header, 62)?);
    let bytes = table.read(file, SIZE, LIMIT)?;
    let entries: Vec<_> = bytes.chunks(table.entry_size).collect();
    // Sections of which the names are not known may be any.
    let entry = entries.get(names_index)?;
    let size = u64_at(entry, 32).filter(|&size| size <= NAMES_LIMIT)?;
    let names = file.read_at(u64_at(entry, 24)?, usize::try_from(size).ok()?)?;
    let section = |entry: &&[u8]| {
        Some(Section {
            name: name_at(&names, u32_at(entry, 0)?),
            kind: u32_at(entry, 4)?,
            flags: u64_at(entry, 8)?,
            address: u64_at(entry, 16)?,
            offset: u64_at(entry, 24)?,
            size: u64_at(entry, 32)?,
        })
    };
    Some(entries.iter().filter_map(section).collect())
}

fn name_at(names: &[u8], at: u32) -> String {
    let rest = usize::try_from(at).ok().and_then(|at| names.get(at..));
    let rest = rest.unwrap_or_default();
    let bytes = rest.iter().take(NAME_LIMIT).copied();
    let name: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8(name).unwrap_or_default()
}
