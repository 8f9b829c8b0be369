//! Counts and durations of operations.

use super::quantiles::Quantiles;

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
    /// Histogram of the durations, nanoseconds.
    pub quantiles: Quantiles,
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
        self.quantiles.add(ns);
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
        self.quantiles.merge(&other.quantiles);
    }

    /// The quantile `q` (0 to 1) of the durations, nanoseconds, within 1 %.
    pub fn quantile(&self, q: f64) -> u64 {
        self.quantiles.at(q).clamp(self.min_ns, self.max_ns)
    }
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
