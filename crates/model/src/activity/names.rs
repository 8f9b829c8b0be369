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
            MemoryRoom::Ample => MAX_TEXT_BYTES,
            MemoryRoom::Little => MAX_TEXT_BYTES / MemoryRoom::LITTLE,
            MemoryRoom::None => 0,
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
