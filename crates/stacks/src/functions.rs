//! Exported functions of an ELF file, by symbol, with the file offsets for probes.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use object::{Object, ObjectSymbol, SymbolKind};
use serde::{Deserialize, Serialize};

use super::elf::ElfImage;
use super::instruction::{self, FirstInstruction};
use crate::elf_file::ElfFile;
use gpuprobe_cuda::{FUNCTIONS, Layer};

/// A function of the function table found in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionInFile {
    /// Row of the function table.
    pub row: u16,
    /// The symbol by which the file exports it.
    pub symbol: &'static str,
    /// File offset at which it is probed: its first instruction, or the one behind `endbr64`.
    pub offset: u64,
    /// Probe support of the instruction there.
    pub first: FirstInstruction,
}

/// The dynamic loader's rendezvous with debuggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// File offset of `_dl_debug_state`.
    pub offset: u64,
    /// Bytes from there to `_r_debug` in memory.
    pub to_r_debug: i64,
}

/// The functions of `layer` that `file` exports. Aliases of an address are reported once, so that no
/// call is counted twice.
///
/// # Errors
/// Returns an error if the file is no ELF file for this machine.
pub(crate) fn functions(file: &ElfFile, layer: Layer) -> Result<Vec<FunctionInFile>> {
    let image = file.image()?;
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
        let (offset, _) = image.segments.offset_of(address)?;
        // May be shorter than an instruction at the end of the file.
        let code = image.bytes(address, instruction::LOOKED_AT);
        let entry = instruction::entry(code.unwrap_or_default());
        Some(FunctionInFile {
            row,
            symbol,
            offset: offset + entry.skipped,
            first: entry.first,
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

/// The rendezvous of the dynamic loader `file`; `None` if it does not export the symbols.
///
/// # Errors
/// Returns an error if the file is no ELF file for this machine.
pub(crate) fn rendezvous(file: &ElfFile) -> Result<Option<Rendezvous>> {
    let image = file.image()?;
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

/// File offset of the function that a file with these bytes exports as `name`, if it does.
///
/// # Errors
/// Returns an error if it is no ELF file for this machine.
pub fn exported_function(bytes: &[u8], name: &str) -> Result<Option<u64>> {
    let image = ElfImage::parse(bytes)?;
    let found = exported(&image, |symbol| (symbol == name).then_some(())).next();
    let place = found.and_then(|((), address)| image.segments.offset_of(address));
    Ok(place.map(|(offset, _)| offset))
}

/// Defined dynamic symbols for which `select` returns a value, with their addresses.
fn exported<T>(
    image: &ElfImage<'_>,
    select: impl Fn(&str) -> Option<T>,
) -> impl Iterator<Item = (T, u64)> {
    image.file.dynamic_symbols().filter_map(move |symbol| {
        let wanted =
            symbol.is_definition() && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data);
        let selected = select(symbol.name().ok()?)?;
        wanted.then_some((selected, symbol.address()))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_os::proc::Mappings;
    use std::fs::File;
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
        let loader = ElfFile::of(&File::open(loader.unwrap()).unwrap());
        let found = rendezvous(&loader).unwrap().unwrap();
        assert!(found.offset > 0);
        assert_ne!(found.to_r_debug, 0);
    }

    #[test]
    fn a_text_file_is_rejected() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let manifest = ElfFile::of(&File::open(manifest).unwrap());
        assert!(functions(&manifest, Layer::Driver).is_err());
    }

    use crate::elf::sample::{DATA, ElfSample, FUNCTION};

    /// Functions of sixteen bytes from 0x1000 on: two that push, one behind `endbr64`, one that does not.
    fn sample() -> ElfSample {
        let mut code = vec![0x55; 32];
        code.extend(instruction::ENDBR64);
        code.resize(48, 0x55);
        code.resize(64, 0xc3);
        ElfSample::default()
            .code(0x1000, &code)
            .data(0x5000, &[0; 8])
    }

    #[test]
    fn functions_of_a_layer_are_found_once_each() {
        let symbols = [
            ("cudaMalloc", 0x1000, 16, FUNCTION),
            ("cudaFree", 0x1020, 16, FUNCTION),
            // An alias, one of the driver, one that is not defined, one of another kind, one elsewhere.
            ("cudaMallocHost", 0x1000, 16, FUNCTION),
            ("cuMemFree_v2", 0x1010, 16, FUNCTION),
            ("cudaMallocManaged", 0, 16, FUNCTION),
            ("cudaMallocPitch", 0x1010, 16, 6),
            ("cudaMallocAsync", 0x7000, 16, FUNCTION),
            ("cudaFreeAsync", 0x1030, 16, DATA),
        ];
        let bytes = sample().symbols(true, &symbols).bytes();
        let file = ElfFile::of(&gpuprobe_os::bounded::file_of(&bytes).unwrap());
        let begin = file
            .headers()
            .unwrap()
            .segments
            .offset_of(0x1000)
            .unwrap()
            .0;
        let found = |layer| {
            let found = functions(&file, layer).unwrap();
            let rows = found
                .iter()
                .map(|f| (FUNCTIONS[usize::from(f.row)].symbol, f.symbol));
            assert!(rows.clone().all(|(row, symbol)| row == symbol));
            let places = found.iter().map(|f| (f.symbol, f.offset - begin, f.first));
            places.collect::<Vec<_>>()
        };
        let mut runtime = found(Layer::Runtime);
        runtime.sort_by_key(|(_, offset, _)| *offset);
        let expected = [
            ("cudaMalloc", 0, FirstInstruction::Emulated),
            ("cudaFree", 0x24, FirstInstruction::Emulated),
            ("cudaFreeAsync", 0x30, FirstInstruction::Stepped),
        ];
        assert_eq!(runtime, expected);
        let driver = [("cuMemFree_v2", 0x10, FirstInstruction::Emulated)];
        assert_eq!(found(Layer::Driver), driver);
        let exported = |name| exported_function(&bytes, name).unwrap();
        assert_eq!(exported("cudaFree"), Some(begin + 0x20));
        assert_eq!(
            [exported("cudaMallocManaged"), exported("none")],
            [None, None]
        );
        assert!(exported_function(b"text", "f").is_err());
    }

    #[test]
    fn a_rendezvous_needs_both_symbols() {
        let found = |state, debug| {
            let symbols = [
                ("_dl_debug_state", state, 16, FUNCTION),
                ("_r_debug", debug, 8, DATA),
            ];
            let file = sample().symbols(true, &symbols).parsed();
            let begin = file.headers().unwrap().segments.offset_of(0x1000);
            let found = rendezvous(&file).unwrap();
            found.map(|found| (found.offset - begin.unwrap().0, found.to_r_debug))
        };
        assert_eq!(found(0x1010, 0x5000), Some((0x10, 0x3ff0)));
        assert_eq!(found(0x1010, 0x10), Some((0x10, -0x1000)));
        assert_eq!([found(0, 0x5000), found(0x1010, 0)], [None, None]);
    }
}
