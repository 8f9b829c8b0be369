//! Counts and times.

use super::quantiles::Quantiles;

/// How often, and how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// All of them together, nanoseconds.
    pub total_ns: u64,
    /// The shortest, nanoseconds.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// How long they are, by size.
    pub quantiles: Quantiles,
}

impl Tally {
    /// Counts one from `start_ns` to `end_ns`. One whose times are not known lasts nothing.
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

    /// Adds what another has counted.
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

    /// The time that the share `q`, from 0 to 1, of them do not exceed, nanoseconds: within 1 %.
    pub fn quantile(&self, q: f64) -> u64 {
        self.quantiles.at(q).clamp(self.min_ns, self.max_ns)
    }
}

/// How often, how long and how many bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Times.
    pub tally: Tally,
    /// Bytes.
    pub bytes: u64,
    /// Bytes of those whose times are known.
    pub timed_bytes: u64,
    /// The fastest, bytes per second.
    pub peak_bytes_per_second: f64,
}

impl Moved {
    /// Counts one of `bytes`.
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

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.timed_bytes = self.timed_bytes.saturating_add(other.timed_bytes);
        self.peak_bytes_per_second = self.peak_bytes_per_second.max(other.peak_bytes_per_second);
    }

    /// Bytes per second of the time that they took, if that is known.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.tally.total_ns;
        (ns > 0).then(|| self.timed_bytes as f64 * 1e9 / ns as f64)
    }
}
