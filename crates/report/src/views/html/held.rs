//! Live memory by call path and bin of time.

use std::collections::HashMap;
use std::hash::Hash;

use super::bins::{Bins, SumsByBin};

/// Bytes and allocations made, freed, and held when their process ended; and the change of what is live from the
/// beginning of the bin to its highest total.
pub(super) type HeldSums = SumsByBin<8>;

/// Effect on an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Allocated,
    Freed,
    /// Live when its process ended.
    Held,
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
struct Path {
    sums: HeldSums,
    /// Bin of the last change.
    bin: usize,
    /// The highest total before it, by number.
    highest: u64,
}

/// Collects the changes of memory by key of the call path.
#[derive(Debug)]
pub(super) struct HeldByBin<K> {
    bins: Bins,
    /// Places in `paths`.
    places: HashMap<K, usize>,
    paths: Vec<(K, Path)>,
    /// Of the bins that have ended, and of the one that is read.
    ended: Vec<Highest>,
    highest: Highest,
    /// Sum of the bytes that count.
    live_bytes: u64,
}

/// Change of live bytes and allocations.
fn net(sums: &[i64; 8]) -> [i64; 2] {
    [0, 1].map(|unit| sums[unit] - sums[2 + unit] - sums[4 + unit])
}

impl<K: Copy + Eq + Hash> HeldByBin<K> {
    pub(super) fn new(bins: &Bins) -> Self {
        Self {
            bins: bins.clone(),
            places: HashMap::new(),
            paths: Vec::new(),
            ended: Vec::new(),
            highest: Highest {
                time_ns: bins.edges_ns()[0],
                bytes: 0,
                number: 0,
            },
            live_bytes: 0,
        }
    }

    /// Ends the bins before the one of `time_ns`.
    pub(super) fn advance(&mut self, time_ns: i64) {
        while self.ended.len() < self.bins.of(time_ns) {
            self.end_bin();
        }
    }

    /// Notes a change of `bytes` and `allocations`; only what `counts` is part of the total.
    pub(super) fn change(
        &mut self,
        key: K,
        effect: Effect,
        [bytes, allocations]: [u64; 2],
        counts: bool,
    ) {
        let paths = &mut self.paths;
        let place = *self.places.entry(key).or_insert_with(|| {
            paths.push((key, Path::default()));
            paths.len() - 1
        });
        self.settle(place);
        let column = 2 * effect as usize;
        let mut sums = [0; 8];
        for (sum, number) in sums[column..].iter_mut().zip([bytes, allocations]) {
            *sum = i64::try_from(number).unwrap_or(i64::MAX);
        }
        self.paths[place].1.sums.add(self.ended.len(), sums);
        if counts {
            self.live_bytes = match effect {
                Effect::Allocated => self.live_bytes.saturating_add(bytes),
                Effect::Freed | Effect::Held => self.live_bytes.saturating_sub(bytes),
            };
        }
    }

    /// Notes the total at `time_ns`, after all changes of an event.
    pub(super) fn mark(&mut self, time_ns: i64) {
        if self.live_bytes > self.highest.bytes {
            self.begin_highest(time_ns);
        }
    }

    fn begin_highest(&mut self, time_ns: i64) {
        self.highest = Highest {
            time_ns,
            bytes: self.live_bytes,
            number: self.highest.number + 1,
        };
    }

    fn end_bin(&mut self) {
        let (_, end_ns) = self.bins.span(self.ended.len());
        self.ended.push(self.highest);
        self.begin_highest(end_ns);
    }

    /// Completes the sums of the last bin with changes, before those of another are added.
    fn settle(&mut self, place: usize) {
        let path = &mut self.paths[place].1;
        let highest = self.ended.get(path.bin).unwrap_or(&self.highest);
        if path.highest < highest.number
            && let Some(sums) = path.sums.get_mut(path.bin)
        {
            // There was no change between the last one and the highest total.
            let at_highest = net(sums);
            sums[6..].copy_from_slice(&at_highest);
        }
        (path.bin, path.highest) = (self.ended.len(), self.highest.number);
    }

    /// Ends all bins.
    pub(super) fn finish(&mut self) {
        while self.ended.len() < self.bins.count() {
            self.end_bin();
        }
        (0..self.paths.len()).for_each(|place| self.settle(place));
    }

    /// The bin that is read.
    pub(super) fn bin(&self) -> usize {
        self.ended.len().min(self.bins.count() - 1)
    }

    /// Number of bins with changes over all call paths.
    pub(super) fn len(&self) -> usize {
        self.paths.iter().map(|(_, path)| path.sums.len()).sum()
    }

    /// Merges neighbouring bins, after the end.
    pub(super) fn halve(&mut self) {
        let is_later: Vec<_> = self
            .ended
            .chunks(2)
            .map(|pair| matches!(pair, [before, after] if after.bytes > before.bytes))
            .collect();
        for (_, path) in &mut self.paths {
            for (bin, sums) in path.sums.iter_mut() {
                let at_highest = match (bin % 2 == 1, is_later[bin / 2]) {
                    (false, true) => net(sums),
                    (true, false) => [0, 0],
                    _ => continue,
                };
                sums[6..].copy_from_slice(&at_highest);
            }
            path.sums.halve();
        }
        let pairs = self.ended.chunks(2).zip(is_later);
        self.ended = pairs
            .map(|(pair, later)| pair[usize::from(later)])
            .collect();
    }

    /// Time and bytes of the highest total of each bin.
    pub(super) fn highest(&self) -> Vec<(i64, u64)> {
        let ended = self.ended.iter();
        ended.map(|one| (one.time_ns, one.bytes)).collect()
    }

    /// The call paths and their sums.
    pub(super) fn paths(&self) -> impl Iterator<Item = (K, &HeldSums)> {
        self.paths.iter().map(|(key, path)| (*key, &path.sums))
    }
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
        let bins = Bins::between(0, 1_023);
        let mut held = HeldByBin::new(&bins);
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
            held.mark(time);
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
                for (path, sums) in held.paths() {
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
}
