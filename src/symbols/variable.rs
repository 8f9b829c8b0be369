//! How large device variables are, when the program does not ask.

use std::fs::File;

use object::read::ReadCache;
use object::{Object, ObjectSymbol, SymbolKind};

use super::stub::without_local_marks;

/// Bytes of the device variable `name` of process `pid`. nvcc makes a variable of the same size in
/// the host's code for each; it is found if the program's own file has kept its symbols.
pub fn size_of_variable(pid: u32, name: &str) -> Option<u64> {
    let file = File::open(format!("/proc/{pid}/exe")).ok()?;
    let cache = ReadCache::new(&file);
    let elf = object::File::parse(&cache).ok()?;
    let is_it = |symbol: &object::Symbol<'_, '_, _>| {
        symbol.kind() == SymbolKind::Data
            && symbol.size() > 0
            && symbol.name().is_ok_and(|host| is_shadow(host, name))
    };
    elf.symbols().find(is_it).map(|symbol| symbol.size())
}

/// Whether the host's `symbol` stands for the device variable `name`: it is local where the
/// variable need not be, so that names that are not mangled on the device are on the host.
fn is_shadow(symbol: &str, name: &str) -> bool {
    if symbol == name {
        return true;
    }
    let Some(local) = symbol.strip_prefix("_ZL") else {
        return symbol.starts_with("_ZN") && without_local_marks(symbol) == name;
    };
    let digits = local.len() - local.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let length = local[..digits].parse().ok();
    length == Some(name.len()) && &local[digits..] == name
}

#[cfg(test)]
mod tests {
    use super::is_shadow;

    #[test]
    fn shadows_have_the_names_of_their_variables() {
        assert!(is_shadow("_ZL6table_", "table_"));
        assert!(is_shadow("_ZL4con_", "_ZL4con_"));
        assert!(is_shadow("_ZN1aL5innerE", "_ZN1a5innerE"));
        assert!(is_shadow("plain", "plain"));
        for other in ["_ZL6table_", "_ZL7table_x", "_ZL", "_ZL99table"] {
            assert!(!is_shadow(other, "table"), "{other}");
        }
    }
}
