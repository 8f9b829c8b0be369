//! Kernels and copies of a report, merged over all processes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::Report;
use crate::activity::{ProcessSummary, Times};

/// The processes whose work on the GPU was timed.
pub(super) fn timed_processes(report: &Report) -> impl Iterator<Item = &ProcessSummary> {
    let activity = report.activity.iter();
    activity.flat_map(|activity| &activity.processes)
}

/// A kernel, of all processes.
#[derive(Clone, Copy)]
pub(super) struct Kernel<'a> {
    pub(super) name: &'a str,
    /// Runs on the GPU, or calls.
    pub(super) launches: u64,
    /// Launches that went into a graph, if calls were counted.
    pub(super) captured: Option<u64>,
    /// Times on the GPU, if they were measured.
    pub(super) times: Option<Times>,
}

impl<'a> Kernel<'a> {
    /// The kernels that ran on a GPU that was timed; if there are none, the kernels that were
    /// launched. Most time first, then most launches.
    pub(super) fn all(report: &'a Report) -> Vec<Self> {
        let ran = timed_processes(report).flat_map(|process| {
            process.kernels.iter().map(|kernel| Self {
                name: &kernel.name,
                launches: kernel.times.count,
                captured: None,
                times: Some(kernel.times),
            })
        });
        let launched = report.cudatrace.iter().flat_map(|trace| &trace.kernels);
        let launched = launched.map(|kernel| Self {
            name: &kernel.name,
            launches: kernel.launches,
            captured: Some(kernel.captured_launches),
            times: None,
        });
        let mut by_name: BTreeMap<&str, Self> = BTreeMap::new();
        ran.for_each(|kernel| kernel.put(&mut by_name));
        if by_name.is_empty() {
            launched.for_each(|kernel| kernel.put(&mut by_name));
        }
        let mut kernels: Vec<_> = by_name.into_values().collect();
        kernels.sort_by_key(|kernel| {
            let total_ns = kernel.times.map(|times| times.total_ns);
            (Reverse(total_ns), Reverse(kernel.launches), kernel.name)
        });
        kernels
    }

    fn put(self, kernels: &mut BTreeMap<&'a str, Self>) {
        let Some(known) = kernels.get_mut(self.name) else {
            kernels.insert(self.name, self);
            return;
        };
        known.launches += self.launches;
        known.captured = known.captured.zip(self.captured).map(|(a, b)| a + b);
        if let (Some(times), Some(more)) = (&mut known.times, self.times) {
            times.merge(more);
        }
    }
}

/// Copies in one direction, of all processes.
#[derive(Clone, Copy)]
pub(super) struct Copies {
    pub(super) direction: &'static str,
    /// The meaning of the time: `gpu` if the GPU was timed, `sync` if calls lasted as long as the
    /// transfers, `async` if they did not.
    pub(super) mode: &'static str,
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Time of the transfers, if it is known of all of them.
    pub(super) ns: Option<u64>,
}

impl Copies {
    /// The copies that ran on a GPU that was timed; if there are none, the copies that were called.
    pub(super) fn all(report: &Report) -> Vec<Self> {
        let ran = timed_processes(report).flat_map(|process| &process.copies);
        let ran = ran.map(|ran| Self {
            direction: ran.direction,
            mode: "gpu",
            count: ran.times.count,
            bytes: ran.bytes,
            ns: Some(ran.times.total_ns),
        });
        let called = report.bandwidth_util.iter().flat_map(|b| &b.directions);
        let called = called.map(|called| Self {
            direction: called.direction,
            mode: called.mode,
            count: called.calls,
            bytes: called.bytes,
            ns: called.seconds.map(|seconds| (seconds * 1e9).round() as u64),
        });
        let mut sums = BTreeMap::new();
        ran.for_each(|copies| copies.put(&mut sums));
        if sums.is_empty() {
            called.for_each(|copies| copies.put(&mut sums));
        }
        sums.into_values().collect()
    }

    fn put(self, sums: &mut BTreeMap<(&'static str, &'static str), Self>) {
        let Some(sum) = sums.get_mut(&(self.direction, self.mode)) else {
            sums.insert((self.direction, self.mode), self);
            return;
        };
        sum.count += self.count;
        sum.bytes = sum.bytes.saturating_add(self.bytes);
        sum.ns = sum.ns.zip(self.ns).map(|(a, b)| a.saturating_add(b));
    }

    /// Bytes over the time of the transfers, if that is known and more than nothing.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.ns.filter(|&ns| ns > 0)?;
        Some(self.bytes as f64 * 1e9 / ns as f64)
    }
}
