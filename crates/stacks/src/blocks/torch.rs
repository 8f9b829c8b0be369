//! PyTorch's caching allocator of CUDA memory.
//!
//! The exported variable [`ROOT`] points to it. It has tables (`ska::flat_hash_map`) of all allocated blocks by address,
//! and a vector of allocators, one for each device. Such a one has counters, a table of the blocks in use, among them
//! those that are free once a stream has passed, tables of private pools, and in each pool the cached blocks in a tree
//! (`std::set`), with another for the parts of expandable segments that are not mapped.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};

use super::{Read, Unread, Words, one, region, regions_of};
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundSegment};

/// The variable that points to the allocator.
pub(super) const ROOT: &str = "_ZN3c104cuda20CUDACachingAllocator9allocatorE";

/// Words that are read of the allocator, of one of a device, of a private pool, and of a block.
const ROOT_WORDS: usize = 4096;
const DEVICE_WORDS: usize = 2048;
const POOL_WORDS: usize = 64;
pub(super) const BLOCK_WORDS: usize = 32;
/// In every version, a block begins with its device and its stream. Nothing tells streams from what segments have besides,
/// where all blocks are of the default one.
const STREAM: usize = 1;
/// Blocks from which the layout is found, devices, blocks, and nodes of a tree, at most.
const SAMPLE: usize = 64;
const MAX_DEVICES: usize = 64;
const MAX_BLOCKS: usize = 1 << 18;
/// Size of a block, bytes.
const MAX_BLOCK: u64 = 1 << 44;
/// Largest distance between a pool and its second tree, bytes.
const TREES_WITHIN: u64 = 128;

/// Blocks by device, if the allocator did not change meanwhile and its counters agree. `root` is the address of
/// [`ROOT`].
///
/// # Errors
/// Says why there are none.
pub(super) fn read(memory: &impl Words, root: u64) -> Read<Vec<DeviceBlocks>> {
    let allocator = one(memory, root, 1)?.first().copied().unwrap_or(0);
    let words = region(memory, allocator, ROOT_WORDS)?;
    let (live, is_torn) = live_blocks(memory, &words)?;
    if live.is_empty() {
        // Unless a table is just being moved.
        let is_same = region(memory, allocator, ROOT_WORDS)? == words;
        return Err(if is_same {
            Unread::Empty
        } else {
            Unread::Changed
        });
    }
    let mut raw = Blocks::default();
    raw.add(memory, live.keys().copied())?;
    if is_torn {
        // Not before: what a try has read is read ahead in the next one.
        return Err(Unread::Changed);
    }
    let [ptr_at, pool_at] = places(memory, &live, &raw)?;
    let raw_pool = |raw: &Blocks, block: u64| raw.word(block, pool_at);
    let pools: HashSet<u64> = live.keys().map(|&b| raw_pool(&raw, b)).collect();
    let bases = device_allocators(memory, &words, &pools)?;
    let before = regions(memory, &bases)?;

    // What the sets and tables of each device refer to.
    let mut devices: Vec<Device> = Vec::new();
    for (&base, words) in bases.iter().zip(&before) {
        devices.push(Device::of(memory, base, words)?);
    }
    let trees: BTreeSet<u64> = devices
        .iter()
        .flat_map(|device| device.trees.iter().copied())
        .collect();
    let in_trees = walk(memory, &trees)?;
    let of_trees = in_trees.values().flatten().copied();
    let of_tables = devices
        .iter()
        .flat_map(|device| device.sets.iter().flatten().copied());
    raw.add(
        memory,
        of_trees.chain(of_tables).collect::<Vec<_>>().into_iter(),
    )?;

    let (words_now, now) = (
        region(memory, allocator, ROOT_WORDS)?,
        regions(memory, &bases)?,
    );
    if words_now != words || now != before {
        return Err(Unread::Changed);
    }

    let owners: BTreeMap<u64, (usize, (u64, u64))> = (devices.iter().enumerate())
        .flat_map(|(index, device)| {
            let private = device
                .private
                .iter()
                .map(move |&(at, id)| (at, (index, id)));
            private.chain([(bases[index], (index, (0, 0)))])
        })
        .collect();
    let owner_of = |pool: u64| {
        let (base, owner) = owners.range(..=pool).next_back()?;
        (pool - base < (DEVICE_WORDS * 8) as u64).then_some(*owner)
    };
    for (index, device) in devices.iter_mut().enumerate() {
        let is_its =
            |block: &&u64| owner_of(raw_pool(&raw, **block)).is_some_and(|it| it.0 == index);
        for tree in &device.trees {
            let values = &in_trees[tree];
            let pools: HashSet<u64> = values.iter().map(|&block| raw_pool(&raw, block)).collect();
            // Others may be of another device, whose pools are near.
            let mut pool = pools.into_iter();
            let (Some(pool), None) = (pool.next(), pool.next()) else {
                continue;
            };
            match tree.checked_sub(pool) {
                Some(0) => device.cached.extend(values.iter().filter(is_its)),
                Some(1..=TREES_WITHIN) => device.unmapped.extend(values.iter().filter(is_its)),
                _ => {}
            }
        }
        device.live = live.keys().filter(is_its).copied().collect();
        let has_all = |set: &&HashSet<u64>| device.live.is_subset(set);
        // Of several, one that has blocks only.
        let is_of_blocks = |set: &&HashSet<u64>| set.iter().all(|block| is_its(&block));
        let in_use = device.sets.iter().filter(has_all).find(is_of_blocks);
        device.in_use = in_use.cloned().ok_or(Unread::Changed)?;
    }
    if devices
        .iter()
        .map(|device| device.live.len())
        .sum::<usize>()
        != live.len()
    {
        return Err(Unread::Changed);
    }
    let layout = Layout::of(&devices, &before, &raw, ptr_at)?;
    let all = devices.iter().zip(&before).zip(0..);
    Ok(all
        .filter(|((device, _), _)| !device.in_use.is_empty() || !device.cached.is_empty())
        .map(|((device, words), number)| {
            let pool_of = |block| owner_of(raw_pool(&raw, block)).map_or((0, 0), |it| it.1);
            layout.report(number, device, words, &raw, pool_of)
        })
        .collect())
}

/// An allocator of a device.
#[derive(Default)]
struct Device {
    /// Heads of its trees, and of those of its private pools.
    trees: Vec<u64>,
    /// Its private pools: address and id.
    private: Vec<(u64, (u64, u64))>,
    /// Values of its tables of single values.
    sets: Vec<HashSet<u64>>,
    /// Allocated blocks.
    live: HashSet<u64>,
    /// These, and those that wait for a stream.
    in_use: HashSet<u64>,
    cached: HashSet<u64>,
    unmapped: HashSet<u64>,
}

impl Device {
    fn of(memory: &impl Words, base: u64, words: &[u64]) -> Read<Self> {
        let mut device = Self::default();
        device.trees.extend(heads(base, words));
        let mut private: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for table in tables(words) {
            for width in [1, 2, 3] {
                let values = table.values(memory, width)?;
                match width {
                    _ if values.len() != table.count => {}
                    1 => device.sets.push(values.iter().map(|it| it[0]).collect()),
                    3 => private.extend(values.iter().map(|it| (it[2], (it[0], it[1])))),
                    _ => {}
                }
            }
        }
        // A table that is empty has any width.
        device.sets.push(HashSet::new());
        let wanted: Vec<_> = private.keys().map(|&at| (at, POOL_WORDS)).collect();
        let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
        for ((at, id), words) in private.into_iter().zip(found) {
            let trees = device.trees.len();
            device.trees.extend(heads(at, &words));
            if device.trees.len() > trees {
                device.private.push((at, id));
            }
        }
        Ok(device)
    }

    /// Blocks that are memory from CUDA.
    fn mapped(&self) -> impl Iterator<Item = u64> {
        self.in_use.union(&self.cached).copied()
    }
}

/// Words of blocks, by address.
#[derive(Default)]
struct Blocks(HashMap<u64, Vec<u64>>);

impl Blocks {
    fn add(&mut self, memory: &impl Words, blocks: impl Iterator<Item = u64>) -> Read<()> {
        let new: Vec<_> = blocks.filter(|block| !self.0.contains_key(block)).collect();
        if new.len() > MAX_BLOCKS {
            return Err(Unread::Unreadable);
        }
        let wanted: Vec<_> = new.iter().map(|&block| (block, BLOCK_WORDS)).collect();
        let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
        self.0.extend(new.into_iter().zip(found));
        Ok(())
    }

    /// The word at this place; 0 if it could not be read.
    fn word(&self, block: u64, at: usize) -> u64 {
        let words = self.0.get(&block);
        words.and_then(|words| words.get(at)).copied().unwrap_or(0)
    }
}

/// Where the fields of a block are, in words.
struct Layout {
    ptr: usize,
    size: usize,
    requested: usize,
    prev: usize,
}

impl Layout {
    fn of(devices: &[Device], regions: &[Vec<u64>], raw: &Blocks, ptr: usize) -> Read<Self> {
        let all = || devices.iter().zip(regions);
        // Sizes are multiples of 512, and their sums are in the counters.
        let is_size = |&at: &usize| {
            all().all(|(device, words)| {
                let is_one = |block| {
                    (1..MAX_BLOCK).contains(&raw.word(block, at))
                        && raw.word(block, at).is_multiple_of(512)
                };
                let sums = || {
                    [
                        sum(device.live.iter().copied(), raw, at),
                        sum(device.mapped(), raw, at),
                    ]
                };
                device.mapped().all(is_one) && counters(words, sums()).is_some()
            })
        };
        let sizes: Vec<_> = (0..BLOCK_WORDS).filter(is_size).collect();
        // The block behind begins where one ends, and leads back.
        let by_address: BTreeMap<u64, u64> = devices
            .iter()
            .flat_map(|device| device.mapped().chain(device.unmapped.iter().copied()))
            .map(|block| (raw.word(block, ptr), block))
            .collect();
        let parts = devices
            .iter()
            .map(|it| it.mapped().count() + it.unmapped.len());
        if by_address.len() != parts.sum::<usize>() {
            return Err(Unread::Unlike("addresses of blocks"));
        }
        let is_chain = |size: usize, next: usize, prev: usize| {
            by_address.iter().all(|(address, &block)| {
                let before = raw.word(block, prev);
                let behind = raw.word(block, next);
                let follows = || {
                    by_address.get(&address.wrapping_add(raw.word(block, size))) == Some(&behind)
                };
                let is_before = before == 0 || raw.word(before, next) == block;
                is_before && (behind == 0 || raw.word(behind, prev) == block && follows())
            })
        };
        let mut links = sizes.iter().flat_map(|&size| {
            let places =
                (0..BLOCK_WORDS).flat_map(|prev| (0..BLOCK_WORDS).map(move |next| (prev, next)));
            places.map(move |(prev, next)| (size, prev, next))
        });
        let is_used = |at: usize| by_address.values().any(|&block| raw.word(block, at) != 0);
        let found = links.find(|&(size, prev, next)| {
            prev != next && (is_used(prev) && is_used(next)) && is_chain(size, next, prev)
        });
        // Without two blocks in a segment, there is nothing to see of links, and as many bytes may have been asked for.
        let mut mapped = devices.iter().flat_map(Device::mapped);
        let (size, prev) = match (found, &sizes[..]) {
            (Some((size, prev, _)), _) => (size, prev),
            (None, []) => return Err(Unread::Unlike("sizes of blocks")),
            (None, [size, others @ ..]) => {
                let is_same = |at: &usize, block| raw.word(block, *at) == raw.word(block, *size);
                if !mapped.all(|block| others.iter().all(|at| is_same(at, block))) {
                    return Err(Unread::Unlike("links between blocks"));
                }
                (*size, BLOCK_WORDS)
            }
        };
        let is_requested = |&at: &usize| {
            at != size
                && all().all(|(device, words)| {
                    let fits =
                        |&block: &u64| (1..=raw.word(block, size)).contains(&raw.word(block, at));
                    let asked = || sum(device.in_use.iter().copied(), raw, at);
                    device.in_use.iter().all(fits) && counters(words, [asked()]).is_some()
                })
        };
        // Counters that do not agree with each other are in the midst of a change.
        let requested = (0..BLOCK_WORDS).find(is_requested);
        let requested = requested.ok_or(Unread::Changed)?;
        let is_stream = by_address.values().all(|&block| {
            let before = raw.word(block, prev);
            before == 0 || raw.word(before, STREAM) == raw.word(block, STREAM)
        });
        if !is_stream {
            return Err(Unread::Unlike("streams of blocks"));
        }
        Ok(Self {
            ptr,
            size,
            requested,
            prev,
        })
    }

    fn report(
        &self,
        number: u16,
        device: &Device,
        words: &[u64],
        raw: &Blocks,
        pool_of: impl Fn(u64) -> (u64, u64),
    ) -> DeviceBlocks {
        let sums = [
            sum(device.live.iter().copied(), raw, self.size),
            sum(device.mapped(), raw, self.size),
        ];
        let peaks = counters(words, sums).unwrap_or_default();
        let all = device.mapped().chain(device.unmapped.iter().copied());
        let by_address: BTreeMap<u64, u64> = all
            .map(|block| (raw.word(block, self.ptr), block))
            .collect();
        let mut found = DeviceBlocks {
            device: number,
            allocated_bytes: sums[0],
            peak_allocated_bytes: peaks[0],
            reserved_bytes: sums[1],
            peak_reserved_bytes: peaks[1],
            free: (device.cached.iter().filter_map(|block| raw.0.get(block)))
                .cloned()
                .collect(),
            ..DeviceBlocks::default()
        };
        // Segments of the chain so far that is not known to have unmapped parts.
        let mut chain = 0;
        let mut is_expandable = false;
        for (&address, &block) in &by_address {
            let (before, bytes) = (raw.word(block, self.prev), raw.word(block, self.size));
            if before == 0 {
                (chain, is_expandable) = (found.segments.len(), false);
            }
            if device.unmapped.contains(&block) {
                is_expandable = true;
                found.segments[chain..]
                    .iter_mut()
                    .for_each(|segment| segment.is_expandable = true);
                continue;
            }
            match found.segments.last_mut() {
                Some(segment) if before != 0 && !device.unmapped.contains(&before) => {
                    segment.bytes = segment.bytes.saturating_add(bytes);
                }
                _ => found.segments.push(FoundSegment {
                    address,
                    bytes,
                    stream: raw.word(block, STREAM),
                    pool: pool_of(block),
                    is_expandable,
                }),
            }
            if device.in_use.contains(&block) {
                found.blocks.push(FoundBlock {
                    address,
                    bytes,
                    requested_bytes: raw.word(block, self.requested),
                    is_pending: !device.live.contains(&block),
                    stack: 0,
                    place: block,
                });
            }
        }
        found
    }
}

fn sum(blocks: impl Iterator<Item = u64>, raw: &Blocks, at: usize) -> u64 {
    blocks.fold(0, |sum: u64, block| sum.wrapping_add(raw.word(block, at)))
}

/// Words of a counter: its current value, its peak, and the sums of all that was added and taken away. There are three of
/// a thing: of all blocks, of small and of large ones.
const COUNTER: usize = 4;

/// The peaks of the things with these current values, one right behind the other.
fn counters<const N: usize>(words: &[u64], current: [u64; N]) -> Option<[u64; N]> {
    let is_counter =
        |w: &[u64]| w[0] <= w[1] && w[1] <= w[2] && w[2].checked_sub(w[3]) == Some(w[0]);
    let is_thing = |(w, current): (&[u64], &u64)| {
        w[0] == *current
            && w[0].checked_sub(w[COUNTER]) == Some(w[2 * COUNTER])
            && w.chunks_exact(COUNTER).all(is_counter)
    };
    let mut all = words.windows(N * 3 * COUNTER);
    let found = all.find(|w| w.chunks_exact(3 * COUNTER).zip(&current).all(is_thing))?;
    let mut peaks = found.iter().skip(1).step_by(3 * COUNTER);
    Some(current.map(|_| peaks.next().copied().unwrap_or(0)))
}

/// A `ska::flat_hash_map` or set.
struct Table {
    entries: u64,
    slots: usize,
    count: usize,
}

/// Tables with entries in these words: a pointer, the number of slots less one, the maximum load of one half behind two
/// small numbers, and the number of entries.
fn tables(words: &[u64]) -> impl Iterator<Item = Table> {
    const HALF: u64 = 0x3f00_0000;
    words.windows(4).filter_map(|w| {
        let lookups = w[2] >> 8 & 0xff;
        let is_one = w[2] >> 32 == HALF
            && (w[1] & w[1].wrapping_add(1)) == 0
            && (1..1 << 20).contains(&w[1])
            && (1..64).contains(&lookups)
            && (1..=w[1]).contains(&w[3]);
        is_one.then(|| Table {
            entries: w[0],
            slots: (w[1] + lookups) as usize,
            count: w[3] as usize,
        })
    })
}

impl Table {
    /// Its values, if they have so many words: if there are as many as it counts.
    fn values(&self, memory: &impl Words, width: usize) -> Read<Vec<Vec<u64>>> {
        let words = one(memory, self.entries, self.slots * (width + 1))?;
        let all = words.chunks_exact(width + 1);
        // A slot is empty if its distance from the place of its value is negative.
        let used = all.filter(|slot| (slot[0] as u8).cast_signed() >= 0);
        Ok(used.map(|slot| slot[1..].to_vec()).collect())
    }
}

/// Allocated blocks, with their addresses, by the allocator's tables, and whether one of these changes.
fn live_blocks(memory: &impl Words, words: &[u64]) -> Read<(HashMap<u64, u64>, bool)> {
    let (mut live, mut is_torn) = (HashMap::new(), false);
    for table in tables(words) {
        let entries = table.values(memory, 2)?;
        is_torn |= entries.len() != table.count;
        live.extend(entries.iter().map(|entry| (entry[1], entry[0])));
        if live.len() > MAX_BLOCKS {
            return Err(Unread::Unreadable);
        }
    }
    Ok((live, is_torn))
}

/// Where blocks have their address and their pool.
fn places(memory: &impl Words, live: &HashMap<u64, u64>, raw: &Blocks) -> Read<[usize; 2]> {
    let sample: Vec<_> = live.iter().take(SAMPLE).collect();
    let has_ptr = |at: &usize| {
        sample
            .iter()
            .all(|(block, ptr)| raw.word(**block, *at) == **ptr)
    };
    let ptr = (0..BLOCK_WORDS).find(has_ptr).ok_or(Unread::Changed)?;
    let mut places = (0..BLOCK_WORDS).map(|at| {
        let pools: HashSet<u64> = sample
            .iter()
            .map(|(block, _)| raw.word(**block, at))
            .collect();
        let wanted: Vec<_> = pools.iter().map(|&pool| (pool, TREE_WORDS)).collect();
        if pools
            .iter()
            .any(|pool| *pool == 0 || !pool.is_multiple_of(8))
        {
            return Ok(None);
        }
        let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
        let are_pools = pools
            .iter()
            .zip(found)
            .all(|(&pool, words)| is_head(pool, &words));
        Ok(are_pools.then_some(at))
    });
    match places.find_map(Result::transpose) {
        Some(pool) => Ok([ptr, pool?]),
        None => Err(Unread::Unlike("pools")),
    }
}

/// Words of the head of a tree: what compares, color, root, first, last, number of values.
const TREE_WORDS: usize = 6;

fn is_head(at: u64, words: &[u64]) -> bool {
    let [_, color, root, first, last, count] = words[..words.len().min(TREE_WORDS)] else {
        return false;
    };
    let own = at.wrapping_add(8);
    color & 0xff <= 1
        && match root {
            0 => first == own && last == own && count == 0,
            _ => first != own && first != 0 && last != 0 && (1..MAX_BLOCKS as u64).contains(&count),
        }
}

/// Heads of trees with values among these words.
fn heads(base: u64, words: &[u64]) -> impl Iterator<Item = u64> {
    let all = words.windows(TREE_WORDS).enumerate();
    let placed = all.map(move |(at, words)| (base.wrapping_add(at as u64 * 8), words));
    placed
        .filter(|(at, words)| is_head(*at, words) && words[2] != 0)
        .map(|(at, _)| at)
}

/// The values of all these trees, those that are whole.
fn walk(memory: &impl Words, trees: &BTreeSet<u64>) -> Read<HashMap<u64, Vec<u64>>> {
    let wanted: Vec<_> = trees.iter().map(|&tree| (tree, TREE_WORDS)).collect();
    let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
    let mut left: HashMap<u64, u64> = HashMap::new();
    let mut level = Vec::new();
    for (&tree, words) in trees.iter().zip(&found) {
        if is_head(tree, words) && words[2] != 0 {
            left.insert(tree, words[5]);
            level.push((words[2], tree.wrapping_add(8), tree));
        }
    }
    let mut values: HashMap<u64, Vec<u64>> = trees.iter().map(|&tree| (tree, Vec::new())).collect();
    while !level.is_empty() {
        let wanted: Vec<_> = level.iter().map(|&(node, ..)| (node, 5)).collect();
        let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
        let mut next = Vec::new();
        for ((node, from, tree), words) in level.into_iter().zip(found) {
            let left = left.entry(tree).or_default();
            let fields = <[u64; 5]>::try_from(words).ok();
            let fields = fields.filter(|fields| fields[1] == from && *left > 0);
            let Some([_, _, before, behind, value]) = fields else {
                // Not a tree, or one that changed: more nodes than it has values, or one that does not lead back.
                values.insert(tree, Vec::new());
                *left = 0;
                continue;
            };
            *left -= 1;
            values.entry(tree).or_default().push(value);
            next.extend(
                [before, behind]
                    .into_iter()
                    .filter(|node| *node != 0)
                    .map(|child| (child, node, tree)),
            );
        }
        level = next;
    }
    Ok(values)
}

/// The allocators of devices: the vector in these words with an allocator that one of the pools is in.
fn device_allocators(memory: &impl Words, words: &[u64], pools: &HashSet<u64>) -> Read<Vec<u64>> {
    let is_vector = |w: &&[u64]| {
        let bytes = w[1].wrapping_sub(w[0]);
        w[0] != 0
            && w[0].is_multiple_of(8)
            && bytes.is_multiple_of(8)
            && (8..=MAX_DEVICES as u64 * 8).contains(&bytes)
            && w[0] < w[1]
            && w[1] <= w[2]
    };
    let vectors = words.windows(3).filter(is_vector);
    let wanted: Vec<_> = vectors
        .map(|w| (w[0], ((w[1] - w[0]) / 8) as usize))
        .collect();
    let found = memory.read(&wanted).ok_or(Unread::Unreadable)?;
    let span = (DEVICE_WORDS * 8) as u64;
    let has_pool = |device: &u64| pools.iter().any(|pool| pool.wrapping_sub(*device) < span);
    let owned = |devices: &Vec<u64>| devices.iter().filter(|device| has_pool(device)).count();
    let best = found.into_iter().max_by_key(owned);
    let best = best.filter(|devices| owned(devices) > 0);
    best.ok_or(Unread::Unlike("allocators of devices"))
}

/// Words of the allocators of devices; one may lie right behind another.
fn regions(memory: &impl Words, bases: &[u64]) -> Read<Vec<Vec<u64>>> {
    let mut all = regions_of(memory, bases, DEVICE_WORDS)?;
    for (&base, words) in bases.iter().zip(&mut all) {
        let next = bases.iter().filter(|other| **other > base).min();
        words.truncate(next.map_or(DEVICE_WORDS, |next| ((next - base) / 8) as usize));
    }
    Ok(all)
}
