//! The unwind tables of a file: `.eh_frame` and its index.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer};
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

/// How to unwind in a function, or in a part of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionRules {
    /// By address, as the file states it.
    pub rows: Vec<UnwindRow>,
}

/// How to unwind from some addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnwindRow {
    /// Addresses that the rule covers.
    pub addresses: Range<u64>,
    /// Rule to unwind from them.
    pub rule: UnwindRule,
}

/// Location of the unwind tables in the bytes of a file.
#[derive(Debug)]
pub(crate) struct Tables {
    eh_frame: Range<usize>,
    index: FdeIndex,
    bases: BaseAddresses,
}

/// Index of `.eh_frame` by function.
#[derive(Debug)]
enum FdeIndex {
    /// Range of `.eh_frame_hdr`, made by the linker.
    Header(Range<usize>),
    /// First address and offset in `.eh_frame` of each function, sorted.
    Own(Vec<(u64, usize)>),
}

impl Tables {
    /// The unwind tables of `file`; `None` if there are no usable ones.
    pub(crate) fn read(headers: &Headers, file: &[u8]) -> Option<Self> {
        Self::with_header(headers, file).or_else(|| Self::without_header(headers, file))
    }

    /// Found by the program headers, which every executable file has.
    fn with_header(headers: &Headers, file: &[u8]) -> Option<Self> {
        let place = headers.eh_frame_hdr.as_ref()?;
        let index = range(place.offset, place.file_size)?;
        let header = file.get(index.clone())?;
        // Linkers use this encoding. gimli's `lookup` overflows for counts of more than 32 bits.
        (header.get(2) == Some(&gimli::DW_EH_PE_udata4.0)).then_some(())?;
        let bases = bases(headers).set_eh_frame_hdr(place.address);
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
        let bases = bases.set_eh_frame(address);
        Some(Self {
            eh_frame,
            index: FdeIndex::Header(index),
            bases,
        })
    }

    /// Found by the section headers, for files linked without an index.
    fn without_header(headers: &Headers, file: &[u8]) -> Option<Self> {
        let section = headers.section(".eh_frame")?;
        let eh_frame = range(section.offset, section.size)?;
        let bases = bases(headers).set_eh_frame(section.address);
        let entries = index(file.get(eh_frame.clone())?, &bases);
        (!entries.is_empty()).then_some(Self {
            eh_frame,
            index: FdeIndex::Own(entries),
            bases,
        })
    }

    fn section<'a>(&self, file: &'a [u8]) -> EhFrame<Bytes<'a>> {
        let bytes = file.get(self.eh_frame.clone()).unwrap_or_default();
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn entry<'a>(&self, file: &'a [u8], address: u64) -> Option<Entry<'a>> {
        let section = self.section(file);
        let offset = match &self.index {
            FdeIndex::Header(range) => {
                let header = EhFrameHdr::new(file.get(range.clone())?, LittleEndian);
                let header = header.parse(&self.bases, 8).ok()?;
                let table = header.table()?;
                let Pointer::Direct(entry) = table.lookup(address, &self.bases).ok()? else {
                    return None;
                };
                // gimli's `pointer_to_offset` overflows for damaged tables.
                let offset = entry.checked_sub(self.bases.eh_frame.section?)?;
                usize::try_from(offset).ok()?.into()
            }
            FdeIndex::Own(entries) => {
                let after = entries.partition_point(|&(start, _)| start <= address);
                let &(_, offset) = entries.get(after.checked_sub(1)?)?;
                offset.into()
            }
        };
        let entry = section.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset);
        let entry = entry.ok()?;
        let is_sane = entry.entry_len() <= ENTRY_LIMIT && entry.cie().entry_len() <= ENTRY_LIMIT;
        (is_sane && entry.contains(address)).then_some(entry)
    }

    /// The unwind rules of the function at `address`.
    pub(crate) fn rules(&self, file: &[u8], address: u64) -> Option<FunctionRules> {
        let entry = self.entry(file, address)?;
        let section = self.section(file);
        let mut context = UnwindContext::new();
        let mut table = entry.rows(&section, &self.bases, &mut context).ok()?;
        let (mut rows, mut wanted) = (Vec::new(), None);
        while let Ok(Some(row)) = table.next_row() {
            let addresses = row.start_address()..row.end_address();
            let is_wanted = addresses.contains(&address);
            if (is_wanted || rows.len() < MAX_ROWS)
                && let Some(rule) = UnwindRule::new(&section, &entry, row)
            {
                wanted = is_wanted.then_some(rows.len()).or(wanted);
                rows.push(UnwindRow { addresses, rule });
            }
        }
        if rows.len() > MAX_ROWS {
            rows = wanted.map(|at| rows.swap_remove(at)).into_iter().collect();
        }
        Some(FunctionRules { rows })
    }

    /// The address range of the function, or part of one, at `address`.
    pub(crate) fn function(&self, file: &[u8], address: u64) -> Option<Range<u64>> {
        let entry = self.entry(file, address)?;
        Some(entry.initial_address()..entry.end_address())
    }
}

/// The range of `size` bytes from `offset`; `None` if it is empty.
fn range(offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (start < end).then_some(start..end)
}

/// Base addresses for pointers in the tables.
fn bases(headers: &Headers) -> BaseAddresses {
    let address = |name| headers.section(name).map(|section| section.address);
    let mut bases = BaseAddresses::default();
    if let Some(text) = address(".text") {
        bases = bases.set_text(text);
    }
    if let Some(got) = address(".got") {
        bases = bases.set_got(got);
    }
    bases
}

/// The functions of a section; reading stops at a damaged entry.
fn index(eh_frame: &[u8], bases: &BaseAddresses) -> Vec<(u64, usize)> {
    let mut section = EhFrame::new(eh_frame, LittleEndian);
    section.set_address_size(8);
    let mut found = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(EhFrame::cie_from_offset)
        {
            found.push((entry.initial_address(), entry.offset()));
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use object::elf::PT_GNU_EH_FRAME;

    use super::*;
    use crate::elf::sample::{ElfSample, eh_frame, eh_frame_of};

    const TABLE: u64 = 0x9000;
    const INDEX: u64 = 0xa000;

    /// `.eh_frame_hdr` for functions whose entries have no instructions.
    fn header(functions: &[(u64, u64)]) -> Vec<u8> {
        let to_table = (TABLE as i32) - (INDEX as i32 + 4);
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        bytes.extend(to_table.to_le_bytes());
        bytes.extend((functions.len() as u32).to_le_bytes());
        for (n, (address, _)) in functions.iter().enumerate() {
            let entry = TABLE as i32 + 24 + 28 * n as i32 - INDEX as i32;
            let address = *address as i32 - INDEX as i32;
            bytes.extend([address, entry].map(i32::to_le_bytes).concat());
        }
        bytes
    }

    const FUNCTIONS: [(u64, u64); 2] = [(0x1000, 0x10), (0x1020, 0x10)];

    /// The function at these addresses, with an index of `header`, or none.
    fn found(header: Option<&[u8]>, section: Option<&[u8]>) -> [Option<Range<u64>>; 4] {
        let mut sample = ElfSample::default().code(0x1000, &[0xc3; 64]);
        sample = sample.data(TABLE, &eh_frame(&FUNCTIONS));
        if let Some(header) = header {
            sample = sample.segment(PT_GNU_EH_FRAME.0, 4, INDEX, header);
        }
        if let Some(bytes) = section {
            sample = sample.section(".eh_frame", TABLE, bytes);
        }
        let bytes = sample.bytes();
        let headers = Headers::parse(&bytes).unwrap();
        let tables = Tables::read(&headers, &bytes);
        [0x1000, 0x100f, 0x1010, 0x1025].map(|at| tables.as_ref()?.function(&bytes, at))
    }

    #[test]
    fn functions_are_found_by_the_index_or_in_the_section() {
        let [first, second] = FUNCTIONS.map(|(start, size)| Some(start..start + size));
        let all = [first.clone(), first.clone(), None, second];
        let header = header(&FUNCTIONS);
        assert_eq!(found(Some(&header), None), all);
        assert_eq!(found(None, Some(&eh_frame(&FUNCTIONS))), all);
        assert_eq!(found(Some(&header), Some(&eh_frame(&FUNCTIONS))), all);
        let none = [const { None }; 4];
        assert_eq!(found(None, None), none);
        assert_eq!(found(None, Some(&eh_frame(&[]))), none);
        // The section says where the table ends.
        let short = &eh_frame(&FUNCTIONS)[..24 + 28];
        let only_first = [first.clone(), first, None, None];
        assert_eq!(found(Some(&header), Some(short)), only_first);
        for (at, byte) in [(0, 2), (1, 0xff), (2, 0x0b), (3, 0xff)] {
            let mut damaged = header.clone();
            damaged[at] = byte;
            assert_eq!(found(Some(&damaged), None), none, "{at}");
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
            let bytes = sample.section(".eh_frame", TABLE, &table).bytes();
            let tables = Tables::read(&Headers::parse(&bytes).unwrap(), &bytes).unwrap();
            let rows = tables.rules(&bytes, address)?.rows;
            Some(
                rows.into_iter()
                    .map(|row| row.addresses)
                    .collect::<Vec<_>>(),
            )
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
