//! Live allocations by thread.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::{Omitted, SiteGroups, live, optional_hex};
use crate::{Options, ReportSources, as_text, clock_micros, function_name};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_engine::{Allocation, Process};
use gpuprobe_model::text::hex;

/// A thread with live allocations.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Thread id; `None` if a file does not have it.
    pub tid: Option<u32>,
    /// Name (comm) of the thread, if known.
    pub comm: Option<String>,
    /// Live memory that the thread allocated.
    #[serde(flatten, serialize_with = "live")]
    pub live: MemorySums,
    /// Its largest allocations, in descending order; `--top` limits their number.
    pub allocations: Vec<AllocationReport>,
    /// Number of allocations omitted by `--top`.
    pub omitted_allocations: u64,
    /// Bytes of the omitted allocations.
    pub omitted_bytes: u64,
    /// Allocations excluded by the age and size filters.
    #[serde(rename = "filtered_out", skip_serializing_if = "Option::is_none")]
    pub filtered: Option<Omitted>,
}

/// One live allocation of a thread.
#[derive(Clone, Debug, Serialize)]
pub struct AllocationReport {
    /// Device address, host address, or handle of an array, `0x...` in JSON. For memory behind a
    /// handle, its lowest mapped address, or 0.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// Bytes requested by the program.
    pub bytes: u64,
    /// Device index as CUDA numbers it in the process, if known; `None` for host memory.
    pub device: Option<u16>,
    /// Kind of memory, by name in JSON.
    #[serde(serialize_with = "as_text")]
    pub kind: MemoryKind,
    /// Whether it is host memory.
    #[serde(skip)]
    pub at_host: bool,
    /// The allocating function, as the user called it.
    pub api: Cow<'static, str>,
    /// Id of its call site, if stacks are captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<u32>,
    /// When it was allocated; `None` if a file has no times of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// When it was allocated, nanoseconds of the clock of events.
    #[serde(skip)]
    pub time_ns: u64,
    /// Whether the size is computed from a descriptor; the driver may allocate more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub computed: bool,
    /// Mangled name of the device variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The handle of physical memory.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_hex"
    )]
    pub handle: Option<u64>,
    /// Bytes of it that are mapped, summed over all mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_bytes: Option<u64>,
    /// Handle of the pool that it is from.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_hex"
    )]
    pub pool: Option<u64>,
}

/// The threads with live allocations.
pub(super) fn thread_reports(
    process: &Process,
    groups: &SiteGroups,
    options: &Options,
    sources: ReportSources<'_>,
) -> Vec<ThreadReport> {
    let report = |allocation: &&Allocation| {
        let physical = process.physical_of(allocation);
        let kind = allocation.kind();
        let at_host = allocation.belongs() == Belongs::Host;
        AllocationReport {
            address: physical.map_or(allocation.address, |p| p.address.unwrap_or(0)),
            bytes: allocation.size_bytes,
            device: process.device(allocation).filter(|_| !at_host),
            kind,
            at_host,
            api: function_name(allocation.row, sources.symbols),
            time: sources.clock.map(|clock| clock.wall(allocation.end_ns)),
            time_ns: allocation.end_ns,
            computed: kind.is_computed(),
            name: process.name_of(allocation).map(str::to_owned),
            handle: physical.map(|p| p.handle),
            mapped_bytes: physical.map(|p| p.mapped_bytes),
            site: options.lists_sites().then(|| groups.id(allocation.site)),
            pool: process.pool_of(allocation).and_then(|p| p.handle),
        }
    };
    let mut listed = list(process, options);
    let threads = process.threads();
    let threads = threads.map(|thread| (thread, process.held_by(thread)));
    let threads = threads.filter(|(_, live)| !live.is_empty());
    let threads = threads.map(|(thread, live)| {
        let (largest, filtered) = listed.remove(&thread.tid).unwrap_or_default();
        let all = live.all();
        // A traced process chooses the sizes.
        let left_bytes = all.bytes.saturating_sub(filtered.bytes);
        let left = all.allocations.saturating_sub(filtered.allocations);
        let sizes = largest.values().map(|one| one.size_bytes);
        ThreadReport {
            tid: (thread.tid != 0).then_some(thread.tid),
            comm: thread.comm.clone(),
            live,
            omitted_allocations: left.saturating_sub(largest.len() as u64),
            omitted_bytes: sizes.fold(left_bytes, u64::saturating_sub),
            filtered: filtered.if_any(),
            allocations: largest.values().map(report).collect(),
        }
    });
    let mut threads: Vec<_> = threads.collect();
    threads.sort_by_key(|thread| {
        let live = &thread.live;
        let oldest = thread.allocations.first();
        let oldest_ns = oldest.map_or(u64::MAX, |oldest| oldest.time_ns);
        let all = live.all();
        let first = options.view.sort.first(all.allocations, oldest_ns);
        let (gpu, all) = (Reverse(live.gpu.bytes), Reverse(all.bytes));
        (first, gpu, all, thread.tid)
    });
    threads
}

/// The allocations to list of each thread, and what the filters exclude, found by a scan of all, if any of it is
/// needed.
fn list<'a>(
    process: &'a Process,
    options: &Options,
) -> HashMap<u32, (BTreeMap<impl Ord + use<>, &'a Allocation>, Omitted)> {
    let view = &options.view;
    let top = match options.allocations {
        true => options.top.unwrap_or(usize::MAX),
        false => 0,
    };
    let mut threads: HashMap<u32, (BTreeMap<_, _>, Omitted)> = HashMap::new();
    if top == 0 && view.includes_all() {
        return threads;
    }
    for allocation in process.allocations() {
        let (bytes, end_ns) = (allocation.size_bytes, allocation.end_ns);
        let (first, filtered) = threads.entry(allocation.tid()).or_default();
        if !view.includes(allocation, options.now_ns) {
            filtered.add(bytes);
            continue;
        }
        let sorted = view.sort.first(0, end_ns);
        let rank = (sorted, Reverse(bytes), end_ns, allocation.address);
        let last = first.last_key_value();
        if first.len() < top || last.is_some_and(|(last, _)| rank < *last) {
            first.insert(rank, allocation);
        }
        if first.len() > top {
            first.pop_last();
        }
    }
    threads
}
