//! Used memory of GPUs in the last two minutes, for sparklines.

use std::collections::HashMap;

use gpuprobe_report::Report;

/// Period that sparklines show, nanoseconds.
const PERIOD_NS: u64 = 120_000_000_000;

/// Samples by GPU: time in nanoseconds, and used bytes.
#[derive(Debug, Default)]
pub(crate) struct UsedSeries {
    samples: HashMap<u32, Vec<(u64, u64)>>,
    last_ns: u64,
}

impl UsedSeries {
    /// Adds what `report` has, which was made at `now_ns`.
    pub(crate) fn note(&mut self, report: &Report, now_ns: u64) {
        self.last_ns = now_ns;
        let oldest_ns = now_ns.saturating_sub(PERIOD_NS);
        for gpu in report.memleak.iter().flat_map(|memleak| &memleak.gpus) {
            let samples = self.samples.entry(gpu.index).or_default();
            // A recording may be played from an earlier time.
            samples.retain(|(ns, _)| (oldest_ns..now_ns).contains(ns));
            samples.extend(gpu.used_bytes.map(|bytes| (now_ns, bytes)));
        }
    }

    /// The values of a GPU at `count` times of equal distance until now; `None` before the first sample.
    pub(crate) fn values(&self, gpu: u32, count: usize) -> Vec<Option<u64>> {
        let samples = self.samples.get(&gpu).map_or(&[][..], Vec::as_slice);
        let step_ns = PERIOD_NS / (count as u64).max(1);
        let value = |later| {
            let until_ns = self.last_ns.saturating_sub(later * step_ns);
            let later = samples.partition_point(|(ns, _)| *ns <= until_ns);
            Some(samples[later.checked_sub(1)?].1)
        };
        (0..count as u64).rev().map(value).collect()
    }
}
