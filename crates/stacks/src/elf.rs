//! ELF files, read with `object`, as far as probes and stacks need them.
//!
//! The files belong to traced processes and are not trusted: a reader process parses them (`reader`).

use std::borrow::Cow;

use object::elf::{self, FileHeader64, Machine, ProgramHeader64, SectionHeader64};
use object::read::elf::{ElfFile64, FileHeader as _, NoteIterator, ProgramHeader as _};
use object::{LittleEndian, ReadRef, U16};
use serde::{Deserialize, Serialize};

type Header = FileHeader64<LittleEndian>;
const LE: LittleEndian = LittleEndian;

/// ELF machine of this build.
const NATIVE: Machine = if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else {
    elf::EM_X86_64
};
/// The kernel rejects programs with more than 64 KiB of program headers.
const SEGMENTS_LIMIT: usize = 65536 / size_of::<ProgramHeader64<LittleEndian>>();
/// Limit of section headers; linked files have some dozens.
const SECTIONS_LIMIT: u16 = 0xff00;
/// Limits of the bytes of all section names, and of each.
const NAMES_LIMIT: u64 = 4 << 20;
const NAME_LIMIT: usize = 256;
/// Limits of the number of note segments, and of the bytes of each; linkers write one or two.
const NOTES_LIMIT: usize = 16;
const NOTE_LIMIT: u64 = 64 << 10;
/// Limit of the bytes of a build id; SHA-1 has 20.
const ID_LIMIT: usize = 64;

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
        Self(loaded.take(SEGMENTS_LIMIT).map(LoadSegment::of).collect())
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

    /// Size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of_val(self.0.as_slice())
    }
}

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name; empty if it is not UTF-8.
    pub name: String,
    /// Section type, one of `SHT_*`.
    pub kind: u32,
    /// Section flags, a set of `SHF_*`.
    pub flags: u64,
    /// Virtual address in the file.
    pub address: u64,
    /// File offset of its first byte.
    pub offset: u64,
    /// Number of bytes in the file.
    pub size: u64,
}

impl Section {
    fn of(header: &SectionHeader64<LittleEndian>, names: &[u8]) -> Self {
        let rest = usize::try_from(header.sh_name.get(LE)).ok();
        let rest = rest.and_then(|at| names.get(at..)).unwrap_or_default();
        let name = rest.iter().take(NAME_LIMIT).take_while(|&&byte| byte != 0);
        Self {
            name: String::from_utf8(name.copied().collect()).unwrap_or_default(),
            kind: header.sh_type.get(LE).0,
            flags: header.sh_flags.get(LE).0,
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
        let count = usize::from(header.e_phnum(LE));
        let programs = (1..=SEGMENTS_LIMIT).contains(&count);
        let programs = programs.then(|| header.program_headers(LE, file).ok());
        let damaged = Refusal::Damaged("its program headers cannot be read".into());
        let programs = programs.flatten().ok_or(damaged)?;
        let of_type = |wanted| programs.iter().filter(move |p| p.p_type(LE) == wanted);
        Ok(Self {
            segments: Segments::of(programs),
            eh_frame_hdr: of_type(elf::PT_GNU_EH_FRAME).next().map(LoadSegment::of),
            sections: sections(header, file).unwrap_or_default(),
            build_id: of_type(elf::PT_NOTE)
                .take(NOTES_LIMIT)
                .find_map(|notes| build_id(notes, file)),
        })
    }

    /// Whether the headers are within the limits.
    pub(crate) fn are_sane(&self) -> bool {
        let id = self.build_id.as_ref().map_or(1, Vec::len);
        self.segments.0.len() <= SEGMENTS_LIMIT && (1..=ID_LIMIT).contains(&id)
    }

    /// Number of bytes of the symbol tables, by name or by type.
    pub(crate) fn symbol_bytes(&self) -> u64 {
        let is_symbols = |section: &&Section| {
            let is_named = matches!(&*section.name, ".symtab" | ".dynsym");
            is_named || section.kind == elf::SHT_SYMTAB.0 || section.kind == elf::SHT_DYNSYM.0
        };
        let tables = self.sections.iter().filter(is_symbols);
        tables.fold(0, |sum, table| sum.saturating_add(table.size))
    }

    /// Size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.segments.size() + self.build_id.as_ref().map_or(0, Vec::len)
    }

    /// The section with this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}

/// The ELF header of a file for `machine`.
fn header<'data>(data: impl ReadRef<'data>, machine: Machine) -> Result<&'data Header, Refusal> {
    let too_short = |()| Refusal::Damaged("too short".into());
    // A 32-bit file may have fewer bytes than the header of a 64-bit one.
    let identity = data.read_bytes_at(0, 6).map_err(too_short)?;
    let is_for: &U16<LittleEndian> = data.read_at(18).map_err(too_short)?;
    if !identity.starts_with(&elf::ELFMAG) {
        return Err(Refusal::Damaged("no ELF header".into()));
    }
    if identity[4] == elf::ELFCLASS32.0 {
        return Err(Refusal::Is32Bit);
    }
    if identity[4..] != [elf::ELFCLASS64.0, elf::ELFDATA2LSB.0] {
        return Err(Refusal::Damaged("of no known class".into()));
    }
    if is_for.get(LE) != machine.0 {
        return Err(Refusal::OtherMachine(is_for.get(LE)));
    }
    data.read_at(0).map_err(too_short)
}

fn sections<'data>(header: &Header, file: impl ReadRef<'data>) -> Option<Vec<Section>> {
    // Larger counts are stored elsewhere; linked files do not need that.
    let is_sane = (1..=SECTIONS_LIMIT).contains(&header.e_shnum(LE));
    is_sane.then_some(())?;
    let all = header.section_headers(LE, file).ok()?;
    // Without names, the sections cannot be told apart. The index of the name table is used without a
    // check of that section's type, as in the library that reads symbols.
    let names = all.get(usize::from(header.e_shstrndx.get(LE).0))?;
    let (offset, size) = (names.sh_offset.get(LE), names.sh_size.get(LE));
    (size <= NAMES_LIMIT).then_some(())?;
    let names = file.read_bytes_at(offset, size).ok()?;
    Some(
        all.iter()
            .map(|header| Section::of(header, names))
            .collect(),
    )
}

/// The GNU build id in these notes.
fn build_id<'data>(
    notes: &ProgramHeader64<LittleEndian>,
    file: impl ReadRef<'data>,
) -> Option<Vec<u8>> {
    let size = notes.p_filesz(LE).min(NOTE_LIMIT);
    let bytes = file.read_bytes_at(notes.p_offset(LE), size).ok()?;
    let mut notes = NoteIterator::<Header>::new(LE, 4, bytes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
            let is_sane = (1..=ID_LIMIT).contains(&note.desc().len());
            return is_sane.then(|| note.desc().to_vec());
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
