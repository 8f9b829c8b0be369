//! Contexts, as far as the lifetime of memory depends on them.

use std::collections::HashMap;

use gpuprobe_model::event::CONTEXT_UNKNOWN;

/// Context of an allocation, packed into a byte.
pub(super) type Slot = u8;

/// The primary context of the allocation's device.
pub(super) const PRIMARY: Slot = 0;
/// An unknown context: created before tracing began, or one of too many.
pub(super) const UNKNOWN: Slot = 255;

/// The contexts of one process.
#[derive(Debug, Default)]
pub(crate) struct ProcessContexts {
    /// Numbers of live contexts with their slots; there are few.
    slots: Vec<(u16, Slot)>,
    /// References to primary contexts, by device.
    retained: HashMap<u16, u64>,
}

impl ProcessContexts {
    /// The slot of the context with this number.
    pub(super) fn slot(&mut self, number: u16) -> Slot {
        match number {
            0 => return PRIMARY,
            CONTEXT_UNKNOWN => return UNKNOWN,
            _ => {}
        }
        if let Some(&(_, slot)) = self.slots.iter().find(|(n, _)| *n == number) {
            return slot;
        }
        let is_free = |slot: &Slot| !self.slots.iter().any(|(_, s)| s == slot);
        let Some(slot) = (PRIMARY + 1..UNKNOWN).find(is_free) else {
            return UNKNOWN;
        };
        self.slots.push((number, slot));
        slot
    }

    /// Ends the context with this number. Returns its slot, if anything can have been allocated in
    /// it.
    pub(super) fn end(&mut self, number: u16) -> Option<Slot> {
        let index = self.slots.iter().position(|(n, _)| *n == number)?;
        Some(self.slots.swap_remove(index).1)
    }

    /// Adds a reference to the primary context of `device`.
    pub(super) fn retain(&mut self, device: u16) {
        *self.retained.entry(device).or_default() += 1;
    }

    /// Drops a reference; true if it was the last one that was seen.
    pub(super) fn release(&mut self, device: u16) -> bool {
        let Some(count) = self.retained.get_mut(&device) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.retained.remove(&device);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused() {
        let mut contexts = ProcessContexts::default();
        assert_eq!(contexts.slot(0), PRIMARY);
        assert_eq!(contexts.slot(CONTEXT_UNKNOWN), UNKNOWN);
        for number in 1..=2000 {
            assert_eq!(contexts.slot(number), 1);
            assert_eq!(contexts.end(number), Some(1));
            assert_eq!(contexts.end(number), None);
        }
        for number in 1..=254 {
            assert_eq!(u16::from(contexts.slot(number)), number);
        }
        assert_eq!(contexts.slot(255), UNKNOWN);
    }

    #[test]
    fn a_primary_context_ends_with_its_last_reference() {
        let mut contexts = ProcessContexts::default();
        assert!(!contexts.release(0));
        contexts.retain(0);
        contexts.retain(0);
        contexts.retain(1);
        assert!(!contexts.release(0));
        assert!(contexts.release(0));
        assert!(!contexts.release(0));
    }
}
