//! Exported functions of an ELF file, by symbol, with the file offsets for probes.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use memchr::memmem;
use object::elf::Sym64;
use object::read::elf::{ElfSymbol64, Sym as _};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::elf::ElfImage;
use super::instruction::{self, FirstInstruction};
use crate::elf_file::ElfFile;
use gpuprobe_cuda::{FUNCTIONS, Framework, Function, Layer};

/// A symbol in the function table.
pub type TableSymbol = &'static str;

/// A function of the function table found in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionInFile {
    /// Row of the function table.
    pub row: u16,
    /// The symbol by which the file exports it.
    #[serde(deserialize_with = "in_table")]
    pub symbol: TableSymbol,
    /// File offset at which it is probed: its first instruction, or the one behind `endbr64`.
    pub offset: u64,
    /// Probe support of the instruction there.
    pub first: FirstInstruction,
}

fn in_table<'de, D: Deserializer<'de>>(from: D) -> Result<TableSymbol, D::Error> {
    let name = String::deserialize(from)?;
    let mut all = FUNCTIONS.iter().flat_map(Function::symbols);
    let found = all.find(|symbol| *symbol == name);
    found.ok_or_else(|| D::Error::custom("it is not in the table"))
}

impl FunctionInFile {
    /// Whether it is in the table, and of this layer.
    pub(crate) fn is_of(&self, layer: Layer) -> bool {
        let row = FUNCTIONS.get(usize::from(self.row));
        row.is_some_and(|row| row.layer == layer && row.symbols().any(|s| s == self.symbol))
    }
}

/// The dynamic loader's rendezvous with debuggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// File offset of `_dl_debug_state`.
    pub offset: u64,
    /// Bytes from there to `_r_debug` in memory.
    pub to_r_debug: i64,
}

/// The functions that `file` exports; of a file that exports none, those whose symbols it has. Aliases of an address are
/// reported once for each layer and framework, so that no call is counted twice.
///
/// # Errors
/// Returns an error if the file is no ELF file for this machine.
pub(crate) fn functions(file: &ElfFile) -> Result<Vec<FunctionInFile>> {
    let image = file.image()?;
    let rows = (0u16..).zip(FUNCTIONS);
    let mut wanted: HashMap<_, Vec<_>> = HashMap::new();
    for (row, function) in rows {
        for symbol in function.symbols() {
            wanted.entry(symbol).or_default().push(row);
        }
    }
    let patterns: Vec<_> = wanted
        .keys()
        .copied()
        .filter(|name| name.contains('*'))
        .collect();
    let of_name = |(name, address): (&str, u64)| {
        let known = wanted.get_key_value(name).or_else(|| {
            let mut patterns = patterns.iter();
            let pattern = patterns.find(|pattern| is_like(name, pattern))?;
            wanted.get_key_value(*pattern)
        });
        let rows = known
            .into_iter()
            .flat_map(|(symbol, rows)| rows.iter().map(|row| (*symbol, *row)));
        rows.map(move |(symbol, row)| (symbol, row, address))
            .collect::<Vec<_>>()
    };
    let function = |(symbol, row, address)| {
        let (offset, _) = image.segments.offset_of(address)?;
        // May be shorter than an instruction at the end of the file.
        let code = image.bytes(address, instruction::LOOKED_AT);
        let (skipped, first) = instruction::entry(code.unwrap_or_default());
        Some(FunctionInFile {
            row,
            symbol,
            offset: offset + skipped,
            first,
        })
    };
    let mut found: Vec<_> = exported(&image)
        .flat_map(of_name)
        .filter_map(function)
        .collect();
    if found.is_empty() {
        let local = local(&image, file);
        found = local
            .into_iter()
            .flat_map(of_name)
            .filter_map(function)
            .collect();
    }
    let row = |function: &FunctionInFile| &FUNCTIONS[usize::from(function.row)];
    // The row's own name before its variants, and lower rows before higher ones.
    found.sort_by_key(|f| (f.row, f.symbol != row(f).symbol, f.symbol));
    let mut seen = HashSet::new();
    found.retain(|f| seen.insert((row(f).layer, row(f).framework, f.offset)));
    Ok(found)
}

/// Whether a name is that of a pattern, in which `*` stands for any text.
fn is_like(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else {
        return false;
    };
    let rest = name
        .strip_prefix(first)
        .and_then(|rest| rest.strip_suffix(last));
    rest.and_then(|rest| {
        parts.try_fold(rest, |rest, part| {
            rest.split_once(part).map(|(_, rest)| rest)
        })
    })
    .is_some()
}

/// The functions of frameworks whose symbols are not exported. There may be a million of symbols with 80 MB of names, so
/// the names are looked for, and then the symbols that have them.
fn local<'a>(image: &'a ElfImage<'_>, file: &ElfFile) -> Vec<(&'a str, u64)> {
    let table = image.file.elf_symbol_table();
    let sections = file.headers().map_or(&[][..], |headers| &headers.sections);
    let names = sections.get(table.string_section().0);
    let names = names.and_then(|names| {
        let start = usize::try_from(names.offset).ok()?;
        file.get(start..start.checked_add(usize::try_from(names.size).ok()?)?)
    });
    let hooks = FUNCTIONS
        .iter()
        .filter(|f| f.framework.is_some_and(Framework::is_local));
    let offsets = hooks.flat_map(Function::symbols).filter_map(|symbol| {
        let terminated = [symbol.as_bytes(), b"\0"].concat();
        memmem::find(names?, &terminated)?.try_into().ok()
    });
    let offsets: Vec<u32> = offsets.collect();
    let is_wanted = |symbol: &&Sym64<LittleEndian>| {
        !offsets.is_empty() && offsets.contains(&symbol.st_name(LittleEndian))
    };
    let found = table.iter().filter(is_wanted);
    let named = found.filter_map(|symbol| {
        let name = symbol.name(LittleEndian, table.strings()).ok()?;
        Some((
            std::str::from_utf8(name).ok()?,
            symbol.st_value(LittleEndian),
        ))
    });
    named.collect()
}

/// The rendezvous of the dynamic loader `file`; `None` if it does not export the symbols.
///
/// # Errors
/// Returns an error if the file is no ELF file for this machine.
pub(crate) fn rendezvous(file: &ElfFile) -> Result<Option<Rendezvous>> {
    let image = file.image()?;
    let address = |name| address_of(&image, name);
    let symbols = address("_dl_debug_state").zip(address("_r_debug"));
    Ok(symbols.and_then(|(state, debug)| {
        let (offset, _) = image.segments.offset_of(state)?;
        let to_r_debug = debug.wrapping_sub(state).cast_signed();
        Some(Rendezvous { offset, to_r_debug })
    }))
}

/// File offset of the function that a file with these bytes exports as `name`, if it does.
///
/// # Errors
/// Returns an error if it is no ELF file for this machine.
pub fn exported_function(bytes: &[u8], name: &str) -> Result<Option<u64>> {
    let image = ElfImage::parse(bytes)?;
    let place = address_of(&image, name).and_then(|address| image.segments.offset_of(address));
    Ok(place.map(|(offset, _)| offset))
}

/// Address in the file of what it exports under this name.
pub(crate) fn address_of(image: &ElfImage<'_>, name: &str) -> Option<u64> {
    let mut all = exported(image);
    all.find_map(|(symbol, address)| (symbol == name).then_some(address))
}

/// Defined dynamic symbols, with their addresses.
fn exported<'a>(image: &'a ElfImage<'_>) -> impl Iterator<Item = (&'a str, u64)> {
    let is_exported = |symbol: &ElfSymbol64<'_, '_, LittleEndian>| {
        symbol.is_definition() && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Data)
    };
    let all = image.file.dynamic_symbols().filter(is_exported);
    all.filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
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
        assert!(functions(&manifest).is_err());
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
        let file = ElfFile::of(&crate::untrusted::file_of(&bytes).unwrap());
        let begin = file
            .headers()
            .unwrap()
            .segments
            .offset_of(0x1000)
            .unwrap()
            .0;
        let found = |layer| {
            let mut found = functions(&file).unwrap();
            found.retain(|function| function.is_of(layer));
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
    fn names_with_an_inline_namespace_are_like_their_pattern() {
        let pattern = "_ZN3rmm*2mr5allocERKNS*_5blockEm";
        for (name, is) in [
            ("_ZN3rmm2mr5allocERKNS1_5blockEm", true),
            ("_ZN3rmm10_RMM_26_102mr5allocERKNS2_5blockEm", true),
            ("_ZN3rmm2mr5allocERKNS1_5blockEmb", false),
            ("_ZN3rmm2mr5freeERKNS1_5blockEm", false),
            ("_ZN3rmm", false),
        ] {
            assert_eq!(is_like(name, pattern), is, "{name}");
        }
    }

    #[test]
    fn functions_of_xla_are_found_by_their_symbols() {
        const HOOK: &str =
            "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll";
        const LAMBDA: &str =
            "_ZZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvllE";
        let local = [(LAMBDA, 0x1000, 16, FUNCTION), (HOOK, 0x1010, 16, FUNCTION)];
        let found = |is_dynamic, symbols: &[_]| {
            let bytes = sample().symbols(is_dynamic, symbols).bytes();
            let file = ElfFile::of(&crate::untrusted::file_of(&bytes).unwrap());
            let mut found = functions(&file).unwrap();
            found.retain(|function| function.is_of(Layer::Framework));
            let places = found.iter().map(|f| {
                let row = &FUNCTIONS[usize::from(f.row)];
                (row.framework.unwrap(), f.symbol)
            });
            places.collect::<Vec<_>>()
        };
        let both = [(Framework::TensorFlow, HOOK), (Framework::Xla, HOOK)];
        assert_eq!(found(false, &local), both);
        assert_eq!(found(true, &local), both);
        assert!(found(false, &local[..1]).is_empty());
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

    #[test]
    fn functions_that_a_parser_names_are_those_of_the_table() {
        let row = FUNCTIONS.iter().position(|f| f.symbol == "cudaMalloc");
        let row = u16::try_from(row.unwrap()).unwrap();
        let of_row = |row, symbol| FunctionInFile {
            row,
            symbol,
            offset: 7,
            first: FirstInstruction::Stepped,
        };
        let function = of_row(row, "cudaMalloc");
        let text = serde_json::to_string(&function).unwrap();
        assert_eq!(
            serde_json::from_str::<FunctionInFile>(&text).unwrap(),
            function
        );
        let other = text.replace("cudaMalloc", "other");
        assert!(serde_json::from_str::<FunctionInFile>(&other).is_err());
        assert!(function.is_of(Layer::Runtime) && !function.is_of(Layer::Driver));
        assert!(!of_row(row, "cudaFree").is_of(Layer::Runtime));
        assert!(!of_row(u16::MAX, "cudaMalloc").is_of(Layer::Runtime));
    }
}
