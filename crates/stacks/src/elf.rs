//! ELF files, read with `object`, as far as probes and stacks need them.
//!
//! The files belong to traced processes and are not trusted: a helper process parses them ([`crate::program`]).

use std::borrow::Cow;

use object::elf::{self, FileHeader64, Machine, ProgramHeader64, SectionHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _, SectionTable};
use object::{FileKind, LittleEndian, ReadRef};
use serde::{Deserialize, Serialize};

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// ELF machine of this build.
const NATIVE: Machine = if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else {
    elf::EM_X86_64
};

/// Loadable segments of a file that are read, and bytes of its build id, as they are kept for all files.
const MAX_SEGMENTS: usize = 64;
const MAX_BUILD_ID: usize = 64;

/// Reason why an ELF file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// A 32-bit program or library.
    Is32Bit,
    /// Code for another machine (`e_machine`).
    OtherMachine(u16),
    /// Not an ELF file, or a damaged one, with details.
    Damaged(Cow<'static, str>),
}

impl std::error::Error for Refusal {}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is32Bit => write!(f, "it has 32 bits; only 64-bit programs can be traced"),
            Self::OtherMachine(number) => {
                write!(f, "it is for another machine (e_machine {number})")
            }
            Self::Damaged(what) => write!(f, "it is not a valid ELF file: {what}"),
        }
    }
}

/// A loadable segment (`PT_LOAD`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSegment {
    /// Whether it is executable.
    pub is_executable: bool,
    /// File offset of its first byte.
    pub offset: u64,
    /// Virtual address in the file.
    pub address: u64,
    /// Number of bytes in the file.
    pub file_size: u64,
}

impl LoadSegment {
    fn of(header: &ProgramHeader64<LittleEndian>) -> Self {
        Self {
            is_executable: header.p_flags(LE).contains(elf::PF_X),
            offset: header.p_offset(LE),
            address: header.p_vaddr(LE),
            file_size: header.p_filesz(LE),
        }
    }
}

/// The loadable segments of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments(Vec<LoadSegment>);

impl Segments {
    fn of(headers: &[ProgramHeader64<LittleEndian>]) -> Self {
        let loaded = headers.iter().filter(|p| p.p_type(LE) == elf::PT_LOAD);
        Self(loaded.take(MAX_SEGMENTS).map(LoadSegment::of).collect())
    }

    /// The segments with the flag `PF_X`, which contain code.
    pub fn code(&self) -> impl Iterator<Item = &LoadSegment> {
        self.0.iter().filter(|segment| segment.is_executable)
    }

    /// The virtual address of file offset `offset`.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let in_segment = |segment: &LoadSegment| {
            let distance = offset.checked_sub(segment.offset)?;
            let is_in = distance < segment.file_size;
            is_in.then(|| segment.address.wrapping_add(distance))
        };
        // Segments overlap if the linker put two on one page; code is in executable ones.
        let other = self.0.iter().filter(|segment| !segment.is_executable);
        self.code().chain(other).find_map(in_segment)
    }

    /// The virtual address at which code that is mapped from file offset `offset` on begins. A mapping
    /// begins with a page, and its segment may begin within it (lld): the offset is then that of another.
    pub(crate) fn address_of_code(&self, offset: u64) -> Option<u64> {
        let is_mapped = |s: &&LoadSegment| offset < s.offset.saturating_add(s.file_size);
        let segment = self.code().filter(is_mapped).min_by_key(|s| s.offset)?;
        let distance = offset.wrapping_sub(segment.offset);
        Some(segment.address.wrapping_add(distance))
    }

    /// The file offset of virtual address `address`, and the number of bytes to the end of the segment.
    pub fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.0.iter().find_map(|segment| {
            let distance = address.checked_sub(segment.address)?;
            let left = segment.file_size.checked_sub(distance)?;
            let offset = segment.offset.checked_add(distance)?;
            (left > 0).then_some((offset, left))
        })
    }
}

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name; empty if it is not UTF-8.
    pub name: String,
    /// Section type, one of `SHT_*`.
    pub kind: u32,
    /// Virtual address in the file.
    pub address: u64,
    /// File offset of its first byte.
    pub offset: u64,
    /// Number of bytes in the file.
    pub size: u64,
}

impl Section {
    fn of(header: &SectionHeader64<LittleEndian>, all: &SectionTable<'_, Header>) -> Self {
        let name = all.section_name(LE, header).unwrap_or_default();
        Self {
            name: String::from_utf8(name.to_vec()).unwrap_or_default(),
            kind: header.sh_type.get(LE).0,
            address: header.sh_addr.get(LE),
            offset: header.sh_offset.get(LE),
            size: header.sh_size.get(LE),
        }
    }
}

/// The headers of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers {
    /// The loadable segments (`PT_LOAD`).
    pub segments: Segments,
    /// The segment with `.eh_frame_hdr`, the index of the unwind tables.
    pub eh_frame_hdr: Option<LoadSegment>,
    /// The sections, if their headers are valid; only in the process that read the file.
    #[serde(skip)]
    pub sections: Vec<Section>,
    /// The GNU build id.
    pub build_id: Option<Vec<u8>>,
}

impl Headers {
    /// Parses the headers of the file with these bytes.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the file cannot be used.
    pub fn parse(file: &[u8]) -> Result<Self, Refusal> {
        let header = header(file, elf::EM_X86_64)?;
        let programs = header.program_headers(LE, file).unwrap_or_default();
        if programs.is_empty() {
            let why = "its program headers cannot be read";
            return Err(Refusal::Damaged(why.into()));
        }
        let sections = header.sections(LE, file).unwrap_or_default();
        let of_type = |wanted| programs.iter().filter(move |p| p.p_type(LE) == wanted);
        Ok(Self {
            segments: Segments::of(programs),
            eh_frame_hdr: of_type(elf::PT_GNU_EH_FRAME).next().map(LoadSegment::of),
            sections: sections.iter().map(|s| Section::of(s, &sections)).collect(),
            build_id: of_type(elf::PT_NOTE).find_map(|notes| build_id(notes, file)),
        })
    }

    /// Number of bytes of the symbol tables.
    pub(crate) fn symbol_bytes(&self) -> u64 {
        let kinds = [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0];
        let tables = self.sections.iter().filter(|s| kinds.contains(&s.kind));
        tables.fold(0, |sum, table| sum.saturating_add(table.size))
    }

    /// The section with this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}

/// The ELF header of a file for `machine`.
fn header(data: &[u8], machine: Machine) -> Result<&Header, Refusal> {
    let damaged = |error: object::Error| Refusal::Damaged(error.to_string().into());
    if FileKind::parse(data).map_err(damaged)? == FileKind::Elf32 {
        return Err(Refusal::Is32Bit);
    }
    let header = Header::parse(data).map_err(damaged)?;
    header.endian().map_err(damaged)?;
    match header.e_machine(LE) {
        found if found == machine => Ok(header),
        other => Err(Refusal::OtherMachine(other.0)),
    }
}

/// The GNU build id in these notes.
fn build_id(notes: &ProgramHeader64<LittleEndian>, file: &[u8]) -> Option<Vec<u8>> {
    let mut notes = notes.notes(LE, file).ok()??;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            return Some(note.desc().to_vec()).filter(|id| (1..=MAX_BUILD_ID).contains(&id.len()));
        }
    }
    None
}

/// A file with all headers, for its symbols.
pub(crate) struct ElfImage<'data> {
    pub(crate) file: ElfFile64<'data, LittleEndian>,
    pub(crate) segments: Segments,
    data: &'data [u8],
}

impl<'data> ElfImage<'data> {
    /// Parses all headers of `data`, which must be for this machine.
    pub(crate) fn parse(data: &'data [u8]) -> anyhow::Result<Self> {
        header(data, NATIVE)?;
        let file = ElfFile64::parse(data)?;
        let segments = Segments::of(file.elf_program_headers());
        Ok(Self {
            file,
            segments,
            data,
        })
    }

    /// Up to `at_most` bytes at virtual address `address`.
    pub(crate) fn bytes(&self, address: u64, at_most: u64) -> Option<&'data [u8]> {
        let (offset, left) = self.segments.offset_of(address)?;
        self.data.read_bytes_at(offset, left.min(at_most)).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
#[cfg(test)]
pub(crate) use tests::sample;
