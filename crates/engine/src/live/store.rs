//! Storage of live allocations, in groups of the same thread, call site and kind, which reports
//! list separately. A group is divided into blocks; each keeps limits on its contents ([`Bound`]).

use std::cell::Cell;

use hashbrown::HashMap;

use super::bound::Bound;
use crate::Allocation;
use gpuprobe_cuda::MemoryKind;

/// Index of a place in the store, valid until its allocation is removed.
pub(super) type Slot = u32;

const OFFSET_BITS: u32 = 7;
/// Allocations per block: one per bit of `occupied`.
const BLOCK: usize = 1 << OFFSET_BITS;
/// Number of blocks that the remaining bits of a slot can address.
const MAX_BLOCKS: usize = 1 << (Slot::BITS - OFFSET_BITS);
/// Empty groups kept for reuse.
const MAX_EMPTY: usize = 1024;
/// Below this capacity, memory is not returned.
const MIN_PLACES: usize = 4096;

/// Properties that all allocations of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupKey {
    pub(crate) thread: u32,
    pub(crate) site: u32,
    pub(crate) kind: MemoryKind,
}

impl GroupKey {
    fn of(allocation: &Allocation) -> Self {
        Self {
            thread: allocation.thread(),
            site: allocation.site,
            kind: allocation.kind(),
        }
    }

    /// All of it in one number, which is quicker to hash: a thread has 24 bits, a kind four.
    fn packed(self) -> u64 {
        u64::from(self.thread) << 36 | u64::from(self.site) << 4 | self.kind as u64
    }
}

/// Consecutive places of a group.
#[derive(Debug)]
pub(super) struct GroupChunk {
    /// One bit per place.
    occupied: u128,
    /// A cache: scans of the block make it exact.
    pub(super) bound: Cell<Bound>,
    group: u32,
    /// Index of the block within the group.
    position: u32,
}

impl GroupChunk {
    /// The occupied places, as indices into the group.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.position as usize * BLOCK;
        let mut rest = self.occupied;
        std::iter::from_fn(move || {
            let place = (rest != 0).then(|| first + rest.trailing_zeros() as usize);
            rest &= rest.wrapping_sub(1);
            place
        })
    }
}

#[derive(Debug)]
pub(super) struct AllocationGroup {
    pub(super) key: GroupKey,
    pub(super) live: usize,
    entries: Vec<Allocation>,
    /// Numbers of its blocks.
    pub(super) blocks: Vec<u32>,
    /// Free places, except those behind `entries`.
    holes: Vec<Slot>,
}

/// Live allocations, by slot.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(super) groups: Vec<AllocationGroup>,
    /// Groups by [`GroupKey::packed`].
    by_key: HashMap<u64, u32>,
    /// The group that was added to last: often the group of the next allocation.
    last: Option<(GroupKey, u32)>,
    pub(super) blocks: Vec<GroupChunk>,
    /// Blocks and groups to be reused.
    free_blocks: Vec<u32>,
    free_groups: Vec<u32>,
    empty_groups: usize,
}

impl Store {
    pub(super) fn get(&self, slot: Slot) -> &Allocation {
        let block = &self.blocks[block_of(slot)];
        &self.groups[block.group as usize].entries[block.position as usize * BLOCK + offset(slot)]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.blocks.iter().flat_map(|block| self.entries(block))
    }

    pub(super) fn entries(
        &self,
        block: &GroupChunk,
    ) -> impl Iterator<Item = &Allocation> + use<'_> {
        let group = self.groups.get(block.group as usize);
        let entries = group.map_or(&[][..], |group| &group.entries);
        block.places().map(|place| &entries[place])
    }

    /// Stores `new`; `None` if no place is left.
    pub(super) fn put(&mut self, new: Allocation) -> Option<Slot> {
        let number = self.group(GroupKey::of(&new));
        let group = &mut self.groups[number as usize];
        let slot = if let Some(slot) = group.holes.pop() {
            let block = &self.blocks[block_of(slot)];
            group.entries[block.position as usize * BLOCK + offset(slot)] = new;
            slot
        } else {
            let place = group.entries.len();
            if place.is_multiple_of(BLOCK) {
                let position = u32::try_from(place / BLOCK).ok()?;
                let block = add_block(&mut self.blocks, &mut self.free_blocks, number, position)?;
                group.blocks.push(block);
            }
            if place == group.entries.capacity() {
                // There can be many groups: reserve little ahead.
                let more = if place == 0 { 1 } else { (place / 4).max(4) };
                group.entries.reserve_exact(more);
            }
            group.entries.push(new);
            group.blocks[place / BLOCK] << OFFSET_BITS | (place % BLOCK) as u32
        };
        self.empty_groups -= usize::from(group.live == 0);
        group.live += 1;
        let block = &mut self.blocks[block_of(slot)];
        block.occupied |= 1 << offset(slot);
        block.bound.get_mut().add(&new);
        Some(slot)
    }

    /// Removes the allocation in `slot`.
    pub(super) fn take(&mut self, slot: Slot) -> Allocation {
        let gone = *self.get(slot);
        let block = &mut self.blocks[block_of(slot)];
        block.occupied &= !(1 << offset(slot));
        if block.occupied == 0 {
            block.bound.set(Bound::EMPTY);
        } else {
            block.bound.get_mut().remove(&gone);
        }
        let group = &mut self.groups[block.group as usize];
        group.live -= 1;
        if group.live > 0 {
            group.holes.push(slot);
        } else {
            group.clear(&mut self.free_blocks);
            self.empty_groups += 1;
            if self.empty_groups > MAX_EMPTY.max(self.by_key.len() / 2) {
                self.forget_empty();
            }
        }
        gone
    }

    /// Changes the size of the allocation in `slot`. Returns it as it was.
    pub(super) fn resize(&mut self, slot: Slot, size_bytes: u64) -> Allocation {
        let block = &mut self.blocks[block_of(slot)];
        let group = &mut self.groups[block.group as usize];
        let entry = &mut group.entries[block.position as usize * BLOCK + offset(slot)];
        let old = *entry;
        *entry = old.with_size(size_bytes);
        let bound = block.bound.get_mut();
        bound.remove(&old);
        bound.add(entry);
        old
    }

    /// Sets fields of the allocation in `slot` that affect neither group nor bound.
    pub(super) fn note_request(&mut self, slot: Slot, stream: u8, more: u16) {
        let block = &self.blocks[block_of(slot)];
        let group = &mut self.groups[block.group as usize];
        let entry = &mut group.entries[block.position as usize * BLOCK + offset(slot)];
        *entry = entry.with_request(stream, more);
    }

    /// The group of `key`, which may be new.
    fn group(&mut self, key: GroupKey) -> u32 {
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == key) {
            return number;
        }
        let (groups, free) = (&mut self.groups, &mut self.free_groups);
        let empty = &mut self.empty_groups;
        let number = *self.by_key.entry(key.packed()).or_insert_with(|| {
            *empty += 1;
            let group = AllocationGroup::new(key);
            if let Some(number) = free.pop() {
                groups[number as usize] = group;
                return number;
            }
            groups.push(group);
            // There are at most as many groups as blocks, except for empty ones.
            u32::try_from(groups.len() - 1).unwrap_or(u32::MAX)
        });
        self.last = Some((key, number));
        number
    }

    fn forget_empty(&mut self) {
        let (groups, free) = (&mut self.groups, &mut self.free_groups);
        self.by_key.retain(|_, &mut number| {
            let group = &mut groups[number as usize];
            let keep = group.live > 0;
            if !keep {
                *group = AllocationGroup::new(group.key);
                free.push(number);
            }
            keep
        });
        self.empty_groups = 0;
        self.last = None;
    }

    /// Whether the group of `slot` is mostly empty and should be packed.
    pub(super) fn is_sparse(&self, slot: Slot) -> bool {
        let group = &self.groups[self.blocks[block_of(slot)].group as usize];
        group.entries.len() > MIN_PLACES && group.entries.len() > group.live * 4
    }

    /// Moves the allocations in the group of `slot` together, and returns memory. Calls `moved` for
    /// each with its old slot, its new slot and the allocation.
    pub(super) fn pack(&mut self, slot: Slot, mut moved: impl FnMut(Slot, Slot, &Allocation)) {
        let number = self.blocks[block_of(slot)].group as usize;
        let group = &mut self.groups[number];
        let mut to = 0;
        for &number in &group.blocks {
            for place in self.blocks[number as usize].places() {
                if place != to {
                    group.entries[to] = group.entries[place];
                    moved(group.slot(place), group.slot(to), &group.entries[to]);
                }
                to += 1;
            }
        }
        group.entries.truncate(to);
        group.entries.shrink_to(to * 2);
        group.holes = Vec::new();
        let blocks = &mut self.blocks;
        for free in group.blocks.drain(to.div_ceil(BLOCK)..) {
            blocks[free as usize].clear();
            self.free_blocks.push(free);
        }
        group.blocks.shrink_to_fit();
        for (&number, entries) in group.blocks.iter().zip(group.entries.chunks(BLOCK)) {
            let block = &mut blocks[number as usize];
            block.occupied = u128::MAX >> (BLOCK - entries.len());
            block.bound.set(Bound::of(entries.iter()));
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.groups.iter().map(|g| g.entries.capacity()).sum()
    }
}

impl GroupChunk {
    fn clear(&mut self) {
        self.occupied = 0;
        self.bound.set(Bound::EMPTY);
    }
}

impl AllocationGroup {
    fn new(key: GroupKey) -> Self {
        Self {
            key,
            live: 0,
            entries: Vec::new(),
            blocks: Vec::new(),
            holes: Vec::new(),
        }
    }

    fn slot(&self, place: usize) -> Slot {
        self.blocks[place / BLOCK] << OFFSET_BITS | (place % BLOCK) as u32
    }

    /// Empties the group; its blocks are empty already.
    fn clear(&mut self, free_blocks: &mut Vec<u32>) {
        free_blocks.append(&mut self.blocks);
        self.entries.clear();
        self.holes.clear();
        if self.entries.capacity() > BLOCK {
            self.entries = Vec::new();
            self.blocks = Vec::new();
            self.holes = Vec::new();
        }
    }
}

fn block_of(slot: Slot) -> usize {
    (slot >> OFFSET_BITS) as usize
}

fn offset(slot: Slot) -> usize {
    slot as usize % BLOCK
}

/// Assigns a block to the group with this number, if one is left.
fn add_block(
    blocks: &mut Vec<GroupChunk>,
    free: &mut Vec<u32>,
    group: u32,
    position: u32,
) -> Option<u32> {
    let block = GroupChunk {
        occupied: 0,
        bound: Cell::new(Bound::EMPTY),
        group,
        position,
    };
    if let Some(number) = free.pop() {
        blocks[number as usize] = block;
        return Some(number);
    }
    let number = u32::try_from(blocks.len()).ok()?;
    if blocks.len() >= MAX_BLOCKS {
        return None; // four billion live allocations: 160 GiB of ledger
    }
    blocks.push(block);
    Some(number)
}
