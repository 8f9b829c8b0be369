//! A histogram of durations, from which the median and percentiles are read.
//!
//! Each power of two has 64 buckets; values below 64 have a bucket each. A quantile is the middle
//! of its bucket, and so is off by at most 1/128 (0.8 %) of the value. Only buckets that are not
//! empty take memory: some twenty bytes each, a KiB for most kernels.

use std::collections::BTreeMap;

/// Buckets per power of two, in bits.
const BITS: u32 = 6;

/// Number of durations by size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Counts by the number of the bucket.
    buckets: BTreeMap<u16, u64>,
}

impl Quantiles {
    /// Counts `value` in its bucket.
    pub fn add(&mut self, value: u64) {
        *self.buckets.entry(number(value)).or_default() += 1;
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (&number, count) in &other.buckets {
            *self.buckets.entry(number).or_default() += count;
        }
    }

    /// The quantile `q` (0 to 1) of the values; 0 if there are none.
    pub fn at(&self, q: f64) -> u64 {
        let count: u64 = self.buckets.values().sum();
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().find(|&(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |(&number, _)| middle(number))
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
            let (mut all, mut rest) = (Quantiles::default(), Quantiles::default());
            for (index, &value) in values.iter().enumerate() {
                if index < split { all.add(value) } else { rest.add(value) }
            }
            all.merge(&rest);
            values.sort_unstable();
            for q in [q, 0.0, 0.5, 0.99, 1.0] {
                let rank = ((q * values.len() as f64).ceil() as usize).max(1);
                let (exact, found) = (values[rank - 1] as f64, all.at(q) as f64);
                prop_assert!((found - exact).abs() <= exact / 128.0, "{q}: {found} for {exact}");
            }
        }
    }

    #[test]
    fn quantile_of_no_values_is_zero() {
        assert_eq!(Quantiles::default().at(0.5), 0);
    }

    #[test]
    fn a_bucket_is_told_by_its_middle() {
        for (value, expected) in [
            (63, 63),
            (127, 127),
            (128, 128),
            (130, 130),
            (256, 257),
            (512, 515),
        ] {
            assert_eq!(middle(number(value)), expected, "{value}");
        }
    }
}
