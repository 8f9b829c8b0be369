//! The memory that a file may make us take, and the files that it may lead us to, before a library
//! that trusts it reads it.

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
/// The library keeps a list of the units of debugging information before it looks at any function.
const UNITS_SHARE: u64 = 64;

/// The memory that reading a file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vetted {
    /// Bytes that the symbols take.
    pub(super) symbols: u64,
    /// Bytes that the debugging information takes besides; more cannot be helped while functions
    /// are looked for. None if it must not be read.
    pub(super) details: Option<u64>,
}

/// The memory that `file` takes, of which all sections are in `headers`; none if not even its
/// symbols may be read.
pub(super) fn vet(headers: &Headers, file: &File) -> Option<Vetted> {
    let sections = &headers.sections;
    let symbols = sections.iter().filter(|section| is_symbols(section));
    let symbols: Vec<_> = symbols.map(|section| section.size).collect();
    let is_sane = symbols.iter().all(|size| *size <= SYMBOLS_LIMIT);
    (is_sane && !sections.is_empty()).then_some(())?;
    // An old way to compress, which no linker uses any more.
    let is_old = |section: &Section| section.name.starts_with(".zdebug");
    let may_not = links::leads_elsewhere(headers, file) || sections.iter().any(is_old);
    let sum = |sum: u64, bytes| sum.saturating_add(bytes);
    let details = sections.iter().map(|section| details(section, file));
    Some(Vetted {
        symbols: symbols.iter().map(|size| size / SYMBOL_SHARE).fold(0, sum),
        details: (!may_not).then(|| details.fold(0, sum)),
    })
}

/// Bytes that are taken for a section with debugging information.
fn details(section: &Section, file: &File) -> u64 {
    let is_compressed = section.flags & elf::SHF_COMPRESSED.0 != 0;
    let size = match is_compressed {
        true => decompressed(section, file).unwrap_or(u64::MAX),
        false => 0,
    };
    let units = match &*section.name {
        ".debug_info" => size.max(section.size) / UNITS_SHARE,
        _ => 0,
    };
    size.saturating_add(units)
}

/// Whether the library, which goes by names, or anybody else takes it for symbols.
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
