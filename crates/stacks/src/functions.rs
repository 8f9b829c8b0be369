//! Exported functions of an ELF file, by symbol, with the file offsets for probes.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use memchr::memmem;
use object::elf::{R_X86_64_RELATIVE, Rela64, SHT_RELA, SHT_RELR, SectionHeader64, Sym64};
use object::read::elf::{ElfSymbol64, Rela as _, SectionHeader as _, Sym as _};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::elf::{ElfImage, LoadSegment};
use super::instruction::{self, FirstInstruction};
use crate::elf_file::ElfFile;
use gpuprobe_cuda::{FUNCTIONS, Framework, Function, Layer};

/// Limit on the symbols of a pattern, and on the places of a type's name.
const MAX_CLONES: usize = 16;
/// Limit on the pointers of a file that are looked at; ONNX Runtime's has 32,000.
const MAX_POINTERS: usize = 1 << 20;

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

/// The functions that `file` exports; of a file that exports none, those whose symbols it has, or that are in tables of
/// virtual functions. Aliases of an address are reported once for each layer and framework, so that no call is counted
/// twice.
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
    for others in [local, virtual_functions] {
        if found.is_empty() {
            let others = others(&image, file).into_iter();
            found = others.flat_map(of_name).filter_map(function).collect();
        }
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
/// the names are looked for, and then the symbols that have them. Parts of functions that are rarely run, which have
/// symbols of their own, are not called.
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
    let offsets = hooks.flat_map(Function::symbols).flat_map(|symbol| {
        let (start, wanted) = match symbol.split_once('*') {
            Some((start, _)) => (start.as_bytes().to_vec(), MAX_CLONES),
            None => ([symbol.as_bytes(), b"\0"].concat(), 1),
        };
        let names = names.unwrap_or_default();
        let found = memmem::find_iter(names, &start).take(wanted);
        let offsets = found.filter_map(|offset| offset.try_into().ok());
        offsets.collect::<Vec<_>>()
    });
    let offsets: Vec<u32> = offsets.collect();
    let is_wanted = |symbol: &&Sym64<LittleEndian>| {
        !offsets.is_empty() && offsets.contains(&symbol.st_name(LittleEndian))
    };
    let found = table.iter().filter(is_wanted);
    let named = found.filter_map(|symbol| {
        let name = symbol.name(LittleEndian, table.strings()).ok()?;
        let name = std::str::from_utf8(name).ok()?;
        (!name.contains(".cold")).then_some((name, symbol.st_value(LittleEndian)))
    });
    named.collect()
}

/// The functions of frameworks in slots of tables of virtual functions ([`Function::variants`]). The name of the type is in
/// the file, also without symbols: a description of the type points to it, and the word before the table to that.
/// None of a type with several tables, or none. Instructions that return are those at which unwinding changes, as it does
/// once the function's frame is gone.
fn virtual_functions<'a>(image: &'a ElfImage<'_>, file: &ElfFile) -> Vec<(&'a str, u64)> {
    let slots = FUNCTIONS.iter().flat_map(Function::symbols);
    let slots = slots.filter_map(|symbol| {
        let (name, slot) = symbol.strip_prefix("_ZTV")?.split_once('[')?;
        let (slot, then) = slot.split_once(']')?;
        Some((symbol, name, slot.parse::<u64>().ok()?, then))
    });
    let mut slots: Vec<_> = slots.collect();
    let mut names: Vec<_> = slots.iter().map(|(_, name, ..)| *name).collect();
    names.dedup();
    names.retain(|name| memmem::find(file, name.as_bytes()).is_some());
    slots.retain(|(_, name, ..)| names.contains(name));
    if slots.is_empty() {
        return Vec::new();
    }
    let pointers = pointers(image);
    let target = |at: u64| {
        let found = pointers.binary_search_by_key(&at, |(at, _)| *at);
        Some(pointers[found.ok()?].1)
    };
    let pointing_at = |target| {
        let found = pointers.iter().filter(move |(_, to)| *to == target);
        found.map(|(at, _)| *at)
    };
    let code = |address: u64| {
        let is_there = |s: &LoadSegment| address.wrapping_sub(s.address) < s.file_size;
        image.segments.code().any(is_there).then_some(())?;
        image.bytes(address, instruction::LOOKED_AT)
    };
    let in_slot = |name: &str, slot: u64| {
        let text = ["\0", name, "\0"].concat();
        let names = memmem::find_iter(file, &text).take(MAX_CLONES);
        let names = names.filter_map(|at| image.segments.address_of(at as u64 + 1));
        let types = names
            .flat_map(pointing_at)
            .filter_map(|at| at.checked_sub(8));
        let mut tables = types.take(MAX_CLONES).flat_map(pointing_at).filter(|&at| {
            let is_zero =
                |before| target(before).is_none() && image.bytes(before, 8) == Some(&[0; 8]);
            at.checked_sub(8).is_some_and(is_zero)
        });
        let table = tables.next().filter(|_| tables.next().is_none())?;
        target(table.checked_add(8 + 8 * slot)?).filter(|address| code(*address).is_some())
    };
    let jumped_to = |address: u64| {
        let (skipped, _) = instruction::entry(code(address)?);
        let at = address.checked_add(skipped)?;
        let (length, distance) = match code(at)? {
            [0xe9, a, b, c, d, ..] => (5, i32::from_le_bytes([*a, *b, *c, *d])),
            [0xeb, distance, ..] => (2, i32::from(distance.cast_signed())),
            _ => return None,
        };
        at.checked_add(length)?.checked_add_signed(distance.into())
    };
    let function = |(symbol, name, slot, then): (_, &str, u64, &str)| {
        let mut address = in_slot(name, slot);
        if then.starts_with('>') {
            address = address.and_then(jumped_to);
        }
        if !then.ends_with("ret") {
            return address.map(|at| (symbol, at)).into_iter().collect();
        }
        let rules = address.and_then(|address| file.rules(address));
        let starts = rules.iter().flatten().map(|row| row.addresses.start);
        let returns = starts.filter(|at| code(*at).is_some_and(|code| code.starts_with(&[0xc3])));
        returns.map(|at| (symbol, at)).collect::<Vec<_>>()
    };
    slots.into_iter().flat_map(function).collect()
}

/// Places of pointers that the loader relocates, and to where they point, by place.
fn pointers(image: &ElfImage<'_>) -> Vec<(u64, u64)> {
    let (sections, data) = (image.file.elf_section_table(), image.file.data());
    let mut pointers = Vec::new();
    let is_of_pointers = |s: &&SectionHeader64<LittleEndian>| {
        [SHT_RELA, SHT_RELR].contains(&s.sh_type(LittleEndian))
    };
    for section in sections.iter().filter(is_of_pointers).take(MAX_CLONES) {
        let left = MAX_POINTERS - pointers.len();
        if let Ok(Some((relocations, _))) = section.rela(LittleEndian, data) {
            let is_relative =
                |r: &&Rela64<LittleEndian>| r.r_type(LittleEndian, false) == R_X86_64_RELATIVE;
            let relative = relocations.iter().filter(is_relative).take(left);
            let place = |r: &Rela64<LittleEndian>| {
                let (at, to) = (r.r_offset(LittleEndian), r.r_addend(LittleEndian));
                (at, to.cast_unsigned())
            };
            pointers.extend(relative.map(place));
        } else if let Ok(Some(places)) = section.relr(LittleEndian, data) {
            let word = |at| {
                let bytes = image.bytes(at, 8)?;
                Some((at, u64::from_le_bytes(bytes.try_into().ok()?)))
            };
            pointers.extend(places.take(left).filter_map(word));
        }
    }
    pointers.sort_unstable();
    pointers
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

    use crate::elf::sample::{DATA, ElfSample, FUNCTION, eh_frame_hdr, eh_frame_of};

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

    /// A table of virtual functions at 0x7010, of the type at 0x6000 whose name is at 0x5001: slot 4 jumps to 0x1020,
    /// which returns at 0x1028.
    fn with_table(more: &[(u64, u64)], slot: [u8; 9]) -> Vec<(&'static str, u64)> {
        let mut code = [0x55; 48];
        code[..9].copy_from_slice(&slot);
        code[40] = 0xc3;
        let pushed_and_popped = [0x41, 0x0e, 16, 0x47, 0x0e, 8].to_vec();
        let mut pointers = vec![
            (0x6008, 0x5001),
            (0x7008, 0x6000),
            (0x7030, 0x1000),
            (0x7038, 0x1010),
            // Of a type that is derived from it.
            (0x6108, 0x5001),
            (0x6110, 0x6000),
        ];
        pointers.extend(more);
        let sample = ElfSample::default()
            .code(0x1000, &code)
            .data(0x5000, b"\0N11onnxruntime19StreamAwareBFCArenaE\0")
            .data(0x6000, &[0; 0x200])
            .data(0x7000, &[0; 0x200])
            .tables(
                &eh_frame_of(&[(0x1020, 16, pushed_and_popped)]),
                &eh_frame_hdr(&[(0x1020, 16)]),
            )
            .pointers(&pointers);
        let file = sample.parsed();
        let begin = file.headers().unwrap().segments.offset_of(0x1000);
        let mut found = functions(&file).unwrap();
        found.retain(|f| f.is_of(Layer::Framework));
        let places = found.iter().map(|f| {
            let row = &FUNCTIONS[usize::from(f.row)];
            (row.symbol, f.offset - begin.unwrap().0)
        });
        places.collect()
    }

    const JUMP: [u8; 9] = [0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0x17, 0, 0, 0];

    #[test]
    fn virtual_functions_are_found_by_the_name_of_their_type() {
        let all = [
            ("onnxruntime::BFCArena::AllocateRawInternal", 0x20),
            ("onnxruntime::BFCArena::Alloc", 0x28),
            ("onnxruntime::BFCArena::Free", 0x10),
        ];
        assert_eq!(with_table(&[], JUMP), all);
        let short = [0x90, 0x90, 0xeb, 0x1c, 0, 0, 0, 0, 0];
        assert_eq!(with_table(&[], short).len(), 1);
        assert_eq!(with_table(&[], [0xeb, 0x1e, 0, 0, 0, 0, 0, 0, 0]), all);
        // Another function is not taken for the one that it should jump to.
        assert_eq!(with_table(&[], [0x55; 9]), all[2..]);
    }

    #[test]
    fn tables_that_cannot_be_told_apart_or_lead_nowhere_are_none() {
        let odd = [
            (0x7108, 0x6000),
            (u64::MAX - 3, 0x5001),
            (u64::MAX - 2, u64::MAX - 11),
            (3, 0x5001),
        ];
        assert!(with_table(&odd[..1], JUMP).is_empty());
        assert_eq!(with_table(&odd[1..], JUMP).len(), 3);
        let many: Vec<_> = (0..50_000).map(|n| (0x10_0000 + 8 * n, 0x5001)).collect();
        with_table(&many, JUMP);
        // Far beyond the code, and to where the file has none.
        let far = [0xe9, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0];
        assert_eq!(with_table(&[], far).len(), 1);
        let nowhere = [(0x7030, u64::MAX), (0x7038, 0x5000)];
        with_table(&nowhere, JUMP);
    }

    #[test]
    fn clones_are_functions_and_cold_parts_are_not() {
        const FREE: &str = "_ZL47__pyx_f_4cupy_4cuda_6memory_12PooledMemory_freeP42_i";
        const CLONE: &str =
            "_ZL47__pyx_f_4cupy_4cuda_6memory_12PooledMemory_freeP42_i.constprop.313";
        const COLD: &str =
            "_ZL47__pyx_f_4cupy_4cuda_6memory_12PooledMemory_freeP42_i.constprop.313.cold.4";
        let names = [FREE, CLONE, COLD];
        let symbols = [0x1000, 0x1010, 0x1030].map(|address| (address, 16, FUNCTION));
        let symbols = names.iter().zip(symbols);
        let symbols: Vec<_> = symbols
            .map(|(name, (at, size, kind))| (*name, at, size, kind))
            .collect();
        let bytes = sample().symbols(false, &symbols).bytes();
        let file = ElfFile::of(&crate::untrusted::file_of(&bytes).unwrap());
        let found = functions(&file).unwrap();
        let cupy = found
            .iter()
            .map(|f| FUNCTIONS[usize::from(f.row)].framework);
        assert_eq!(cupy.collect::<Vec<_>>(), [Some(Framework::CuPy); 2]);
        assert_eq!(found[1].offset - found[0].offset, 0x10);
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
