//! Names of kernels, functions and devices that the records of a process refer to by number.

use std::sync::Arc;

use crate::MemoryRoom;
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
    pub(super) fn add_text(&mut self, id: u32, item: &BatchItem<'_>, room: MemoryRoom) {
        let bytes = self.bytes.saturating_add(item.text.len());
        let most = match room {
            MemoryRoom::None => 0,
            room => room.of_all(MAX_TEXT_BYTES),
        };
        if id == 0 || id > MAX_TEXTS || bytes > most {
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
        let add = |table: &mut TextTable, id, text: &str, room| {
            table.add_text(id, &item(text.as_bytes()), room);
            table.text(id).as_deref() == Some(text)
        };
        assert!(add(&mut table, 2, "two", MemoryRoom::Ample));
        assert_eq!(
            (table.text(1), table.texts.len(), table.bytes),
            (None, 3, 3)
        );
        assert!(add(&mut table, 1, "one", MemoryRoom::Ample));
        assert_eq!((table.texts.len(), table.bytes), (3, 6));
        assert!(!add(&mut table, 0, "none", MemoryRoom::Ample));
        assert!(add(&mut table, MAX_TEXTS, "last", MemoryRoom::Ample));
        assert!(!add(&mut table, MAX_TEXTS + 1, "beyond", MemoryRoom::Ample));
        assert!(!add(&mut table, 3, "x", MemoryRoom::None));
        for (room, most) in [
            (MemoryRoom::Ample, 64 << 20),
            (MemoryRoom::Little, (64 << 20) / MemoryRoom::LITTLE),
        ] {
            table.bytes = most - 1;
            assert!(!add(&mut table, 3, "ab", room));
            assert!(add(&mut table, 4, "a", room));
            assert_eq!(table.bytes, most);
            table.texts.truncate(4);
        }
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
