//! Kernels, copies, calls, waits and ranges as one list: of a process, or merged over all processes of a file.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuprobe_cuda::Direction;
use gpuprobe_model::link::PcieLink;

use crate::Report;
use crate::activity::{ProcessSummary, Timed, Times, share};
use crate::bandwidth::DirectionReport;
use crate::cudatrace::KernelReport;

/// Kinds of work that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkList {
    /// Kernels that ran on the GPU or, if none is known, that were launched.
    Kernels,
    /// Copies and memory sets that ran on the GPU or, if none is known, that were called.
    Copies,
    /// Calls of the driver and the runtime.
    Calls,
    /// Waits for the GPU.
    Waits,
    /// NVTX ranges.
    Ranges,
    /// Overhead of tracing.
    Overhead,
}

/// Work of one name: a kernel, copies of one kind, calls of a function, waits of a kind, ranges.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// API of a call, domain of a range, direction of copies; else empty.
    pub group: String,
    /// Name; mode of copies.
    pub name: String,
    /// Kinds of memory that copies go between, if known.
    pub memories: Option<(&'static str, &'static str)>,
    /// How often it ran or was called.
    pub count: u64,
    /// Launches captured into a graph, if calls were counted.
    pub captured: Option<u64>,
    /// Calls that returned an error.
    pub failed: u64,
    /// Sum of the bytes.
    pub bytes: u64,
    /// Sum of the durations, nanoseconds, if all are known.
    pub ns: Option<u64>,
    /// Durations on the GPU or of calls, if they were measured.
    pub times: Option<Times>,
    /// Whether the durations are the GPU's.
    pub by_gpu: bool,
    /// Share of the time of the list, or else of its launches or bytes, 0 to 1.
    pub share: Option<f64>,
    /// Launches per second since the last report.
    pub per_second: Option<f64>,
    /// Blocks, in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block, in x, y and z.
    pub block: [u32; 3],
    /// Bytes per second of transfer time.
    pub bytes_per_second: Option<f64>,
    /// The same of the fastest transfer.
    pub peak: Option<f64>,
    /// The same since the last report.
    pub now: Option<f64>,
    /// Bytes per second of wall-clock time.
    pub wall: Option<f64>,
    /// Share of the link's capacity, and the link.
    pub link: Option<(f64, PcieLink)>,
}

impl Work {
    /// Work of this name, of which only times are known.
    pub fn timed(group: &str, name: &str, times: &Times, share: f64) -> Self {
        Self {
            group: group.to_owned(),
            name: name.to_owned(),
            count: times.count,
            ns: Some(times.total_ns),
            times: Some(times.clone()),
            by_gpu: true,
            share: Some(share),
            ..Self::default()
        }
    }

    /// The work of a process.
    pub fn of(list: WorkList, process: &ProcessSummary, link: Option<PcieLink>) -> Vec<Self> {
        fn all<T>(rows: &[T], work: impl Fn(&T) -> Work) -> Vec<Work> {
            rows.iter().map(work).collect()
        }
        let kind = |one: &Timed| Self::timed("", one.kind, &one.times, one.share);
        match list {
            WorkList::Kernels => all(&process.kernels, |kernel| Self {
                per_second: Some(kernel.per_second),
                grid: kernel.grid,
                block: kernel.block,
                ..Self::timed("", &kernel.name, &kernel.times, kernel.share)
            }),
            WorkList::Copies => all(&process.copies, |copy| Self {
                memories: copy.source.zip(copy.destination),
                bytes: copy.bytes,
                bytes_per_second: copy.bytes_per_second,
                peak: copy.peak_bytes_per_second,
                link: copy.link_utilisation.zip(link),
                share: None,
                ..Self::timed(copy.direction, copy.mode.unwrap_or(""), &copy.times, 0.0)
            }),
            WorkList::Calls => all(&process.calls, |call| Self {
                failed: call.failed,
                ..Self::timed(call.domain, &call.name, &call.times, call.share)
            }),
            WorkList::Ranges => all(&process.ranges, |range| {
                let domain = range.domain.as_deref().unwrap_or("");
                Self::timed(domain, &range.name, &range.times, range.share)
            }),
            WorkList::Waits => all(&process.synchronizations, kind),
            WorkList::Overhead => all(&process.overhead, kind),
        }
    }

    /// A kernel as it was launched, of so many launches.
    pub fn launched(kernel: &KernelReport, launches: u64) -> Self {
        Self {
            name: kernel.name.clone(),
            count: kernel.launches,
            captured: Some(kernel.captured_launches),
            share: Some(share(kernel.launches, launches)),
            per_second: Some(kernel.per_second),
            grid: kernel.grid,
            block: kernel.block,
            ..Self::default()
        }
    }

    /// Copies as they were called; with the GPU's speed, if it was timed.
    pub fn called(copies: &DirectionReport, link: Option<PcieLink>) -> Self {
        let gpu = copies.gpu.as_ref();
        let gpu = gpu.filter(|gpu| gpu.bytes_per_second.is_some());
        Self {
            group: copies.direction.to_owned(),
            name: copies.mode.to_owned(),
            count: copies.calls,
            bytes: copies.bytes,
            ns: copies.seconds.map(|seconds| (seconds * 1e9).round() as u64),
            by_gpu: gpu.is_some(),
            bytes_per_second: gpu.map_or(copies.bytes_per_second, |gpu| gpu.bytes_per_second),
            peak: gpu.map_or(copies.peak_bytes_per_second, |gpu| {
                Some(gpu.peak_bytes_per_second)
            }),
            now: copies.now_bytes_per_second,
            wall: Some(copies.wall_bytes_per_second),
            link: copies.link_utilisation.zip(link),
            ..Self::default()
        }
    }

    /// Whether it is memory sets, among copies.
    pub fn is_set(&self) -> bool {
        self.group == Direction::Set.name()
    }

    fn total_ns(&self) -> Option<u64> {
        self.times.as_ref().map(|times| times.total_ns)
    }

    /// The work of all processes of a file; all but copies by descending time, then number.
    pub fn of_file(list: WorkList, report: &Report) -> Vec<Self> {
        let processes = processes(report);
        let mut all = Self::merged(processes.flat_map(|process| Self::of(list, process, None)));
        if all.is_empty() && list == WorkList::Kernels {
            let launched = report.cudatrace.iter().flat_map(|trace| &trace.kernels);
            all = Self::merged(launched.map(|kernel| Self::launched(kernel, 0)));
        } else if all.is_empty() && list == WorkList::Copies {
            let copies = report.bandwidth_util.iter();
            let called = copies.flat_map(|copies| &copies.directions);
            all = Self::merged(called.map(|copies| Self::called(copies, None)));
        }
        if list != WorkList::Copies {
            all.sort_by_key(|one| Reverse((one.total_ns(), one.count)));
        }
        all
    }

    /// Merges work of the same name, with shares of all of it. What is of a moment or a process goes.
    fn merged(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut sums: BTreeMap<_, Self> = BTreeMap::new();
        for one in all {
            let sum = sums.entry((one.group.clone(), one.name.clone(), one.memories));
            sum.and_modify(|sum| sum.merge(&one)).or_insert(one);
        }
        let part = |one: &Self| match (one.total_ns(), one.captured) {
            (Some(ns), _) => ns,
            (None, Some(_)) => one.count,
            (None, None) => one.bytes,
        };
        let whole = sums.values().map(part).fold(0, u64::saturating_add);
        let finish = |one: Self| {
            let ns = one.ns.filter(|&ns| ns > 0);
            Self {
                share: Some(share(part(&one), whole)),
                bytes_per_second: ns.map(|ns| one.bytes as f64 * 1e9 / ns as f64),
                per_second: None,
                now: None,
                wall: None,
                ..one
            }
        };
        sums.into_values().map(finish).collect()
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.captured = self.captured.zip(other.captured).map(|(a, b)| a + b);
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.zip(other.ns).map(|(a, b)| a.saturating_add(b));
        self.peak = self.peak.into_iter().chain(other.peak).reduce(f64::max);
        if let (Some(times), Some(more)) = (&mut self.times, &other.times) {
            times.merge(more);
        }
    }
}

/// The work of a list together.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkSum {
    /// How often it ran or was called, without memory sets.
    pub count: u64,
    /// Number of memory sets.
    pub sets: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Sum of the durations that are known, nanoseconds.
    pub ns: u64,
}

impl WorkSum {
    /// Adds the work up.
    pub fn of(all: &[Work]) -> Self {
        let mut sum = Self::default();
        for one in all {
            sum.ns = sum.ns.saturating_add(one.total_ns().unwrap_or(0));
            if one.is_set() {
                sum.sets += one.count;
            } else {
                sum.count += one.count;
                sum.bytes = sum.bytes.saturating_add(one.bytes);
            }
        }
        sum
    }
}

/// Launches of graphs: those that ran on the GPU or, if none is known, those that were called.
pub fn graph_launches(report: &Report) -> u64 {
    let launched = report.cudatrace.as_ref();
    match processes(report).map(|process| process.graphs.count).sum() {
        0 => launched.map_or(0, |trace| trace.graph_launches),
        ran => ran,
    }
}

/// NVTX ranges that have not ended.
pub fn open_ranges(report: &Report) -> u64 {
    processes(report).map(|process| process.open_ranges).sum()
}

/// Processes of a report with timed GPU work, calls or ranges.
fn processes(report: &Report) -> impl Iterator<Item = &ProcessSummary> {
    let activity = report.activity.iter();
    activity.flat_map(|activity| &activity.processes)
}
