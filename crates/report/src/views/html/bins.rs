//! Bins of time, and sums by bin.

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

    /// The end of the last bin.
    pub(super) fn end_ns(&self) -> i64 {
        self.edges_ns[self.count()]
    }

    /// The bin of a time; the first or last one for times outside.
    pub(super) fn of(&self, time_ns: i64) -> usize {
        let after = self.edges_ns.partition_point(|&edge| edge <= time_ns);
        after.saturating_sub(1).min(self.count() - 1)
    }

    /// Merges neighbours.
    pub(super) fn halve(&mut self) {
        let last = self.end_ns();
        let mut kept: Vec<_> = self.edges_ns.iter().step_by(2).copied().collect();
        if kept.last() != Some(&last) {
            kept.push(last);
        }
        self.edges_ns = kept;
    }

    pub(super) fn edges_ns(&self) -> &[i64] {
        &self.edges_ns
    }
}

/// Sums of `N` numbers by bin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SumsByBin<const N: usize>(BTreeMap<usize, [i64; N]>);

impl<const N: usize> Default for SumsByBin<N> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<const N: usize> SumsByBin<N> {
    /// Adds numbers.
    pub(super) fn add(&mut self, bin: usize, numbers: [i64; N]) {
        let sums = self.0.entry(bin).or_insert([0; N]);
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum = sum.saturating_add(number);
        }
    }

    /// Adds all of `other`.
    pub(super) fn merge(&mut self, other: &Self) {
        for (&bin, &numbers) in &other.0 {
            self.add(bin, numbers);
        }
    }

    /// Merges neighbouring bins.
    pub(super) fn halve(&mut self) {
        let mut halved = Self::default();
        for (&bin, &numbers) in &self.0 {
            halved.add(bin / 2, numbers);
        }
        *self = halved;
    }

    /// The bins with numbers.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut [i64; N])> {
        self.0.iter_mut().map(|(&bin, sums)| (bin, sums))
    }

    /// The numbers of a bin, if there are any.
    pub(super) fn get_mut(&mut self, bin: usize) -> Option<&mut [i64; N]> {
        self.0.get_mut(&bin)
    }

    /// Number of bins with numbers.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sums over all bins.
    pub(super) fn total(&self) -> [i64; N] {
        let mut all = Self::default();
        self.0.values().for_each(|&numbers| all.add(0, numbers));
        all.0.into_values().next().unwrap_or([0; N])
    }

    /// The bin and the numbers, of all bins in order.
    pub(super) fn flat(&self) -> Vec<i64> {
        let number = |bin: usize| i64::try_from(bin).unwrap_or(i64::MAX);
        let rows = self.0.iter();
        rows.flat_map(|(&bin, sums)| std::iter::once(number(bin)).chain(*sums))
            .collect()
    }
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
            sums.add(bin, [1, 10]);
        }
        sums.halve();
        assert_eq!(sums.total(), [9, 90]);
        assert_eq!(sums.flat()[..6], [0, 2, 20, 1, 2, 20]);
        assert_eq!(sums.len(), 5);
    }
}
