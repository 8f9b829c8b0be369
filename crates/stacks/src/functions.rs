//! Functions in an ELF file, by symbol, as the file offsets that probes are placed at.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use anyhow::Result;
use object::read::ReadRef;
use object::{Object, ObjectSymbol, SymbolKind};

use super::elf::Image;
use super::instruction::{self, First};
use gpuprobe_cuda::{FUNCTIONS, Layer};
use gpuprobe_os::bounded::BoundedFile;

/// A function of the table, found in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Row of the table.
    pub row: u16,
    /// The symbol that was found.
    pub symbol: &'static str,
    /// Its place in the file.
    pub offset: u64,
    /// How the kernel gets past its first instruction.
    pub first: First,
}

/// The dynamic loader's rendezvous with debuggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// File offset of `_dl_debug_state`.
    pub offset: u64,
    /// Bytes from there to `_r_debug` in memory.
    pub to_r_debug: i64,
}

/// The functions of `layer` in the table that `file` exports. Aliases of one address are one
/// function, so that no call is seen twice.
///
/// # Errors
/// The file is no ELF file of this machine's architecture.
pub fn functions(file: &File, layer: Layer) -> Result<Vec<Function>> {
    let file = BoundedFile::new(file);
    let image = Image::parse(&file)?;
    let mut wanted = HashMap::new();
    for (row, function) in (0u16..).zip(FUNCTIONS) {
        if function.layer == layer {
            wanted.extend(function.symbols().map(|symbol| (symbol, row)));
        }
    }
    let select = |name: &str| {
        wanted
            .get_key_value(name)
            .map(|(&symbol, &row)| (symbol, row))
    };
    let function = |((symbol, row), address)| {
        let (offset, left) = image.segments.offset_of(address)?;
        // Less than an instruction where the file ends.
        let code = (&file).read_bytes_at(offset, left.min(instruction::LONGEST));
        Some(Function {
            row,
            symbol,
            offset,
            first: instruction::first(code.unwrap_or_default()),
        })
    };
    let mut found: Vec<_> = exported(&image, select).filter_map(function).collect();
    // The row's own name before its variants, and lower rows before higher ones.
    found.sort_by_key(|f| {
        (
            f.row,
            f.symbol != FUNCTIONS[usize::from(f.row)].symbol,
            f.symbol,
        )
    });
    let mut seen = HashSet::new();
    found.retain(|f| seen.insert(f.offset));
    Ok(found)
}

/// The rendezvous in the dynamic loader `file`; `None` if its symbols are not exported.
///
/// # Errors
/// The file is no ELF file of this machine's architecture.
pub fn rendezvous(file: &File) -> Result<Option<Rendezvous>> {
    let file = BoundedFile::new(file);
    let image = Image::parse(&file)?;
    let is_wanted = |name: &str| matches!(name, "_dl_debug_state" | "_r_debug");
    let select = |name: &str| is_wanted(name).then(|| name.to_owned());
    let symbols: HashMap<_, _> = exported(&image, select).collect();
    let (Some(&state), Some(&debug)) = (symbols.get("_dl_debug_state"), symbols.get("_r_debug"))
    else {
        return Ok(None);
    };
    let place = image.segments.offset_of(state);
    Ok(place.map(|(offset, _)| Rendezvous {
        offset,
        to_r_debug: debug.wrapping_sub(state).cast_signed(),
    }))
}

/// The place of the function that the file with these bytes exports as `name`; `None` if it exports
/// none.
///
/// # Errors
/// It is no ELF file of this machine's architecture.
pub fn exported_function(bytes: &[u8], name: &str) -> Result<Option<u64>> {
    let image = Image::parse(bytes)?;
    let found = exported(&image, |symbol| (symbol == name).then_some(())).next();
    let place = found.and_then(|((), address)| image.segments.offset_of(address));
    Ok(place.map(|(offset, _)| offset))
}

/// Defined dynamic symbols that `select` maps to something, with their addresses.
fn exported<'data, R: ReadRef<'data>, T>(
    image: &Image<'data, R>,
    select: impl Fn(&str) -> Option<T>,
) -> impl Iterator<Item = (T, u64)> {
    image.file.dynamic_symbols().filter_map(move |symbol| {
        let wanted =
            symbol.is_definition() && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
        let selected = select(symbol.name().ok()?)?;
        wanted.then_some((selected, symbol.address()))
    })
}

/// Looks for all that is looked for in the libraries and the program of a process, in a file of
/// these `bytes`. Gives how many functions were found.
///
/// # Errors
/// Returns the system's error if there is no memory for the file; a damaged file is no error.
#[doc(hidden)]
pub fn try_functions(bytes: &[u8]) -> std::io::Result<usize> {
    let file = gpuprobe_os::bounded::file_of(bytes)?;
    let mut found = 0;
    for layer in [Layer::Driver, Layer::Runtime] {
        found += functions(&file, layer).map_or(0, |functions| functions.len());
    }
    found += usize::from(rendezvous(&file).is_ok_and(|found| found.is_some()));
    let collected = exported_function(bytes, "gpuprobe_batch");
    found += usize::from(collected.is_ok_and(|found| found.is_some()));
    found += usize::from(crate::symbols::size_in(&file, "table_").is_some());
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_os::proc::Mappings;
    use std::path::Path;

    #[test]
    fn the_dynamic_loader_has_a_rendezvous() {
        let own = Mappings::of(std::process::id()).unwrap();
        let mut files = own.iter().filter_map(|map| map.path());
        let is_loader = |path: &&Path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-"))
        };
        let loader = files.find(is_loader);
        let found = rendezvous(&File::open(loader.unwrap()).unwrap())
            .unwrap()
            .unwrap();
        assert!(found.offset > 0);
        assert_ne!(found.to_r_debug, 0);
    }

    #[test]
    fn other_files_are_refused() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(functions(&File::open(manifest).unwrap(), Layer::Driver).is_err());
    }
}
