//! How large device variables are, when the program does not ask.

use std::collections::HashMap;

use object::{Object, ObjectSymbol, SymbolKind};

use super::stub::without_local_marks;
use crate::reader::ElfFile;

/// Variables of a file, and bytes of their names. The largest programs have some ten thousand.
const VARIABLES_LIMIT: usize = 1 << 18;
const NAMES_LIMIT: usize = 16 << 20;
/// Prefixes of variables that C++ compilers make for themselves.
const MADE: &[&str] = &["_ZTV", "_ZTI", "_ZTS", "_ZTT", "_ZGV"];

/// The variables of a program, by the names that those of the device have for which they stand.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    sizes: HashMap<Box<str>, u64>,
    /// Bytes of the names.
    names: usize,
}

impl Variables {
    /// The variables of `file`; none if it cannot be read.
    pub(crate) fn read(file: &ElfFile) -> Self {
        let mut variables = Self::default();
        let Ok(image) = file.image() else {
            return variables;
        };
        let data = image
            .file
            .symbols()
            .filter(|s| s.kind() == SymbolKind::Data && s.size() > 0);
        for symbol in data {
            let Ok(name) = symbol.name() else {
                continue;
            };
            if !MADE.iter().any(|made| name.starts_with(made)) {
                variables.add(name, symbol.size());
            }
            if !variables.is_whole() {
                break;
            }
        }
        variables.sizes.shrink_to_fit();
        variables
    }

    /// The host's variable is local where the device's need not be, so that names that are not
    /// mangled on the device are on the host.
    fn add(&mut self, host: &str, size: u64) {
        self.add_as(host, size);
        if let Some(local) = host.strip_prefix("_ZL") {
            let name = local.trim_start_matches(|c: char| c.is_ascii_digit());
            let length = local[..local.len() - name.len()].parse().ok();
            if length == Some(name.len()) {
                self.add_as(name, size);
            }
        } else if host.starts_with("_ZN") {
            self.add_as(&without_local_marks(host), size);
        }
    }

    /// Of several, the first counts.
    fn add_as(&mut self, name: &str, size: u64) {
        if !self.sizes.contains_key(name) {
            self.names += name.len();
            self.sizes.insert(name.into(), size);
        }
    }

    /// Bytes of the one that stands for the device's variable `name`.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name).copied()
    }

    /// Whether they are all that the file has.
    fn is_whole(&self) -> bool {
        self.sizes.len() < VARIABLES_LIMIT && self.names < NAMES_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::Variables;

    #[test]
    fn shadows_have_the_names_of_their_variables() {
        let size = |host: &str, name: &str| {
            let mut variables = Variables::default();
            variables.add(host, 7);
            variables.add(host, 8);
            variables.size(name)
        };
        assert_eq!(size("_ZL6table_", "table_"), Some(7));
        assert_eq!(size("_ZL4con_", "_ZL4con_"), Some(7));
        assert_eq!(size("_ZN1aL5innerE", "_ZN1a5innerE"), Some(7));
        assert_eq!(size("plain", "plain"), Some(7));
        for other in ["_ZL6table_", "_ZL7table_x", "_ZL", "_ZL99table", "_ZL5"] {
            assert_eq!(size(other, "table"), None, "{other}");
        }
    }
}
