//! Contexts, as far as the lifetime of memory depends on them.

use std::collections::HashMap;

use gpuprobe_model::event::CONTEXT_UNKNOWN;

use super::sites::series::{Series, SeriesShape, Windows};
use super::totals::Total;

/// Context of an allocation, packed into a byte.
pub(super) type Slot = u8;

/// The primary context of the allocation's device.
pub(super) const PRIMARY: Slot = 0;
/// An unknown context: created before tracing began, or one of too many.
pub(super) const UNKNOWN: Slot = 255;

/// The contexts of one process.
#[derive(Debug, Default)]
pub struct ProcessContexts {
    /// Numbers of live contexts with their slots; there are few.
    slots: Vec<(u16, Slot)>,
    /// References to primary contexts, by device.
    retained: HashMap<u16, u64>,
    /// Creation times of live contexts, by number.
    made: HashMap<u16, u64>,
    /// Time series of created and destroyed contexts.
    windows: Windows,
    series: Series,
    /// Contexts destroyed whose creation was not seen.
    unknown: Series,
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

    /// Adds the context with this number.
    pub(super) fn create(&mut self, number: u16, now_ns: u64) {
        if matches!(number, 0 | CONTEXT_UNKNOWN) {
            return;
        }
        self.windows.reach(now_ns);
        let before = self.all();
        // Numbers wrap around.
        if self.made.insert(number, now_ns).is_none() {
            self.series.born(self.windows, now_ns, 0, before);
        }
    }

    /// Removes the context with this number.
    pub(super) fn destroy(&mut self, number: u16, now_ns: u64) {
        self.windows.reach(now_ns);
        match self.made.remove(&number) {
            Some(made_ns) => {
                let after = self.all();
                self.series.died(self.windows, made_ns, 0, now_ns, after);
            }
            None => self.unknown.count(self.windows, now_ns),
        }
    }

    /// Number of contexts that were created and not destroyed.
    pub fn made(&self) -> u64 {
        self.made.len() as u64
    }

    /// The same as a sum.
    fn all(&self) -> Total {
        Total {
            bytes: 0,
            allocations: self.made(),
        }
    }

    /// Contexts made and destroyed over time, until `now_ns`.
    pub fn shape(&self, now_ns: u64) -> SeriesShape {
        let mut shape = SeriesShape::new(self.windows, &self.unknown, now_ns);
        shape.add(self.windows, &self.series, self.all());
        shape
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

    const SECOND_NS: u64 = 1_000_000_000;

    /// Verdict after 70 s with a new context each second; each is destroyed after `destroyed_after`
    /// seconds, if given.
    fn judged(destroyed_after: Option<u16>) -> crate::verdict::Judgement {
        let mut contexts = ProcessContexts::default();
        for second in 1..=70_u16 {
            let now_ns = u64::from(second) * SECOND_NS;
            contexts.create(second, now_ns);
            if let Some(old) = destroyed_after.and_then(|after| second.checked_sub(after)) {
                contexts.destroy(old, now_ns + 1);
            }
        }
        crate::verdict::judge(&contexts.shape(71 * SECOND_NS)).unwrap()
    }

    #[test]
    fn contexts_that_are_not_destroyed_are_growing() {
        let left_behind = judged(None);
        assert!(left_behind.is_leak(), "{left_behind:?}");
        assert!(left_behind.blocks > 60, "{left_behind:?}");
        for after in [1, 5, 20] {
            let kept = judged(Some(after));
            assert!(!kept.verdict.is_growth(), "{after}: {kept:?}");
        }
    }

    #[test]
    fn contexts_possibly_destroyed_unseen_are_no_leak() {
        let mut contexts = ProcessContexts::default();
        for second in 1..=70_u16 {
            let now_ns = u64::from(second) * SECOND_NS;
            contexts.create(second, now_ns);
            contexts.destroy(CONTEXT_UNKNOWN, now_ns + 1);
        }
        let found = crate::verdict::judge(&contexts.shape(71 * SECOND_NS)).unwrap();
        assert!(!found.is_leak(), "{found:?}");
    }
}
