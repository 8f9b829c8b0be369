//! Launch counts over time: samples of all counters, from which `explain` tells whether memory stays in
//! step with a kernel.

use std::collections::HashMap;

use super::Launches;
use gpuprobe_model::abi::RawLaunchKey;

/// Time between samples at first, ns; it doubles when there are too many.
const SPACING_NS: u64 = 250_000_000;
/// There are never more samples.
const MAX_SAMPLES: usize = 256;
/// Kernels that are sampled, of all processes together; 2 KiB each.
const MAX_KERNELS: usize = 4096;
/// Reading the counters may take one part in this many of the time between samples.
const READING_SHARE: u64 = 50;

/// Launch counts of kernels at some points in time.
#[derive(Debug)]
pub struct LaunchSamples {
    /// Times of the samples, `CLOCK_MONOTONIC` nanoseconds, ascending.
    times_ns: Vec<u64>,
    spacing_ns: u64,
    /// Launches so far at these times; a kernel that is new, or gone, has fewer values.
    counts: HashMap<RawLaunchKey, Vec<u64>>,
}

impl Default for LaunchSamples {
    fn default() -> Self {
        Self {
            times_ns: Vec::new(),
            spacing_ns: SPACING_NS,
            counts: HashMap::new(),
        }
    }
}

impl LaunchSamples {
    /// Whether a sample should be taken at `now_ns`.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let next = |last: &u64| last.saturating_add(self.spacing_ns);
        self.times_ns.last().is_none_or(|last| now_ns >= next(last))
    }

    /// Adds the launches so far of all kernels at `now_ns`, which took `took_ns` to read.
    pub(super) fn add(
        &mut self,
        now_ns: u64,
        took_ns: u64,
        counts: impl Iterator<Item = (RawLaunchKey, u64)>,
    ) {
        if self.times_ns.last().is_some_and(|&last| now_ns <= last) {
            return;
        }
        if self.times_ns.len() >= MAX_SAMPLES {
            self.thin();
        }
        let least_ns = took_ns.saturating_mul(READING_SHARE);
        self.spacing_ns = self.spacing_ns.max(least_ns);
        let before = self.times_ns.len();
        self.times_ns.push(now_ns);
        for (key, runs) in counts {
            if self.counts.len() >= MAX_KERNELS && !self.counts.contains_key(&key) {
                continue;
            }
            let known = self.counts.entry(key).or_default();
            let last = known.last().copied().unwrap_or(0);
            known.resize(before, last);
            known.push(runs.max(last));
        }
    }

    /// Drops every other sample.
    fn thin(&mut self) {
        self.spacing_ns = self.spacing_ns.saturating_mul(2);
        let every_other = |values: &mut Vec<u64>| {
            let mut index = 0;
            values.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        };
        let length = self.times_ns.len();
        every_other(&mut self.times_ns);
        for counts in self.counts.values_mut() {
            let last = counts.last().copied().unwrap_or(0);
            counts.resize(length, last);
            every_other(counts);
        }
    }

    /// Launches of `key` until `time_ns`, evenly spread between two samples; `None` outside of the
    /// samples.
    pub fn at(&self, key: &RawLaunchKey, time_ns: u64) -> Option<f64> {
        let counts = self.counts.get(key)?;
        let last = counts.last().copied().unwrap_or(0);
        let count = |index: usize| counts.get(index).copied().unwrap_or(last) as f64;
        let after = self.times_ns.partition_point(|&time| time < time_ns);
        let end_ns = *self.times_ns.get(after)?;
        if end_ns == time_ns {
            return Some(count(after));
        }
        let before = after.checked_sub(1)?;
        let begin_ns = self.times_ns[before];
        let share = (time_ns - begin_ns) as f64 / (end_ns - begin_ns) as f64;
        Some(count(before) + (count(after) - count(before)) * share)
    }

    /// Time between samples, ns.
    pub fn spacing_ns(&self) -> u64 {
        self.spacing_ns
    }

    /// The kernels and graphs that were sampled.
    pub fn kernels(&self) -> impl Iterator<Item = &RawLaunchKey> {
        self.counts.keys()
    }
}

impl Launches {
    /// Samples the counts, which were read until `now_ns`, in `took_ns`.
    pub fn sample(&mut self, now_ns: u64, took_ns: u64) {
        let counted = self.counted.iter();
        let runs = counted.map(|(key, counted)| (*key, counted.runs));
        self.samples.add(now_ns, took_ns, runs);
    }

    /// The samples so far.
    pub fn samples(&self) -> &LaunchSamples {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RawLaunchKey = RawLaunchKey {
        handle: 7,
        process: 1,
        row: 0,
        epoch: 0,
    };

    #[test]
    fn launches_are_evenly_spread_between_samples() {
        let mut samples = LaunchSamples::default();
        samples.add(1000, 0, std::iter::empty());
        samples.add(2000, 0, [(KEY, 10)].into_iter());
        samples.add(3000, 0, [(KEY, 10)].into_iter());
        samples.add(4000, 0, std::iter::empty());
        let at = [999, 1000, 1500, 2000, 2500, 4000, 4001].map(|time| samples.at(&KEY, time));
        let expected = [
            None,
            Some(0.0),
            Some(5.0),
            Some(10.0),
            Some(10.0),
            Some(10.0),
            None,
        ];
        assert_eq!(at, expected);
    }

    #[test]
    fn samples_are_bounded_and_keep_their_counts() {
        let mut samples = LaunchSamples::default();
        for index in 1..=10_000_u64 {
            let time_ns = index * SPACING_NS;
            if samples.is_due(time_ns) {
                samples.add(time_ns, 0, [(KEY, index)].into_iter());
            }
            assert!(samples.times_ns.len() <= MAX_SAMPLES);
        }
        assert!(samples.times_ns.len() >= MAX_SAMPLES / 2);
        for index in [1, 2, 77, 5000, 9000] {
            let found = samples.at(&KEY, index * SPACING_NS);
            assert_eq!(found.map(f64::round), Some(index as f64), "{index}");
        }
    }

    #[test]
    fn kernels_are_bounded_and_slow_reads_become_rare() {
        let mut samples = LaunchSamples::default();
        let many = (0..2 * MAX_KERNELS as u64).map(|handle| (RawLaunchKey { handle, ..KEY }, 1));
        samples.add(1, 1_000_000_000, many);
        assert_eq!(samples.kernels().count(), MAX_KERNELS);
        assert!(!samples.is_due(49_000_000_000));
        assert!(samples.is_due(51_000_000_000));
        assert_eq!(samples.spacing_ns(), 50_000_000_000);
    }
}
