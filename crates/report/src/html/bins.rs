//! Bins of time, and figures by bin.

use std::collections::BTreeMap;

/// Number of bins of a run, unless it lasts less nanoseconds.
const BINS: usize = 256;
/// Fewest bins that are left when there are too many changes.
pub(super) const FEWEST: usize = 16;

/// Times that divide a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bins {
    edges_ns: Vec<i64>,
}

impl Bins {
    /// Bins of equal width from `first_ns` to `last_ns`, both included.
    pub(super) fn between(first_ns: i64, last_ns: i64) -> Self {
        let span = i128::from(last_ns.max(first_ns)) - i128::from(first_ns) + 1;
        let count = usize::try_from(span).map_or(BINS, |span| span.min(BINS));
        let edge = |index: usize| {
            let offset = span * index as i128 / count as i128;
            i64::try_from(i128::from(first_ns) + offset).unwrap_or(i64::MAX)
        };
        Self {
            edges_ns: (0..=count).map(edge).collect(),
        }
    }

    /// Number of bins.
    pub(super) fn count(&self) -> usize {
        self.edges_ns.len() - 1
    }

    /// Begin and end of the bin.
    pub(super) fn span(&self, bin: usize) -> (i64, i64) {
        (self.edges_ns[bin], self.edges_ns[bin + 1])
    }

    /// The bin of a time; the first or last one for times outside.
    pub(super) fn of(&self, time_ns: i64) -> usize {
        let after = self.edges_ns.partition_point(|&edge| edge <= time_ns);
        after.saturating_sub(1).min(self.count() - 1)
    }

    /// Merges neighbours.
    pub(super) fn halve(&mut self) {
        let last = self.edges_ns[self.count()];
        let mut kept: Vec<_> = self.edges_ns.iter().step_by(2).copied().collect();
        if kept.last() != Some(&last) {
            kept.push(last);
        }
        self.edges_ns = kept;
    }

    pub(super) fn into_edges(self) -> Vec<i64> {
        self.edges_ns
    }
}

/// Sums of `N` numbers by bin and by a second key, which is 0 if there is none.
#[derive(Clone, Debug)]
pub(super) struct SumsByBin<const N: usize>(BTreeMap<(u32, u32), [i64; N]>);

impl<const N: usize> Default for SumsByBin<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<const N: usize> SumsByBin<N> {
    /// Adds numbers.
    pub(super) fn add(&mut self, bin: usize, key: u32, numbers: [i64; N]) {
        let bin = u32::try_from(bin).unwrap_or(u32::MAX);
        let sums = self.0.entry((bin, key)).or_insert([0; N]);
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum = sum.saturating_add(number);
        }
    }

    /// Adds all of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        for (&(bin, key), &numbers) in &other.0 {
            self.add(bin as usize, key, numbers);
        }
    }

    /// Merges neighbouring bins.
    pub(super) fn halve(&mut self) {
        let mut halved = Self::default();
        for (&(bin, key), &numbers) in &self.0 {
            halved.add(bin as usize / 2, key, numbers);
        }
        *self = halved;
    }

    /// Number of bins and keys with numbers.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sums over all bins and keys.
    pub(super) fn total(&self) -> [i64; N] {
        let mut total = [0i64; N];
        for numbers in self.0.values() {
            for (sum, number) in total.iter_mut().zip(numbers) {
                *sum = sum.saturating_add(*number);
            }
        }
        total
    }

    /// The bin and the numbers, of all bins in order.
    pub(super) fn flat(&self) -> Vec<i64> {
        let all = self.0.iter();
        all.flat_map(|((bin, _), numbers)| std::iter::once(i64::from(*bin)).chain(*numbers))
            .collect()
    }

    /// The bin, the key and the numbers, of all bins in order.
    pub(super) fn flat_with_keys(&self) -> Vec<i64> {
        let all = self.0.iter();
        all.flat_map(|(&(bin, key), numbers)| {
            [i64::from(bin), i64::from(key)].into_iter().chain(*numbers)
        })
        .collect()
    }
}

/// The bucket of a number: its binary logarithm.
pub(super) fn bucket(number: u64) -> u32 {
    number.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bin_between_its_edges() {
        for (first, last) in [(0, 0), (0, 9), (-5, 1_000_003), (7, i64::MAX)] {
            let mut bins = Bins::between(first, last);
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
        assert_eq!(Bins::between(0, 1_000_000).count(), BINS);
        assert_eq!(Bins::between(0, 9).count(), 10);
    }

    #[test]
    fn sums_survive_merging() {
        let mut sums = SumsByBin::<2>::default();
        for bin in 0..9 {
            sums.add(bin, 1, [1, 10]);
        }
        sums.halve();
        assert_eq!(sums.total(), [9, 90]);
        assert_eq!(sums.flat_with_keys()[..8], [0, 1, 2, 20, 1, 1, 2, 20]);
        assert_eq!(sums.len(), 5);
    }
}
