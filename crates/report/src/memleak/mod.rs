//! Report of live memory by process, thread, call site and device.

mod allocator;
mod build;
mod handles;
mod sites;
mod threads;

use std::collections::BTreeMap;

use chrono::{DateTime, FixedOffset};
use serde::{Serialize, Serializer};

use super::owners::OwnerReport;
use super::words::Who;
use super::{Options, as_map, clock_micros};
use gpuprobe_cuda::{Framework, MemoryKind};
use gpuprobe_engine::totals::{MemorySums, Total};
use gpuprobe_engine::verdict::Judgement;
use gpuprobe_model::identity::{DeviceIdentity, Identity};
use gpuprobe_model::{GpuMemory, GpuUsage};

pub use allocator::AllocatorReport;
pub use build::build;
pub use handles::HandleReport;
pub(crate) use sites::{Holder, judge_largest};
pub use sites::{Omitted, Peak, SiteGroups, SiteLists, SiteReport, frames_of, shown, side};
pub use threads::{AllocationReport, ThreadReport};

/// Live memory, and counts of memory calls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Memleak {
    /// Successful allocating calls; nested calls are counted once.
    pub alloc_calls: u64,
    /// Successful frees, without those of null pointers.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Frees of memory allocated before tracing began.
    pub unknown_frees: u64,
    /// Successful frees of a null pointer, which do nothing.
    pub null_frees: u64,
    /// Live memory of the listed processes.
    #[serde(flatten, serialize_with = "live")]
    pub live: MemorySums,
    /// Options of the report, for text.
    #[serde(skip)]
    pub options: Options,
    /// Name of the host, in text.
    #[serde(skip)]
    pub host_name: Option<String>,
    /// The GPUs of the host, if NVML is available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuMemory>,
    /// Peak of the GPU memory that live processes held together, bytes.
    pub peak_bytes: u64,
    /// Live memory by kind.
    pub kinds: LiveByKind,
    /// Live GPU memory by device.
    pub devices: Vec<DeviceReport>,
    /// Live GPU memory by the library or program that allocated it, largest first.
    pub owners: Vec<OwnerReport>,
    /// Successful calls by allocating function, without functions that were not called.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Processes with memory, largest first.
    pub processes: Vec<ProcessReport>,
}

impl Memleak {
    /// Whether there is neither a process that uses CUDA nor a memory call.
    pub fn is_empty(&self) -> bool {
        let calls = self.alloc_calls + self.free_calls + self.failed_calls + self.null_frees;
        self.processes.is_empty() && calls == 0
    }
}

/// Live memory, as three sums that are never added up for display.
pub(crate) fn live<S: Serializer>(sums: &MemorySums, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([
        ("live_bytes", sums.gpu.bytes),
        ("live_allocations", sums.gpu.allocations),
        ("host_bytes", sums.host.bytes),
        ("host_allocations", sums.host.allocations),
        ("imported_bytes", sums.imported.bytes),
        ("imported_allocations", sums.imported.allocations),
    ])
}

/// Live memory by kind, without kinds that have none; in JSON, a map.
#[derive(Clone, Debug, Default)]
pub struct LiveByKind(pub BTreeMap<MemoryKind, Total>);

impl Serialize for LiveByKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(kind, total)| (kind.name(), total)))
    }
}

/// Live GPU memory of one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Device index as CUDA numbers it in the process, if known.
    pub device: Option<u16>,
    /// The device on the host, as far as it is known.
    #[serde(flatten)]
    pub identity: DeviceIdentity,
    /// Live memory.
    #[serde(flatten)]
    pub live: Total,
}

/// A process that uses GPU memory.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessReport {
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// Whether it has ended or called `exec`; its live memory was never freed.
    pub exited: bool,
    /// Its GPU memory while it is checkpointed: in host memory, until it is restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpointed: Option<Total>,
    /// Whether more than its sums is listed.
    #[serde(skip)]
    pub has_details: bool,
    /// Whether it was traced. If not, it is listed because it uses a GPU or has CUDA loaded.
    pub traced: bool,
    /// Whether it was traced from its start.
    pub from_start: bool,
    /// Milliseconds from its start until its libraries were probed, if that was after it had mapped them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traced_from_ms: Option<u64>,
    /// The interpreter that runs it, in explanations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<&'static str>,
    /// How long it was traced, seconds.
    pub traced_seconds: f64,
    /// Process id within its container, if different.
    pub container_pid: Option<u32>,
    /// Its cgroup, if known.
    pub cgroup: Option<String>,
    /// Id of its container, if it is in one.
    pub container: Option<String>,
    /// Live memory of the process.
    #[serde(flatten, serialize_with = "live")]
    pub live: MemorySums,
    /// Change of its GPU memory since the last report, bytes; `None` in the first report.
    pub change_bytes: Option<i64>,
    /// Change of its GPU memory in bytes per minute, over the last minute; `None` for the first
    /// second.
    pub change_bytes_per_minute: Option<i64>,
    /// Peak of its GPU memory, bytes.
    pub peak_bytes: u64,
    /// When the peak was reached; `None` if a file has no times of day.
    #[serde(serialize_with = "clock_micros")]
    pub peak_time: Option<DateTime<FixedOffset>>,
    /// Age of the peak, nanoseconds.
    #[serde(skip)]
    pub peak_age_ns: Option<u64>,
    /// Live memory by kind.
    pub kinds: LiveByKind,
    /// Live GPU memory by device.
    pub devices: Vec<DeviceReport>,
    /// The same by device and kind, for metrics.
    #[serde(skip)]
    pub device_kinds: Vec<(Option<u16>, MemoryKind, Total)>,
    /// Live GPU memory by the library or program that allocated it, largest first.
    pub owners: Vec<OwnerReport>,
    /// Memory on each GPU of the host.
    pub gpus: Vec<GpuShare>,
    /// Bytes of reserved address space, which takes no memory.
    pub reserved_address_bytes: u64,
    /// Number of loaded modules and libraries.
    pub modules: u64,
    /// Pools of stream-ordered memory.
    pub pools: Vec<PoolReport>,
    /// Memory imported from traced processes, by these, for explanations.
    #[serde(skip)]
    pub imported_from: Vec<(Who, Total)>,
    /// Streams, events, modules, contexts and the like, by the line that made them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handles: Vec<HandleReport>,
    /// Verdict on memory outside of call sites, if it grows, for explanations.
    #[serde(skip)]
    pub outside: Option<Judgement>,
    /// Memory use according to NVML, if it is available; of a process that has ended, at the last report before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml: Option<NvmlUsage>,
    /// Threads with live allocations, largest first.
    pub threads: Vec<ThreadReport>,
    /// Its call sites.
    #[serde(flatten)]
    pub lists: SiteLists,
    /// Blocks of frameworks' allocators within this memory, by framework and device.
    #[serde(flatten, serialize_with = "allocator::by_framework")]
    pub allocators: Vec<AllocatorReport>,
    /// Frameworks with pools of their own among the call sites, whose tensors are not traced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub framework_pools: Vec<&'static str>,
    /// Frameworks whose blocks are not recorded any more, as most did not fit the memory from CUDA.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frameworks_not_recorded: Vec<&'static str>,
}

impl ProcessReport {
    /// PyTorch's allocators, by device.
    pub fn pytorch(&self) -> impl Iterator<Item = &AllocatorReport> {
        let all = self.allocators.iter();
        all.filter(|one| one.framework == Framework::PyTorch)
    }

    /// The call site that holds most.
    pub fn largest_site(&self) -> Option<&SiteReport> {
        self.listed().iter().max_by_key(|site| site.live.gpu.bytes)
    }

    /// Allocations of its threads that are not listed: beyond the limit, and filtered out.
    pub fn unlisted_allocations(&self) -> (u64, u64) {
        let sum = |part: fn(&ThreadReport) -> u64| self.threads.iter().map(part).sum();
        let filtered = |thread: &ThreadReport| thread.filtered.map_or(0, |left| left.allocations);
        (sum(|thread| thread.omitted_allocations), sum(filtered))
    }

    pub(crate) fn new(who: Who, identity: &Identity) -> Self {
        Self {
            who,
            container_pid: identity.container_pid,
            cgroup: identity.cgroup.clone(),
            container: identity.container.clone(),
            ..Self::default()
        }
    }

    /// Who it is, and that it has ended or is checkpointed.
    pub fn title(&self) -> String {
        let is_checkpointed = self.checkpointed.is_some();
        let state = ["", "  (checkpointed)"][usize::from(is_checkpointed)];
        self.who.title(self.exited) + state
    }

    /// Its program, and that it has ended or is checkpointed.
    pub fn program(&self) -> String {
        let state = match self.checkpointed {
            _ if self.exited => " (ended)",
            Some(_) => " (checkpointed)",
            None => "",
        };
        self.who.program() + state
    }

    /// Call sites to be listed in text.
    pub fn listed(&self) -> &[SiteReport] {
        let lists = &self.lists;
        lists.sites.as_deref().unwrap_or(&lists.functions)
    }

    /// The same, and those of tensors with their device.
    pub fn all_sites(&self) -> impl Iterator<Item = (&SiteReport, Option<u16>)> {
        let tensors = self.allocators.iter().flat_map(|pool| {
            let sites = pool.lists.sites.iter().flatten();
            sites.map(|site| (site, Some(pool.device)))
        });
        self.listed().iter().map(|site| (site, None)).chain(tensors)
    }
}

/// Memory use of a process according to NVML, and how much of it is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NvmlUsage {
    /// Bytes that the process uses on all GPUs.
    pub used_bytes: u64,
    /// Bytes of it that the ledger knows. Managed memory is excluded: `used_bytes` includes only
    /// the part that is resident on a GPU.
    pub tracked_bytes: u64,
    /// The rest: allocated before tracing began, contexts, code, rounding of allocations, and other
    /// APIs. Negative if some tracked memory is not on a GPU.
    pub other_bytes: i64,
    /// Approximate part of the rest that contexts take: the minimum of the rest over processes
    /// traced from their start. `None` if there was none.
    pub context_bytes: Option<u64>,
    /// Part of the rest that frameworks have by their own account: segments from before the tracing.
    pub segment_bytes: u64,
    /// Their framework, if it is one.
    #[serde(skip)]
    pub segments_of: Option<Framework>,
}

impl NvmlUsage {
    /// Breakdown of the use of process `pid`, of which `tracked_bytes` are known; `None` if `usage` has no such process.
    fn of(pid: u32, tracked_bytes: u64, usage: &GpuUsage) -> Option<Self> {
        let used = usage.processes.get(&pid)?;
        let used_bytes = used
            .iter()
            .fold(0, |sum: u64, (_, b)| sum.saturating_add(*b));
        let other_bytes = i128::from(used_bytes) - i128::from(tracked_bytes);
        let rest = used_bytes.checked_sub(tracked_bytes);
        let contexts = used.iter().map(|(gpu, _)| usage.contexts.get(gpu).copied());
        let contexts: Option<u64> = contexts.sum();
        Some(Self {
            used_bytes,
            tracked_bytes,
            other_bytes: i64::try_from(other_bytes).unwrap_or(i64::MIN),
            context_bytes: contexts
                .zip(rest)
                .map(|(contexts, rest)| contexts.min(rest)),
            segment_bytes: 0,
            segments_of: None,
        })
    }
}

/// Memory of a process on a GPU of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuShare {
    /// Index on the host, as `nvidia-smi` shows it; if unknown, the process's device index.
    pub index: Option<u32>,
    /// Bytes used according to NVML, if it is available.
    pub used_bytes: Option<u64>,
    /// Bytes of traced live memory.
    pub live_bytes: u64,
}

/// A pool of stream-ordered memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PoolReport {
    /// Its handle; `None` for a device's default pool that the program never queried.
    #[serde(serialize_with = "optional_hex")]
    pub pool: Option<u64>,
    /// Device index, if it is on a device.
    pub device: Option<u16>,
    /// Bytes allocated from it.
    pub used_bytes: u64,
    /// Number of allocations from it.
    pub used_allocations: u64,
    /// Bytes reserved, as last reported by the driver; `None` if the program never queried it, or
    /// if the value is known to be outdated.
    pub reserved_bytes: Option<u64>,
}

fn optional_hex<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    number
        .map(|number| format!("{number:#x}"))
        .serialize(serializer)
}
