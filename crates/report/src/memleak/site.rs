//! One call site in a report.

use std::borrow::Cow;

use chrono::{DateTime, FixedOffset};
use serde::{Serialize, Serializer};

use super::Live;
use super::peak::Peak;
use crate::fold::Folded;
use crate::{clock_micros, verdict};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::Judgement;
use gpuprobe_model::stack::Frame;

/// What is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Call sites, if whole ones are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub sites: u64,
    /// Allocations.
    pub allocations: u64,
    /// Bytes, of all kinds.
    pub bytes: u64,
}

impl LeftOut {
    pub(super) fn add(&mut self, bytes: u64) {
        self.allocations += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One call site.
#[derive(Clone, Debug, Serialize)]
pub struct SiteReport {
    /// Its number within the process and the run.
    pub id: u32,
    /// What it is called: its first frame that is neither CUDA's nor an allocator's, with callers where
    /// others have the same.
    pub label: String,
    /// The function that was called; of several, the one where most is live.
    pub api: Cow<'static, str>,
    /// The others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_apis: Vec<Cow<'static, str>>,
    /// The kinds of memory that are live.
    #[serde(serialize_with = "kind_names")]
    pub kinds: Vec<MemoryKind>,
    /// What was allocated here and is live, as far as its age and size were asked for.
    #[serde(flatten)]
    pub live: Live,
    /// Bytes and allocations that are live here beyond those of the last report, or fewer if negative;
    /// none in the first.
    #[serde(flatten, serialize_with = "changes")]
    pub change: Option<(i64, i64)>,
    /// The most bytes that were live here at a time, whatever their age and size; in JSON, null if that
    /// is not known.
    #[serde(rename = "peak_bytes", serialize_with = "exact")]
    pub peak: Peak,
    /// Bytes ever allocated here.
    pub alloc_bytes: u64,
    /// Allocations ever made here.
    pub alloc_calls: u64,
    /// Of the bytes, those that are no longer live.
    pub freed_bytes: u64,
    /// Of the allocations, those that are no longer live.
    pub free_calls: u64,
    /// When the oldest of what is live was allocated; none if a file does not tell times of day.
    #[serde(serialize_with = "clock_micros")]
    pub oldest: Option<DateTime<FixedOffset>>,
    /// When the newest was.
    #[serde(serialize_with = "clock_micros")]
    pub newest: Option<DateTime<FixedOffset>>,
    /// What was called at the labelled frame, down to the function of CUDA.
    #[serde(skip)]
    pub via: String,
    /// The age of the oldest and of the newest, nanoseconds.
    #[serde(skip)]
    pub ages_ns: (u64, u64),
    /// Whose memory it is: `libtorch`, or the program; `unknown` without a call stack.
    pub owner: String,
    /// An allocator of a framework that tells what it hands out took it, for its pool.
    #[serde(skip)]
    pub is_pooled: bool,
    /// What the site is found to do, and how sure that is; both null where nothing is live.
    #[serde(flatten, serialize_with = "judged")]
    pub judgement: Option<Judgement>,
    /// What a file tells of the calls: `valid` if there is a call stack, `driver` if the program called
    /// the driver itself, else `invalid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'static str>,
    /// The stack reaches the beginning of the thread.
    pub complete: bool,
    /// Call stacks that are put together here, of which this is the one that holds most.
    pub variants: u64,
    /// The numbers of all that ever were, where each is listed by itself.
    #[serde(skip)]
    pub own_ids: Vec<u32>,
    /// Frames that `--depth` leaves out, from the outermost.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_frames: u64,
    /// The call stack, innermost first; empty if it is not known.
    pub stack: Vec<Frame>,
    /// The same for people, if there is Python in it.
    #[serde(skip)]
    pub folded: Option<Folded>,
}

impl SiteReport {
    /// Whether a number is that of this site, or of one that is a part of it.
    pub fn has_id(&self, number: u32) -> bool {
        self.id == number || self.own_ids.contains(&number)
    }

    /// Bytes that are live here beyond those of the last report.
    pub fn change_bytes(&self) -> Option<i64> {
        self.change.map(|(bytes, _)| bytes)
    }
}

fn judged<S: Serializer>(judged: &Option<Judgement>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Judged {
        verdict: Option<&'static str>,
        confidence: Option<String>,
    }
    let judged = judged.as_ref();
    let judged = Judged {
        verdict: judged.map(|judged| judged.verdict.name()),
        confidence: judged.map(|judged| verdict::confidence(judged.confidence)),
    };
    judged.serialize(serializer)
}

fn changes<S: Serializer>(change: &Option<(i64, i64)>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Change {
        change_bytes: Option<i64>,
        change_allocations: Option<i64>,
    }
    let (change_bytes, change_allocations) = change.unzip();
    let change = Change {
        change_bytes,
        change_allocations,
    };
    change.serialize(serializer)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn exact<S: Serializer>(peak: &Peak, serializer: S) -> Result<S::Ok, S::Error> {
    peak.exact().serialize(serializer)
}

fn kind_names<S: Serializer>(kinds: &[MemoryKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(kinds.iter().map(|kind| kind.name()))
}
