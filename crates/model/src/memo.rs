//! Texts that are made from other texts again and again.

use std::collections::HashMap;

/// Limit on the bytes of the texts that are kept.
const MAX_BYTES: usize = 8 << 20;

/// Remembers what was made of names: reports show the same ones each time.
#[derive(Debug, Default)]
pub struct NameMemo {
    known: HashMap<Box<str>, Box<str>>,
    bytes: usize,
}

impl NameMemo {
    /// Result of `make` for `name`, now or earlier. Once 8 MiB are kept, all are forgotten.
    pub fn get(&mut self, name: &str, make: impl FnOnce(&str) -> String) -> String {
        if let Some(made) = self.known.get(name) {
            return made.to_string();
        }
        let made = make(name);
        let bytes = name.len() + made.len();
        if self.bytes + bytes > MAX_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        if bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.known.insert(name.into(), made.as_str().into());
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_once_and_memory_is_bounded() {
        let mut memo = NameMemo::default();
        let mut made = 0;
        let long = "x".repeat(1 << 20);
        for round in 0..20 {
            let name = format!("{round}{long}");
            for _ in 0..2 {
                let text = memo.get(&name, |name| {
                    made += 1;
                    name[..2].to_owned()
                });
                assert_eq!(text, name[..2]);
            }
            assert!(memo.bytes <= MAX_BYTES);
        }
        assert_eq!(made, 20);
        let huge = "x".repeat(MAX_BYTES);
        assert_eq!(memo.get(&huge, str::to_owned).len(), MAX_BYTES);
        assert!(memo.bytes <= MAX_BYTES && memo.known.is_empty());
    }
}
