//! Functions in an ELF file, by symbol, as the file offsets that probes are placed at.

use std::collections::{HashMap, HashSet};
use std::fs::File;

use anyhow::{Result, bail};
use object::read::ReadRef;
use object::{Architecture, Object, ObjectSegment, ObjectSymbol, SymbolKind};

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
    /// What a probe on its first instruction means.
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
    let elf = Elf::parse(&file)?;
    let mut wanted = HashMap::new();
    for (row, function) in (0u16..).zip(FUNCTIONS) {
        if function.layer == layer {
            wanted.extend(function.symbols().map(|symbol| (symbol, row)));
        }
    }
    let mut found: Vec<_> = elf
        .exported(|name| {
            wanted
                .get_key_value(name)
                .map(|(&symbol, &row)| (symbol, row))
        })
        .filter_map(|((symbol, row), address)| {
            let offset = elf.file_offset(address)?;
            Some(Function {
                row,
                symbol,
                offset,
                first: instruction::first(elf.code_at(offset)),
            })
        })
        .collect();
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
    let elf = Elf::parse(&file)?;
    let symbols: HashMap<_, _> = elf
        .exported(|name| match name {
            "_dl_debug_state" | "_r_debug" => Some(name.to_owned()),
            _ => None,
        })
        .collect();
    let (Some(&state), Some(&debug)) = (symbols.get("_dl_debug_state"), symbols.get("_r_debug"))
    else {
        return Ok(None);
    };
    Ok(elf.file_offset(state).map(|offset| Rendezvous {
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
    let elf = Elf::parse(bytes)?;
    let address = elf.exported(|symbol| (symbol == name).then_some(())).next();
    Ok(address.and_then(|((), address)| elf.file_offset(address)))
}

struct Elf<'data, R: ReadRef<'data>> {
    file: object::File<'data, R>,
    data: R,
}

impl<'data, R: ReadRef<'data>> Elf<'data, R> {
    fn parse(data: R) -> Result<Self> {
        let file = object::File::parse(data)?;
        let native = match std::env::consts::ARCH {
            "aarch64" => Architecture::Aarch64,
            _ => Architecture::X86_64,
        };
        if file.format() != object::BinaryFormat::Elf || file.architecture() != native {
            let architecture = file.architecture();
            bail!("it is for {architecture:?}; only {native:?} programs can be traced");
        }
        Ok(Self { file, data })
    }

    /// Defined dynamic symbols that `select` maps to something, with their addresses.
    fn exported<T>(&self, select: impl Fn(&str) -> Option<T>) -> impl Iterator<Item = (T, u64)> {
        self.file.dynamic_symbols().filter_map(move |symbol| {
            let wanted = symbol.is_definition()
                && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
            let selected = select(symbol.name().ok()?)?;
            wanted.then_some((selected, symbol.address()))
        })
    }

    /// The first instruction at an offset of the file; less at its end.
    fn code_at(&self, offset: u64) -> &'data [u8] {
        let rest = self.data.len().unwrap_or(0).saturating_sub(offset);
        let bytes = rest.min(instruction::LONGEST as u64);
        self.data.read_bytes_at(offset, bytes).unwrap_or(&[])
    }

    fn file_offset(&self, address: u64) -> Option<u64> {
        self.file.segments().find_map(|segment| {
            let (offset, file_size) = segment.file_range();
            let distance = address.checked_sub(segment.address())?;
            (distance < file_size).then(|| offset.checked_add(distance))?
        })
    }
}

/// Looks for all that is looked for in the libraries and the program of a process, in a file of
/// these `bytes`. Gives how many functions were found.
///
/// # Errors
/// Those of the system; what is wrong with the file is none.
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
    let places = (0..bytes.len() as u64).step_by((bytes.len() / 256).max(1));
    found += crate::symbols::named_places(&file, places.chain([u64::MAX]));
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
