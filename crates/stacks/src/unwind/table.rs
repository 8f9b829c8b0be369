//! The unwinding tables of one file: `.eh_frame` and its index.

use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer};
use gimli::{FrameDescriptionEntry, UnwindContext, UnwindSection};

use super::rule::Rule;
use crate::elf::Headers;
use crate::reader::{FunctionRules, MAX_ROWS, Row};

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// Bytes of the description of one function; one of a megabyte is an attack.
const ENTRY_LIMIT: usize = 64 << 10;

/// How to unwind the functions of a file: where in its bytes that is said.
#[derive(Debug)]
pub(crate) struct Tables {
    eh_frame: Range<usize>,
    index: Index,
    bases: BaseAddresses,
}

/// Where the description of a function is.
#[derive(Debug)]
enum Index {
    /// The linker's `.eh_frame_hdr`.
    Header(Range<usize>),
    /// First address and place in `.eh_frame` of each function, sorted.
    Own(Vec<(u64, usize)>),
}

impl Tables {
    /// The tables of `file`; none if it has none that can be used.
    pub(crate) fn read(headers: &Headers, file: &[u8]) -> Option<Self> {
        Self::with_header(headers, file).or_else(|| Self::without_header(headers, file))
    }

    /// By the program headers, which every file that runs has.
    fn with_header(headers: &Headers, file: &[u8]) -> Option<Self> {
        let place = headers.eh_frame_hdr.as_ref()?;
        let index = range(place.offset, place.file_size)?;
        let header = file.get(index.clone())?;
        // As linkers write it. gimli's `lookup` overflows at counts of more than 32 bits.
        (header.get(2) == Some(&gimli::DW_EH_PE_udata4.0)).then_some(())?;
        let bases = bases(headers).set_eh_frame_hdr(place.address);
        let parsed = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8);
        let parsed = parsed.ok()?;
        parsed.table()?;
        let Pointer::Direct(address) = parsed.eh_frame_ptr() else {
            return None;
        };
        let (offset, left) = headers.segments.offset_of(address)?;
        // Where it ends, only its section's header says; a terminator may stand there too.
        let section = headers.section(".eh_frame");
        let section = section.filter(|section| section.address == address);
        let size = section.map_or(left, |section| section.size.min(left));
        let eh_frame = range(offset, size).filter(|range| range.end <= file.len())?;
        let bases = bases.set_eh_frame(address);
        Some(Self {
            eh_frame,
            index: Index::Header(index),
            bases,
        })
    }

    /// By the section headers, if the linker was told to leave the index out.
    fn without_header(headers: &Headers, file: &[u8]) -> Option<Self> {
        let section = headers.section(".eh_frame")?;
        let eh_frame = range(section.offset, section.size)?;
        let bases = bases(headers).set_eh_frame(section.address);
        let entries = index(file.get(eh_frame.clone())?, &bases);
        (!entries.is_empty()).then_some(Self {
            eh_frame,
            index: Index::Own(entries),
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
            Index::Header(range) => {
                let header = EhFrameHdr::new(file.get(range.clone())?, LittleEndian);
                let header = header.parse(&self.bases, 8).ok()?;
                let table = header.table()?;
                let Pointer::Direct(entry) = table.lookup(address, &self.bases).ok()? else {
                    return None;
                };
                // gimli's own `pointer_to_offset` overflows where the table is damaged.
                let offset = entry.checked_sub(self.bases.eh_frame.section?)?;
                usize::try_from(offset).ok()?.into()
            }
            Index::Own(entries) => {
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

    /// How to unwind in the function at `address`, as the file states it.
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
                && let Some(rule) = Rule::new(&section, &entry, row)
            {
                wanted = is_wanted.then_some(rows.len()).or(wanted);
                rows.push(Row { addresses, rule });
            }
        }
        if rows.len() > MAX_ROWS {
            rows = wanted.map(|at| rows.swap_remove(at)).into_iter().collect();
        }
        Some(FunctionRules { rows })
    }

    /// The addresses of the function, or the part of one, that is at `address`.
    pub(crate) fn function(&self, file: &[u8], address: u64) -> Option<Range<u64>> {
        let entry = self.entry(file, address)?;
        Some(entry.initial_address()..entry.end_address())
    }
}

/// `size` bytes from `offset`.
fn range(offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (start < end).then_some(start..end)
}

/// Addresses that pointers in the tables may be relative to, besides their own.
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

/// All functions that can be read; what comes after damage is left out.
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
