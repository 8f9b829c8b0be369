//! The unwinding tables of one file: `.eh_frame` and its index.

use std::fs::File;
use std::ops::Range;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer};
use gimli::{FrameDescriptionEntry, UnwindContext, UnwindSection};

use super::rule::Rule;
use crate::elf::Headers;
use gpuprobe_os::bounded::read_at;

pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;
type Entry<'a> = FrameDescriptionEntry<Bytes<'a>>;

/// Bytes of a table; the largest libraries of `PyTorch` have some 40 MB.
const LIMIT: u64 = 256 << 20;
/// Bytes of the description of one function; one of a megabyte is an attack.
const ENTRY_LIMIT: usize = 64 << 10;

/// How to unwind the functions of a file.
#[derive(Debug)]
pub struct Tables {
    eh_frame: Vec<u8>,
    index: Index,
    bases: BaseAddresses,
}

/// Where the description of a function is.
#[derive(Debug)]
enum Index {
    /// The linker's `.eh_frame_hdr`.
    Header(Vec<u8>),
    /// First address and place in `.eh_frame` of each function, sorted.
    Own(Vec<(u64, usize)>),
}

impl Tables {
    /// Reads the tables of `file`; none if it has none that can be used.
    pub fn read(headers: &Headers, file: &File) -> Option<Self> {
        Self::with_header(headers, file).or_else(|| Self::without_header(headers, file))
    }

    /// Bytes that they take.
    pub(crate) fn size(&self) -> u64 {
        let index = match &self.index {
            Index::Header(bytes) => bytes.len(),
            Index::Own(entries) => size_of_val(entries.as_slice()),
        };
        u64::try_from(self.eh_frame.len() + index).unwrap_or(u64::MAX)
    }

    /// By the program headers, which every file that runs has.
    fn with_header(headers: &Headers, file: &File) -> Option<Self> {
        let place = headers.eh_frame_hdr.as_ref()?;
        let header = read(file, place.offset, place.file_size)?;
        // As linkers write it. gimli's `lookup` overflows at counts of more than 32 bits.
        (header.get(2) == Some(&gimli::DW_EH_PE_udata4.0)).then_some(())?;
        let bases = bases(headers).set_eh_frame_hdr(place.address);
        let parsed = EhFrameHdr::new(&header, LittleEndian).parse(&bases, 8);
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
        let eh_frame = read(file, offset, size)?;
        let bases = bases.set_eh_frame(address);
        Some(Self {
            eh_frame,
            index: Index::Header(header),
            bases,
        })
    }

    /// By the section headers, if the linker was told to leave the index out.
    fn without_header(headers: &Headers, file: &File) -> Option<Self> {
        let section = headers.section(".eh_frame")?;
        let eh_frame = read(file, section.offset, section.size)?;
        let bases = bases(headers).set_eh_frame(section.address);
        let entries = index(&eh_frame, &bases);
        (!entries.is_empty()).then_some(Self {
            eh_frame,
            index: Index::Own(entries),
            bases,
        })
    }

    fn section(&self) -> EhFrame<Bytes<'_>> {
        let mut section = EhFrame::new(&self.eh_frame, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn entry(&self, address: u64) -> Option<Entry<'_>> {
        let section = self.section();
        let offset = match &self.index {
            Index::Header(bytes) => {
                let header = EhFrameHdr::new(bytes, LittleEndian);
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

    /// How to unwind from `address`, as the file states it.
    pub fn rule(&self, address: u64) -> Option<Rule> {
        let entry = self.entry(address)?;
        let section = self.section();
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&section, &self.bases, &mut context, address);
        Rule::new(&section, &entry, row.ok()?)
    }

    /// The first address of the function that is at `address`. Some functions are in parts.
    pub fn function_start(&self, address: u64) -> Option<u64> {
        self.function(address).map(|function| function.start)
    }

    /// The addresses of the function, or the part of one, that is at `address`.
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        let entry = self.entry(address)?;
        Some(entry.initial_address()..entry.end_address())
    }
}

fn read(file: &File, offset: u64, size: u64) -> Option<Vec<u8>> {
    let is_sane = size > 0 && size <= LIMIT;
    is_sane.then_some(())?;
    read_at(file, offset, size)
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
