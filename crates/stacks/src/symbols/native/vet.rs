//! What a file may make us take of memory, and lead us to, before a library that trusts it reads it.

use std::fs::File;

use object::elf;

use super::links;
use crate::elf::{Headers, Section};
use gpuprobe_os::bounded::read_at;

/// Bytes of a symbol table; 22 million symbols. libtorch has one.
const SYMBOLS_LIMIT: u64 = 512 << 20;
/// zlib's best is 1,032 to 1.
const RATIO_LIMIT: u64 = 1_100;
/// Of 24 bytes of a symbol, the library keeps 8.
const SYMBOL_SHARE: u64 = 3;
/// What the library keeps of debugging information before it looks at any function: a list of its
/// units.
const UNITS_SHARE: u64 = 64;

/// What may be read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    Nothing,
    /// The symbol tables.
    Symbols,
    /// The debugging information too.
    Everything,
}

/// What may be read of a file, and the memory that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vetted {
    pub(super) allowed: Allowed,
    /// Bytes that the symbols take.
    pub(super) symbols: u64,
    /// Bytes that the debugging information takes besides; more cannot be helped while functions
    /// are looked for.
    pub(super) details: u64,
}

const NOTHING: Vetted = Vetted {
    allowed: Allowed::Nothing,
    symbols: 0,
    details: 0,
};

/// What may be read of `file`, of which all sections are in `headers`.
pub(super) fn vet(headers: &Headers, file: &File) -> Vetted {
    if headers.sections.is_empty() {
        return NOTHING;
    }
    let (mut symbols, mut details) = (0u64, 0u64);
    let mut allowed = Allowed::Everything;
    if links::leads_elsewhere(headers, file) {
        allowed = Allowed::Symbols;
    }
    for section in &headers.sections {
        if is_symbols(section) {
            if section.size > SYMBOLS_LIMIT {
                return NOTHING;
            }
            symbols = symbols.saturating_add(section.size / SYMBOL_SHARE);
        }
        // An old way to compress, which no linker uses any more.
        if section.name.starts_with(".zdebug") {
            allowed = Allowed::Symbols;
        }
        let is_compressed = section.flags & elf::SHF_COMPRESSED.0 != 0;
        let size = match is_compressed {
            true => decompressed(section, file).unwrap_or(u64::MAX),
            false => 0,
        };
        details = details.saturating_add(size);
        if section.name == ".debug_info" {
            details = details.saturating_add(size.max(section.size) / UNITS_SHARE);
        }
    }
    Vetted {
        allowed,
        symbols,
        details,
    }
}

/// What the library, which goes by names, or anybody else takes for symbols.
fn is_symbols(section: &Section) -> bool {
    let is_named = matches!(&*section.name, ".symtab" | ".dynsym");
    is_named || section.kind == elf::SHT_SYMTAB.0 || section.kind == elf::SHT_DYNSYM.0
}

/// The size that the section's header promises, if it can keep that.
fn decompressed(section: &Section, file: &File) -> Option<u64> {
    let bytes = read_at(file, section.offset.checked_add(8)?, 8)?;
    let size = bytes.try_into().ok().map(u64::from_le_bytes);
    size.filter(|&size| size / RATIO_LIMIT <= section.size)
}
