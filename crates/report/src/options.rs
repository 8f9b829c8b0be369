//! Options of reports.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::{GroupBy, View};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::Process;
use gpuprobe_model::link::PcieLink;

/// Options of a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The modes to report.
    pub modes: Modes,
    /// Limit on the rows per thread, or call sites per process; `None` for all.
    pub top: Option<usize>,
    /// Grouping, filters and order of live memory.
    pub view: View,
    /// Whether single allocations are listed.
    pub allocations: bool,
    /// Whether the report explains the memory held.
    pub explains: bool,
    /// Whether call stacks are captured.
    pub stacks: bool,
    /// Whether every process of the host is traced.
    pub host_wide: bool,
    /// When the report is made, `CLOCK_MONOTONIC` nanoseconds; ages are relative to it.
    pub now_ns: u64,
    /// Whether it is the last report, which lists ended processes once more.
    pub is_final: bool,
    /// Time since the last report.
    pub since_last: Duration,
    /// Time since tracing began.
    pub since_start: Duration,
    /// The link between host and GPUs, if known.
    pub link: Option<PcieLink>,
    /// The process that is listed in more detail than the others.
    pub detail: Option<ProcessDetail>,
    /// Other processes have sums only: neither call sites, owners, tensors nor threads.
    pub only_detail: bool,
}

/// A process that a report lists in more detail than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessDetail {
    /// Process id on the host.
    pub pid: u32,
    /// Limit on its rows per thread, call sites and kernels.
    pub top: usize,
    /// Whether its single allocations are listed.
    pub allocations: bool,
}

/// Limits on the number of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricLimits {
    /// Maximum number of series.
    pub series: usize,
    /// Maximum number of kernels with a series of their own, of each process.
    pub kernels: usize,
    /// The same of call sites.
    pub sites: usize,
}

impl Default for MetricLimits {
    fn default() -> Self {
        Self {
            series: 10_000,
            kernels: 20,
            sites: 20,
        }
    }
}

/// What a report for a scrape lists besides sums.
#[derive(Debug, Default)]
pub struct ScrapeScope {
    /// The live processes whose call sites are listed, and when they were first seen.
    pub(crate) due: HashMap<u32, Option<u64>>,
    pub(crate) limits: MetricLimits,
    /// Kernels that the last report listed, which are listed again, by number of the process.
    pub(crate) kernels: HashMap<u32, HashSet<String>>,
}

impl Options {
    /// The options for the process with this id.
    pub(crate) fn of_process(&self, pid: u32) -> Self {
        match self.detail.filter(|detail| detail.pid == pid) {
            Some(detail) => Self {
                top: Some(detail.top),
                allocations: detail.allocations,
                ..*self
            },
            None => *self,
        }
    }

    /// The options of a report within `scope`.
    pub(crate) fn within(&self, scope: Option<&ScrapeScope>) -> Self {
        let top = scope.map(|scope| scope.limits.sites);
        Self {
            top: top.or(self.top),
            ..*self
        }
    }

    /// Whether more than sums is listed of `process`, in a report within `scope`.
    pub(crate) fn lists(&self, process: &Process, scope: Option<&ScrapeScope>) -> bool {
        let is_due = |scope: &ScrapeScope| !process.exited && scope.due.contains_key(&process.pid);
        let is_detailed = self.detail.is_some_and(|detail| detail.pid == process.pid);
        (!self.only_detail || is_detailed) && scope.is_none_or(is_due)
    }

    /// Time since tracing began, nanoseconds.
    pub(crate) fn since_start_ns(&self) -> u64 {
        u64::try_from(self.since_start.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How live allocations are grouped.
    pub fn group(&self) -> GroupBy {
        self.view.group.unwrap_or(match self.host_wide {
            true => GroupBy::Gpu,
            false => GroupBy::Stack,
        })
    }

    /// Whether machine-readable formats list call sites: without call stacks, there is one per
    /// function.
    pub(crate) fn lists_sites(&self) -> bool {
        self.stacks || self.view.group.is_some_and(GroupBy::is_by_site)
    }
}
