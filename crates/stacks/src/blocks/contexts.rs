//! Where PyTorch's blocks were allocated, by its own history.
//!
//! Where that is on, a block has a `shared_ptr` to a `CapturedTraceback`, and that a vector of Python's code objects, each
//! with an instruction. They are found by what they lead to: nothing else of a block leads to code objects, but a second
//! `shared_ptr` behind the first, of the segment. One block of a segment has that one, which may be free; no free block
//! has the first.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Words;
use super::torch::BLOCK_WORDS;
use crate::python::code::CodeRecord;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::blocks::DeviceBlocks;
use gpuprobe_model::stack::Frame;

/// Words of a context.
const CONTEXT_WORDS: usize = 24;
/// Contexts from which it is found where things are, those that are read at once, and words of the frames of one, at most.
const SAMPLE: usize = 64;
const AT_ONCE: usize = 1024;
const MAX_FRAMES: u64 = 4096;

/// Finds the call stacks of blocks in use, on devices where it is certain where they are.
pub(super) fn find(memory: &impl Words, python: &RawPython, devices: &mut [DeviceBlocks]) {
    let mut contexts = Contexts {
        memory,
        python,
        codes: HashMap::new(),
    };
    for device in devices {
        contexts.find(device);
    }
}

/// Reads contexts. Keeps what it finds at addresses of code objects, with the bytes of their instructions.
struct Contexts<'a, M> {
    memory: &'a M,
    python: &'a RawPython,
    codes: HashMap<u64, Option<(CodeRecord, i64)>>,
}

/// Code objects and instructions, innermost first.
type Trace = Vec<(u64, i32)>;

impl<M: Words> Contexts<'_, M> {
    fn find(&mut self, device: &mut DeviceBlocks) -> Option<()> {
        let blocks = device.blocks.iter();
        let blocks: Vec<_> = blocks.map(|block| (block.place, BLOCK_WORDS)).collect();
        let blocks = self.memory.read(&blocks)?;
        let all = || blocks.iter().chain(&device.free);
        let is_shared = |words: &Vec<u64>, at| match [word(words, at), word(words, at + 1)] {
            [0, 0] => true,
            both => both.iter().all(|it| *it >= 1 << 16 && it.is_multiple_of(8)),
        };
        let mut found = Vec::new();
        for at in (0..BLOCK_WORDS - 1).filter(|at| all().all(|words| is_shared(words, *at))) {
            let sample = all().map(|words| (word(words, at), CONTEXT_WORDS));
            let sample = sample.filter(|(context, _)| *context != 0).take(SAMPLE);
            let sample = self.memory.read(&sample.collect::<Vec<_>>())?;
            for vector in 1..CONTEXT_WORDS - 2 {
                let traces = self.traces(&sample, vector)?;
                let has_frames = traces.iter().flatten().any(|trace| !trace.is_empty());
                if has_frames && traces.iter().all(Option::is_some) {
                    found.push((at, vector));
                }
            }
        }
        // Of a segment that grows, several blocks may have its own.
        let segment = |address| device.segments.iter().rfind(|it| it.address <= address);
        let segments = device.blocks.iter().map(|it| segment(it.address));
        let has_two = |at| {
            let mut seen = HashSet::new();
            let mut with = segments
                .zip(&blocks)
                .filter(|(_, words)| word(words, at) != 0);
            with.any(|(it, _)| it.is_some_and(|it| !it.is_expandable && !seen.insert(it.address)))
        };
        let (at, vector) = match found[..] {
            [first] if has_two(first.0) => first,
            [first, second] if first.1 == second.1 => first,
            _ => return None,
        };
        if device.free.iter().any(|words| word(words, at) != 0) {
            return None;
        }
        let contexts = blocks.iter().map(|words| word(words, at));
        let mut blocks: Vec<_> = device.blocks.iter_mut().zip(contexts).collect();
        blocks.retain(|(_, context)| *context != 0);
        blocks.sort_by_key(|(block, _)| Reverse(block.bytes));
        let mut known = HashMap::new();
        // While there is time.
        for blocks in blocks.chunks_mut(AT_ONCE) {
            let behind = |base: u64, words: usize| base.wrapping_add(words as u64 * 8);
            let vectors = blocks
                .iter()
                .map(|(_, context)| (behind(*context, vector), 3));
            let vectors = self.memory.read(&vectors.collect::<Vec<_>>())?;
            let traces = self.traces(&vectors, 0)?;
            // A block that has changed meanwhile has another.
            let now = blocks.iter().map(|(block, _)| (behind(block.place, at), 1));
            let now = self.memory.read(&now.collect::<Vec<_>>())?;
            for (((block, context), trace), now) in blocks.iter_mut().zip(traces).zip(now) {
                let is_one = |trace: &Trace| !trace.is_empty() && now == [*context];
                let number = |trace: &Trace| {
                    let code = |code| self.codes.get(code)?.as_ref();
                    let frames = trace
                        .iter()
                        .filter_map(|(it, at)| Some(code(it)?.0.frame(*at)));
                    let frames: Vec<Frame> = frames.collect();
                    let mut hash = DefaultHasher::new();
                    frames.hash(&mut hash);
                    let number = hash.finish().max(1);
                    device.stacks.insert(number, frames);
                    number
                };
                if let Some(trace) = trace.filter(is_one) {
                    block.stack = *known.entry(trace).or_insert_with_key(number);
                }
            }
        }
        Some(())
    }

    /// What is in the vectors that contexts have at this word; `None` for what is not such a vector.
    fn traces(&mut self, contexts: &[Vec<u64>], vector: usize) -> Option<Vec<Option<Trace>>> {
        let range = |context: &Vec<u64>| match *context.get(vector..vector + 3)? {
            [0, 0, 0] => Some((0, 0)),
            [begin @ 1..=u64::MAX, end, limit] if end <= limit => {
                let bytes = end.checked_sub(begin)?;
                let is_one = bytes.is_multiple_of(16) && (16..=MAX_FRAMES * 8).contains(&bytes);
                is_one.then_some((begin, (bytes / 8) as usize))
            }
            _ => None,
        };
        let ranges: Vec<_> = contexts.iter().map(range).collect();
        let wanted = ranges.iter().map(|range| range.unwrap_or_default());
        let found = self.memory.read(&wanted.collect::<Vec<_>>())?;
        let trace = |(words, range): (Vec<u64>, Option<(u64, usize)>)| {
            range.filter(|(_, count)| *count == words.len())?;
            // Half of a word is unused.
            let frames = words.as_chunks().0.iter();
            let frames: Trace = frames.map(|&[code, at]| (code, at as i32)).collect();
            let is_frame = |&(code, at): &(u64, i32)| {
                let read = || CodeRecord::read_at(self.memory, self.python, code);
                let code = self.codes.entry(code).or_insert_with(read);
                code.as_ref()
                    .is_some_and(|(_, bytes)| (-1..*bytes).contains(&at.into()))
            };
            frames.iter().all(is_frame).then_some(frames)
        };
        Some(found.into_iter().zip(ranges).map(trace).collect())
    }
}

fn word(words: &[u64], at: usize) -> u64 {
    words.get(at).copied().unwrap_or(0)
}
