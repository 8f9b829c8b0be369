//! An ELF file that is read: its headers, symbols and unwind tables.

use std::cell::OnceCell;
use std::fs::File;
use std::ops::{Deref, Range};

use memmap2::Mmap;
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{LittleEndian, Object, ObjectSymbol, ObjectSymbolTable, SymbolKind};

use crate::elf::{ElfImage, Headers, Refusal};
use crate::unwind::{FunctionRules, Tables};

/// Symbols of a file, 24 bytes each; the largest libraries have a million.
const MAX_SYMBOL_BYTES: u64 = 64 << 20;

/// Symbols without a size, such as labels, that may stand behind that of a function within it.
const MAX_LABELS: usize = 8;

/// A file, of which what was read is kept.
#[derive(Debug)]
pub struct ElfFile {
    data: Option<Mmap>,
    headers: Result<Headers, Refusal>,
    tables: OnceCell<Option<Tables>>,
    functions: OnceCell<Vec<ElfFunction>>,
}

/// Where a function is, and where among the symbols.
#[derive(Clone, Copy, Debug)]
struct ElfFunction {
    address: u64,
    size: u64,
    index: u32,
    is_dynamic: bool,
}

impl ElfFile {
    /// Maps the contents of `file`.
    pub fn of(file: &File) -> Self {
        // SAFETY: where somebody shortens or changes the file meanwhile, this process dies or reads
        // other numbers, and both are seen to: it is there for nothing else.
        #[allow(unsafe_code)]
        let data = unsafe { Mmap::map(file) }.ok();
        let headers = Headers::parse(data.as_deref().unwrap_or_default());
        Self {
            data,
            headers,
            tables: OnceCell::new(),
            functions: OnceCell::new(),
        }
    }

    /// Its headers.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn headers(&self) -> Result<&Headers, &Refusal> {
        self.headers.as_ref()
    }

    fn tables(&self) -> Option<&Tables> {
        let read = || Tables::read(self.headers.as_ref().ok()?, self);
        self.tables.get_or_init(read).as_ref()
    }

    /// How to unwind in the function at `address`, as the file states it.
    pub fn rules(&self, address: u64) -> Option<FunctionRules> {
        self.tables()?.rules(self, address)
    }

    /// The addresses of the function, or the part of one, that is at `address`.
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        self.tables()?.function(self, address)
    }

    /// Its symbols and segments, if it is for this machine and has no more than any has.
    pub(crate) fn image(&self) -> anyhow::Result<ElfImage<'_>> {
        let symbols = self.headers.as_ref().map_or(0, Headers::symbol_bytes);
        anyhow::ensure!(symbols <= MAX_SYMBOL_BYTES, "it has too many symbols");
        ElfImage::parse(self)
    }

    /// The mangled name of the function at `address`. This may be the debug file of `module`, which has the unwind
    /// tables.
    pub(crate) fn symbol(&self, address: u64, module: &Self) -> Option<String> {
        let image = self.image().ok()?;
        let functions = self.functions.get_or_init(|| functions(&image.file));
        let after = functions.partition_point(|function| function.address <= address);
        // Assembly code often does not say how large its functions are; the unwind tables do.
        let contains = |function: &&ElfFunction| match function.size {
            0 if address == function.address => true,
            0 => module.function(address).map(|f| f.start) == Some(function.address),
            size => address - function.address < size,
        };
        let before = functions.get(..after)?.iter().rev();
        let found = before.take(MAX_LABELS).find(contains)?;
        let index = object::SymbolIndex(usize::try_from(found.index).ok()?);
        let table = match found.is_dynamic {
            true => image.file.dynamic_symbol_table()?,
            false => image.file.symbol_table()?,
        };
        let symbol = table.symbol_by_index(index).ok()?;
        Some(symbol.name().ok()?.to_owned())
    }
}

impl Deref for ElfFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.data.as_deref().unwrap_or_default()
    }
}

/// All functions by address; of several at one, those with a size, and in the table of all symbols,
/// come last.
fn functions(file: &ElfFile64<'_, LittleEndian>) -> Vec<ElfFunction> {
    let dynamic = file.dynamic_symbols().map(|symbol| (symbol, true));
    let all = dynamic.chain(file.symbols().map(|symbol| (symbol, false)));
    let is_function = |symbol: &ElfSymbol64<'_, '_, LittleEndian>| {
        symbol.is_definition() && symbol.kind() == SymbolKind::Text
    };
    let functions = all.filter(|(symbol, _)| is_function(symbol));
    let mut found: Vec<_> = functions
        .map(|(symbol, is_dynamic)| ElfFunction {
            address: symbol.address(),
            size: symbol.size(),
            index: u32::try_from(symbol.index().0).unwrap_or(u32::MAX),
            is_dynamic,
        })
        .collect();
    found.sort_by_key(|one| (one.address, one.size > 0, !one.is_dynamic));
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::elf::sample::{DATA, ElfSample, FUNCTION};

    #[test]
    fn functions_are_named_by_the_symbol_that_covers_them() {
        let symbols = [
            ("first", 0x1000, 16, FUNCTION),
            ("weak", 0x1020, 0, FUNCTION),
            ("strong", 0x1020, 16, FUNCTION),
            ("data", 0x1030, 16, DATA),
            // Without a size: as far as the unwind tables say.
            ("entry", 0x1040, 0, FUNCTION),
            ("bare", 0x1080, 0, FUNCTION),
            ("other", 0, 16, FUNCTION),
        ];
        let exported = [
            ("exported", 0x1000, 16, FUNCTION),
            ("only", 0x1090, 4, FUNCTION),
        ];
        let sample = ElfSample::default()
            .code(0x1000, &[0xc3; 256])
            .symbols(true, &exported)
            .symbols(false, &symbols)
            .eh_frame(&[(0x1040, 0x20), (0x1088, 8)]);
        let file = sample.parsed();
        for (address, name) in [
            (0xfff, None),
            (0x1000, Some("first")),
            (0x100f, Some("first")),
            (0x1010, None),
            (0x1020, Some("strong")),
            (0x102f, Some("strong")),
            (0x1030, None),
            (0x1040, Some("entry")),
            (0x105f, Some("entry")),
            (0x1060, None),
            (0x1080, Some("bare")),
            (0x1081, None),
            (0x1089, None),
            (0x1090, Some("only")),
            (0x1094, None),
        ] {
            assert_eq!(file.symbol(address, &file).as_deref(), name, "{address:#x}");
        }
        assert_eq!(file.function(0x1041), Some(0x1040..0x1060));
        assert_eq!(file.rules(0x1041).unwrap()[0].addresses, 0x1040..0x1060);
        assert_eq!(file.function(0x1060), None);
        assert!(file.rules(0x1000).is_none());
    }

    #[test]
    fn files_with_too_many_symbols_are_not_read() {
        let sample = ElfSample::default()
            .code(0x1000, &[0xc3; 16])
            .symbols(false, &[("f", 0x1000, 16, FUNCTION)]);
        let mut file = sample.parsed();
        let mut set = |size| {
            let table = file.headers.as_mut().unwrap().sections.iter_mut();
            let mut tables = table.filter(|section| section.name == ".symtab");
            tables.next().unwrap().size = size;
            (file.image().is_ok(), file.symbol(0x1000, &file).is_some())
        };
        assert_eq!(set(64 << 20), (true, true));
        assert_eq!(set((64 << 20) + 1), (false, false));
    }
}
