//! Counts and durations of operations.
//!
//! Durations are counted in buckets: each power of two has 64, values below 64 have one each. A quantile is the
//! middle of its bucket, and so is off by at most 1/128 (0.8 %) of the value. Only buckets that are not empty take
//! memory: some twenty bytes each, a KiB for most kernels.

use std::collections::BTreeMap;

/// Buckets per power of two, in bits.
const BITS: u32 = 6;

/// Number and durations of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of operations counted.
    pub count: u64,
    /// Sum of the durations, nanoseconds.
    pub total_ns: u64,
    /// The shortest duration, nanoseconds.
    pub min_ns: u64,
    /// The longest duration, nanoseconds.
    pub max_ns: u64,
    /// Numbers of durations by the number of the bucket.
    buckets: BTreeMap<u16, u64>,
}

impl Tally {
    /// Counts an operation from `start_ns` to `end_ns`. If its times are unknown, its duration is
    /// 0.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        let ns = end_ns.saturating_sub(start_ns);
        self.min_ns = if self.count == 0 {
            ns
        } else {
            ns.min(self.min_ns)
        };
        self.max_ns = self.max_ns.max(ns);
        self.total_ns = self.total_ns.saturating_add(ns);
        self.count += 1;
        *self.buckets.entry(number(ns)).or_default() += 1;
    }

    /// Adds the counts and durations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.min_ns = match (self.count, other.count) {
            (_, 0) => self.min_ns,
            (0, _) => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.count += other.count;
        for (&number, count) in &other.buckets {
            *self.buckets.entry(number).or_default() += count;
        }
    }

    /// The quantile `q` (0 to 1) of the durations, nanoseconds, within 1 %.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().find(|&(_, count)| {
            seen += count;
            seen >= rank
        });
        let found = found.map_or(0, |(&number, _)| middle(number));
        found.clamp(self.min_ns, self.max_ns)
    }
}

/// Number of the bucket of `value`.
fn number(value: u64) -> u16 {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(BITS + 1);
    ((shift as u16) << BITS) + (value >> shift) as u16
}

/// The value in the middle of a bucket.
fn middle(number: u16) -> u64 {
    let shift = (number >> BITS).saturating_sub(1);
    let first = u64::from(number - (shift << BITS)) << shift;
    first + ((1 << shift) - 1) / 2
}

/// Number, durations and bytes of copies or memory sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Number and durations of the operations.
    pub tally: Tally,
    /// Bytes of all operations.
    pub bytes: u64,
    /// Bytes of the operations with known times.
    pub timed_bytes: u64,
    /// Throughput of the fastest operation, bytes per second.
    pub peak_bytes_per_second: f64,
}

impl Moved {
    /// Counts an operation of `bytes`, from `start_ns` to `end_ns`.
    pub fn add(&mut self, start_ns: u64, end_ns: u64, bytes: u64) {
        self.tally.add(start_ns, end_ns);
        self.bytes = self.bytes.saturating_add(bytes);
        let ns = end_ns.saturating_sub(start_ns);
        if ns > 0 {
            self.timed_bytes = self.timed_bytes.saturating_add(bytes);
            let speed = bytes as f64 * 1e9 / ns as f64;
            self.peak_bytes_per_second = self.peak_bytes_per_second.max(speed);
        }
    }

    /// Adds the counts and bytes of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.timed_bytes = self.timed_bytes.saturating_add(other.timed_bytes);
        self.peak_bytes_per_second = self.peak_bytes_per_second.max(other.peak_bytes_per_second);
    }

    /// Mean throughput, bytes per second, of the operations with known times; `None` without any.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.tally.total_ns;
        (ns > 0).then(|| self.timed_bytes as f64 * 1e9 / ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_in_order_and_none_is_missing() {
        let mut before = number(0);
        for value in 1..100_000 {
            let number = number(value);
            assert!(number == before || number == before + 1, "{value}");
            before = number;
        }
        assert_eq!(number(u64::MAX), 3775);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(
            mut values in prop::collection::vec((0u64.., 0u32..64), 1..300),
            split in 0usize..300,
            q in 0.0f64..=1.0,
        ) {
            // Values of all magnitudes.
            let mut values: Vec<_> = values.drain(..).map(|(v, shift)| v >> shift).collect();
            let (mut all, mut rest) = (Tally::default(), Tally::default());
            for (index, &value) in values.iter().enumerate() {
                if index < split { all.add(0, value) } else { rest.add(0, value) }
            }
            all.merge(&rest);
            values.sort_unstable();
            for q in [q, 0.0, 0.5, 0.99, 1.0] {
                let rank = ((q * values.len() as f64).ceil() as usize).max(1);
                let (exact, found) = (values[rank - 1] as f64, all.quantile(q) as f64);
                prop_assert!((found - exact).abs() <= exact / 128.0, "{q}: {found} for {exact}");
            }
        }
    }

    #[test]
    fn quantile_of_no_values_is_zero() {
        assert_eq!(Tally::default().quantile(0.5), 0);
    }

    fn tally(durations: &[u64]) -> Tally {
        let mut tally = Tally::default();
        durations.iter().for_each(|ns| tally.add(100, 100 + ns));
        tally
    }

    #[test]
    fn merged_tallies_are_the_tally_of_both() {
        for (first, second) in [
            (&[30, 10][..], &[20, 40][..]),
            (&[20, 40], &[30, 10]),
            (&[30], &[]),
            (&[], &[30]),
        ] {
            let mut merged = tally(first);
            merged.merge(&tally(second));
            assert_eq!(merged, tally(&[first, second].concat()));
        }
        let all = tally(&[10, 20, 30, 1000]);
        assert_eq!(
            (all.count, all.total_ns, all.min_ns, all.max_ns),
            (4, 1060, 10, 1000)
        );
        assert_eq!([0.0, 0.5, 1.0].map(|q| all.quantile(q)), [10, 20, 1000]);
    }

    #[test]
    fn throughput_is_of_operations_with_known_times() {
        let mut moved = Moved::default();
        moved.add(0, 0, 7);
        assert_eq!(moved.bytes_per_second(), None);
        assert_eq!((moved.bytes, moved.timed_bytes), (7, 0));
        // 3 bytes a nanosecond, then 5.
        moved.add(100, 200, 300);
        moved.add(300, 310, 50);
        assert_eq!((moved.bytes, moved.timed_bytes), (357, 350));
        let close = |found: f64, expected: f64| (found - expected).abs() < 1.0;
        assert!(close(moved.peak_bytes_per_second, 5e9), "{moved:?}");
        let mean = moved.bytes_per_second();
        assert!(
            mean.is_some_and(|mean| close(mean, 350e9 / 110.0)),
            "{mean:?}"
        );
        let mut all = Moved::default();
        all.add(0, 1, 1);
        all.merge(&moved);
        assert_eq!((all.tally.count, all.tally.total_ns), (4, 111));
        assert_eq!((all.bytes, all.timed_bytes), (358, 351));
        assert!(close(all.peak_bytes_per_second, 5e9), "{all:?}");
    }
}
