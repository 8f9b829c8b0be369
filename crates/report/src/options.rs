//! Options of reports: modes, and the grouping, filters and order of live memory.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::str::FromStr;
use std::time::Duration;

use gpuprobe_cuda::Modes;
use gpuprobe_engine::Allocation;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::typed::{parse_duration, parse_size};

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

    /// Whether more than sums is listed of the process with this id, in a report within `scope`.
    pub(crate) fn lists(&self, pid: u32, scope: Option<&ScrapeScope>) -> bool {
        let is_detailed = self.detail.is_some_and(|detail| detail.pid == pid);
        (!self.only_detail || is_detailed) && scope.is_none_or(|one| one.due.contains_key(&pid))
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

/// Groups of live allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GroupBy {
    /// Call sites, each with its call stack. In Python programs, calls from the same lines of the
    /// user's files are one.
    Stack,
    /// Call sites, with every call stack separate.
    NativeStack,
    /// Allocating threads, and their allocations.
    Thread,
    /// Processes, without further detail.
    Process,
    /// GPUs, and the processes with memory on each.
    Gpu,
    /// Kinds of memory: pinned, managed and others.
    Kind,
}

impl GroupBy {
    /// Whether call sites are listed.
    pub fn is_by_site(self) -> bool {
        matches!(self, Self::Stack | Self::NativeStack)
    }
}

/// Sort order of lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SortBy {
    /// By descending live bytes.
    #[default]
    Bytes,
    /// By descending number of live allocations.
    Count,
    /// By descending age.
    Age,
}

/// A call site, as reports number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteNumber {
    /// Where CUDA was called.
    Cuda(u32),
    /// Where PyTorch's allocator was.
    Tensors(u32),
}

impl FromStr for SiteNumber {
    type Err = String;

    /// `12`, or `T12`.
    fn from_str(text: &str) -> Result<Self, String> {
        let of_tensors = text.strip_prefix(['T', 't']);
        let number = of_tensors.unwrap_or(text).parse();
        let number = number.map_err(|_| format!("'{text}' is not a call site; try 12 or T12"))?;
        Ok(match of_tensors {
            Some(_) => Self::Tensors(number),
            None => Self::Cuda(number),
        })
    }
}

/// Grouping, filters and order of listed memory. Sums of processes are never filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct View {
    /// Group live allocations [default: gpu host-wide, else stack].
    #[arg(long, value_enum, value_name = "WHAT", num_args = 0..=1, default_missing_value = "stack")]
    pub group: Option<GroupBy>,

    /// Show at most N frames of each call stack.
    #[arg(long, value_name = "N", help_heading = "Call stacks")]
    pub depth: Option<usize>,

    /// Show every frame: those inside CUDA's libraries too, and native ones beside Python.
    #[arg(long, help_heading = "Call stacks")]
    pub full_stacks: bool,

    /// Show the call stack of each call site, in text; so do the two options above.
    #[arg(long, help_heading = "Call stacks")]
    pub stacks_shown: bool,

    /// Show names of kernels whole, in lines of any length, in text.
    #[arg(long)]
    pub full_names: bool,

    /// Show more in text: bytes, what is unremarkable, what is probed.
    #[arg(short, long)]
    pub verbose: bool,

    /// Show everything about call site N, or TN for one of tensors, in text.
    #[arg(long, value_name = "N")]
    pub site: Option<SiteNumber>,

    /// List single allocations, in text.
    #[arg(long)]
    pub allocations: bool,

    /// List only allocations of at least this age: 30s, 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub older_than: Option<Duration>,

    /// List only allocations of at least this size: 4096, 64KiB, 2M.
    #[arg(id = "min_size", long = "min-size", value_name = "SIZE", value_parser = parse_size)]
    pub min_bytes: Option<u64>,

    /// Sort order of call sites and allocations.
    #[arg(long, value_enum, value_name = "BY", default_value_t)]
    pub sort: SortBy,
}

impl SortBy {
    /// First part of the sort key of an item with so many allocations, the oldest of this
    /// time.
    pub(crate) fn first(self, allocations: u64, oldest_ns: u64) -> impl Ord + use<> {
        match self {
            Self::Bytes => (0, Reverse(0)),
            Self::Count => (0, Reverse(allocations)),
            Self::Age => (oldest_ns, Reverse(0)),
        }
    }
}

impl View {
    /// Whether call stacks with the same Python lines are one call site.
    pub fn groups_by_lines(&self) -> bool {
        self.group != Some(GroupBy::NativeStack)
    }

    /// Whether call stacks are shown: whoever asks for frames wants to see them.
    pub fn shows_stacks(&self) -> bool {
        self.stacks_shown || self.full_stacks || self.depth.is_some()
    }

    /// Whether no age or size filter is set.
    pub fn includes_all(&self) -> bool {
        self.min_bytes.is_none() && self.older_than.is_none()
    }

    /// Whether `allocation` passes the filters at `now_ns`, `CLOCK_MONOTONIC` nanoseconds.
    pub fn includes(&self, allocation: &Allocation, now_ns: u64) -> bool {
        let bytes = allocation.size_bytes;
        let age = || Duration::from_nanos(now_ns.saturating_sub(allocation.end_ns));
        self.min_bytes.is_none_or(|min| bytes >= min)
            && self.older_than.is_none_or(|least| age() >= least)
    }
}
