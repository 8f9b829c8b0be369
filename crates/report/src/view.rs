//! Grouping, filters and order of live memory in a report.

use std::cmp::Reverse;
use std::time::Duration;

use gpuprobe_engine::{Allocation, AllocationOrder};

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

/// Grouping, filters and order of listed memory. Sums of processes are never filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Groups of live allocations; `None` for GPUs in a host-wide trace, else call sites.
    pub group: Option<GroupBy>,
    /// Limit on the frames shown of a stack.
    pub depth: Option<usize>,
    /// Minimum age of allocations.
    pub older_than: Option<Duration>,
    /// Minimum size of allocations, bytes.
    pub min_bytes: Option<u64>,
    /// Maximum size of allocations, bytes.
    pub max_bytes: Option<u64>,
    /// Sort order of lists.
    pub sort: SortBy,
    /// Show every frame: CUDA's own too, and in Python programs native code beside Python.
    pub full_stacks: bool,
    /// Show native frames only.
    pub stacks_native: bool,
    /// In text, show the call stack of every listed site.
    pub stacks_shown: bool,
    /// In text, show names of kernels whole.
    pub full_names: bool,
    /// In text, show all details of the site with this id.
    pub site: Option<u32>,
    /// In text, show all details of the tensor site with this id.
    pub tensor_site: Option<u32>,
    /// In text, list single allocations.
    pub allocations: bool,
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

    /// Sort order of single allocations.
    pub fn of_allocations(self) -> AllocationOrder {
        match self {
            Self::Bytes | Self::Count => AllocationOrder::Size,
            Self::Age => AllocationOrder::Age,
        }
    }
}

impl View {
    /// Whether call stacks with the same Python lines are one call site.
    pub fn groups_by_lines(&self) -> bool {
        self.group != Some(GroupBy::NativeStack)
    }

    /// Whether one call site only is shown.
    pub fn is_of_one_site(&self) -> bool {
        self.site.is_some() || self.tensor_site.is_some()
    }

    /// Whether no age or size filter is set.
    pub fn includes_all(&self) -> bool {
        self.min_bytes.is_none() && self.max_bytes.is_none() && self.older_than.is_none()
    }

    /// Whether `allocation` passes the filters at `now_ns`, `CLOCK_MONOTONIC` nanoseconds.
    pub fn includes(&self, allocation: &Allocation, now_ns: u64) -> bool {
        let bytes = allocation.size_bytes;
        let age = || Duration::from_nanos(now_ns.saturating_sub(allocation.end_ns));
        self.min_bytes.is_none_or(|min| bytes >= min)
            && self.max_bytes.is_none_or(|max| bytes <= max)
            && self.older_than.is_none_or(|least| age() >= least)
    }
}
