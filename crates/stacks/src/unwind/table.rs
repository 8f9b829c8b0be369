//! The unwind tables of a file: `.eh_frame` and its index.

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer};
use gimli::{FrameDescriptionEntry, UnwindContext, UnwindSection};

use serde::{Deserialize, Serialize};

use super::rule::UnwindRule;
use crate::elf::Headers;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// Maximum length of the entry of a function; larger ones are malicious.
const ENTRY_LIMIT: usize = 64 << 10;

/// Rows of a function that are listed; of more, the one that is wanted.
const MAX_ROWS: usize = 512;

/// How to unwind in a function, or in a part of it: by address, as the file states it.
pub type FunctionRules = Vec<UnwindRow>;

/// How to unwind from some addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnwindRow {
    /// Addresses that the rule covers.
    pub addresses: Range<u64>,
    /// Rule to unwind from them.
    pub rule: UnwindRule,
}

/// Location in the bytes of a file of its unwind tables, and of their index, which every linker makes.
#[derive(Debug)]
pub(crate) struct Tables {
    eh_frame: Range<usize>,
    eh_frame_hdr: Range<usize>,
    bases: BaseAddresses,
}

impl Tables {
    /// The unwind tables of `file`; `None` if there are no usable ones.
    pub(crate) fn read(headers: &Headers, file: &[u8]) -> Option<Self> {
        let place = headers.eh_frame_hdr.as_ref()?;
        let eh_frame_hdr = range(place.offset, place.file_size)?;
        let header = file.get(eh_frame_hdr.clone())?;
        // Linkers use this encoding. gimli's `lookup` overflows for counts of more than 32 bits.
        (header.get(2) == Some(&gimli::DW_EH_PE_udata4.0)).then_some(())?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(place.address);
        let parsed = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8);
        let parsed = parsed.ok()?;
        parsed.table()?;
        let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
            return None;
        };
        let (offset, left) = headers.segments.offset_of(address)?;
        // Only the section header has its end; a terminator is possible too.
        let section = headers.section(".eh_frame");
        let section = section.filter(|section| section.address == address);
        let size = section.map_or(left, |section| section.size.min(left));
        let eh_frame = range(offset, size).filter(|range| range.end <= file.len())?;
        Some(Self {
            eh_frame,
            eh_frame_hdr,
            bases: bases.set_eh_frame(address),
        })
    }

    fn entry<'a>(&self, file: &'a [u8], address: u64) -> Option<(EhFrame<Bytes<'a>>, Entry<'a>)> {
        let section = EhFrame::new(file.get(self.eh_frame.clone())?, LittleEndian);
        let header = EhFrameHdr::new(file.get(self.eh_frame_hdr.clone())?, LittleEndian);
        let header = header.parse(&self.bases, 8).ok()?;
        let Pointer::Direct(entry) = header.table()?.lookup(address, &self.bases).ok()? else {
            return None;
        };
        // gimli's `pointer_to_offset` overflows for damaged tables.
        let offset = entry.checked_sub(self.bases.eh_frame.section?)?;
        let offset = usize::try_from(offset).ok()?.into();
        let entry = section.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset);
        let entry = entry.ok()?;
        let is_sane = entry.entry_len() <= ENTRY_LIMIT && entry.cie().entry_len() <= ENTRY_LIMIT;
        (is_sane && entry.contains(address)).then_some((section, entry))
    }

    /// The unwind rules of the function at `address`.
    pub(crate) fn rules(&self, file: &[u8], address: u64) -> Option<FunctionRules> {
        let (section, entry) = self.entry(file, address)?;
        let mut context = UnwindContext::new();
        let mut table = entry.rows(&section, &self.bases, &mut context).ok()?;
        let mut rows = Vec::new();
        while let Ok(Some(row)) = table.next_row() {
            let addresses = row.start_address()..row.end_address();
            if (rows.len() < MAX_ROWS || addresses.contains(&address))
                && let Some(rule) = UnwindRule::new(&section, &entry, row)
            {
                rows.push(UnwindRow { addresses, rule });
            }
        }
        if rows.len() > MAX_ROWS {
            rows.retain(|row| row.addresses.contains(&address));
        }
        Some(rows)
    }

    /// The address range of the function, or part of one, at `address`.
    pub(crate) fn function(&self, file: &[u8], address: u64) -> Option<Range<u64>> {
        let (_, entry) = self.entry(file, address)?;
        Some(entry.initial_address()..entry.end_address())
    }
}

/// The range of `size` bytes from `offset`; `None` if it is empty.
fn range(offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (start < end).then_some(start..end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::elf::sample::{ElfSample, TABLE, eh_frame, eh_frame_hdr, eh_frame_of};

    const FUNCTIONS: [(u64, u64); 2] = [(0x1000, 0x10), (0x1020, 0x10)];

    /// The function at these addresses, with an index of `header`.
    fn found(header: &[u8], section: Option<&[u8]>) -> [Option<Range<u64>>; 4] {
        let sample = ElfSample::default().code(0x1000, &[0xc3; 64]);
        let mut sample = sample.tables(&eh_frame(&FUNCTIONS), header);
        if let Some(bytes) = section {
            sample = sample.section(".eh_frame", TABLE, bytes);
        }
        let bytes = sample.bytes();
        let headers = Headers::parse(&bytes).unwrap();
        let tables = Tables::read(&headers, &bytes);
        [0x1000, 0x100f, 0x1010, 0x1025].map(|at| tables.as_ref()?.function(&bytes, at))
    }

    #[test]
    fn functions_are_found_by_the_index() {
        let [first, second] = FUNCTIONS.map(|(start, size)| Some(start..start + size));
        let all = [first.clone(), first.clone(), None, second];
        let header = eh_frame_hdr(&FUNCTIONS);
        assert_eq!(found(&header, None), all);
        assert_eq!(found(&header, Some(&eh_frame(&FUNCTIONS))), all);
        let none = [const { None }; 4];
        assert_eq!(found(&[], None), none);
        assert_eq!(found(&eh_frame_hdr(&[]), None), none);
        // The section says where the table ends.
        let short = &eh_frame(&FUNCTIONS)[..24 + 28];
        let only_first = [first.clone(), first, None, None];
        assert_eq!(found(&header, Some(short)), only_first);
        for (at, byte) in [(0, 2), (1, 0xff), (2, 0x0b), (3, 0xff)] {
            let mut damaged = header.clone();
            damaged[at] = byte;
            assert_eq!(found(&damaged, None), none, "{at}");
        }
    }

    #[test]
    fn ranges_are_not_empty() {
        assert_eq!(range(3, 4), Some(3..7));
        assert_eq!(range(3, 1), Some(3..4));
        assert_eq!([range(3, 0), range(u64::MAX, 1)], [None, None]);
    }

    #[test]
    fn of_a_function_with_too_many_rows_one_is_given() {
        let rows = |count: usize, address| {
            // The next address, at which the CFA is at another offset.
            let instructions = (1..count).flat_map(|n| [0x41, 0x0e, n as u8 % 100 + 8]);
            let table = eh_frame_of(&[(0x1000, 4096, instructions.collect())]);
            let sample = ElfSample::default().code(0x1000, &[0xc3; 4096]);
            let sample = sample.tables(&table, &eh_frame_hdr(&[(0x1000, 4096)]));
            let rows = sample.parsed().rules(address)?.into_iter();
            Some(rows.map(|row| row.addresses).collect::<Vec<_>>())
        };
        let whole = rows(1, 0x1000).unwrap();
        assert_eq!((whole.len(), &whole[0]), (1, &(0x1000..0x2000)));
        for (count, address, listed) in [
            (512, 0x1000, 512),
            (512, 0x1fff, 512),
            (513, 0x1000, 512),
            (513, 0x11ff, 512),
            (513, 0x1200, 1),
            (600, 0x1230, 1),
        ] {
            let rows = rows(count, address).unwrap();
            assert_eq!(rows.len(), listed, "{count} {address:#x}");
            assert!(rows.iter().any(|row| row.contains(&address)));
        }
        // An entry of 64 KiB is not read.
        assert!(rows(20_000, 0x1000).is_some_and(|rows| rows.len() == 512));
        assert!(rows(22_000, 0x1000).is_none());
    }
}
