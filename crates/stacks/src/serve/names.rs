//! Naming functions with a library that trusts what it reads, and may take any memory, or die.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::elf_file::ElfFile;
use crate::reader::SymbolName;
use crate::symbols::demangle::{NAME_LIMIT, beginning, function_name};

/// Functions that can be inlined at one place.
const INLINED_LIMIT: usize = 256;
/// Bytes of all names at one place: of so many functions that are inlined into each other, names
/// are shortened.
const PLACE_LIMIT: usize = 256 << 10;

/// The library, and what it has read.
pub(super) struct SymbolFile(Symbolizer);

impl SymbolFile {
    pub(super) fn new() -> Self {
        // Debugging information in other files is looked for by whoever asks. Names are made readable
        // here too: the library would make gigabytes of some.
        let library = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_demangling(false)
            .set_debug_dirs(Some(std::iter::empty::<PathBuf>()))
            .build();
        Self(library)
    }

    /// The functions at `address` of `module`, after the symbols in `file`.
    pub(super) fn look_up(
        &self,
        file: &ElfFile,
        module: &ElfFile,
        address: u64,
        with_details: bool,
    ) -> Option<Vec<SymbolName>> {
        file.has_few_symbols().then_some(())?;
        let path = format!("/proc/self/fd/{}", file.file().as_raw_fd());
        let find = |debug_syms| {
            let mut elf = Elf::new(&path);
            elf.debug_syms = debug_syms;
            match self
                .0
                .symbolize_single(&Source::Elf(elf), Input::VirtOffset(address))
            {
                Ok(Symbolized::Sym(symbol)) => Some(symbol),
                _ => None,
            }
        };
        let symbol = find(false).filter(|symbol| is_at(symbol, module, address));
        let detailed = with_details.then(|| find(true)).flatten();
        // Of functions that are in several parts, the library does not say where they begin.
        let in_parts = |symbol: &Sym<'_>| symbol.addr == 0 && symbol.code_info.is_some();
        let detailed = detailed.filter(|found| is_at(found, module, address) || in_parts(found));
        let mut frames = named(detailed.as_ref().or(symbol.as_ref())?);
        // Symbols have the whole name; debugging information may have `operator()` alone.
        if let (Some(symbol), Some(outer)) = (symbol, frames.last_mut()) {
            outer.function = function_name(&symbol.name, NAME_LIMIT);
        }
        let is_named = |frame: &SymbolName| !frame.function.is_empty();
        frames.last().is_some_and(is_named).then_some(())?;
        // What is inlined may have its name in a file that is not there.
        frames.retain(is_named);
        Some(frames)
    }
}

/// Whether the symbol is that of the function at `address`, not of one that stands before it.
fn is_at(symbol: &Sym<'_>, module: &ElfFile, address: u64) -> bool {
    let Some(distance) = address.checked_sub(symbol.addr) else {
        return false;
    };
    match symbol.size {
        Some(size) => u64::try_from(size).is_ok_and(|size| distance < size),
        // Assembly code often does not say how large its functions are; the unwinding tables do.
        None => {
            let function = (distance > 0).then(|| module.function(address)).flatten();
            distance == 0 || function.is_some_and(|function| function.start == symbol.addr)
        }
    }
}

fn named(symbol: &Sym<'_>) -> Vec<SymbolName> {
    let count = symbol.inlined.len().min(INLINED_LIMIT) + 1;
    // Half of it for their files.
    let limit = (PLACE_LIMIT / count / 2).min(NAME_LIMIT);
    let one = |name: &str, code: Option<&CodeInfo<'_>>, inlined| SymbolName {
        function: function_name(name, limit),
        file: code.map(|code| beginning(&code.to_path().to_string_lossy(), limit)),
        line: code.and_then(|code| code.line).filter(|&line| line > 0),
        inlined,
    };
    // The library lists them outermost first.
    let inlined = symbol.inlined.iter().rev().take(INLINED_LIMIT);
    let inlined = inlined.map(|f| one(&f.name, f.code_info.as_ref(), true));
    let itself = one(&symbol.name, symbol.code_info.as_deref(), false);
    inlined.chain([itself]).collect()
}
