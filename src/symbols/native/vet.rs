//! What a file may make us take of memory, before a library that trusts it reads it.

use object::elf;

use crate::stacks::elf::{Headers, ReadAt, Section};

/// Bytes of a symbol table; 22 million symbols. libtorch has one.
const SYMBOLS_LIMIT: u64 = 512 << 20;
/// Bytes of all decompressed sections of a file together.
const DECOMPRESSED_LIMIT: u64 = 4 << 30;
/// zlib's best is 1,032 to 1.
const RATIO_LIMIT: u64 = 1_100;

/// What may be read of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    Nothing,
    /// The symbol tables.
    Symbols,
    /// The debugging information too.
    Everything,
}

/// What may be read of `file`.
pub(super) fn vet(headers: &Headers, file: &dyn ReadAt) -> Allowed {
    let is_symbols = |s: &&Section| s.kind == elf::SHT_SYMTAB.0 || s.kind == elf::SHT_DYNSYM.0;
    let mut symbols = headers.sections.iter().filter(is_symbols);
    if headers.sections.is_empty() || symbols.any(|table| table.size > SYMBOLS_LIMIT) {
        return Allowed::Nothing;
    }
    let mut total = 0u64;
    for section in &headers.sections {
        // An old way to compress, which no linker uses any more.
        if section.name.starts_with(".zdebug") {
            return Allowed::Symbols;
        }
        if section.flags & elf::SHF_COMPRESSED.0 == 0 {
            continue;
        }
        let size = decompressed(section, file);
        let size = size.filter(|&size| size / RATIO_LIMIT <= section.size);
        total = total.saturating_add(size.unwrap_or(u64::MAX));
        if total > DECOMPRESSED_LIMIT {
            let is_needed = matches!(&*section.name, ".symtab" | ".dynsym" | ".strtab");
            return if is_needed {
                Allowed::Nothing
            } else {
                Allowed::Symbols
            };
        }
    }
    Allowed::Everything
}

/// The size that the section's header promises.
fn decompressed(section: &Section, file: &dyn ReadAt) -> Option<u64> {
    let bytes = file.read_at(section.offset.checked_add(8)?, 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}
