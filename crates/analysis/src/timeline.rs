//! Memory over time by key, as a call path or a kind: sums of each bin of a run, and its highest total.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use anyhow::Result;
use indexmap::IndexMap;

use crate::{Listener, MemoryChange, Played};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::{Allocation, Allocator, Change, Process};
use gpuprobe_model::event::Event;

/// Times that divide a run into bins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bins {
    /// Bin `k` begins at edge `k` and ends before edge `k + 1`.
    pub(crate) edges_ns: Vec<i64>,
}

impl Bins {
    /// At most `most` bins of equal width from `first_ns` to `last_ns`, both included.
    pub(crate) fn between(first_ns: i64, last_ns: i64, most: usize) -> Self {
        let span = i128::from(last_ns.max(first_ns)) - i128::from(first_ns) + 1;
        let count = usize::try_from(span).map_or(most, |span| span.min(most));
        let edge = |index: usize| {
            let offset = span * index as i128 / count as i128;
            i64::try_from(i128::from(first_ns) + offset).unwrap_or(i64::MAX)
        };
        let edges_ns = (0..=count).map(edge).collect();
        Self { edges_ns }
    }

    /// Number of bins.
    pub(crate) fn count(&self) -> usize {
        self.edges_ns.len() - 1
    }

    /// The end of the last bin.
    pub(crate) fn end_ns(&self) -> i64 {
        self.edges_ns[self.count()]
    }

    /// The bin of a time; the first or last one for times outside.
    pub(crate) fn of(&self, time_ns: i64) -> usize {
        let after = self.edges_ns.partition_point(|&edge| edge <= time_ns);
        after.saturating_sub(1).min(self.count() - 1)
    }
}

/// Sums of `N` numbers by bin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BinSums<const N: usize>(BTreeMap<usize, [i64; N]>);

impl<const N: usize> BinSums<N> {
    pub(crate) fn add(&mut self, bin: usize, numbers: [i64; N]) {
        let sums = self.0.entry(bin).or_insert([0; N]);
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum = sum.saturating_add(number);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let bins = other.0.iter();
        bins.for_each(|(bin, numbers)| self.add(*bin, *numbers));
    }

    /// Sums over all bins.
    pub(crate) fn total(&self) -> [i64; N] {
        let mut all = Self::default();
        self.0.values().for_each(|numbers| all.add(0, *numbers));
        all.0.remove(&0).unwrap_or([0; N])
    }

    /// The bin and the numbers, of all bins in order.
    pub(crate) fn flat(&self) -> Vec<i64> {
        let rows = self.0.iter();
        rows.flat_map(|(bin, sums)| [*bin as i64].into_iter().chain(*sums))
            .collect()
    }
}

/// Bytes and allocations made, freed, and held when their process ended; and the change of what is live from the
/// beginning of the bin to its highest total.
pub(crate) type MemorySums = BinSums<8>;

/// Change of live bytes and allocations.
fn net(sums: &[i64; 8]) -> [i64; 2] {
    [0, 1].map(|unit| {
        let less_freed = sums[unit].saturating_sub(sums[2 + unit]);
        less_freed.saturating_sub(sums[4 + unit])
    })
}

/// Effect on an allocation; the values are columns of [`MemorySums`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Allocated = 0,
    Freed = 2,
    /// Live when its process ended.
    Held = 4,
}

/// The highest total of a bin so far.
#[derive(Clone, Copy, Debug)]
struct Highest {
    time_ns: i64,
    bytes: u64,
    /// Number of highest totals before it, in all bins.
    number: u64,
}

#[derive(Debug, Default)]
struct Course {
    sums: MemorySums,
    /// Bin of the last change.
    bin: usize,
    /// The highest total before it, by number.
    highest: u64,
}

/// Memory by key and bin.
#[derive(Debug)]
pub(crate) struct Timeline<K> {
    bins: Bins,
    courses: IndexMap<K, Course>,
    /// Bytes of keys that are set.
    levels: HashMap<K, u64>,
    /// Of the bins that have ended, and of the one that is read.
    ended: Vec<Highest>,
    highest: Highest,
    /// Sum of the bytes that count.
    live_bytes: u64,
}

impl<K: Copy + Eq + Hash> Timeline<K> {
    pub(crate) fn new(bins: &Bins) -> Self {
        Self {
            bins: bins.clone(),
            courses: IndexMap::default(),
            levels: HashMap::new(),
            ended: Vec::new(),
            highest: Highest {
                time_ns: bins.edges_ns[0],
                bytes: 0,
                number: 0,
            },
            live_bytes: 0,
        }
    }

    /// Ends the bins before the one of `time_ns`.
    pub(crate) fn advance(&mut self, time_ns: i64) {
        self.end_bins(self.bins.of(time_ns));
    }

    fn end_bins(&mut self, until: usize) {
        while self.ended.len() < until {
            self.ended.push(self.highest);
            self.begin_highest(self.bins.edges_ns[self.ended.len()]);
        }
    }

    /// Notes a change of `bytes` and `allocations`; only what `counts` is part of the total.
    pub(crate) fn change(
        &mut self,
        key: K,
        effect: Effect,
        [bytes, allocations]: [u64; 2],
        counts: bool,
    ) {
        let course = self.courses.entry(key);
        let place = course.index();
        course.or_default();
        self.settle(place);
        let mut sums = [0; 8];
        for (sum, number) in sums[effect as usize..].iter_mut().zip([bytes, allocations]) {
            *sum = i64::try_from(number).unwrap_or(i64::MAX);
        }
        self.courses[place].sums.add(self.ended.len(), sums);
        if counts {
            self.live_bytes = match effect {
                Effect::Allocated => self.live_bytes.saturating_add(bytes),
                Effect::Freed | Effect::Held => self.live_bytes.saturating_sub(bytes),
            };
        }
    }

    /// Notes that the bytes of `key` are `now_bytes`; those that are gone are so by `gone`.
    pub(crate) fn set(&mut self, key: K, now_bytes: u64, gone: Effect) {
        let from_bytes = self.levels.insert(key, now_bytes).unwrap_or(0);
        match now_bytes.checked_sub(from_bytes) {
            Some(0) => {}
            Some(more) => self.change(key, Effect::Allocated, [more, 0], true),
            None => self.change(key, gone, [from_bytes - now_bytes, 0], true),
        }
    }

    /// Notes the total at `time_ns`, after all changes of an event; if that is not selected, it is the one at the begin.
    pub(crate) fn mark(&mut self, time_ns: i64, is_selected: bool) {
        if !is_selected {
            self.begin_highest(self.bins.edges_ns[0]);
        } else if self.live_bytes > self.highest.bytes {
            self.begin_highest(time_ns);
        }
    }

    /// Makes the total of now the highest one so far.
    fn begin_highest(&mut self, time_ns: i64) {
        self.highest = Highest {
            time_ns,
            bytes: self.live_bytes,
            number: self.highest.number + 1,
        };
    }

    /// Completes the sums of the last bin with changes, before those of another are added.
    fn settle(&mut self, place: usize) {
        let course = &mut self.courses[place];
        let highest = self.ended.get(course.bin).unwrap_or(&self.highest);
        if course.highest < highest.number
            && let Some(sums) = course.sums.0.get_mut(&course.bin)
        {
            // There was no change between the last one and the highest total.
            let at_highest = net(sums);
            sums[6..].copy_from_slice(&at_highest);
        }
        (course.bin, course.highest) = (self.ended.len(), self.highest.number);
    }

    /// Ends all bins.
    pub(crate) fn finish(&mut self) {
        self.end_bins(self.bins.count());
        (0..self.courses.len()).for_each(|place| self.settle(place));
    }

    /// Time and bytes of the highest total of each bin.
    pub(crate) fn highest(&self) -> Vec<(i64, u64)> {
        let ended = self.ended.iter();
        ended.map(|one| (one.time_ns, one.bytes)).collect()
    }

    /// The keys and their sums.
    pub(crate) fn sums(&self) -> impl Iterator<Item = (K, &MemorySums)> {
        let courses = self.courses.iter();
        courses.map(|(key, course)| (*key, &course.sums))
    }

    /// The keys, and their live bytes at the highest total.
    pub(crate) fn at_peak(&self) -> impl Iterator<Item = (K, u64)> {
        // The first of several bins with the highest total.
        let bins = (0..self.ended.len()).rev();
        let peak = bins.max_by_key(|&bin| self.ended[bin].bytes).unwrap_or(0);
        self.sums().map(move |(key, sums)| {
            let before = sums.0.range(..peak).map(|(_, sums)| net(sums)[0]);
            let within = sums.0.get(&peak).map(|sums| sums[6]);
            let bytes = before.chain(within).fold(0, i64::saturating_add);
            (key, u64::try_from(bytes).unwrap_or(0))
        })
    }

    /// Times, and the bytes of so many areas at them, which hold until the next: at the begin and the end, and of each bin
    /// with changes at its highest total and its end.
    pub(crate) fn points(
        &self,
        areas: usize,
        area_of: impl Fn(K) -> Option<usize>,
    ) -> Vec<(i64, Vec<u64>)> {
        let mut changes: BTreeMap<usize, Vec<[i64; 2]>> = BTreeMap::new();
        for (key, sums) in self.sums() {
            let Some(area) = area_of(key) else {
                continue;
            };
            for (bin, sums) in &sums.0 {
                let bin = changes.entry(*bin).or_insert_with(|| vec![[0; 2]; areas]);
                let [to_end, to_highest] = &mut bin[area];
                *to_end = to_end.saturating_add(net(sums)[0]);
                *to_highest = to_highest.saturating_add(sums[6]);
            }
        }
        let mut live = vec![0i64; areas];
        let bytes = |live: i64| u64::try_from(live).unwrap_or(0);
        let mut points = vec![(self.bins.edges_ns[0], vec![0; areas])];
        for (bin, changes) in changes {
            let (begin_ns, end_ns) = (self.bins.edges_ns[bin], self.bins.edges_ns[bin + 1]);
            let both = live.iter().zip(&changes);
            let highest = both.map(|(live, [_, change])| bytes(live.saturating_add(*change)));
            let highest_ns = self.ended[bin].time_ns.clamp(begin_ns, end_ns);
            points.push((highest_ns, highest.collect()));
            for (live, [change, _]) in live.iter_mut().zip(&changes) {
                *live = live.saturating_add(*change);
            }
            points.push((end_ns, live.iter().copied().map(bytes).collect()));
        }
        points.push((self.bins.end_ns(), live.into_iter().map(bytes).collect()));
        points
    }
}

/// Process, and device as the process numbers it.
pub(crate) type TensorPlace = (u32, u16);

/// Key of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    pub(crate) pid: u32,
    /// Number of earlier processes with this id; of tensors, the device.
    pub(crate) incarnation: u32,
    /// Number of the call site in its process, or allocator; `None` for tensors from before.
    pub(crate) number: Option<u32>,
    pub(crate) kind: MemoryKind,
    pub(crate) is_host: bool,
}

impl PathKey {
    pub(crate) fn tensor((pid, device): TensorPlace, number: Option<u32>) -> Self {
        Self {
            pid,
            incarnation: device.into(),
            number,
            kind: MemoryKind::Tensor,
            is_host: false,
        }
    }

    /// Who made the allocation: the process, or for tensors the blocks of the allocator, at the end.
    pub(crate) fn holder(self, played: &Played) -> Option<&Process> {
        if self.kind != MemoryKind::Tensor {
            return played.process(self.pid, self.incarnation);
        }
        let place = (self.pid, u16::try_from(self.incarnation).ok()?);
        allocator_at(played, place).map(|(_, allocator)| &allocator.blocks)
    }
}

/// The memory of a file over time, as it is played.
#[derive(Debug)]
pub(crate) struct MemoryTimelines {
    pub(crate) bins: Bins,
    /// Session time from which bins count.
    pub(crate) first_ns: i64,
    /// Whether host memory counts.
    pub(crate) host: bool,
    pub(crate) memory: Timeline<PathKey>,
    /// What frameworks have handed out and reserved, by allocator.
    pub(crate) tensors: BTreeMap<TensorPlace, [Timeline<PathKey>; 2]>,
}

impl MemoryTimelines {
    pub(crate) fn new(bins: Bins, first_ns: i64, host: bool) -> Self {
        Self {
            memory: Timeline::new(&bins),
            bins,
            first_ns,
            host,
            tensors: BTreeMap::new(),
        }
    }

    /// Enters changes of an allocator, and its bytes from before and reserved after them.
    fn enter_tensors<'a>(
        &mut self,
        place: TensorPlace,
        blocks: impl Iterator<Item = (&'a Allocation, Effect)>,
        (before_bytes, reserved_bytes, gone): (u64, u64, Effect),
        session_ns: i64,
    ) {
        let time_ns = session_ns.saturating_sub(self.first_ns);
        let is_selected = time_ns >= self.bins.edges_ns[0];
        let both = self.tensors.entry(place);
        let both = both.or_insert_with(|| [(); 2].map(|()| Timeline::new(&self.bins)));
        both.iter_mut().for_each(|one| one.advance(time_ns));
        let key = |number| PathKey::tensor(place, number);
        for (block, effect) in blocks {
            both[0].change(key(Some(block.site)), effect, [block.size_bytes, 1], true);
        }
        both[0].set(key(None), before_bytes, gone);
        both[1].set(key(None), reserved_bytes, gone);
        both.iter_mut()
            .for_each(|one| one.mark(time_ns, is_selected));
    }

    /// Ends all bins.
    pub(crate) fn finish(&mut self) {
        self.memory.finish();
        let tensors = self.tensors.values_mut().flatten();
        tensors.for_each(Timeline::finish);
    }
}

impl Listener for MemoryTimelines {
    fn memory(&mut self, change: &MemoryChange<'_>) -> Result<()> {
        let gone = match change.is_end {
            true => Effect::Held,
            false => Effect::Freed,
        };
        let freed = change.freed.iter().map(|one| (one, gone));
        let allocated = change.allocated.iter().map(|one| (one, Effect::Allocated));
        self.memory.advance(change.time_ns);
        for (one, effect) in freed.chain(allocated) {
            let key = PathKey {
                pid: change.process.pid,
                incarnation: change.incarnation,
                number: Some(one.site),
                kind: one.kind(),
                is_host: one.belongs() == Belongs::Host,
            };
            let counts = self.host || one.belongs() == Belongs::Gpu;
            self.memory.change(key, effect, [one.size_bytes, 1], counts);
        }
        self.memory.mark(change.event_ns, change.is_selected);
        Ok(())
    }

    fn event(&mut self, event: &Event, changes: &[Change], played: &Played) -> Result<()> {
        for change in changes {
            let Change::Tensors(change) = change else {
                continue;
            };
            // Segments are gone when a call ends.
            let time_ns = match event {
                Event::Call(call) => call.end_ns,
                _ => event.time_ns().unwrap_or(0),
            };
            let freed = change.freed.iter().map(|block| (block, Effect::Freed));
            let allocated = change.allocated.iter();
            let blocks = freed.chain(allocated.map(|block| (block, Effect::Allocated)));
            let (before, reserved) = (change.bytes_from_before, change.reserved_bytes);
            let sums = (before, reserved, Effect::Freed);
            let place = (event.pid(), change.device);
            self.enter_tensors(place, blocks, sums, played.session_ns(time_ns));
        }
        Ok(())
    }

    fn end(&mut self, process: &Process, session_ns: i64) {
        for allocator in process.tensors.iter() {
            let blocks = allocator.blocks.allocations();
            let blocks = blocks.map(|block| (block, Effect::Held));
            let place = (process.pid, allocator.device);
            self.enter_tensors(place, blocks, (0, 0, Effect::Held), session_ns);
        }
    }
}

/// The allocator of this process and device, at the end.
pub(crate) fn allocator_at(
    played: &Played,
    (pid, device): TensorPlace,
) -> Option<(&Process, &Allocator)> {
    let mut processes = played.ledger().processes(true);
    let process = processes.find(|process| process.pid == pid)?;
    let mut allocators = process.tensors.iter();
    Some((process, allocators.find(|one| one.device == device)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Memory at the highest total of each bin is that of a plain replay.
    #[test]
    fn the_sums_at_the_highest_total_are_those_of_a_replay() {
        for most in [256, 128, 64, 32] {
            replay(&Bins::between(0, 1_023, most));
        }
    }

    fn replay(bins: &Bins) {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut held = Timeline::new(bins);
        let mut live = [[0i64; 2]; 5];
        // Time, and what is live by path.
        let mut history = vec![(0, live)];
        for time in 0..1_024i64 {
            let path = usize::try_from(random(5)).unwrap();
            let frees = random(2) == 0 && live[path][1] > 0;
            let bytes = match frees {
                true => live[path][0].unsigned_abs() / live[path][1].unsigned_abs(),
                false => random(100),
            };
            held.advance(time);
            let effect = match frees {
                true => [Effect::Freed, Effect::Held][usize::try_from(random(2)).unwrap()],
                false => Effect::Allocated,
            };
            held.change(path, effect, [bytes, 1], path != 4);
            held.mark(time, true);
            let sign = if frees { -1 } else { 1 };
            live[path][0] += sign * bytes.cast_signed();
            live[path][1] += sign;
            history.push((time, live));
        }
        held.finish();
        let width = 1_024 / i64::try_from(bins.count()).unwrap();
        for (bin, (time_ns, bytes)) in held.highest().into_iter().enumerate() {
            let begin = i64::try_from(bin).unwrap() * width;
            let before = history.iter().rev().find(|(time, _)| *time < begin);
            let inside = history
                .iter()
                .filter(|(time, _)| (begin..begin + width).contains(time));
            let total = |live: &[[i64; 2]; 5]| live[..4].iter().map(|path| path[0]).sum::<i64>();
            let start = before.map_or([[0; 2]; 5], |(_, live)| *live);
            let mut highest = (begin, start);
            for (time, live) in inside {
                if total(live) > total(&highest.1) {
                    highest = (*time, *live);
                }
            }
            assert_eq!(
                (time_ns, bytes.cast_signed()),
                (highest.0, total(&highest.1))
            );
            for (path, sums) in held.sums() {
                let mut at = [0, 0];
                for row in sums.flat().chunks(9).filter(|row| row[0] <= bin as i64) {
                    let sums: &[i64; 8] = row[1..].try_into().unwrap();
                    let part = if row[0] == bin as i64 {
                        [sums[6], sums[7]]
                    } else {
                        net(sums)
                    };
                    at = [at[0] + part[0], at[1] + part[1]];
                }
                assert_eq!(at, highest.1[path], "path {path} in bin {bin} of {width}");
            }
        }
    }

    #[test]
    fn each_time_is_in_the_bin_between_its_edges() {
        for (first, last) in [(0, 0), (0, 9), (-5, 1_000_003), (7, i64::MAX)] {
            for most in [256, 128, 64] {
                let bins = Bins::between(first, last, most);
                for time in [first, first.saturating_add(1), last / 2, last - 1, last] {
                    if time < first || time > last {
                        continue;
                    }
                    let bin = bins.of(time);
                    let (begin, end) = (bins.edges_ns[bin], bins.edges_ns[bin + 1]);
                    let is_last = bin + 1 == bins.count();
                    assert!(
                        begin <= time && (time < end || is_last),
                        "{time} of {first} to {last}"
                    );
                }
                assert_eq!(bins.edges_ns[0], first);
            }
        }
        assert_eq!(Bins::between(0, 1_000_000, 256).count(), 256);
        assert_eq!(Bins::between(0, 9, 256).count(), 10);
    }

    #[test]
    fn points_are_the_highest_total_and_the_end_of_each_bin_with_changes() {
        let mut timeline = Timeline::new(&Bins::between(0, 99, 10));
        for (time, bytes) in [(2, 5), (3, 9), (4, 7), (31, 0), (38, 3), (70, 1)] {
            timeline.advance(time);
            timeline.set((), bytes, Effect::Freed);
            timeline.mark(time, true);
        }
        timeline.finish();
        let points = timeline.points(1, |()| Some(0));
        let points: Vec<_> = points
            .iter()
            .map(|(time, areas)| (*time, areas[0]))
            .collect();
        let expected = [
            (0, 0),
            (3, 9),
            (10, 7),
            (30, 7),
            (40, 3),
            (70, 3),
            (80, 1),
            (100, 1),
        ];
        assert_eq!(points, expected);
        assert_eq!(timeline.highest()[0], (3, 9));
        assert_eq!(timeline.at_peak().collect::<Vec<_>>(), [((), 9)]);
    }
}
