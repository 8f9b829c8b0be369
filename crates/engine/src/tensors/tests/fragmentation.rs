//! Fragmentation, compared with a count of units of memory.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{MIB, PID, Program};
use crate::tensors::Fragmentation;

/// Blocks begin and end at multiples of this.
const UNIT: u64 = 64 << 10;
const SMALL: u64 = 2 * MIB;
const LARGE: u64 = 20 * MIB;
/// Address of the first segment, distance between segments, and distance between expandable ones.
const BASE: u64 = 0x7000_0000_0000;
const APART: u64 = 1 << 30;
const SEGMENTS: u64 = 6;

/// A segment in the model.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// Bytes that are returned to CUDA as one.
    piece: u64,
    /// Numbers of the mapped pieces; of an ordinary segment, its only one.
    mapped: BTreeSet<u64>,
    is_expandable: bool,
    /// Whether a block of the allocator shows that the segment is its own.
    is_known: bool,
}

impl Memory {
    /// Runs of mapped pieces: the first, and the one after the last.
    fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &piece in &self.mapped {
            match runs.last_mut() {
                Some((_, end)) if *end == piece => *end += 1,
                _ => runs.push((piece, piece + 1)),
            }
        }
        runs
    }
}

/// A program, and a model that counts its memory in units.
#[derive(Default)]
struct World {
    program: Program,
    memories: BTreeMap<u64, Memory>,
    /// Bytes of blocks by address.
    blocks: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Allocates a segment, ordinary or expandable.
    Take {
        at: u64,
        is_large: bool,
        is_expandable: bool,
    },
    /// Maps or unmaps a piece of an expandable segment.
    Map(u64, u64),
    Unmap(u64, u64),
    Give(u64),
    /// Allocates units, from an offset into a piece.
    HandOut {
        at: u64,
        piece: u64,
        unit: u64,
        units: u64,
    },
    TakeBack(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || (0..SEGMENTS).prop_map(|n| BASE + n * APART);
    let take = (at(), any::<bool>(), any::<bool>());
    let hand_out = (
        at(),
        0u64..4,
        // Often the first and the last unit of a piece of either size.
        prop_oneof![3 => 0u64..320, 1 => Just(0), 2 => Just(319)],
        prop_oneof![4 => 1u64..4, 1 => 1u64..400],
    );
    prop_oneof![
        3 => take.prop_map(|(at, is_large, is_expandable)| Step::Take { at, is_large, is_expandable }),
        3 => (at(), 0u64..4).prop_map(|(at, piece)| Step::Map(at, piece)),
        2 => (at(), 0u64..4).prop_map(|(at, piece)| Step::Unmap(at, piece)),
        1 => at().prop_map(Step::Give),
        9 => hand_out.prop_map(|(at, piece, unit, units)| Step::HandOut { at, piece, unit, units }),
        6 => any::<usize>().prop_map(Step::TakeBack),
    ]
}

impl World {
    fn is_free(&self, start: u64, end: u64) -> bool {
        self.blocks
            .range(..end)
            .next_back()
            .is_none_or(|(at, bytes)| at + bytes <= start)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Take {
                at,
                is_large,
                is_expandable,
            } => self.take(at, is_large, is_expandable),
            Step::Map(at, piece) => self.map(at, piece),
            Step::Unmap(at, piece) => self.unmap(at, piece),
            Step::Give(at) => self.give(at),
            Step::HandOut {
                at,
                piece,
                unit,
                units,
            } => self.hand_out(at, piece, unit, units),
            Step::TakeBack(which) => {
                let which = which % self.blocks.len().max(1);
                if let Some(&address) = self.blocks.keys().nth(which) {
                    self.blocks.remove(&address);
                    self.program.take_back(address);
                }
            }
        }
    }

    fn take(&mut self, at: u64, is_large: bool, is_expandable: bool) {
        // Old blocks in the place of a freed segment belong to no new one.
        if self.memories.contains_key(&at) || !self.is_free(at, at + APART) {
            return;
        }
        let piece = if is_large { LARGE } else { SMALL };
        let mut memory = Memory {
            piece,
            is_expandable,
            ..Memory::default()
        };
        if is_expandable {
            self.program.call("cuMemAddressReserve", at, 4 * piece);
        } else {
            self.program.call("cudaMalloc", at, piece);
            memory.mapped.insert(0);
        }
        self.memories.insert(at, memory);
    }

    fn map(&mut self, at: u64, piece: u64) {
        let Some(memory) = self
            .memories
            .get_mut(&at)
            .filter(|memory| memory.is_expandable)
        else {
            return;
        };
        if memory.mapped.insert(piece) {
            self.program
                .call("cuMemMap", at + piece * memory.piece, memory.piece);
        }
    }

    /// Pieces in use are not unmapped.
    fn unmap(&mut self, at: u64, piece: u64) {
        let Some(memory) = self.memories.get(&at).filter(|memory| memory.is_expandable) else {
            return;
        };
        let (start, bytes) = (at + piece * memory.piece, memory.piece);
        if !self.is_free(start, start + bytes) {
            return;
        }
        if let Some(memory) = self.memories.get_mut(&at)
            && memory.mapped.remove(&piece)
        {
            self.program.call("cuMemUnmap", start, bytes);
        }
    }

    /// Possibly with blocks in it: the program is wrong, or events of their frees were lost. An address
    /// range is freed once nothing is mapped in it.
    fn give(&mut self, at: u64) {
        let free = match self.memories.get(&at) {
            Some(memory) if !memory.is_expandable => "cudaFree",
            Some(memory) if memory.mapped.is_empty() => "cuMemAddressFree",
            _ => return,
        };
        self.memories.remove(&at);
        self.program.call(free, at, 0);
    }

    /// In a run of mapped pieces, or outside of any.
    fn hand_out(&mut self, at: u64, piece: u64, unit: u64, units: u64) {
        let (start, bytes) = match self.memories.get(&at) {
            Some(memory) => {
                let unit = unit % (memory.piece / UNIT);
                let start = at + piece * memory.piece + unit * UNIT;
                let run = memory
                    .runs()
                    .into_iter()
                    .find(|run| (run.0..run.1).contains(&piece));
                let Some((_, end)) = run else { return };
                (start, (units * UNIT).min(at + end * memory.piece - start))
            }
            None => (at + piece * LARGE + unit * UNIT, units * UNIT),
        };
        if !self.is_free(start, start + bytes) {
            return;
        }
        if let Some(memory) = self.memories.get_mut(&at) {
            memory.is_known |= memory.is_expandable || start == at;
        }
        self.blocks.insert(start, bytes);
        self.program.hand_out(start, bytes);
    }

    /// The blocks that begin here.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.blocks
            .range(start..end)
            .map(|(&at, &bytes)| (at, bytes))
    }

    /// Units from `start` on, with the block that uses them.
    fn units(&self, start: u64, end: u64) -> Vec<Option<u64>> {
        let mut units = vec![None; usize::try_from((end - start) / UNIT).unwrap()];
        for (at, bytes) in self.within(start, end) {
            for unit in (at - start) / UNIT..(at + bytes - start) / UNIT {
                units[usize::try_from(unit).unwrap()] = Some(at);
            }
        }
        units
    }

    fn expected(&self) -> Expected {
        let mut expected = Expected::default();
        let mut inside = BTreeSet::new();
        let mut pinning = BTreeSet::new();
        for (&at, memory) in &self.memories {
            for (first, last) in memory.runs() {
                let (start, end) = (at + first * memory.piece, at + last * memory.piece);
                if !memory.is_known {
                    continue;
                }
                inside.extend(self.within(start, end).map(|(at, _)| at));
                expected.segments.push((start, end - start));
                let units = self.units(start, end);
                let free = units
                    .split(Option::is_some)
                    .map(|run| run.len() as u64 * UNIT);
                let free = free.max().unwrap_or(0);
                let most = if memory.piece == SMALL { MIB } else { u64::MAX };
                expected.largest_free = expected.largest_free.max(free);
                expected.largest_fit = expected.largest_fit.max(free.min(most));
                for piece in units.chunks(usize::try_from(memory.piece / UNIT).unwrap()) {
                    let used = piece.iter().flatten().count() as u64;
                    if used == 0 {
                        expected.unused += memory.piece;
                    } else if used * UNIT * 20 < memory.piece {
                        expected.pinned += memory.piece;
                        expected.pinned_by += used * UNIT;
                        pinning.extend(piece.iter().flatten().copied());
                    }
                }
            }
        }
        expected.pinning = pinning.len() as u64;
        let outside = self.blocks.iter().filter(|(at, _)| !inside.contains(at));
        outside.for_each(|(_, bytes)| {
            expected.outside.0 += bytes;
            expected.outside.1 += 1;
        });
        expected
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    segments: Vec<(u64, u64)>,
    largest_free: u64,
    largest_fit: u64,
    unused: u64,
    pinned: u64,
    pinned_by: u64,
    pinning: u64,
    outside: (u64, u64),
}

impl From<Fragmentation> for Expected {
    fn from(found: Fragmentation) -> Self {
        let segments = found.segments.iter();
        Self {
            segments: segments
                .map(|segment| (segment.address, segment.bytes))
                .collect(),
            largest_free: found.largest_free_bytes,
            largest_fit: found.largest_fit_bytes,
            unused: found.unused_bytes,
            pinned: found.pinned.bytes,
            pinned_by: found.pinned.by.bytes,
            pinning: found.pinned.by.allocations,
            outside: (found.outside.bytes, found.outside.allocations),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn segments_match_a_count_of_units(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::default();
        // Creates the allocator.
        world.program.hand_out(0x1000, UNIT);
        world.program.take_back(0x1000);
        for step in steps {
            world.apply(step);
            let process = world.program.ledger.process_of(PID).unwrap();
            let found = world.program.allocator().fragmentation(process);
            let used: u64 = found.segments.iter().map(|segment| segment.used_bytes).sum();
            let found = Expected::from(found);
            prop_assert_eq!(used + found.outside.0, world.blocks.values().sum::<u64>());
            prop_assert_eq!(found, world.expected());
        }
    }
}

#[test]
fn freed_segments_are_not_reserved() {
    let mut program = Program::default();
    program.call("cudaMalloc", BASE, SMALL);
    program.call("cudaMalloc", BASE + APART, LARGE);
    program.call("cuMemAddressReserve", BASE + 2 * APART, 10 * SMALL);
    for piece in 0..3 {
        program.call("cuMemMap", BASE + 2 * APART + piece * SMALL, SMALL);
    }
    program.reserved = 4 * SMALL + LARGE;
    program.hand_out(BASE, 512);
    program.hand_out(BASE + 2 * APART + SMALL, 512);
    program.take_back(BASE);
    assert_eq!(program.allocator().reserved_bytes, program.reserved);
    program.call("cudaFree", BASE, 0);
    assert_eq!(program.allocator().reserved_bytes, 3 * SMALL + LARGE);
    // Unmaps two pieces at once; a segment without blocks is not known to be the allocator's.
    program.call("cuMemUnmap", BASE + 2 * APART, 2 * SMALL);
    program.call("cudaFree", BASE + APART, 0);
    assert_eq!(program.allocator().reserved_bytes, SMALL + LARGE);
    // The allocator reports the exact value.
    program.reserved = SMALL;
    program.hand_out(BASE + 2 * APART + 2 * SMALL, 512);
    assert_eq!(program.allocator().reserved_bytes, SMALL);
    assert_eq!(program.allocator().peak_reserved_bytes, 4 * SMALL + LARGE);
}

#[test]
fn a_range_reserved_again_is_of_the_allocator_with_blocks_in_it() {
    // The release of the former range, if it is in flight, comes later.
    for is_released in [true, false] {
        let mut program = Program::default();
        for device in [1, 0] {
            program.call("cuMemAddressReserve", BASE, 4 * SMALL);
            program.call("cuMemMap", BASE, SMALL);
            program.tensor(device, BASE, 512, false);
            if device == 1 {
                program.tensor(device, BASE, 512, true);
                program.call("cuMemUnmap", BASE, SMALL);
            }
            if device == 1 && is_released {
                program.call("cuMemAddressFree", BASE, 4 * SMALL);
            }
        }
        let allocators = program.process().tensors.iter();
        let found = allocators.map(|a| a.fragmentation(program.process()).segments.len());
        assert_eq!(found.collect::<Vec<_>>(), [1, 0], "{is_released}");
    }
}

#[test]
fn sites_are_ordered_by_pinned_bytes() {
    let mut program = Program::default();
    let hold = |program: &mut Program, at: u64, caller: u64| {
        program.call_from(caller);
        program.hand_out(BASE + at, 512);
    };
    for segment in 0..3 {
        program.call("cudaMalloc", BASE + segment * APART, LARGE);
    }
    // Ten blocks of one site pin one segment, two of another pin two.
    for n in 0..10 {
        hold(&mut program, n * MIB, 1);
    }
    hold(&mut program, APART, 2);
    hold(&mut program, 2 * APART, 2);
    hold(&mut program, 2 * APART + MIB, 3);
    let found = program.allocator().fragmentation(program.process()).pinned;
    let sites: Vec<_> = found.sites.iter().map(|&(_, bytes)| bytes).collect();
    assert_eq!(sites, [2 * LARGE, LARGE, LARGE]);
    assert_eq!(found.by.allocations, 13);
    let names = found.sites.iter().map(|&(site, _)| program.caller(site));
    assert_eq!(names.collect::<Vec<_>>(), [2, 1, 3]);
}
