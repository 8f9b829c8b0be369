//! The index from key to slot: a hash table that grows in small steps.
//!
//! A table that doubles has to move all entries at once; with ten million allocations that takes
//! longer than the event ring buffer can absorb. This is therefore a row of small tables that grows
//! by linear hashing: as entries are added, one table at a time is split in two. Each entry keeps
//! its hash, so that moving it touches nothing else.

use std::hint::black_box;
use std::mem;

use hashbrown::HashTable;

use super::store::Slot;

/// Average number of entries per small table: less than the capacity of a table of 1024 buckets, so
/// that most tables fill nearly all of their buckets, and the largest nearly all of twice as many.
const MEAN: usize = 820;

#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    hash: u32,
    slot: Slot,
}

/// Slots by the hash of their key.
#[derive(Debug)]
pub(super) struct SlotIndex {
    /// 2^`bits` tables selected by the low bits of the hash, followed by the second halves of the
    /// tables that have been split, selected by one more bit.
    tables: Vec<HashTable<IndexEntry>>,
    bits: u32,
    len: usize,
}

impl Default for SlotIndex {
    fn default() -> Self {
        Self {
            tables: vec![HashTable::new()],
            bits: 0,
            len: 0,
        }
    }
}

impl SlotIndex {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Touches the memory at which [`Self::find`] starts.
    pub(super) fn prefetch(&self, hash: u32) {
        let table = &self.tables[self.table_of(hash)];
        black_box(table.find(place_hash(hash), |_| false));
    }

    /// The slot under `hash` for which `is_it` returns true.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.tables[self.table_of(hash)]
            .find(place_hash(hash), |e| e.hash == hash && is_it(e.slot))
            .map(|entry| entry.slot)
    }

    /// The same slot, to be replaced by another with the same hash.
    pub(super) fn find_mut(
        &mut self,
        hash: u32,
        is_it: impl Fn(Slot) -> bool,
    ) -> Option<&mut Slot> {
        let table = self.table_of(hash);
        self.tables[table]
            .find_mut(place_hash(hash), |e| e.hash == hash && is_it(e.slot))
            .map(|entry| &mut entry.slot)
    }

    /// Adds a slot, which must not be in the index yet.
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) {
        let table = self.table_of(hash);
        insert(&mut self.tables[table], IndexEntry { hash, slot });
        self.len += 1;
        if self.len > self.tables.len() * MEAN {
            self.split();
        }
    }

    /// Removes the slot under `hash` for which `is_it` returns true.
    pub(super) fn remove(&mut self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        let number = self.table_of(hash);
        let table = &mut self.tables[number];
        let found = table
            .find_entry(place_hash(hash), |e| e.hash == hash && is_it(e.slot))
            .ok()?;
        let (IndexEntry { slot, .. }, _) = found.remove();
        if table.capacity() > MEAN / 8 && table.capacity() > table.len() * 4 {
            table.shrink_to(table.len() * 2, |e| place_hash(e.hash));
        }
        self.len -= 1;
        if self.tables.len() > 1 && self.len < self.tables.len() * MEAN / 4 {
            self.merge();
        }
        Some(slot)
    }

    fn table_of(&self, hash: u32) -> usize {
        let hash = hash as usize;
        let wide = hash & ((2 << self.bits) - 1);
        if wide < self.tables.len() {
            wide
        } else {
            hash & ((1 << self.bits) - 1)
        }
    }

    /// Splits the first table that is not split yet.
    fn split(&mut self) {
        let number = self.tables.len() - (1 << self.bits);
        let whole = mem::take(&mut self.tables[number]);
        let is_second = |entry: &IndexEntry| entry.hash >> self.bits & 1 == 1;
        let seconds = whole.iter().filter(|entry| is_second(entry)).count();
        let mut halves = [whole.len() - seconds, seconds].map(HashTable::with_capacity);
        for entry in whole {
            insert(&mut halves[usize::from(is_second(&entry))], entry);
        }
        let [first, second] = halves;
        self.tables[number] = first;
        self.tables.push(second);
        if self.tables.len() == 2 << self.bits {
            self.bits += 1;
        }
    }

    /// Undoes the last [`Self::split`].
    fn merge(&mut self) {
        if self.tables.len() == 1 << self.bits {
            self.bits -= 1;
        }
        let number = self.tables.len() - 1 - (1 << self.bits);
        let Some(second) = self.tables.pop() else {
            return;
        };
        let first = &mut self.tables[number];
        first.reserve(second.len(), |e| place_hash(e.hash));
        for entry in second {
            insert(first, entry);
        }
    }

    #[cfg(test)]
    fn tables(&self) -> usize {
        self.tables.len()
    }
}

fn insert(table: &mut HashTable<IndexEntry>, entry: IndexEntry) {
    table.insert_unique(place_hash(entry.hash), entry, |e| place_hash(e.hash));
}

/// Spreads the bits of `hash` that do not select a table over all bits, as the small tables use the
/// lowest and the highest ones.
fn place_hash(hash: u32) -> u64 {
    let product = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(key: u32) -> u32 {
        (u64::from(key).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
    }

    fn filled(count: u32) -> SlotIndex {
        let mut index = SlotIndex::default();
        for slot in 0..count {
            index.insert(hash(slot), slot);
        }
        index
    }

    #[test]
    fn it_grows_one_table_at_a_time_and_shrinks_again() {
        let mut index = SlotIndex::default();
        let mut tables = 1;
        for slot in 0..100_000 {
            index.insert(hash(slot), slot);
            assert!(index.tables() - tables <= 1);
            tables = index.tables();
        }
        assert_eq!((index.len(), tables), (100_000, 100_000 / MEAN + 1));
        for slot in 0..100_000 {
            assert_eq!(index.find(hash(slot), |s| s == slot), Some(slot));
        }
        for slot in 0..100_000 {
            assert_eq!(index.remove(hash(slot), |s| s == slot), Some(slot));
        }
        assert_eq!((index.len(), index.tables()), (0, 1));
        assert!(index.tables[0].capacity() <= MEAN);
    }

    #[test]
    fn most_buckets_are_used() {
        for count in [100_000, 150_000, 200_000, 300_000, 400_000] {
            let index = filled(count);
            let places: usize = index.tables.iter().map(HashTable::num_buckets).sum();
            let per_entry = places as f64 / f64::from(count);
            assert!((1.0..2.1).contains(&per_entry), "{count}: {per_entry}");
        }
    }

    #[test]
    fn equal_hashes_are_distinguished() {
        let mut index = SlotIndex::default();
        for slot in 0..2 * MEAN as u32 {
            index.insert(7, slot);
        }
        assert_eq!(index.find(7, |slot| slot == 900), Some(900));
        assert_eq!(index.find(8, |_| true), None);
        if let Some(slot) = index.find_mut(7, |slot| slot == 900) {
            *slot = 5000;
        }
        assert_eq!(index.remove(7, |slot| slot == 900), None);
        assert_eq!(index.remove(7, |slot| slot == 5000), Some(5000));
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((any::<bool>(), 0_u32..3000), 0..8000)) {
            let mut index = SlotIndex::default();
            let mut oracle = std::collections::HashSet::new();
            for (add, key) in steps {
                let found = index.find(hash(key), |slot| slot == key);
                prop_assert_eq!(found.is_some(), oracle.contains(&key));
                if add && oracle.insert(key) {
                    index.insert(hash(key), key);
                } else if !add {
                    let removed = index.remove(hash(key), |slot| slot == key);
                    prop_assert_eq!(removed.is_some(), oracle.remove(&key));
                }
                prop_assert_eq!(index.len(), oracle.len());
            }
        }
    }
}
