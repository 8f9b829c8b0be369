//! Kernels of programs that launch by the address of a host function.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::read::elf::{ElfSymbol64, SectionHeader, Sym};
use object::{LittleEndian, Object, ObjectSymbol, SymbolKind};

use crate::elf::{Image, Segments};
use gpuprobe_os::bounded::BoundedFile;

/// nvcc's name for the host side of a kernel starts with this.
const STUB_PREFIX: &str = "__device_stub_";
/// Functions of a file, of 24 bytes each; libtorch has a million.
const FUNCTIONS_LIMIT: usize = 1 << 21;
/// Functions with the same address, or within each other, that are looked at.
const SAME_PLACE: usize = 64;
/// Bytes of a name.
const NAME_LIMIT: usize = 64 << 10;

/// Where the functions of a file are. Their names stay in the file.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// Sorted by address, and as the file lists them.
    all: Vec<Function>,
    segments: Segments,
}

#[derive(Debug)]
struct Function {
    address: u64,
    size: u64,
    /// Where its name is in the file.
    name: u64,
}

impl Functions {
    /// Those of `file`; none if it cannot be read.
    pub(crate) fn read(file: &File) -> Self {
        Self::try_read(file).unwrap_or_default()
    }

    fn try_read(file: &File) -> Option<Self> {
        let file = BoundedFile::new(file);
        let Image {
            file: elf,
            segments,
        } = Image::parse(&file).ok()?;
        let mut all = Vec::new();
        let static_names = elf.elf_symbol_table().string_section();
        let dynamic_names = elf.elf_dynamic_symbol_table().string_section();
        let tables = [
            (elf.symbols(), static_names),
            (elf.dynamic_symbols(), dynamic_names),
        ];
        for (symbols, names) in tables {
            // Without the table there is none of its names.
            let Ok(names) = elf.elf_section_table().section(names) else {
                continue;
            };
            let begin = names.sh_offset(LittleEndian);
            let functions = symbols.filter(|s| s.kind() == SymbolKind::Text && s.is_definition());
            let function = |symbol: ElfSymbol64<'_, '_, LittleEndian, _>| {
                let name = u64::from(symbol.elf_symbol().st_name(LittleEndian));
                Some(Function {
                    address: symbol.address(),
                    size: symbol.size().max(1),
                    name: begin.checked_add(name)?,
                })
            };
            let room = FUNCTIONS_LIMIT - all.len();
            all.extend(functions.filter_map(function).take(room));
        }
        all.sort_by_key(|function| function.address);
        all.shrink_to_fit();
        Some(Self { all, segments })
    }

    /// The name of the function that covers `offset` of the file, which is read from there.
    pub(crate) fn name_at(&self, file: &File, offset: u64) -> Option<String> {
        let address = self.segments.address_of(offset)?;
        let after = self.all.partition_point(|f| f.address <= address);
        let nearest = self.all.get(..after)?.iter().rev().take(SAME_PLACE);
        let covering = nearest.filter(|f| address - f.address < f.size);
        // Of those at the same address, the last of them is the one that the file lists first.
        let function = covering.max_by_key(|f| f.address)?;
        name(file, function.name)
    }

    /// Bytes of memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.all.as_slice()) + self.segments.size()
    }

    /// Whether they are all that the file has.
    pub(crate) fn is_whole(&self) -> bool {
        self.all.len() < FUNCTIONS_LIMIT
    }
}

/// The text that begins at `offset`.
fn name(file: &File, offset: u64) -> Option<String> {
    let mut size = 256;
    loop {
        let mut bytes = vec![0; size];
        let read = file.read_at(&mut bytes, offset).ok()?;
        if let Some(end) = bytes.get(..read)?.iter().position(|&byte| byte == 0) {
            bytes.truncate(end);
            return String::from_utf8(bytes).ok();
        }
        (read == size && size < NAME_LIMIT).then_some(())?;
        size = NAME_LIMIT;
    }
}

/// How many of these places of `file` are in functions that have names.
pub fn named_places(file: &File, offsets: impl Iterator<Item = u64>) -> usize {
    let functions = Functions::read(file);
    let named = offsets.filter(|offset| functions.name_at(file, *offset).is_some());
    named.count()
}

/// `_Z22__device_stub__Z2k1PfiPfi` is the stub of `_Z2k1Pfi`; other names are the kernel's own.
pub(super) fn kernel_of_symbol(symbol: &str) -> String {
    let of_stub = || {
        let name = symbol
            .strip_prefix("_ZL")
            .or_else(|| symbol.strip_prefix("_Z"))?;
        let digits = name.find(|c: char| !c.is_ascii_digit())?;
        let length = name[..digits].parse().ok()?;
        let source_name = name[digits..].get(..length)?;
        let kernel = source_name.strip_prefix(STUB_PREFIX)?;
        // A mangled name brings its own underscore; others stand behind a second one.
        let plain = kernel
            .strip_prefix('_')
            .filter(|_| !kernel.starts_with("_Z"));
        Some(plain.unwrap_or(kernel))
    };
    without_local_marks(of_stub().unwrap_or(symbol))
}

/// The host functions of static kernels and of templates are local, which shows as an `L` before
/// their last name (`_ZL4statPi`, `_ZN4workL5scaleIfEEvPj`); the kernels themselves are not.
pub(super) fn without_local_marks(mangled: &str) -> String {
    let nested = mangled.starts_with("_ZN");
    let Some(mut rest) = mangled.strip_prefix(if nested { "_ZN" } else { "_Z" }) else {
        return mangled.to_owned();
    };
    let mut name = mangled[..mangled.len() - rest.len()].to_owned();
    loop {
        if let Some(local) = rest.strip_prefix('L') {
            rest = local;
        }
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let end = rest[..digits]
            .parse::<usize>()
            .ok()
            .and_then(|n| n.checked_add(digits));
        let Some(component) = end.and_then(|end| rest.get(..end)) else {
            break;
        };
        name.push_str(component);
        rest = &rest[component.len()..];
        if !nested {
            break;
        }
    }
    name + rest
}

#[cfg(test)]
mod tests {
    use super::kernel_of_symbol;

    #[test]
    fn stubs_name_their_kernels() {
        assert_eq!(
            kernel_of_symbol("_Z22__device_stub__Z2k1PfiPfi"),
            "_Z2k1Pfi"
        );
        assert_eq!(kernel_of_symbol("_Z2k1Pfi"), "_Z2k1Pfi");
        assert_eq!(
            kernel_of_symbol("_ZL22__device_stub__Z2k1PfiPfi"),
            "_Z2k1Pfi"
        );
        assert_eq!(kernel_of_symbol("_Z18__device_stub__addPf"), "add");
        assert_eq!(kernel_of_symbol("_ZL4statPi"), "_Z4statPi");
        let template = kernel_of_symbol("_ZN4workL5scaleIfEEvPj");
        assert_eq!(template, "_ZN4work5scaleIfEEvPj");
        let plain = "_ZN2at6native6kernelILi4EEEvi";
        assert_eq!(kernel_of_symbol(plain), plain);
        assert_eq!(kernel_of_symbol("_ZL"), "_Z");
        assert_eq!(kernel_of_symbol("main"), "main");
        assert_eq!(
            kernel_of_symbol("_Z99__device_stub_x"),
            "_Z99__device_stub_x"
        );
    }
}
