//! Names of kernels, functions and devices that the records of a process refer to by number.

use std::sync::Arc;

use gpuprobe_wire::BatchItem;
use hashbrown::HashMap;

/// Maximum number of texts of a process, and of their bytes; later texts have no name.
const MAX_TEXTS: u32 = 1 << 18;
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Maximum number of function names of a process; the driver and the runtime have a few hundred
/// each.
const MAX_CALLS: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct TextTable {
    /// Texts by id: the collector numbers them from 1 without gaps.
    texts: Vec<Option<Arc<str>>>,
    bytes: usize,
    /// Function names by (domain, callback id).
    calls: HashMap<(u32, u32), Arc<str>>,
}

impl TextTable {
    /// Stores the text of `item` under `id`.
    pub(super) fn add_text(&mut self, id: u32, item: &BatchItem<'_>) {
        let bytes = self.bytes.saturating_add(item.text.len());
        if id == 0 || id > MAX_TEXTS || bytes > MAX_TEXT_BYTES {
            return;
        }
        let index = id as usize;
        if self.texts.len() <= index {
            self.texts.resize(index + 1, None);
        }
        self.bytes = bytes;
        self.texts[index] = Some(item.text_lossy().into());
    }

    /// Stores the name of the function `cbid` of `domain`.
    pub(super) fn add_call(&mut self, domain: u32, cbid: u32, item: &BatchItem<'_>) {
        if self.calls.len() < MAX_CALLS {
            self.calls.insert((domain, cbid), item.text_lossy().into());
        }
    }

    /// The text stored under `id`.
    pub(super) fn text(&self, id: u32) -> Option<Arc<str>> {
        self.texts.get(id as usize)?.clone()
    }

    /// The name of a function.
    pub(super) fn call(&self, domain: u32, cbid: u32) -> Option<Arc<str>> {
        self.calls.get(&(domain, cbid)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_wire::{Text, WireRecord};

    fn item(text: &[u8]) -> BatchItem<'_> {
        BatchItem {
            record: WireRecord::Text(Text { id: 1, reserved: 0 }),
            text,
        }
    }

    #[test]
    fn texts_are_kept_within_limits() {
        let mut table = TextTable::default();
        let add = |table: &mut TextTable, id, text: &str| {
            table.add_text(id, &item(text.as_bytes()));
            table.text(id).as_deref() == Some(text)
        };
        assert!(add(&mut table, 2, "two"));
        assert_eq!(
            (table.text(1), table.texts.len(), table.bytes),
            (None, 3, 3)
        );
        assert!(add(&mut table, 1, "one"));
        assert_eq!((table.texts.len(), table.bytes), (3, 6));
        assert!(!add(&mut table, 0, "none"));
        assert!(add(&mut table, MAX_TEXTS, "last"));
        assert!(!add(&mut table, MAX_TEXTS + 1, "beyond"));
        table.bytes = MAX_TEXT_BYTES - 1;
        assert!(!add(&mut table, 3, "ab"));
        assert!(add(&mut table, 4, "a"));
        assert_eq!(table.bytes, MAX_TEXT_BYTES);
    }

    #[test]
    fn functions_are_named_by_domain_and_number() {
        let mut table = TextTable::default();
        table.add_call(1, 2, &item(b"first"));
        table.add_call(2, 1, &item(b"other"));
        let name = |table: &TextTable, domain, cbid| table.call(domain, cbid);
        assert_eq!(name(&table, 1, 2).as_deref(), Some("first"));
        assert_eq!(name(&table, 2, 1).as_deref(), Some("other"));
        assert_eq!(name(&table, 2, 2), None);
        for cbid in 0..8192 {
            table.add_call(3, cbid, &item(b"name"));
        }
        assert_eq!(table.calls.len(), 8192);
        assert!(table.call(3, 8189).is_some() && table.call(3, 8190).is_none());
    }
}
