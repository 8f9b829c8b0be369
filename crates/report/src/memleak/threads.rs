//! Live allocations by thread.

use std::borrow::Cow;
use std::cmp::Reverse;

use chrono::{DateTime, FixedOffset};
use serde::{Serialize, Serializer};

use super::groups::SiteGroups;
use super::{LiveMemory, Omitted, optional_hex};
use crate::{Options, SortBy, clock_micros, function_name};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::{Allocation, Process, TopN};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::Symbolize;
use gpuprobe_model::text::hex;

/// A thread with live allocations.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Thread id; `None` if a file does not have it.
    pub tid: Option<u32>,
    /// Name (comm) of the thread, if known.
    pub comm: Option<String>,
    /// Live memory that the thread allocated.
    #[serde(flatten)]
    pub live: LiveMemory,
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
    #[serde(serialize_with = "kind_name")]
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

fn kind_name<S: Serializer>(kind: &MemoryKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// A saturating sum: a traced process chooses the sizes.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The threads with live allocations.
pub(super) fn thread_reports(
    process: &Process,
    clock: Option<&WallClock>,
    options: &Options,
    (groups, symbols): (&SiteGroups, &dyn Symbolize),
) -> Vec<ThreadReport> {
    let mut threads: Vec<_> = process
        .threads()
        .iter()
        .zip(listed_by_thread(process, options))
        .filter(|(thread, _)| !thread.live.is_empty())
        .map(|(thread, of_thread)| {
            let live = LiveMemory::from(thread.live);
            let (filtered, largest) = (of_thread.filtered, of_thread.first.into_sorted());
            let shown_bytes = sum(largest.iter().map(|a| a.size_bytes));
            let listed_bytes = live.bytes().saturating_sub(filtered.bytes);
            let listed_allocations = live.allocations().saturating_sub(filtered.allocations);
            let report = ThreadReport {
                tid: (thread.tid != 0).then_some(thread.tid),
                comm: thread.comm.clone(),
                live,
                omitted_allocations: listed_allocations.saturating_sub(largest.len() as u64),
                omitted_bytes: listed_bytes.saturating_sub(shown_bytes),
                filtered: (filtered.allocations > 0).then_some(filtered),
                allocations: largest
                    .iter()
                    .map(|a| allocation_report(process, a, clock, options, (groups, symbols)))
                    .collect(),
            };
            (of_thread.oldest_ns, report)
        })
        .collect();
    threads.sort_by_key(|(oldest_ns, thread)| {
        let live = &thread.live;
        let first = options.view.sort.first(live.allocations(), *oldest_ns);
        let (gpu, all) = (Reverse(live.live_bytes), Reverse(live.bytes()));
        (first, gpu, all, thread.tid)
    });
    threads.into_iter().map(|(_, report)| report).collect()
}

/// Listed allocations of a thread.
#[derive(Clone)]
struct OfThread<'a> {
    first: TopN<'a>,
    filtered: Omitted,
    oldest_ns: u64,
}

/// Limit on the listed allocations per thread.
fn top(options: &Options) -> usize {
    let top = options.top.unwrap_or(usize::MAX);
    if options.allocations { top } else { 0 }
}

/// The allocations to list of each thread, found by a scan of all, if any of it is needed.
fn listed_by_thread<'a>(process: &'a Process, options: &Options) -> Vec<OfThread<'a>> {
    let view = &options.view;
    let nothing = OfThread {
        first: TopN::new(top(options), view.sort.of_allocations()),
        filtered: Omitted::default(),
        oldest_ns: u64::MAX,
    };
    let mut threads = vec![nothing; process.threads().len()];
    if top(options) == 0 && view.includes_all() && view.sort != SortBy::Age {
        return threads;
    }
    for allocation in process.allocations() {
        let thread = &mut threads[Process::thread_index(allocation)];
        if view.includes(allocation, options.now_ns) {
            thread.oldest_ns = allocation.end_ns.min(thread.oldest_ns);
            thread.first.offer(allocation);
        } else {
            thread.filtered.add(allocation.size_bytes);
        }
    }
    threads
}

fn allocation_report(
    process: &Process,
    allocation: &Allocation,
    clock: Option<&WallClock>,
    options: &Options,
    (groups, symbols): (&SiteGroups, &dyn Symbolize),
) -> AllocationReport {
    let physical = process.physical_of(allocation);
    let at_host = allocation.belongs() == Belongs::Host;
    AllocationReport {
        address: physical.map_or(allocation.address, |p| p.address.unwrap_or(0)),
        bytes: allocation.size_bytes,
        device: process.device(allocation).filter(|_| !at_host),
        kind: allocation.kind(),
        at_host,
        api: function_name(allocation.row, symbols),
        time: clock.map(|clock| clock.wall(allocation.end_ns)),
        time_ns: allocation.end_ns,
        computed: allocation.kind().is_computed(),
        name: process.name_of(allocation).map(str::to_owned),
        handle: physical.map(|p| p.handle),
        mapped_bytes: physical.map(|p| p.mapped_bytes),
        site: options.lists_sites().then(|| groups.id(allocation.site)),
        pool: process.pool_of(allocation).and_then(|p| p.handle),
    }
}
