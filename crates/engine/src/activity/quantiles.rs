//! A histogram of durations, from which the median and percentiles are read.
//!
//! Each power of two has 64 buckets; values below 64 have a bucket each. A quantile is the middle
//! of its bucket, and so is off by at most 1/128 (0.8 %) of the value. Only buckets that are not
//! empty take memory: 8 bytes each, a few hundred bytes for most kernels, 30 KiB at most.

/// Buckets per power of two, in bits.
const BITS: u32 = 6;
/// Bits of a packed bucket that hold its count; the bits above are its number.
const COUNT_BITS: u32 = 52;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Number of durations by size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Buckets in order, each packed from its number and count.
    buckets: Vec<u64>,
}

impl Quantiles {
    /// Counts `value` in its bucket.
    pub fn add(&mut self, value: u64) {
        self.count(number(value), 1);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for &bucket in &other.buckets {
            self.count(bucket >> COUNT_BITS, bucket & MAX_COUNT);
        }
    }

    /// The quantile `q` (0 to 1) of the values; 0 if there are none.
    pub fn at(&self, q: f64) -> u64 {
        let count: u64 = self.buckets.iter().map(|bucket| bucket & MAX_COUNT).sum();
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().find(|bucket| {
            seen += *bucket & MAX_COUNT;
            seen >= rank
        });
        found.map_or(0, |bucket| middle(bucket >> COUNT_BITS))
    }

    fn count(&mut self, number: u64, more: u64) {
        let place = self
            .buckets
            .binary_search_by_key(&number, |bucket| bucket >> COUNT_BITS);
        match place {
            Ok(index) => {
                let bucket = &mut self.buckets[index];
                *bucket += more.min(MAX_COUNT - (*bucket & MAX_COUNT));
            }
            Err(index) => self.buckets.insert(index, number << COUNT_BITS | more),
        }
    }
}

/// Number of the bucket of `value`.
fn number(value: u64) -> u64 {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(BITS + 1);
    (u64::from(shift) << BITS) + (value >> shift)
}

/// The value in the middle of a bucket.
fn middle(number: u64) -> u64 {
    let shift = (number >> BITS).saturating_sub(1);
    let first = (number - (shift << BITS)) << shift;
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
        assert!(number(u64::MAX) < 1 << (u64::BITS - COUNT_BITS));
        assert_eq!(number(u64::MAX), 3775, "30 KiB");
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
    fn buckets_count_up_to_a_limit_and_are_told_by_their_middle() {
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
        let mut many = Quantiles::default();
        many.count(5, MAX_COUNT - 1);
        many.count(6, 1);
        many.count(5, 3);
        assert_eq!(
            many.buckets,
            [5 << COUNT_BITS | MAX_COUNT, 6 << COUNT_BITS | 1]
        );
    }
}
