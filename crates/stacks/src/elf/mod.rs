//! What an ELF file says about itself, as far as stacks need it.
//!
//! Files belong to traced processes, so everything in them is doubted: sizes are bounded before
//! memory is taken, and files are read, not mapped, so that one that is truncated meanwhile gives
//! an error instead of a signal.

mod bytes;
mod notes;
mod sections;
mod segments;

pub use bytes::ReadAt;
pub use sections::Section;
pub use segments::Segment;

use bytes::{u16_at, u32_at, u64_at};

/// A file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A program or library for 32 bits.
    Is32Bit,
    /// Code for another machine than x86-64.
    OtherMachine(u16),
    /// No ELF file, or a damaged one.
    Damaged(&'static str),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is32Bit => write!(
                f,
                "it is a 32-bit program; stacks of 64-bit ones only can be taken"
            ),
            Self::OtherMachine(number) => write!(f, "it is for another machine (ELF's {number})"),
            Self::Damaged(what) => write!(f, "it is no whole ELF file: {what}"),
        }
    }
}

/// The headers of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// What is mapped.
    pub segments: Vec<Segment>,
    /// Place of `.eh_frame_hdr` in the file and in memory.
    pub eh_frame_hdr: Option<Segment>,
    /// The sections, if their headers are whole; a file can do without.
    pub sections: Vec<Section>,
    /// The GNU build id.
    pub build_id: Option<Vec<u8>>,
}

const HEADER_SIZE: usize = 64;

impl Headers {
    /// Reads the headers of `file`.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn read(file: &dyn ReadAt) -> Result<Self, Refusal> {
        use object::elf;
        // The first 52 bytes are all that a 32-bit file has to have.
        let identity = file.read_at(0, 20).ok_or(Refusal::Damaged("too short"))?;
        if !identity.starts_with(&elf::ELFMAG) {
            return Err(Refusal::Damaged("no ELF header"));
        }
        if identity[4] == elf::ELFCLASS32.0 {
            return Err(Refusal::Is32Bit);
        }
        if identity[4] != elf::ELFCLASS64.0 || identity[5] != elf::ELFDATA2LSB.0 {
            return Err(Refusal::Damaged("of no known class"));
        }
        let machine = u16_at(&identity, 18).unwrap_or(0);
        if machine != elf::EM_X86_64.0 {
            return Err(Refusal::OtherMachine(machine));
        }
        let header = file.read_at(0, HEADER_SIZE);
        let header = header.ok_or(Refusal::Damaged("too short"))?;
        let all = segments::read(file, &header)?;
        let loaded = all.iter().filter(|s| s.kind == elf::PT_LOAD.0);
        let hdr = all.iter().find(|s| s.kind == elf::PT_GNU_EH_FRAME.0);
        let notes = all.iter().filter(|s| s.kind == elf::PT_NOTE.0);
        Ok(Self {
            segments: loaded.cloned().collect(),
            eh_frame_hdr: hdr.cloned(),
            sections: sections::read(file, &header).unwrap_or_default(),
            build_id: notes::build_id(file, notes),
        })
    }

    /// The address, as the file states it, of what is at file offset `offset`.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let in_segment = |segment: &Segment| {
            let distance = offset.checked_sub(segment.offset)?;
            let is_in = distance < segment.file_size;
            is_in.then(|| segment.address.wrapping_add(distance))
        };
        // Segments overlap where the linker has put two on one page; code is in executable ones.
        let (code, other): (Vec<_>, Vec<_>) = self.segments.iter().partition(|s| s.is_executable);
        code.into_iter().chain(other).find_map(in_segment)
    }

    /// The file offset of what is at `address`, and how many bytes of the file follow in the
    /// same segment.
    pub fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.segments.iter().find_map(|segment| {
            let distance = address.checked_sub(segment.address)?;
            let left = segment.file_size.checked_sub(distance)?;
            let offset = segment.offset.checked_add(distance)?;
            (left > 0).then_some((offset, left))
        })
    }

    /// Without the sections that unwinding and looking for debugging information do not need.
    pub(crate) fn without_needless_sections(mut self) -> Self {
        const NEEDED: [&str; 4] = [".eh_frame", ".text", ".got", ".gnu_debuglink"];
        let is_needed = |section: &&Section| NEEDED.contains(&section.name.as_str());
        // The first of a name counts.
        let mut kept: Vec<Section> = Vec::new();
        for section in self.sections.iter().filter(is_needed) {
            if !kept.iter().any(|other| other.name == section.name) {
                kept.push(section.clone());
            }
        }
        self.sections = kept;
        self.segments.shrink_to_fit();
        self
    }

    /// Bytes of memory that they take.
    pub(crate) fn size(&self) -> usize {
        let names = self.sections.iter().map(|section| section.name.capacity());
        size_of_val(self.segments.as_slice())
            + size_of_val(self.sections.as_slice())
            + names.sum::<usize>()
    }

    /// The section called `name`.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }
}

/// Bits of a header that several readers need.
struct Table {
    offset: u64,
    entry_size: usize,
    count: usize,
}

impl Table {
    /// A table's bytes, if it has at most `limit` entries of `size` bytes. Others who read them
    /// take it for granted that they have that size.
    fn read(&self, file: &dyn ReadAt, size: usize, limit: usize) -> Option<Vec<u8>> {
        let is_sane = self.entry_size == size && self.count <= limit;
        is_sane.then_some(())?;
        file.read_at(self.offset, self.entry_size.checked_mul(self.count)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    /// A header that ends where a 32-bit one does.
    fn header(class: u8, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', class, 1, 1];
        bytes.resize(16, 0);
        bytes.extend([3, 0]);
        bytes.extend(machine.to_le_bytes());
        bytes.resize(52, 0);
        bytes
    }

    #[test]
    fn programs_for_other_machines_are_refused() {
        let refused = |bytes: &[u8]| Headers::read(&bytes).unwrap_err();
        assert_eq!(refused(&header(1, 3)), Refusal::Is32Bit);
        // x32: 64-bit instructions with 32-bit addresses.
        assert_eq!(refused(&header(1, 62)), Refusal::Is32Bit);
        assert_eq!(refused(&header(2, 183)), Refusal::OtherMachine(183));
        assert!(matches!(refused(&header(2, 62)), Refusal::Damaged(_)));
        assert!(matches!(refused(b"#!/bin/sh"), Refusal::Damaged(_)));
        assert!(matches!(refused(b""), Refusal::Damaged(_)));
        assert!(Refusal::Is32Bit.to_string().contains("32-bit"));
    }
}
