//! The allocator of XLA and TensorFlow (`tsl::BFCAllocator`).
//!
//! Its chunks are elements of a vector. They are linked by their indices: those of a region from CUDA lie one behind the
//! other. A chunk in use has an id, and the others have -1. In the object, behind the vector, are the first of the
//! elements that are no chunks now, which are linked, too, and the counters: the number of allocations, the bytes in use,
//! their peak, and the largest chunk. The name is before the vector.

use std::collections::HashSet;
use std::iter;
use std::ops::RangeInclusive;

use super::{Read, Unread, Words, one, region};
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundSegment};
use gpuprobe_model::event::Tensor;

/// Words that are read of the allocator, and of its chunks at most.
const OBJECT_WORDS: usize = 512;
const MAX_VECTOR_BYTES: u64 = 1 << 25;
/// Words of a chunk.
const CHUNK_WORDS: RangeInclusive<usize> = 6..=32;
/// How far behind the vector the list of other elements begins, and the counters are, words.
const LIST_WITHIN: usize = 4;
const COUNTERS_WITHIN: usize = 32;
/// Length of a name, bytes.
const NAME_BYTES: RangeInclusive<u64> = 5..=64;
/// Ids and numbers of allocations are less.
const MAX_COUNT: u64 = 1 << 48;
/// No element, and the id of a chunk that is not in use.
const NONE: u64 = u64::MAX;

/// The chunks of the allocator that has sent this event, if it did not change meanwhile and its counters agree; `None`
/// if its name is not that of a GPU's.
///
/// # Errors
/// Says why there are none.
pub(super) fn read(memory: &impl Words, event: &Tensor) -> Read<Option<DeviceBlocks>> {
    let (name, found) = named(memory, event)?;
    Ok(device_of(&name).map(|device| DeviceBlocks { device, ..found }))
}

/// The number in the name of a GPU's allocator: `GPU_0_bfc`, `GPU_collectivememory_0_bfc`.
fn device_of(name: &str) -> Option<u16> {
    let within = name.strip_prefix("GPU_")?.strip_suffix("_bfc")?;
    within.rsplit('_').next()?.parse().ok()
}

/// The allocator's name and chunks.
fn named(memory: &impl Words, event: &Tensor) -> Read<(String, DeviceBlocks)> {
    let this = event.allocator().ok_or(Unread::Empty)?;
    let object = region(memory, this, OBJECT_WORDS)?;
    let vectors = object.windows(3).enumerate().filter_map(|(at, vector)| {
        let [begin, end, room] = [vector[0], vector[1], vector[2]];
        let is_vector = begin.is_multiple_of(8) && 0 < begin && begin < end && end <= room;
        let sizes = is_vector.then(|| [end, room].map(|until| until - begin))?;
        (sizes[1] <= MAX_VECTOR_BYTES).then(|| (sizes.map(|bytes| bytes as usize), at, begin))
    });
    // What only looks like a vector may be large.
    let mut vectors: Vec<_> = vectors.collect();
    vectors.sort_unstable();
    let mut failed = Unread::Unlike("chunks");
    for ([bytes, room], at, begin) in vectors {
        let words = one(memory, begin, bytes / 8)?;
        let again = region(memory, this, OBJECT_WORDS)?;
        let mut widths = CHUNK_WORDS.filter(|width| {
            let is_multiple = |size: usize| size.is_multiple_of(width * 8);
            words.len() * 8 == bytes && is_multiple(bytes) && is_multiple(room)
        });
        let found = widths.find_map(|width| find(&words, width, &object[at + 3..], event));
        let used = at + 3 + found.as_ref().map_or(COUNTERS_WITHIN, |(_, used)| *used);
        if again.get(..used) != object.get(..used) {
            failed = Unread::Changed;
        } else if let Some((found, _)) = found {
            let name = name_in(memory, &object[..at])?;
            return Ok((name.ok_or(Unread::Unlike("name"))?, found));
        }
    }
    Err(failed)
}

/// The last string in these words of the object.
fn name_in(memory: &impl Words, words: &[u64]) -> Read<Option<String>> {
    let strings = words.windows(2).filter(|w| NAME_BYTES.contains(&w[1]));
    let strings: Vec<_> = strings.map(|w| (w[0], w[1] as usize)).collect();
    let wanted = strings.iter().map(|&(text, length)| (text, length / 8 + 1));
    let read = memory
        .read(&wanted.collect::<Vec<_>>())
        .ok_or(Unread::Unreadable)?;
    let mut names = strings.iter().zip(read).filter_map(|(&(_, length), text)| {
        let text: Vec<u8> = text.into_iter().flat_map(u64::to_le_bytes).collect();
        let (name, behind) = text.split_at_checked(length)?;
        let is_name = behind.first() == Some(&0) && name.iter().all(u8::is_ascii_graphic);
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    });
    Ok(names.next_back())
}

/// What the allocator has, if elements of so many words are its chunks, and how many words behind the vector are its.
fn find(
    words: &[u64],
    width: usize,
    behind: &[u64],
    event: &Tensor,
) -> Option<(DeviceBlocks, usize)> {
    let count = words.len() / width;
    let column = |at: usize| words.iter().skip(at).step_by(width).copied();
    let column = |at: usize| column(at).filter(|&word| word != NONE).peekable();
    let is_link = |at: &usize| {
        let mut links = column(*at);
        links.peek().is_some() && links.all(|link| link < count as u64)
    };
    let is_id = |at: &&usize| {
        let (mut ids, mut seen) = (column(**at), HashSet::new());
        ids.peek().is_some() && ids.all(|id| (1..MAX_COUNT).contains(&id) && seen.insert(id))
    };
    let columns: Vec<_> = (0..width).collect();
    let links: Vec<_> = columns.iter().copied().filter(is_link).collect();
    let ids = columns.iter().filter(|_| links.len() > 1).filter(is_id);
    let mut fields =
        ids.flat_map(|&id| pairs(&links).map(move |(previous, next)| (id, previous, next)));
    fields.find_map(|(id, previous, next)| {
        let mut layouts = pairs(&columns).map(|(address, size)| Chunks {
            words,
            width,
            count,
            id,
            previous,
            next,
            address,
            size,
        });
        layouts.find_map(|chunks| chunks.read(behind, event))
    })
}

/// All pairs of different values.
fn pairs(values: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let all = values
        .iter()
        .flat_map(|&one| values.iter().map(move |&other| (one, other)));
    all.filter(|(one, other)| one != other)
}

/// Elements of a vector, which may be chunks.
struct Chunks<'a> {
    words: &'a [u64],
    /// Words of each.
    width: usize,
    count: usize,
    /// Words at which they have their fields.
    id: usize,
    previous: usize,
    next: usize,
    address: usize,
    size: usize,
}

impl Chunks<'_> {
    fn word(&self, index: usize, at: usize) -> u64 {
        self.words[index * self.width + at]
    }

    fn address(&self, index: usize) -> u64 {
        self.word(index, self.address)
    }

    fn size(&self, index: usize) -> u64 {
        self.word(index, self.size)
    }

    fn is_used(&self, index: usize) -> bool {
        self.word(index, self.id) != NONE
    }

    /// The element with the index in this field.
    fn link(&self, index: usize, at: usize) -> Option<usize> {
        let link = usize::try_from(self.word(index, at)).ok()?;
        (link < self.count).then_some(link)
    }

    /// What the allocator has, and how many words behind the vector are its.
    fn read(&self, behind: &[u64], event: &Tensor) -> Option<(DeviceBlocks, usize)> {
        let mut used = (0..self.count).filter(|&index| self.is_used(index));
        if !used.all(|index| self.is_chunk(index)) {
            return None;
        }
        let mut used: Vec<usize> = (0..self.count)
            .filter(|&index| self.is_used(index))
            .collect();
        used.sort_unstable_by_key(|&index| self.address(index));
        let sizes = || used.iter().map(|&index| self.size(index));
        let allocated_bytes = sizes().try_fold(0, u64::checked_add)?;
        let largest = sizes().max()?;
        let is_counted = |w: &[u64]| {
            (used.len() as u64..MAX_COUNT).contains(&w[0])
                && w[1] == allocated_bytes
                && w[1] <= w[2]
                && (largest..=w[2]).contains(&w[3])
        };
        let mut counters = behind.windows(4).take(COUNTERS_WITHIN);
        let counters = counters.position(is_counted)?;
        let mut lists = behind.iter().take(LIST_WITHIN);
        let segments = lists.find_map(|&first| self.segments(&self.list(first)?))?;

        let has_event =
            |s: &FoundSegment| (s.address..s.address + s.bytes).contains(&event.address);
        let is_its = |&i: &usize| [self.address(i), self.size(i)] == [event.address, event.bytes];
        if !segments.iter().any(has_event) || !event.is_free && !used.iter().any(is_its) {
            return None;
        }
        let is_requested = |&at: &usize| {
            let mut all = used
                .iter()
                .map(|&index| (self.word(index, at), self.size(index)));
            ![self.size, self.id, self.next, self.previous].contains(&at)
                && all.all(|(requested, size)| (1..=size).contains(&requested))
        };
        let requested = (0..self.width).find(is_requested);
        let blocks = used.iter().map(|&index| FoundBlock {
            address: self.address(index),
            bytes: self.size(index),
            requested_bytes: requested.map_or(0, |at| self.word(index, at)),
            ..FoundBlock::default()
        });
        let reserved_bytes = segments.iter().map(|segment| segment.bytes).sum();
        let found = DeviceBlocks {
            allocated_bytes,
            peak_allocated_bytes: behind[counters + 2],
            reserved_bytes,
            peak_reserved_bytes: reserved_bytes,
            blocks: blocks.collect(),
            segments,
            ..DeviceBlocks::default()
        };
        Some((found, counters + 4))
    }

    /// Whether the element lies between those that it is linked to.
    fn is_chunk(&self, index: usize) -> bool {
        let (start, size) = (self.address(index), self.size(index));
        let end = start.checked_add(size).filter(|_| start > 0 && size > 0);
        let [previous, next] = [self.previous, self.next].map(|at| self.link(index, at));
        let is_behind =
            |next| end == Some(self.address(next)) && self.link(next, self.previous) == Some(index);
        end.is_some()
            && next.is_none_or(is_behind)
            && previous.is_none_or(|before| self.link(before, self.next) == Some(index))
    }

    /// The elements that are no chunks: those linked to this one.
    fn list(&self, first: u64) -> Option<HashSet<usize>> {
        let mut list = HashSet::new();
        let mut at = first;
        while at != NONE {
            let index = usize::try_from(at)
                .ok()
                .filter(|index| *index < self.count)?;
            if self.is_used(index) || !list.insert(index) {
                return None;
            }
            at = self.word(index, self.next);
        }
        Some(list)
    }

    /// The regions of the chunks, which are all other elements.
    fn segments(&self, others: &HashSet<usize>) -> Option<Vec<FoundSegment>> {
        let is_chunk = |index: &usize| !others.contains(index) && self.is_chunk(*index);
        let is_first = |index: &usize| self.link(*index, self.previous).is_none();
        let mut segments = Vec::new();
        let mut count = others.len();
        for first in (0..self.count).filter(is_chunk).filter(is_first) {
            // It has an end: each lies behind the one before.
            let chain = iter::successors(Some(first), |index| self.link(*index, self.next));
            let sizes: Vec<u64> = chain
                .take_while(is_chunk)
                .map(|index| self.size(index))
                .collect();
            count += sizes.len();
            segments.push(FoundSegment {
                address: self.address(first),
                bytes: sizes.into_iter().sum(),
                stream: 0,
                pool: (0, 0),
                is_expandable: false,
            });
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        let mut pairs = segments.windows(2);
        let are_apart = pairs.all(|s| s[1].address - s[0].address >= s[0].bytes);
        (count == self.count && are_apart).then_some(segments)
    }
}
