//! Sizes of device variables, from the symbols of their host shadow variables.

use object::{Object, ObjectSymbol, SymbolKind};

use super::stub::{source_name, without_local_marks};
use crate::elf_file::ElfFile;

/// Size in bytes of the device variable `name` of the program `file`; of several, that of the first.
pub(crate) fn size(file: &ElfFile, name: &str) -> Option<u64> {
    let image = file.image().ok()?;
    let mut symbols = image.file.symbols();
    symbols.find_map(|symbol| {
        let is_variable = symbol.kind() == SymbolKind::Data && symbol.size() > 0;
        let is_it = is_variable && is_shadow(symbol.name().ok()?, name);
        is_it.then(|| symbol.size())
    })
}

/// Whether the variable `host` is the shadow of `device`. The host's is local where the device's need not be, which
/// adds a mangling.
fn is_shadow(host: &str, device: &str) -> bool {
    let local = host.strip_prefix("_ZL").and_then(source_name);
    host == device || local == Some((device, "")) || without_local_marks(host) == device
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::sample::{DATA, ElfSample, FUNCTION};

    #[test]
    fn shadow_variables_have_device_names() {
        for (host, device) in [
            ("_ZL6table_", "table_"),
            ("_ZL4con_", "_ZL4con_"),
            ("_ZN1aL5innerE", "_ZN1a5innerE"),
            ("plain", "plain"),
        ] {
            assert!(is_shadow(host, device), "{host}");
        }
        for other in ["_ZL6table_", "_ZL7table_x", "_ZL", "_ZL99table", "_ZL5"] {
            assert!(!is_shadow(other, "table"), "{other}");
        }
    }

    #[test]
    fn variables_are_data_symbols() {
        let symbols = [
            ("first", 0x2000, 16, DATA),
            ("_ZL6second", 0x2010, 32, DATA),
            ("_ZL5first", 0x2030, 8, DATA),
            ("empty", 0x2030, 0, DATA),
            ("function", 0x1000, 8, FUNCTION),
        ];
        let sample = ElfSample::default().code(0x1000, &[0xc3; 64]);
        let file = sample.symbols(false, &symbols).parsed();
        for (name, expected) in [
            ("first", Some(16)),
            ("second", Some(32)),
            ("empty", None),
            ("function", None),
        ] {
            assert_eq!(size(&file, name), expected, "{name}");
        }
    }
}
