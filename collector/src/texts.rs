//! Ids of texts, so that each text is sent once.

use std::collections::HashMap;

use gpuprobe_wire::cut;

use crate::cupti::Address;

/// Size at which the cache of texts is cleared; texts still in use are then sent again under new
/// ids: programs that compile kernels at run time have an unlimited number of them.
const CACHED_BYTES: usize = 16 << 20;

/// Cache of texts and their ids.
#[derive(Debug, Default)]
pub struct TextIds {
    ids: HashMap<Box<[u8]>, u32>,
    cached_bytes: usize,
    last_id: u32,
    /// Ids by address, valid within one buffer. CUPTI delivers the records of a buffer at once, so
    /// an address has one text within it; between two buffers, a module may be unloaded and its
    /// memory reused for other texts.
    addresses: HashMap<Address, u32>,
    scratch: Vec<u8>,
}

impl TextIds {
    /// Starts a new buffer: addresses become invalid.
    pub fn next_buffer(&mut self) {
        self.addresses.clear();
        if self.cached_bytes > CACHED_BYTES {
            self.ids.clear();
            self.cached_bytes = 0;
        }
    }

    /// The id of the text at `address`, 0 if there is none, and the text if it must be sent before the id is used.
    /// `read` stores the text in a buffer, or, if it is longer than [`gpuprobe_wire::TEXT_MAX`], at least one byte
    /// more than that of it; `false` if it cannot be read.
    pub fn name(
        &mut self,
        address: Address,
        read: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> (u32, Option<&[u8]>) {
        if address == 0 {
            return (0, None);
        }
        if let Some(&id) = self.addresses.get(&address) {
            return (id, None);
        }
        let (id, is_new) = if read(&mut self.scratch) {
            self.scratch.truncate(cut(&self.scratch).len());
            self.id_of_scratch()
        } else {
            (0, false)
        };
        self.addresses.insert(address, id);
        (id, is_new.then_some(&self.scratch))
    }

    fn id_of_scratch(&mut self) -> (u32, bool) {
        if let Some(&id) = self.ids.get(self.scratch.as_slice()) {
            return (id, false);
        }
        // Never 0; after four thousand million texts the first are no longer cached.
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.cached_bytes += self.scratch.len() + size_of::<(Box<[u8]>, u32)>();
        self.ids
            .insert(self.scratch.as_slice().into(), self.last_id);
        (self.last_id, true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gpuprobe_wire::TEXT_MAX;

    /// Fake memory with texts at addresses.
    #[derive(Default)]
    pub(crate) struct Fake(pub(crate) HashMap<Address, Vec<u8>>);

    impl Fake {
        pub(crate) fn read_text(&self, address: Address, text: &mut Vec<u8>) -> bool {
            text.clear();
            let found = self.0.get(&address);
            text.extend(found.into_iter().flatten());
            found.is_some()
        }
    }

    impl TextIds {
        fn at(&mut self, address: Address, memory: &Fake) -> (u32, Option<&[u8]>) {
            self.name(address, |text| memory.read_text(address, text))
        }
    }

    fn fake(texts: &[(Address, &str)]) -> Fake {
        let texts = texts.iter().map(|&(at, text)| (at, text.into()));
        Fake(texts.collect())
    }

    fn named(id: u32, new: Option<&str>) -> (u32, Option<&[u8]>) {
        (id, new.map(str::as_bytes))
    }

    #[test]
    fn a_text_is_new_once() {
        let mut texts = TextIds::default();
        let memory = fake(&[(8, "add"), (16, "mul"), (24, "add")]);
        assert_eq!(texts.at(8, &memory), named(1, Some("add")));
        assert_eq!(texts.at(8, &memory), named(1, None));
        assert_eq!(texts.at(16, &memory), named(2, Some("mul")));
        assert_eq!(texts.at(24, &memory), named(1, None));
        texts.next_buffer();
        assert_eq!(texts.at(16, &memory), named(2, None));
    }

    #[test]
    fn no_text_and_unreadable_text_have_no_id() {
        let mut texts = TextIds::default();
        let memory = fake(&[(8, "")]);
        assert_eq!(texts.at(0, &memory), named(0, None));
        assert_eq!(texts.at(99, &memory), named(0, None));
        assert_eq!(texts.at(8, &memory), named(1, Some("")));
    }

    #[test]
    fn reused_addresses_are_read_again() {
        let mut texts = TextIds::default();
        assert_eq!(texts.at(8, &fake(&[(8, "old")])).0, 1);
        texts.next_buffer();
        assert_eq!(texts.at(8, &fake(&[(8, "new")])), named(2, Some("new")));
        texts.next_buffer();
        assert_eq!(texts.at(8, &fake(&[(8, "old")])), named(1, None));
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut texts = TextIds::default();
        let long = "x".repeat(TEXT_MAX - 8);
        let count = CACHED_BYTES / TEXT_MAX + 8;
        for number in 0..count as u64 {
            let text = format!("{long}{number:08}");
            assert!(texts.at(8, &fake(&[(8, &text)])).1.is_some());
            texts.addresses.clear();
        }
        assert!(texts.cached_bytes > CACHED_BYTES);
        texts.next_buffer();
        assert_eq!(texts.cached_bytes, 0);
        let again = format!("{long}{:08}", 0);
        let last = texts.last_id;
        assert_eq!(texts.at(8, &fake(&[(8, &again)])).0, last + 1);
    }
}
