//! Lists of a report, merged over all processes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::Report;
use crate::activity::{ProcessSummary, Times, share};

/// Processes with timed GPU work, calls or ranges.
pub(super) fn timed_processes(report: &Report) -> impl Iterator<Item = &ProcessSummary> {
    let activity = report.activity.iter();
    activity.flat_map(|activity| &activity.processes)
}

/// Sum of the times, nanoseconds.
fn total<'a>(times: impl Iterator<Item = &'a Times>) -> u64 {
    times
        .map(|times| times.total_ns)
        .fold(0, u64::saturating_add)
}

/// A kernel, summed over all processes.
#[derive(Clone)]
pub(super) struct MergedKernel<'a> {
    pub(super) name: &'a str,
    /// Runs on the GPU, or launch calls.
    pub(super) launches: u64,
    /// Launches captured into a graph, if calls were counted.
    pub(super) captured: Option<u64>,
    /// Durations on the GPU, if they were measured.
    pub(super) times: Option<Times>,
    /// Share of the time of all kernels, or else of their launches, 0 to 1.
    pub(super) share: f64,
}

impl<'a> MergedKernel<'a> {
    /// The kernels that ran on the GPU with measured times; if there are none, the kernels
    /// launched. By descending time, then by descending number of launches.
    pub(super) fn all(report: &'a Report) -> Vec<Self> {
        let ran = timed_processes(report).flat_map(|process| {
            process.kernels.iter().map(|kernel| Self {
                name: &kernel.name,
                launches: kernel.times.count,
                captured: None,
                times: Some(kernel.times.clone()),
                share: 0.0,
            })
        });
        let launched = report.cudatrace.iter().flat_map(|trace| &trace.kernels);
        let launched = launched.map(|kernel| Self {
            name: &kernel.name,
            launches: kernel.launches,
            captured: Some(kernel.captured_launches),
            times: None,
            share: 0.0,
        });
        let mut by_name: BTreeMap<&str, Self> = BTreeMap::new();
        ran.for_each(|kernel| kernel.put(&mut by_name));
        if by_name.is_empty() {
            launched.for_each(|kernel| kernel.put(&mut by_name));
        }
        let mut kernels: Vec<_> = by_name.into_values().collect();
        let total_ns = total(kernels.iter().filter_map(|kernel| kernel.times.as_ref()));
        let launches = kernels.iter().map(|kernel| kernel.launches).sum();
        for kernel in &mut kernels {
            kernel.share = match &kernel.times {
                Some(times) => share(times.total_ns, total_ns),
                None => share(kernel.launches, launches),
            };
        }
        kernels.sort_by_key(|kernel| {
            let total_ns = kernel.times.as_ref().map(|times| times.total_ns);
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
        if let (Some(times), Some(more)) = (&mut known.times, &self.times) {
            times.merge(more);
        }
    }
}

/// Key by which copies are merged into a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MergedCopyClass {
    pub(super) direction: &'static str,
    /// `sync` if the calls lasted as long as the transfers, `async` otherwise; `None` for sets on
    /// the GPU, and for files without it.
    pub(super) mode: Option<&'static str>,
    /// Kind of the source memory, if known.
    pub(super) source: Option<&'static str>,
    /// Kind of the destination memory, if known.
    pub(super) destination: Option<&'static str>,
}

/// Copies of one sort, summed over all processes.
#[derive(Clone)]
pub(super) struct Copies {
    pub(super) which: MergedCopyClass,
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Time of the transfers in nanoseconds, if known of all of them.
    pub(super) ns: Option<u64>,
    /// Durations on the GPU, if they were measured.
    pub(super) times: Option<Times>,
    /// Throughput of the fastest, bytes per second.
    pub(super) peak: Option<f64>,
    /// Share of the time of all copies, or else of their bytes, 0 to 1.
    pub(super) share: f64,
}

impl Copies {
    /// The copies that ran on the GPU with measured times; if there are none, the copy calls.
    pub(super) fn all(report: &Report) -> Vec<Self> {
        let ran = timed_processes(report).flat_map(|process| &process.copies);
        let ran = ran.map(|ran| Self {
            which: MergedCopyClass {
                direction: ran.direction,
                mode: ran.mode,
                source: ran.source,
                destination: ran.destination,
            },
            count: ran.times.count,
            bytes: ran.bytes,
            ns: Some(ran.times.total_ns),
            times: Some(ran.times.clone()),
            peak: ran.peak_bytes_per_second,
            share: 0.0,
        });
        let called = report.bandwidth_util.iter().flat_map(|b| &b.directions);
        let called = called.map(|called| Self {
            which: MergedCopyClass {
                direction: called.direction,
                mode: Some(called.mode),
                source: None,
                destination: None,
            },
            count: called.calls,
            bytes: called.bytes,
            ns: called.seconds.map(|seconds| (seconds * 1e9).round() as u64),
            times: None,
            peak: called.peak_bytes_per_second,
            share: 0.0,
        });
        let mut sums = BTreeMap::new();
        ran.for_each(|copies| copies.put(&mut sums));
        if sums.is_empty() {
            called.for_each(|copies| copies.put(&mut sums));
        }
        let mut all: Vec<_> = sums.into_values().collect();
        let total_ns = total(all.iter().filter_map(|copies| copies.times.as_ref()));
        let bytes = all.iter().map(|copies| copies.bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        for copies in &mut all {
            copies.share = match &copies.times {
                Some(times) => share(times.total_ns, total_ns),
                None => share(copies.bytes, bytes),
            };
        }
        all
    }

    fn put(self, sums: &mut BTreeMap<MergedCopyClass, Self>) {
        let Some(sum) = sums.get_mut(&self.which) else {
            sums.insert(self.which, self);
            return;
        };
        sum.count += self.count;
        sum.bytes = sum.bytes.saturating_add(self.bytes);
        sum.ns = sum.ns.zip(self.ns).map(|(a, b)| a.saturating_add(b));
        sum.peak = sum.peak.into_iter().chain(self.peak).reduce(f64::max);
        if let (Some(times), Some(more)) = (&mut sum.times, &self.times) {
            times.merge(more);
        }
    }

    /// Bytes over the time of the transfers, if that is known and not 0.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.ns.filter(|&ns| ns > 0)?;
        Some(self.bytes as f64 * 1e9 / ns as f64)
    }
}

/// Calls of a function, waits of a kind or ranges of a name, summed over all processes.
#[derive(Clone)]
pub(super) struct MergedCalls<'a> {
    /// API of a call, domain of a range; empty if there is none.
    pub(super) domain: &'a str,
    pub(super) name: &'a str,
    pub(super) times: Times,
    /// Number of calls that returned an error.
    pub(super) failed: u64,
    /// Share of the total time, 0 to 1.
    pub(super) share: f64,
}

impl<'a> MergedCalls<'a> {
    pub(super) fn calls(report: &'a Report) -> Vec<Self> {
        let calls = timed_processes(report).flat_map(|process| &process.calls);
        Self::merged(calls.map(|call| {
            let named = Self::new(call.domain, &call.name, &call.times);
            Self {
                failed: call.failed,
                ..named
            }
        }))
    }

    pub(super) fn waits(report: &'a Report) -> Vec<Self> {
        let waits = timed_processes(report).flat_map(|process| &process.synchronizations);
        Self::merged(waits.map(|wait| Self::new("", wait.kind, &wait.times)))
    }

    pub(super) fn ranges(report: &'a Report) -> Vec<Self> {
        let ranges = timed_processes(report).flat_map(|process| &process.ranges);
        Self::merged(ranges.map(|range| {
            let domain = range.domain.as_deref().unwrap_or_default();
            Self::new(domain, &range.name, &range.times)
        }))
    }

    fn new(domain: &'a str, name: &'a str, times: &Times) -> Self {
        Self {
            domain,
            name,
            times: times.clone(),
            failed: 0,
            share: 0.0,
        }
    }

    /// Merges entries with the same name; by descending time.
    fn merged(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut merged: BTreeMap<_, Self> = BTreeMap::new();
        for one in all {
            match merged.get_mut(&(one.domain, one.name)) {
                Some(known) => {
                    known.times.merge(&one.times);
                    known.failed += one.failed;
                }
                None => {
                    merged.insert((one.domain, one.name), one);
                }
            }
        }
        let mut all: Vec<_> = merged.into_values().collect();
        let total_ns = total(all.iter().map(|one| &one.times));
        for one in &mut all {
            one.share = share(one.times.total_ns, total_ns);
        }
        all.sort_by_key(|one| Reverse(one.times.total_ns));
        all
    }
}
