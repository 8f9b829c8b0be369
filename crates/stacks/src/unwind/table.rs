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
