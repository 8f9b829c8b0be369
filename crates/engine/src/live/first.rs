//! The first few of many allocations, without a scan of all of them.
//!
//! Blocks with limits that rule out any of the first allocations are skipped. Only the blocks of
//! the allocations found are scanned, and blocks from which an allocation at a limit was freed
//! since the last scan: with the block size chosen, that is rarely more than one per free, and each
//! is scanned once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bound::{AllocationOrder, Bound, Rank};
use super::store::{GroupChunk, GroupKey, Store};
use crate::Allocation;

/// A bounded heap that keeps the first allocations offered to it.
#[derive(Clone, Debug)]
pub struct TopN<'a> {
    count: usize,
    by: AllocationOrder,
    /// The last of the kept ones is on top.
    heap: BinaryHeap<Reverse<Ranked<'a>>>,
}

impl<'a> TopN<'a> {
    /// An empty heap that keeps up to `count` allocations in the order `by`.
    pub fn new(count: usize, by: AllocationOrder) -> Self {
        Self {
            count,
            by,
            heap: BinaryHeap::new(),
        }
    }

    /// Keeps `allocation` if it is among the first.
    pub fn offer(&mut self, allocation: &'a Allocation) {
        let ranked = Ranked(self.by.rank(allocation), allocation);
        if self.heap.len() < self.count {
            self.heap.push(Reverse(ranked));
        } else if let Some(mut last) = self.heap.peek_mut()
            && ranked > last.0
        {
            *last = Reverse(ranked);
        }
    }

    /// Whether an allocation of this rank would be among the first.
    fn wants(&self, rank: Rank) -> bool {
        let last = self.heap.peek().map(|last| last.0.0);
        self.heap.len() < self.count || last.is_some_and(|last| rank > last)
    }

    /// The allocations that were kept, in order.
    pub fn into_sorted(self) -> Vec<&'a Allocation> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        sorted.map(|Reverse(ranked)| ranked.1).collect()
    }
}

/// An allocation ordered by its rank.
#[derive(Clone, Copy, Debug)]
struct Ranked<'a>(Rank, &'a Allocation);

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Ranked<'_> {}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

/// A group with at least one allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) key: GroupKey,
    number: u32,
}

impl Store {
    /// The groups with at least one allocation.
    pub(crate) fn holdings(&self) -> impl Iterator<Item = Holding> {
        let groups = (0..).zip(&self.groups).filter(|(_, group)| group.live > 0);
        groups.map(|(number, group)| Holding {
            key: group.key,
            number,
        })
    }

    fn blocks_of(&self, holding: &Holding) -> impl Iterator<Item = &GroupChunk> {
        let blocks = self.groups[holding.number as usize].blocks.iter();
        blocks.map(|&number| &self.blocks[number as usize])
    }

    /// The first `count` allocations of some groups, in order.
    pub(crate) fn first(
        &self,
        holdings: &[Holding],
        count: usize,
        by: AllocationOrder,
    ) -> Vec<&Allocation> {
        let blocks = || holdings.iter().flat_map(|holding| self.blocks_of(holding));
        if count == usize::MAX {
            let mut all: Vec<_> = blocks().flat_map(|block| self.entries(block)).collect();
            all.sort_unstable_by_key(|allocation| Reverse(by.rank(allocation)));
            return all;
        }
        let blocks: Vec<_> = blocks().collect();
        let ranks = (0..).zip(&blocks);
        let ranks = ranks.map(|(number, block): (usize, _)| (block.bound.get().rank(by), number));
        let mut likely = BinaryHeap::from_iter(ranks);
        let mut first = TopN::new(count, by);
        while let Some((rank, number)) = likely.pop()
            && first.wants(rank)
        {
            let block = blocks[number];
            self.tighten(block);
            if first.wants(block.bound.get().rank(by)) {
                self.entries(block).for_each(|entry| first.offer(entry));
            }
        }
        first.into_sorted()
    }

    /// When the oldest and the newest of a group were allocated, nanoseconds.
    pub(crate) fn times_ns(&self, holding: &Holding) -> (u64, u64) {
        let (mut oldest, mut newest) = (u64::MAX, 0);
        // Blocks with exact limits first: most of the stale ones then need no scan.
        for stale in [false, true] {
            for block in self.blocks_of(holding) {
                let bound = block.bound.get();
                if bound.is_stale() != stale {
                    continue;
                }
                let (from, to) = bound.times_ns();
                if from < oldest || to > newest {
                    self.tighten(block);
                    let (from, to) = block.bound.get().times_ns();
                    (oldest, newest) = (oldest.min(from), newest.max(to));
                }
            }
        }
        (oldest, newest)
    }

    fn tighten(&self, block: &GroupChunk) {
        if block.bound.get().is_stale() {
            block.bound.set(Bound::of(self.entries(block)));
        }
    }
}
