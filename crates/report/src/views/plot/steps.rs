//! A timeline in a limited number of points, which keeps every peak.

/// Points that are kept at most, before and after thinning.
const BUCKETS: usize = 4096;

/// The values of all bands at some time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BandPoint {
    pub(crate) time_ns: i64,
    pub(crate) values: Vec<u64>,
}

impl BandPoint {
    fn total(&self) -> u64 {
        self.values
            .iter()
            .fold(0, |sum, value| sum.saturating_add(*value))
    }
}

/// The highest and the last point of a span of time.
#[derive(Clone, Debug)]
struct Bucket {
    number: i64,
    highest: BandPoint,
    last: BandPoint,
}

/// Collects a timeline of steps.
#[derive(Clone, Debug)]
pub struct Steps {
    now: Vec<u64>,
    width_ns: i64,
    buckets: Vec<Bucket>,
}

impl Steps {
    /// A timeline of `bands` values.
    pub fn new(bands: usize) -> Self {
        Self {
            now: vec![0; bands],
            width_ns: 1,
            buckets: Vec::new(),
        }
    }

    /// The number of values.
    pub fn bands(&self) -> usize {
        self.now.len()
    }

    /// Adds to a value.
    pub fn add(&mut self, band: usize, bytes: u64) {
        if let Some(value) = self.now.get_mut(band) {
            *value = value.saturating_add(bytes);
        }
    }

    /// Subtracts from a value.
    pub fn subtract(&mut self, band: usize, bytes: u64) {
        if let Some(value) = self.now.get_mut(band) {
            *value = value.saturating_sub(bytes);
        }
    }

    /// Sets the values of all bands.
    pub fn set(&mut self, values: &[u64]) {
        self.now.copy_from_slice(values);
    }

    /// Notes the values as they are at `time_ns`.
    pub fn mark(&mut self, time_ns: i64) {
        let number = time_ns.div_euclid(self.width_ns);
        let now = BandPoint {
            time_ns,
            values: self.now.clone(),
        };
        match self.buckets.last_mut() {
            Some(bucket) if bucket.number == number => {
                if now.total() > bucket.highest.total() {
                    bucket.highest = now.clone();
                }
                bucket.last = now;
            }
            _ => {
                self.buckets.push(Bucket {
                    number,
                    highest: now.clone(),
                    last: now,
                });
                if self.buckets.len() > BUCKETS {
                    self.widen();
                }
            }
        }
    }

    /// Makes every bucket twice as wide until half of them are enough.
    fn widen(&mut self) {
        while self.buckets.len() > BUCKETS / 2 {
            self.width_ns = self.width_ns.saturating_mul(2);
            let mut merged: Vec<Bucket> = Vec::with_capacity(self.buckets.len());
            for mut bucket in self.buckets.drain(..) {
                bucket.number = bucket.last.time_ns.div_euclid(self.width_ns);
                match merged.last_mut() {
                    Some(before) if before.number == bucket.number => {
                        if bucket.highest.total() > before.highest.total() {
                            before.highest = bucket.highest;
                        }
                        before.last = bucket.last;
                    }
                    _ => merged.push(bucket),
                }
            }
            self.buckets = merged;
        }
    }

    /// The points, in order.
    pub(crate) fn points(&self) -> impl Iterator<Item = &BandPoint> {
        self.buckets.iter().flat_map(|bucket| {
            let last = (bucket.highest != bucket.last).then_some(&bucket.last);
            std::iter::once(&bucket.highest).chain(last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_stay_as_they_are() {
        let mut steps = Steps::new(2);
        steps.add(0, 5);
        steps.mark(10);
        steps.add(1, 7);
        steps.subtract(0, 5);
        steps.mark(20);
        let points: Vec<_> = steps
            .points()
            .map(|p| (p.time_ns, p.values.clone()))
            .collect();
        assert_eq!(points, [(10, vec![5, 0]), (20, vec![0, 7])]);
    }

    #[test]
    fn peaks_survive_thinning() {
        let mut steps = Steps::new(1);
        for time in 0..1_000_000i64 {
            let value = if time == 777_777 {
                1_000
            } else {
                u64::try_from(time % 100).unwrap_or(0)
            };
            steps.set(&[value]);
            steps.mark(time * 1_000);
        }
        assert!(steps.points().count() <= 2 * BUCKETS);
        let highest = steps
            .points()
            .max_by_key(|p| p.total())
            .map(|p| (p.time_ns, p.total()));
        assert_eq!(highest, Some((777_777_000, 1_000)));
        let times: Vec<_> = steps.points().map(|p| p.time_ns).collect();
        assert!(times.is_sorted());
        assert_eq!(times.last(), Some(&999_999_000));
    }
}
