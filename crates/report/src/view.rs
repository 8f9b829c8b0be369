//! What of a report is shown, and in which order: the vocabulary of leak hunters.

use std::time::Duration;

use gpuprobe_engine::{Allocation, By};

/// By what live allocations are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Group {
    /// Call sites, each with its call stack. In Python programs, calls from the same lines of the
    /// user's files are one.
    Stack,
    /// Call sites, of which each call stack is one.
    NativeStack,
    /// The threads that allocated, and their allocations.
    Thread,
    /// Processes.
    Process,
    /// GPUs, and the processes that hold memory of each.
    Gpu,
    /// Kinds of memory.
    Kind,
}

impl Group {
    /// Whether call sites are listed.
    pub fn is_by_site(self) -> bool {
        matches!(self, Self::Stack | Self::NativeStack)
    }
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Sort {
    /// The most bytes.
    #[default]
    Bytes,
    /// The most allocations.
    Count,
    /// The oldest.
    Age,
}

/// What of live memory is listed, and how. Sums of processes are never restricted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// By what allocations are put together; `None` for GPUs where the whole host is traced, else call
    /// sites.
    pub group: Option<Group>,
    /// Frames of a stack that are shown at most.
    pub depth: Option<usize>,
    /// Allocations of at least this age.
    pub older_than: Option<Duration>,
    /// Allocations of at least so many bytes.
    pub min_bytes: Option<u64>,
    /// Allocations of at most so many bytes.
    pub max_bytes: Option<u64>,
    /// What comes first.
    pub sort: Sort,
    /// Show every frame: CUDA's own too, and in Python programs native code beside Python.
    pub full_stacks: bool,
    /// Show native frames only.
    pub stacks_native: bool,
    /// In text, show the call stack of every site that is listed.
    pub stacks_shown: bool,
    /// In text, show all there is to say of the site with this number.
    pub site: Option<u32>,
    /// Likewise of the call site of tensors.
    pub tensor_site: Option<u32>,
    /// In text, list single allocations.
    pub allocations: bool,
}

impl Sort {
    /// The order of single allocations.
    pub fn of_allocations(self) -> By {
        match self {
            Self::Bytes | Self::Count => By::Size,
            Self::Age => By::Age,
        }
    }
}

impl View {
    /// Whether call stacks with the same lines of Python are one call site.
    pub fn groups_by_lines(&self) -> bool {
        self.group != Some(Group::NativeStack)
    }

    /// Whether it is about one call site only.
    pub fn is_of_one_site(&self) -> bool {
        self.site.is_some() || self.tensor_site.is_some()
    }

    /// Whether all live allocations are listed, whatever their age and size.
    pub fn includes_all(&self) -> bool {
        self.min_bytes.is_none() && self.max_bytes.is_none() && self.older_than.is_none()
    }

    /// Whether `allocation` is listed at `now_ns`, `CLOCK_MONOTONIC` nanoseconds.
    pub fn includes(&self, allocation: &Allocation, now_ns: u64) -> bool {
        let bytes = allocation.size_bytes;
        let age = Duration::from_nanos(now_ns.saturating_sub(allocation.end_ns));
        self.min_bytes.is_none_or(|min| bytes >= min)
            && self.max_bytes.is_none_or(|max| bytes <= max)
            && self.older_than.is_none_or(|least| age >= least)
    }
}
