//! Figures of the last two minutes, for sparklines.

use std::collections::HashMap;

use gpuprobe_report::Report;

use super::process::all_sites;

/// Period that sparklines show, nanoseconds.
pub(crate) const PERIOD_NS: u64 = 120_000_000_000;

/// Figure of which a series is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Figure {
    /// Used bytes of the GPU with this index.
    Used(u32),
    /// Live bytes at a call site of a process; of tensors, with the device.
    Site(u32, Option<u16>, u32),
}

/// Samples of figures: time in nanoseconds, and value.
#[derive(Debug, Default)]
pub(crate) struct FigureSeries {
    samples: HashMap<Figure, Vec<(u64, u64)>>,
    last_ns: u64,
}

impl FigureSeries {
    /// Adds the figures of `report`, which was made at `now_ns`, with the call sites of the process `detail`.
    pub(crate) fn note(&mut self, report: &Report, now_ns: u64, detail: Option<u32>) {
        self.last_ns = now_ns;
        let Some(memleak) = &report.memleak else {
            return;
        };
        let gpus = memleak.gpus.iter();
        let used = gpus.filter_map(|gpu| Some((Figure::Used(gpu.index), gpu.used_bytes?)));
        let processes = memleak.processes.iter();
        let detailed = processes.filter(|process| Some(process.pid) == detail);
        let sites = detailed.flat_map(|process| {
            all_sites(process).map(|(device, site)| {
                let figure = Figure::Site(process.pid, device, site.id);
                (figure, site.live.bytes())
            })
        });
        let oldest_ns = now_ns.saturating_sub(PERIOD_NS);
        for (figure, value) in used.chain(sites) {
            let samples = self.samples.entry(figure).or_default();
            // A recording may be played from an earlier time.
            samples.retain(|(ns, _)| (oldest_ns..now_ns).contains(ns));
            samples.push((now_ns, value));
        }
        let is_shown =
            |samples: &[(u64, u64)]| samples.last().is_some_and(|(ns, _)| *ns >= oldest_ns);
        self.samples.retain(|_, samples| is_shown(samples));
    }

    /// The values of `figure` at `count` times of equal distance until now; `None` before the first sample.
    pub(crate) fn values(&self, figure: Figure, count: usize) -> Vec<Option<u64>> {
        let samples = self.samples.get(&figure).map_or(&[][..], Vec::as_slice);
        let step_ns = PERIOD_NS / (count as u64).max(1);
        let times = (0..count as u64)
            .rev()
            .map(|later| self.last_ns.saturating_sub(later * step_ns));
        let value = |until_ns| {
            let later = samples.partition_point(|(ns, _)| *ns <= until_ns);
            Some(samples[later.checked_sub(1)?].1)
        };
        times.map(value).collect()
    }
}
