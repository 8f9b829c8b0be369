//! What a process has called the kernels, functions and devices that its records name by number.

use std::sync::Arc;

use gpuprobe_wire::Item;
use hashbrown::HashMap;

/// Texts of a process, and their bytes, at most; what comes beyond that has no name.
const MAX_TEXTS: u32 = 1 << 18;
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Names of functions of a process at most; the driver and the runtime have some hundred each.
const MAX_CALLS: usize = 8192;

#[derive(Debug, Default)]
pub(super) struct Names {
    /// By id: the collector numbers from 1 without gaps.
    texts: Vec<Option<Arc<str>>>,
    bytes: usize,
    /// By domain and number.
    calls: HashMap<(u32, u32), Arc<str>>,
}

impl Names {
    /// `id` stands for the text of `item` from now on.
    pub(super) fn learn_text(&mut self, id: u32, item: &Item<'_>) {
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

    /// The function `cbid` of `domain` is called as `item` says.
    pub(super) fn learn_call(&mut self, domain: u32, cbid: u32, item: &Item<'_>) {
        if self.calls.len() < MAX_CALLS {
            self.calls.insert((domain, cbid), item.text_lossy().into());
        }
    }

    /// The text that `id` stands for.
    pub(super) fn text(&self, id: u32) -> Option<Arc<str>> {
        self.texts.get(id as usize)?.clone()
    }

    /// What the function is called.
    pub(super) fn call(&self, domain: u32, cbid: u32) -> Option<Arc<str>> {
        self.calls.get(&(domain, cbid)).cloned()
    }
}
