//! One call site in a report.

use std::borrow::Cow;

use chrono::{DateTime, FixedOffset};
use serde::{Serialize, Serializer};

use super::LiveMemory;
use crate::clock_micros;
use crate::fold::Folded;
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::Judgement;
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;

/// Sums of what is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Omitted {
    /// Number of call sites, if whole ones are omitted.
    #[serde(skip_serializing_if = "is_zero")]
    pub sites: u64,
    /// Number of allocations not listed.
    pub allocations: u64,
    /// Bytes, of all kinds of memory.
    pub bytes: u64,
}

impl Omitted {
    pub(super) fn add(&mut self, bytes: u64) {
        self.allocations += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Adds the memory of a whole site.
    pub(crate) fn add_site(&mut self, live: Total) {
        self.sites += 1;
        self.allocations += live.allocations;
        self.bytes = self.bytes.saturating_add(live.bytes);
    }

    /// The sums, unless nothing is omitted.
    pub(crate) fn if_any(self) -> Option<Self> {
        (self.allocations > 0).then_some(self)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Bounds on the peak of a group of call sites: the peak of each site is known, but they need not
/// have been at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Lower bound: the largest peak of one site, or the current live bytes.
    pub least: u64,
    /// Upper bound: the sum of the peaks.
    pub most: u64,
}

impl Peak {
    /// The peak, if it is exact: for one site, or if all sites are at their peak now.
    pub fn exact(&self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }
}

/// One call site of a process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SiteReport {
    /// Its id within the process and the run.
    pub id: u32,
    /// Its label: the first frame that belongs neither to CUDA nor to an allocator, with callers if
    /// other sites have the same.
    pub label: String,
    /// The allocating function; of several, the one with the most live bytes.
    pub api: Cow<'static, str>,
    /// The other allocating functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_apis: Vec<Cow<'static, str>>,
    /// Kinds of the live memory.
    #[serde(serialize_with = "kind_names")]
    pub kinds: Vec<MemoryKind>,
    /// Live memory within the age and size filters.
    #[serde(flatten)]
    pub live: LiveMemory,
    /// Change of live bytes and allocations since the last report; `None` in the first.
    #[serde(flatten, serialize_with = "changes")]
    pub change: Option<(i64, i64)>,
    /// Peak of live bytes, regardless of filters; in JSON, null if unknown.
    #[serde(rename = "peak_bytes", serialize_with = "exact")]
    pub peak: Peak,
    /// Bytes ever allocated here.
    pub alloc_bytes: u64,
    /// Number of allocations ever made here.
    pub alloc_calls: u64,
    /// Bytes of these allocations that were freed.
    pub freed_bytes: u64,
    /// Number of these allocations that were freed.
    pub free_calls: u64,
    /// Time of the oldest live allocation; `None` if a file has no times of day.
    #[serde(serialize_with = "clock_micros")]
    pub oldest: Option<DateTime<FixedOffset>>,
    /// Time of the newest live allocation.
    #[serde(serialize_with = "clock_micros")]
    pub newest: Option<DateTime<FixedOffset>>,
    /// Calls from the labelled frame down to the CUDA function.
    #[serde(skip)]
    pub via: String,
    /// Ages of the oldest and of the newest live allocation, nanoseconds.
    #[serde(skip)]
    pub ages_ns: (u64, u64),
    /// Owner of the memory: `libtorch`, or the program; `unknown` without a call stack.
    pub owner: String,
    /// Whether it was allocated for the pool of a framework whose tensors are traced.
    #[serde(skip)]
    pub is_pooled: bool,
    /// Whether an allocator or a framework keeps the memory and reuses it.
    #[serde(skip)]
    pub is_kept: bool,
    /// Whether the owner is a library, not the program or an interpreter.
    #[serde(skip)]
    pub is_library: bool,
    /// Verdict on the site and its confidence; both null if no memory is live.
    #[serde(flatten, serialize_with = "judged")]
    pub judgement: Option<Judgement>,
    /// Quality of the call in a file: `valid` with a call stack, `driver` for a direct driver call,
    /// else `invalid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'static str>,
    /// Whether the stack reaches the start of the thread.
    pub complete: bool,
    /// Number of call stacks grouped here; this is the one with the most bytes.
    pub variants: u64,
    /// Ids of all sites in the group, as they are without grouping.
    #[serde(skip)]
    pub own_ids: Vec<u32>,
    /// Number of outer frames omitted by `--depth`.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_frames: u64,
    /// The call stack, innermost frame first; empty if unknown.
    pub stack: Vec<Frame>,
    /// The folded stack for text, if there are Python frames.
    #[serde(skip)]
    pub folded: Option<Folded>,
}

impl SiteReport {
    /// Whether `number` is the id of this site, or of one grouped here.
    pub fn has_id(&self, number: u32) -> bool {
        self.id == number || self.own_ids.contains(&number)
    }

    /// Change of live bytes since the last report.
    pub fn change_bytes(&self) -> Option<i64> {
        self.change.map(|(bytes, _)| bytes)
    }
}

fn judged<S: Serializer>(judged: &Option<Judgement>, serializer: S) -> Result<S::Ok, S::Error> {
    let judged = judged.as_ref();
    let verdict = judged.map(|judged| judged.verdict.name().to_owned());
    let confidence = judged.map(|judged| judged.confidence.to_string());
    serializer.collect_map([("verdict", verdict), ("confidence", confidence)])
}

fn changes<S: Serializer>(change: &Option<(i64, i64)>, serializer: S) -> Result<S::Ok, S::Error> {
    let (bytes, allocations) = change.unzip();
    serializer.collect_map([("change_bytes", bytes), ("change_allocations", allocations)])
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn exact<S: Serializer>(peak: &Peak, serializer: S) -> Result<S::Ok, S::Error> {
    peak.exact().serialize(serializer)
}

fn kind_names<S: Serializer>(kinds: &[MemoryKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(kinds.iter().map(|kind| kind.name()))
}
