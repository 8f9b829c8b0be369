//! Durations counted by their size, which median and percentiles are read from.
//!
//! From each power of two to the next there are 64 buckets; below 64 each value has its own. What is
//! read is the middle of a bucket, so it is off by 1/128 of the value at most (0.8 %). Only buckets
//! that something is in take memory: 8 bytes each, a few hundred bytes for most kernels, and 30 KiB
//! at most, whatever comes.

/// Buckets from a power of two to the next, as bits.
const BITS: u32 = 6;
/// The bits of a bucket that count; those above are its number.
const COUNT_BITS: u32 = 52;
const MOST: u64 = (1 << COUNT_BITS) - 1;

/// How many durations there are of each size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// Buckets in order: number and count.
    buckets: Vec<u64>,
}

impl Quantiles {
    /// Counts one.
    pub fn add(&mut self, value: u64) {
        self.count(number(value), 1);
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        for &bucket in &other.buckets {
            self.count(bucket >> COUNT_BITS, bucket & MOST);
        }
    }

    /// The value of which the share `q`, from 0 to 1, of all is not greater; 0 if there is none.
    pub fn at(&self, q: f64) -> u64 {
        let count: u64 = self.buckets.iter().map(|bucket| bucket & MOST).sum();
        let rank = ((q * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.buckets.iter().find(|bucket| {
            seen += *bucket & MOST;
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
                *bucket += more.min(MOST - (*bucket & MOST));
            }
            Err(index) => self.buckets.insert(index, number << COUNT_BITS | more),
        }
    }
}

/// The bucket of a value.
fn number(value: u64) -> u64 {
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(BITS + 1);
    (u64::from(shift) << BITS) + (value >> shift)
}

/// The middle of a bucket.
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
        fn off_by_less_than_a_hundredth(
            mut values in prop::collection::vec((0u64.., 0u32..64), 1..300),
            split in 0usize..300,
            q in 0.0f64..=1.0,
        ) {
            // Of all sizes.
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
    fn of_nothing_is_nothing() {
        assert_eq!(Quantiles::default().at(0.5), 0);
    }
}
