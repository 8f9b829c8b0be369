//! Memory over time by key, as a call path or a kind: sums of each bin of a run, and its highest total.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use anyhow::Result;

use crate::analysis::{Listener, MemoryChange, Played};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::{Allocation, Allocator, Change, Process};
use gpuprobe_model::event::Event;

/// Times that divide a run into bins.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Begin and end of the bin.
    pub(crate) fn span(&self, bin: usize) -> (i64, i64) {
        (self.edges_ns[bin], self.edges_ns[bin + 1])
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

    /// Merges neighbours.
    pub(crate) fn halve(&mut self) {
        let last = self.end_ns();
        let mut is_even = false;
        self.edges_ns.retain(|_| {
            is_even = !is_even;
            is_even
        });
        if self.edges_ns.last() != Some(&last) {
            self.edges_ns.push(last);
        }
    }
}

/// Sums of `N` numbers by bin, of the bins with any, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BinSums<const N: usize>(Vec<(usize, [i64; N])>);

impl<const N: usize> Default for BinSums<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<const N: usize> BinSums<N> {
    fn at(&mut self, bin: usize) -> &mut [i64; N] {
        let place = match self.0.last() {
            Some((last, _)) if *last == bin => self.0.len() - 1,
            Some((last, _)) if *last > bin => self.0.partition_point(|(of, _)| *of < bin),
            _ => self.0.len(),
        };
        if self.0.get(place).is_none_or(|(of, _)| *of != bin) {
            self.0.insert(place, (bin, [0; N]));
        }
        &mut self.0[place].1
    }

    pub(crate) fn add(&mut self, bin: usize, numbers: [i64; N]) {
        for (sum, number) in self.at(bin).iter_mut().zip(numbers) {
            *sum = sum.saturating_add(number);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other
            .0
            .iter()
            .for_each(|(bin, numbers)| self.add(*bin, *numbers));
    }

    /// Merges neighbouring bins.
    pub(crate) fn halve(&mut self) {
        for (bin, numbers) in std::mem::take(&mut self.0) {
            self.add(bin / 2, numbers);
        }
    }

    /// Number of bins with numbers.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sums over all bins.
    pub(crate) fn total(&self) -> [i64; N] {
        let mut all = Self::default();
        self.0.iter().for_each(|(_, numbers)| all.add(0, *numbers));
        *all.at(0)
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
    /// Places in `courses`.
    places: HashMap<K, usize>,
    courses: Vec<(K, Course)>,
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
            places: HashMap::new(),
            courses: Vec::new(),
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
            let (_, end_ns) = self.bins.span(self.ended.len());
            self.ended.push(self.highest);
            self.begin_highest(end_ns);
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
        let courses = &mut self.courses;
        let place = *self.places.entry(key).or_insert_with(|| {
            courses.push((key, Course::default()));
            courses.len() - 1
        });
        self.settle(place);
        let sums = self.courses[place].1.sums.at(self.ended.len());
        for (sum, number) in sums[effect as usize..].iter_mut().zip([bytes, allocations]) {
            *sum = sum.saturating_add_unsigned(number);
        }
        if counts {
            self.live_bytes = match effect {
                Effect::Allocated => self.live_bytes.saturating_add(bytes),
                Effect::Freed | Effect::Held => self.live_bytes.saturating_sub(bytes),
            };
        }
    }

    /// Notes that the bytes of `key` have changed to `now_bytes`; those that are gone are so by `gone`.
    pub(crate) fn set(&mut self, key: K, from_bytes: u64, now_bytes: u64, gone: Effect) {
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
        let course = &mut self.courses[place].1;
        let highest = self.ended.get(course.bin).unwrap_or(&self.highest);
        if course.highest < highest.number
            && let Some((bin, sums)) = course.sums.0.last_mut()
            && *bin == course.bin
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

    /// Number of bins with changes over all keys.
    pub(crate) fn len(&self) -> usize {
        self.courses
            .iter()
            .map(|(_, course)| course.sums.len())
            .sum()
    }

    /// Merges neighbouring bins, after the end.
    pub(crate) fn halve(&mut self) {
        let pairs = self.ended.chunks(2);
        let is_later: Vec<_> = pairs
            .map(|pair| matches!(pair, [before, after] if after.bytes > before.bytes))
            .collect();
        for (_, course) in &mut self.courses {
            for (bin, sums) in &mut course.sums.0 {
                let at_highest = match (*bin % 2 == 1, is_later[*bin / 2]) {
                    (false, true) => net(sums),
                    (true, false) => [0, 0],
                    _ => continue,
                };
                sums[6..].copy_from_slice(&at_highest);
            }
            course.sums.halve();
        }
        let pairs = self.ended.chunks(2).zip(is_later);
        self.ended = pairs
            .map(|(pair, later)| pair[usize::from(later)])
            .collect();
        self.bins.halve();
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

    /// The bin with the highest total of all, the first of several.
    fn peak_bin(&self) -> usize {
        let bins = (0..self.ended.len()).rev();
        bins.max_by_key(|&bin| self.ended[bin].bytes).unwrap_or(0)
    }

    /// Time and bytes of the highest total.
    pub(crate) fn peak(&self) -> (i64, u64) {
        let peak = self.ended.get(self.peak_bin()).unwrap_or(&self.highest);
        (peak.time_ns, peak.bytes)
    }

    /// The keys, and their live bytes at the highest total.
    pub(crate) fn at_peak(&self) -> impl Iterator<Item = (K, u64)> {
        let peak = self.peak_bin();
        self.sums().map(move |(key, sums)| {
            let until = sums.0.iter().take_while(|(bin, _)| *bin <= peak);
            let bytes = until.map(|(bin, sums)| match *bin == peak {
                true => sums[6],
                false => net(sums)[0],
            });
            let bytes = bytes.fold(0, i64::saturating_add);
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
            let (begin_ns, end_ns) = self.bins.span(bin);
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

/// Tensors of frameworks' allocators.
#[derive(Debug)]
pub(crate) struct TensorTimeline {
    /// By number of the call site in the engine; `None` for memory from before.
    pub(crate) held: Timeline<(TensorPlace, Option<u32>)>,
    pub(crate) reserved: Timeline<TensorPlace>,
    /// Bytes from before, and bytes reserved.
    sums: HashMap<TensorPlace, [u64; 2]>,
}

impl TensorTimeline {
    fn new(bins: &Bins) -> Self {
        Self {
            held: Timeline::new(bins),
            reserved: Timeline::new(bins),
            sums: HashMap::new(),
        }
    }

    /// Enters changes of an allocator, and its bytes from before and reserved after them.
    fn enter<'a>(
        &mut self,
        place: TensorPlace,
        blocks: impl IntoIterator<Item = (&'a Allocation, Effect)>,
        (sums, gone): ([u64; 2], Effect),
        time_ns: i64,
    ) {
        self.held.advance(time_ns);
        self.reserved.advance(time_ns);
        for (block, effect) in blocks {
            let (key, block) = ((place, Some(block.site)), [block.size_bytes, 1]);
            self.held.change(key, effect, block, true);
        }
        let before = std::mem::replace(self.sums.entry(place).or_default(), sums);
        self.held.set((place, None), before[0], sums[0], gone);
        self.reserved.set(place, before[1], sums[1], gone);
        let is_selected = time_ns >= self.held.bins.edges_ns[0];
        self.held.mark(time_ns, is_selected);
        self.reserved.mark(time_ns, is_selected);
    }

    /// Merges neighbouring bins, after the end.
    pub(crate) fn halve(&mut self) {
        self.held.halve();
        self.reserved.halve();
    }
}

/// Key of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathKey {
    pub(crate) pid: u32,
    /// Number of earlier processes with this id.
    pub(crate) incarnation: u32,
    /// Number of the call site in its process.
    pub(crate) number: u32,
    pub(crate) kind: MemoryKind,
    pub(crate) is_host: bool,
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
    /// By allocator, or of all of them.
    pub(crate) tensors: BTreeMap<Option<TensorPlace>, TensorTimeline>,
    pub(crate) by_allocator: bool,
}

impl MemoryTimelines {
    pub(crate) fn new(bins: Bins, first_ns: i64, host: bool, by_allocator: bool) -> Self {
        Self {
            memory: Timeline::new(&bins),
            bins,
            first_ns,
            host,
            tensors: BTreeMap::new(),
            by_allocator,
        }
    }

    fn enter(&mut self, change: &MemoryChange<'_>) {
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
                number: one.site,
                kind: one.kind(),
                is_host: one.belongs() == Belongs::Host,
            };
            let counts = self.host || one.belongs() == Belongs::Gpu;
            self.memory.change(key, effect, [one.size_bytes, 1], counts);
        }
    }

    fn tensors(&mut self, place: TensorPlace) -> &mut TensorTimeline {
        let tensors = self
            .tensors
            .entry(Some(place).filter(|_| self.by_allocator));
        tensors.or_insert_with(|| TensorTimeline::new(&self.bins))
    }

    /// Ends all bins.
    pub(crate) fn finish(&mut self) {
        self.memory.finish();
        for tensors in self.tensors.values_mut() {
            tensors.held.finish();
            tensors.reserved.finish();
        }
    }
}

impl Listener for MemoryTimelines {
    fn memory(&mut self, change: &MemoryChange<'_>) -> Result<()> {
        self.enter(change);
        self.memory.mark(change.event_ns, true);
        Ok(())
    }

    fn earlier(&mut self, change: &MemoryChange<'_>) {
        self.enter(change);
        self.memory.mark(change.event_ns, false);
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
            let time_ns = played.session_ns(time_ns).saturating_sub(self.first_ns);
            let freed = change.freed.iter().map(|block| (block, Effect::Freed));
            let allocated = change.allocated.iter();
            let blocks = freed.chain(allocated.map(|block| (block, Effect::Allocated)));
            let sums = [change.bytes_from_before, change.reserved_bytes];
            let place = (event.pid(), change.device);
            let tensors = self.tensors(place);
            tensors.enter(place, blocks, (sums, Effect::Freed), time_ns);
        }
        Ok(())
    }

    fn end(&mut self, process: &Process, time_ns: i64) {
        let time_ns = time_ns.saturating_sub(self.first_ns);
        for allocator in process.tensors.iter() {
            let place = (process.pid, allocator.device);
            let blocks = allocator.blocks.allocations();
            let blocks = blocks.map(|block| (block, Effect::Held));
            let tensors = self.tensors(place);
            tensors.enter(place, blocks, ([0, 0], Effect::Held), time_ns);
        }
    }
}

/// The allocator of this process and device, at the end.
pub(crate) fn allocator_at(
    played: &Played,
    (pid, device): TensorPlace,
) -> Option<(&Process, &Allocator)> {
    let ledger = played.ledger();
    let mut processes = ledger.live_processes().chain(ledger.ended(true));
    let process = processes.find(|process| process.pid == pid)?;
    let mut allocators = process.tensors.iter();
    Some((process, allocators.find(|one| one.device == device)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Memory at the highest total of each bin is that of a plain replay, also after merging.
    #[test]
    fn the_sums_at_the_highest_total_are_those_of_a_replay() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let bins = Bins::between(0, 1_023, 256);
        let mut held = Timeline::new(&bins);
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
        let mut width = 1_024 / i64::try_from(bins.count()).unwrap();
        for _ in 0..4 {
            for (bin, (time_ns, bytes)) in held.highest().into_iter().enumerate() {
                let begin = i64::try_from(bin).unwrap() * width;
                let before = history.iter().rev().find(|(time, _)| *time < begin);
                let inside = history
                    .iter()
                    .filter(|(time, _)| (begin..begin + width).contains(time));
                let total =
                    |live: &[[i64; 2]; 5]| live[..4].iter().map(|path| path[0]).sum::<i64>();
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
            held.halve();
            width *= 2;
        }
    }

    #[test]
    fn each_time_is_in_the_bin_between_its_edges() {
        for (first, last) in [(0, 0), (0, 9), (-5, 1_000_003), (7, i64::MAX)] {
            let mut bins = Bins::between(first, last, 256);
            for _ in 0..3 {
                for time in [first, first.saturating_add(1), last / 2, last - 1, last] {
                    if time < first || time > last {
                        continue;
                    }
                    let (begin, end) = bins.span(bins.of(time));
                    let is_last = bins.of(time) + 1 == bins.count();
                    assert!(
                        begin <= time && (time < end || is_last),
                        "{time} of {first} to {last}"
                    );
                }
                assert_eq!(bins.span(0).0, first);
                bins.halve();
            }
        }
        assert_eq!(Bins::between(0, 1_000_000, 256).count(), 256);
        assert_eq!(Bins::between(0, 9, 256).count(), 10);
    }

    #[test]
    fn sums_survive_merging() {
        let mut sums = BinSums::<2>::default();
        for bin in 0..9 {
            sums.add(bin, [1, 10]);
        }
        sums.halve();
        assert_eq!(sums.total(), [9, 90]);
        assert_eq!(sums.flat()[..6], [0, 2, 20, 1, 2, 20]);
        assert_eq!(sums.len(), 5);
    }
}
