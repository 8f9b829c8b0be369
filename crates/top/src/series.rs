//! Figures of the last two minutes, for sparklines.

use std::collections::{HashMap, VecDeque};

use gpuprobe_report::Report;
use gpuprobe_report::memleak::SiteReport;

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
    samples: HashMap<Figure, VecDeque<(u64, u64)>>,
    last_ns: u64,
}

impl FigureSeries {
    /// Adds the figures of `report`, which was made at `now_ns`, with the call sites of the process `detail`.
    pub(crate) fn note(&mut self, report: &Report, now_ns: u64, detail: Option<u32>) {
        let is_earlier = now_ns < self.last_ns;
        self.last_ns = now_ns;
        let Some(memleak) = &report.memleak else {
            return;
        };
        let gpus = memleak.gpus.iter();
        let mut figures: Vec<_> = gpus
            .filter_map(|gpu| Some((Figure::Used(gpu.index), gpu.used_bytes?)))
            .collect();
        let detailed = memleak.processes.iter();
        for process in detailed.filter(|process| Some(process.pid) == detail) {
            let of = |device, site: &SiteReport| {
                (
                    Figure::Site(process.pid, device, site.id),
                    site.live.bytes(),
                )
            };
            figures.extend(process.listed().iter().map(|site| of(None, site)));
            for pool in process.pytorch.iter().chain(&process.tensorflow) {
                let sites = pool.sites.iter().flatten();
                figures.extend(sites.map(|site| of(Some(pool.device), site)));
            }
        }
        for (figure, value) in figures {
            let samples = self.samples.entry(figure).or_default();
            if is_earlier {
                // The recording is played from an earlier time.
                samples.retain(|(ns, _)| *ns < now_ns);
            }
            samples.push_back((now_ns, value));
        }
        let oldest_ns = now_ns.saturating_sub(PERIOD_NS);
        self.samples.retain(|_, samples| {
            while samples.front().is_some_and(|(ns, _)| *ns < oldest_ns) {
                samples.pop_front();
            }
            !samples.is_empty()
        });
    }

    /// The values of `figure` at `count` times of equal distance until now; `None` before the first sample.
    pub(crate) fn values(&self, figure: Figure, count: usize) -> Vec<Option<u64>> {
        let mut values = vec![None; count];
        let Some(samples) = self.samples.get(&figure) else {
            return values;
        };
        let step_ns = PERIOD_NS / (count as u64).max(1);
        let mut samples = samples.iter().peekable();
        let mut current = None;
        for (place, value) in values.iter_mut().enumerate() {
            let later_ns = step_ns.saturating_mul((count - 1 - place) as u64);
            let until_ns = self.last_ns.saturating_sub(later_ns);
            while let Some((_, next)) = samples.next_if(|(ns, _)| *ns <= until_ns) {
                current = Some(*next);
            }
            *value = current;
        }
        values
    }
}
