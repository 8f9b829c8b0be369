mod bfc;
mod contexts;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use super::{Needed, ReadAhead, Unread, Words, torch};
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundSegment};

/// Memory of a process that does not exist.
#[derive(Clone, Default)]
struct Heap {
    objects: BTreeMap<u64, Vec<u64>>,
    /// Number of reads, and the one at which a word changes.
    reads: Cell<usize>,
    change: Option<(usize, u64)>,
}

impl Words for Heap {
    fn read(&self, ranges: &[(u64, usize)]) -> Option<Vec<Vec<u64>>> {
        let number = self.reads.replace(self.reads.get() + 1);
        let changed = self.change.filter(|(at, _)| number >= *at);
        let changed = changed.map(|(_, at)| at);
        let words = |&(at, words): &(u64, usize)| {
            // Between objects are zeros.
            let last = self.objects.last_key_value();
            let end = last.map_or(0, |(base, object)| base + object.len() as u64 * 8);
            let end = end.min(at.saturating_add(words as u64 * 8));
            let first = self.objects.range(..=at).next_back();
            let first = first.or(self.objects.first_key_value()).map(|it| *it.0);
            let is_mapped = |first: &u64| first & !0xfff <= at && at < end;
            let Some(first) = first.filter(is_mapped) else {
                return Vec::new();
            };
            let mut found = vec![0; usize::try_from((end - at) / 8).unwrap()];
            for (base, object) in self.objects.range(first..end) {
                for (word, place) in object.iter().zip((*base..).step_by(8)) {
                    let index = place.checked_sub(at).map(|bytes| (bytes / 8) as usize);
                    if let Some(found) = index.and_then(|index| found.get_mut(index)) {
                        *found = word + u64::from(changed == Some(place));
                    }
                }
            }
            found
        };
        Some(ranges.iter().map(words).collect())
    }
}

impl Heap {
    fn new_object(&mut self, words: usize) -> u64 {
        let last = self.objects.last_key_value();
        let base = last.map_or(0x10_0000, |(base, object)| {
            base + object.len() as u64 * 8 + 64
        });
        self.objects.insert(base, vec![0; words]);
        base
    }

    fn set(&mut self, at: u64, values: &[u64]) {
        let (base, object) = self.objects.range_mut(..=at).next_back().unwrap();
        let first = usize::try_from((at - base) / 8).unwrap();
        object[first..first + values.len()].copy_from_slice(values);
    }

    /// A table with these values at `at`.
    fn table(&mut self, at: u64, values: &[Vec<u64>]) {
        let slots = (values.len() * 2).next_power_of_two().max(4);
        let lookups = 4;
        let width = values.first().map_or(1, Vec::len) + 1;
        let entries = self.new_object((slots - 1 + lookups + 1) * width);
        for slot in 0..slots - 1 + lookups {
            let mut entry = vec![0xff];
            if let Some(value) = values.get(slot / 2).filter(|_| slot % 2 == 1) {
                entry[0] = 0;
                entry.extend(value);
            }
            self.set(entries + (slot * width) as u64 * 8, &entry);
        }
        let load = 0x3f00_0000 << 32 | (lookups as u64) << 8 | 60;
        self.set(at, &[entries, slots as u64 - 1, load, values.len() as u64]);
    }

    /// A tree with these values, whose head is at `at`; returns its nodes.
    fn tree(&mut self, at: u64, values: &[u64]) -> Vec<u64> {
        let nodes: Vec<_> = values.iter().map(|_| self.new_object(5)).collect();
        for (index, (&node, &value)) in nodes.iter().zip(values).enumerate() {
            let child = |number: usize| nodes.get(number).copied().unwrap_or(0);
            let [left, right] = [2 * index + 1, 2 * index + 2].map(child);
            let parent = index
                .checked_sub(1)
                .map_or(at + 8, |below| nodes[below / 2]);
            self.set(node, &[1, parent, left, right, value]);
        }
        let root = nodes.first().copied().unwrap_or(0);
        let ends = [nodes.last(), nodes.first()].map(|node| node.copied().unwrap_or(at + 8));
        self.set(
            at,
            &[0x4000, 0, root, ends[0], ends[1], values.len() as u64],
        );
        nodes
    }
}

/// Numbers that are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// Words at which a block has its fields: pointer, size, requested size, pool, previous and next one, expandable segment,
/// stream.
type Fields = [usize; 8];
const AS_OF_2_11: Fields = [10, 7, 8, 9, 12, 13, 17, 1];

#[derive(Clone, Copy, PartialEq)]
enum State {
    Live,
    Pending,
    Cached,
    Unmapped,
}
use State::{Cached, Live, Pending, Unmapped};

/// A chain of blocks: the device, its private pool, or 0, its stream, sizes in units of 512 bytes and states.
type Chain = (usize, u64, u64, &'static [(u64, State)]);
const CHAINS: [Chain; 6] = [
    (
        0,
        0,
        0,
        &[
            (8, Live),
            (601, Live),
            (8, Pending),
            (100, Cached),
            (3379, Live),
        ],
    ),
    (0, 0, 0x70, &[(4096, Cached)]),
    (0, 0, 0, &[(40960, Pending)]),
    (0, 1, 0x70, &[(4096, Live), (36864, Cached)]),
    (
        0,
        2,
        0,
        &[
            (2, Live),
            (4094, Cached),
            (1_000_000, Unmapped),
            (4096, Live),
        ],
    ),
    (1, 0, 0, &[(77, Live), (4019, Cached)]),
];

struct Scene {
    heap: Heap,
    root: u64,
    /// Where free blocks are.
    free: Vec<u64>,
    expected: Vec<DeviceBlocks>,
    /// Addresses of counters, and of nodes of trees.
    counters: Vec<u64>,
    nodes: Vec<u64>,
}

fn scene(fields: Fields) -> Scene {
    let mut heap = Heap::default();
    let root = heap.new_object(1);
    let native = heap.new_object(4096);
    heap.set(root, &[native]);
    let devices = [(); 2].map(|()| heap.new_object(600));
    let vector = heap.new_object(2);
    heap.set(vector, &devices);
    heap.set(native + 0x40, &[vector, vector + 16, vector + 16]);
    // Behind the counters of a device: pools with two trees each, of the device and of its private pools.
    let private = [(); 2].map(|()| heap.new_object(40));
    let pool = |device: usize, number: u64| match number {
        0 => devices[device] + 200 * 8,
        number => private[usize::try_from(number).unwrap() - 1] + 8 * 8,
    };
    let mut expected = [0, 1].map(|device| DeviceBlocks {
        device,
        ..DeviceBlocks::default()
    });
    let (mut maps, mut active) = (vec![Vec::new(); 3], [Vec::new(), Vec::new()]);
    let mut trees: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let (mut requested, mut free) = ([0; 2], Vec::new());
    let mut address = 0x7f00_0000_0000;
    for (device, number, stream, chain) in CHAINS {
        let blocks: Vec<_> = chain.iter().map(|_| heap.new_object(32)).collect();
        let found = &mut expected[device];
        let first = found.segments.len();
        let mut begins = true;
        let is_expandable = chain.iter().any(|(_, state)| *state == Unmapped);
        let segment = is_expandable.then(|| heap.new_object(8));
        if let Some(segment) = segment {
            heap.set(segment, &[device as u64, stream, 1, address, 2 << 20]);
        }
        for (index, (&(units, state), &block)) in chain.iter().zip(&blocks).enumerate() {
            let bytes = units * 512;
            let asked = if state == Cached {
                3
            } else {
                bytes - index as u64
            };
            let neighbour =
                |at: Option<usize>| at.and_then(|at| blocks.get(at)).copied().unwrap_or(0);
            let links = [index.checked_sub(1), Some(index + 1)].map(neighbour);
            let pool = pool(device, number);
            let [before, behind] = links;
            let segment = segment.unwrap_or(0);
            let values = [address, bytes, asked, pool, before, behind, segment, stream];
            for (at, value) in fields.into_iter().zip(values) {
                heap.set(block + at as u64 * 8, &[value]);
            }
            if state != Unmapped {
                found.reserved_bytes += bytes;
                match found.segments.last_mut().filter(|_| !begins) {
                    Some(segment) => segment.bytes += bytes,
                    None => found.segments.push(FoundSegment {
                        address,
                        bytes,
                        stream,
                        pool: (0, number),
                        is_expandable: false,
                    }),
                }
            }
            begins = state == Unmapped;
            match state {
                Live => maps[index % 3].push(vec![address, block]),
                Pending => {}
                Cached => {
                    trees.entry(pool).or_default().push(block);
                    free.push((device, block));
                }
                Unmapped => trees.entry(pool + 48).or_default().push(block),
            }
            if matches!(state, Live | Pending) {
                active[device].push(vec![block]);
                requested[device] += asked;
                found.allocated_bytes += bytes * u64::from(state == Live);
                found.blocks.push(FoundBlock {
                    address,
                    bytes,
                    requested_bytes: asked,
                    is_pending: state == Pending,
                    stack: 0,
                    place: block,
                });
            }
            address += bytes;
        }
        if is_expandable {
            found.segments[first..]
                .iter_mut()
                .for_each(|segment| segment.is_expandable = true);
        }
        address += 1 << 30;
    }
    let mut counters = Vec::new();
    for (index, found) in expected.iter_mut().enumerate() {
        found.peak_allocated_bytes = found.allocated_bytes + 512;
        found.peak_reserved_bytes = found.reserved_bytes + 1024;
        let current = [
            found.allocated_bytes,
            found.reserved_bytes,
            requested[index],
        ];
        let peaks = [
            found.peak_allocated_bytes,
            found.peak_reserved_bytes,
            requested[index],
        ];
        for (thing, (now, peak)) in current.into_iter().zip(peaks).enumerate() {
            // All blocks, small ones, large ones.
            for (kind, now) in [now, now / 3, now - now / 3].into_iter().enumerate() {
                let at = devices[index] + (10 + thing * 12 + kind * 4) as u64 * 8;
                let peak = if kind == 0 { peak } else { now };
                heap.set(at, &[now, peak, now + 5120, 5120]);
                counters.push(at);
            }
        }
        heap.table(devices[index] + 300 * 8, &active[index]);
        for pool in [pool(index, 0), pool(0, 1), pool(0, 2)] {
            for tree in [pool, pool + 48] {
                trees.entry(tree).or_default();
            }
        }
    }
    heap.table(
        devices[0] + 320 * 8,
        &[vec![0, 1, private[0]], vec![0, 2, private[1]]],
    );
    let mut nodes = Vec::new();
    for (at, values) in &trees {
        nodes.extend(heap.tree(*at, values));
    }
    for (number, map) in maps.iter().enumerate() {
        heap.table(native + 0x800 + number as u64 * 40, map);
    }
    for &(device, block) in &free {
        let words = heap.objects[&block].clone();
        expected[device].free.insert(words);
    }
    Scene {
        heap,
        root,
        free: free.into_iter().map(|(_, block)| block).collect(),
        expected: expected.to_vec(),
        counters,
        nodes,
    }
}

#[test]
fn blocks_are_found_wherever_their_fields_are() {
    let mut random = Random(7);
    for round in 0..50 {
        let mut fields = AS_OF_2_11;
        if round > 0 {
            // Any places.
            let mut places: Vec<usize> = (2..32).collect();
            fields = fields.map(|_| places.remove(random.below(places.len())));
            fields[7] = AS_OF_2_11[7];
        }
        let scene = scene(fields);
        let found = torch::read(&scene.heap, scene.root).unwrap();
        assert_eq!(found, scene.expected, "{fields:?}");
    }
}

#[test]
fn what_does_not_add_up_is_not_taken() {
    let scene = scene(AS_OF_2_11);
    for &at in &scene.counters[..3] {
        let mut heap = scene.heap.clone();
        let now = heap.read(&[(at, 1)]).unwrap()[0][0];
        heap.set(at, &[now + 512]);
        assert_eq!(
            torch::read(&heap, scene.root),
            Err(Unread::Unlike("sizes of blocks"))
        );
    }
    assert_eq!(torch::read(&scene.heap, 0x50), Err(Unread::Empty));
}

#[test]
fn an_allocator_that_is_used_meanwhile_is_not_read() {
    let scene = scene(AS_OF_2_11);
    torch::read(&scene.heap, scene.root).unwrap();
    let reads = scene.heap.reads.get();
    for at in 4..reads - 1 {
        let heap = Heap {
            change: Some((at, scene.counters[0] + 16)),
            reads: Cell::new(0),
            ..scene.heap.clone()
        };
        let found = torch::read(&heap, scene.root);
        // Before the first read of the counters, it is only another sum.
        assert!(
            matches!(found, Err(Unread::Changed | Unread::Unlike(_))),
            "{at}: {found:?}"
        );
    }
}

#[test]
fn what_was_needed_is_read_ahead() {
    let Scene {
        heap,
        root,
        expected,
        counters,
        ..
    } = scene(AS_OF_2_11);
    torch::read(&heap, root).unwrap();
    let reads = heap.reads.get();
    let changed = |heap: &Heap, at| Heap {
        change: Some((at, counters[0] + 16)),
        reads: Cell::new(0),
        ..heap.clone()
    };
    let read = |heap: &Heap, needed: &mut Needed| {
        let memory = ReadAhead::of(heap, needed).unwrap();
        (torch::read(&memory, root), memory.asked.into_inner())
    };
    let mut torn = (0..reads)
        .rev()
        .map(|at| read(&changed(&heap, at), &mut Needed::default()));
    let (_, asked) = torn
        .find(|(found, _)| *found == Err(Unread::Changed))
        .unwrap();
    let mut needed = Needed::default();
    needed.add(&asked);
    // What changes after that one read isn't seen. Only what streams may be is read later.
    let later = changed(&heap, 1);
    let (found, _) = read(&later, &mut needed);
    assert_eq!(found, Ok(expected));
    assert!(later.reads.get() < reads / 2, "{reads}");
    // From the first that was not read ahead on, everything is read now, and the change is seen.
    let counter = (counters[0] + 16, 1);
    let mut needed = Needed::default();
    needed.add(&[(counter, 1)]);
    let later = changed(&heap, 1);
    let memory = ReadAhead::of(&later, &mut needed).unwrap();
    let ranges = [counter, (root + (1 << 20), 1), counter];
    let [before, _, after] = ranges.map(|range| memory.read(&[range]).unwrap());
    assert_eq!(before[0][0] + 1, after[0][0]);
}

/// Mapped pages. Each word is its address.
struct Mapped(BTreeSet<u64>);

impl Words for Mapped {
    fn read(&self, ranges: &[(u64, usize)]) -> Option<Vec<Vec<u64>>> {
        let is_mapped = |at: &u64| self.0.contains(&(at & !0xfff));
        let words = |&(at, words): &(u64, usize)| {
            let words = (at..).step_by(8).take(words);
            words.take_while(is_mapped).collect()
        };
        Some(ranges.iter().map(words).collect())
    }
}

#[test]
fn a_page_that_is_not_there_any_more_hides_none_behind_it() {
    let pages = [0x1000, 0x2000, 0x3000];
    let mut needed = Needed::default();
    needed.add(&pages.map(|page| ((page, 1), 1)));
    let memory = Mapped([0x1000, 0x3000].into());
    for _ in 0..2 {
        let ahead = ReadAhead::of(&memory, &mut needed).unwrap();
        let read = ahead.read(&[(0x1008, 2), (0x2ff8, 1), (0x3010, 1)]);
        assert_eq!(read, Some(vec![vec![0x1008, 0x1010], vec![], vec![0x3010]]));
        needed.add(&ahead.asked.into_inner());
    }
}

#[test]
fn whatever_the_memory_has_no_block_is_wrong() {
    let scene = scene(AS_OF_2_11);
    let allocated = |found: &[DeviceBlocks]| -> Vec<Vec<(u64, u64)>> {
        let blocks = |device: &DeviceBlocks| {
            let live = device.blocks.iter().filter(|block| !block.is_pending);
            live.map(|block| (block.address, block.bytes)).collect()
        };
        found.iter().map(blocks).collect()
    };
    let expected = allocated(&scene.expected);
    let places: Vec<u64> = scene
        .heap
        .objects
        .iter()
        .flat_map(|(&base, words)| {
            let used = words.iter().zip((base..).step_by(8));
            used.filter(|(word, _)| **word != 0).map(|(_, at)| at)
        })
        .collect();
    let values = [
        0,
        1,
        u64::MAX,
        scene.nodes[0],
        scene.root,
        0x7f00_0000_0000,
        u64::MAX - 7,
    ];
    let mut read = 0;
    for &at in &places {
        for value in values {
            let mut heap = scene.heap.clone();
            heap.set(at, &[value]);
            if let Ok(found) = torch::read(&heap, scene.root) {
                assert_eq!(allocated(&found), expected, "{value:#x} at {at:#x}");
                read += 1;
            }
        }
    }
    assert!(read > 0 && read < places.len() * values.len());
}
