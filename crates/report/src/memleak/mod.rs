//! Who holds memory.

mod build;
mod groups;
mod listed;
mod nvml;
mod peak;
mod pytorch;
mod site;
mod sites;
mod threads;
mod untraced;

use std::borrow::Cow;
use std::sync::Arc;

use chrono::{DateTime, FixedOffset};
use gpuprobe_model::text::hex;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::frameworks::TENSORFLOW;
use super::owners::OwnerReport;
use super::{Group, View, as_map, clock_micros};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::imports::Exporter;
use gpuprobe_engine::totals::{Sums, Total};
use gpuprobe_engine::verdict::Judgement;
use gpuprobe_model::GpuMemory;

pub(super) use build::build;
pub(super) use groups::side;
pub use nvml::Nvml;
pub(super) use nvml::tracked;
pub use peak::Peak;
pub use pytorch::PytorchReport;
pub(super) use pytorch::reports as tensor_reports;
pub use site::{LeftOut, SiteReport};
pub(crate) use sites::Holder;
pub(super) use sites::{needed_locations, shown, stack_of};

/// Who holds memory, and what was called.
#[derive(Clone, Debug, Serialize)]
pub struct Memleak {
    /// Successful allocating calls, once each, whatever they nest.
    pub alloc_calls: u64,
    /// Successful frees of something.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Frees of memory that was allocated before tracing began.
    pub unknown_frees: u64,
    /// Successful frees of a null pointer, which do nothing.
    pub null_frees: u64,
    /// What is allocated and not freed, over the processes listed.
    #[serde(flatten)]
    pub live: Live,
    /// By what live allocations are shown to people.
    #[serde(skip)]
    pub group: Group,
    /// Every process of the host is traced.
    #[serde(skip)]
    pub host_wide: bool,
    /// What is shown to people.
    #[serde(skip)]
    pub view: View,
    /// Name of the host, for people.
    #[serde(skip)]
    pub host_name: Option<String>,
    /// Rows at most, for people.
    #[serde(skip)]
    pub top: Option<usize>,
    /// Call stacks are taken.
    #[serde(skip)]
    pub has_stacks: bool,
    /// The GPUs of the host, where NVML is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuMemory>,
    /// The most bytes of GPU memory that living processes held together.
    pub peak_bytes: u64,
    /// What is live by kind.
    pub kinds: Kinds,
    /// GPU memory that is live by device.
    pub devices: Vec<DeviceReport>,
    /// GPU memory that is live by the library or program that asked for it, largest first.
    pub owners: Vec<OwnerReport>,
    /// For how long memory was traced, nanoseconds.
    #[serde(skip)]
    pub watched_ns: u64,
    /// Successful calls of each allocating function that was called.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Processes, largest first.
    pub processes: Vec<ProcessReport>,
}

impl Memleak {
    /// Whether any memory call was seen.
    pub fn has_calls(&self) -> bool {
        self.alloc_calls + self.free_calls + self.failed_calls + self.null_frees > 0
    }
}

/// Live memory: the three sums that are never mixed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Live {
    /// GPU memory.
    pub live_bytes: u64,
    /// Its number of allocations.
    pub live_allocations: u64,
    /// Host memory that CUDA handed out or page-locked.
    pub host_bytes: u64,
    /// Its number of allocations.
    pub host_allocations: u64,
    /// Memory that another process or API has, and this one uses.
    pub imported_bytes: u64,
    /// Its number of allocations.
    pub imported_allocations: u64,
}

impl From<Sums> for Live {
    fn from(sums: Sums) -> Self {
        Self {
            live_bytes: sums.gpu.bytes,
            live_allocations: sums.gpu.allocations,
            host_bytes: sums.host.bytes,
            host_allocations: sums.host.allocations,
            imported_bytes: sums.imported.bytes,
            imported_allocations: sums.imported.allocations,
        }
    }
}

impl Live {
    /// Whether nothing is live.
    pub fn is_empty(&self) -> bool {
        self.allocations() == 0
    }

    /// Allocations of all three.
    pub fn allocations(&self) -> u64 {
        self.live_allocations + self.host_allocations + self.imported_allocations
    }

    /// Bytes of all three, to sort by.
    pub fn bytes(&self) -> u64 {
        let host = self.live_bytes.saturating_add(self.host_bytes);
        host.saturating_add(self.imported_bytes)
    }

    fn add(&mut self, other: &Self) {
        let sum = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        sum(&mut self.live_bytes, other.live_bytes);
        sum(&mut self.live_allocations, other.live_allocations);
        sum(&mut self.host_bytes, other.host_bytes);
        sum(&mut self.host_allocations, other.host_allocations);
        sum(&mut self.imported_bytes, other.imported_bytes);
        sum(&mut self.imported_allocations, other.imported_allocations);
    }
}

/// Live memory by kind, of those kinds that are live; in JSON, a map.
#[derive(Clone, Debug, Default)]
pub struct Kinds(pub Vec<(MemoryKind, Total)>);

impl Kinds {
    fn add(&mut self, kind: MemoryKind, total: Total) {
        match self.0.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, sum)) => sum.merge(total),
            None => {
                self.0.push((kind, total));
                self.0.sort_by_key(|(kind, _)| *kind);
            }
        }
    }
}

impl Serialize for Kinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Live {
            bytes: u64,
            allocations: u64,
        }
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (kind, total) in &self.0 {
            let Total { bytes, allocations } = *total;
            map.serialize_entry(kind.name(), &Live { bytes, allocations })?;
        }
        map.end()
    }
}

/// GPU memory of one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceReport {
    /// Device index as CUDA numbers it for the process, if known.
    pub device: Option<u16>,
    /// Index on the host, as `nvidia-smi` shows it, if known.
    pub physical_index: Option<u32>,
    /// UUID of the GPU or of the part of it that was given to the process, if known.
    pub uuid: Option<String>,
    /// Bytes that are live.
    pub bytes: u64,
    /// Their number of allocations.
    pub allocations: u64,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessReport {
    /// Process id, as the host has it.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name of the user, if known.
    pub user: Option<String>,
    /// Name, if known.
    pub comm: Option<String>,
    /// Its command line, of which the end may be missing, if known.
    pub command: Option<String>,
    /// It has ended, or runs another program now: what is listed was never freed.
    pub exited: bool,
    /// Something of it was traced. If not, it is listed because it uses a GPU or has CUDA loaded.
    pub traced: bool,
    /// It was traced from its start: nothing that it did was missed.
    pub from_start: bool,
    /// For how long it was traced.
    pub traced_seconds: f64,
    /// Process id within its container, if that is another.
    pub container_pid: Option<u32>,
    /// Its cgroup, if known.
    pub cgroup: Option<String>,
    /// The id of its container, if it is in one.
    pub container: Option<String>,
    /// What is allocated and not freed.
    #[serde(flatten)]
    pub live: Live,
    /// Bytes of GPU memory that it holds more than in the last report, or less if negative; none in the
    /// first.
    pub change_bytes: Option<i64>,
    /// The same by minute, in the last minute; none until it is known for a second.
    pub change_bytes_per_minute: Option<i64>,
    /// The most bytes of GPU memory that it held.
    pub peak_bytes: u64,
    /// When that was; none if a file does not tell times of day.
    #[serde(serialize_with = "clock_micros")]
    pub peak_time: Option<DateTime<FixedOffset>>,
    /// How long ago that was, nanoseconds.
    #[serde(skip)]
    pub peak_age_ns: Option<u64>,
    /// How long ago it ended, if it has.
    #[serde(skip)]
    pub ended_age_ns: Option<u64>,
    /// What is live by kind.
    pub kinds: Kinds,
    /// GPU memory that is live by device.
    pub devices: Vec<DeviceReport>,
    /// GPU memory that is live by the library or program that asked for it, largest first.
    pub owners: Vec<OwnerReport>,
    /// What it has on each GPU of the host.
    pub gpus: Vec<GpuShare>,
    /// Bytes of address space that it reserved: no memory.
    pub reserved_address_bytes: u64,
    /// Modules and libraries that it has loaded.
    pub modules: u64,
    /// Its pools of stream-ordered memory.
    pub pools: Vec<PoolReport>,
    /// What it has open of processes that were seen to export it, for explanations.
    #[serde(skip)]
    pub imported_from: Vec<(Arc<Exporter>, Total)>,
    /// Contexts that it has made and not destroyed, and what becomes of them, if any are there and somebody
    /// is to be told.
    #[serde(skip)]
    pub contexts: Option<Judgement>,
    /// What NVML says, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml: Option<Nvml>,
    /// How long ago NVML said that of a process that has ended.
    #[serde(skip)]
    pub nvml_age_ns: Option<u64>,
    /// Threads that allocated what is live, largest first.
    pub threads: Vec<ThreadReport>,
    /// Call sites at which something was allocated that is live, largest first, if stacks are
    /// taken; `--top` limits their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<SiteReport>>,
    /// The same for people, where no stacks are taken: one for each function.
    #[serde(skip)]
    pub functions: Vec<SiteReport>,
    /// Call sites that are left out by `--top`.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<LeftOut>,
    /// Live allocations that are at no call site here, for the age or size that was asked for.
    #[serde(rename = "filtered_out", skip_serializing_if = "Option::is_none")]
    pub filtered: Option<LeftOut>,
    /// What PyTorch's allocator has handed out of it, by device.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pytorch: Vec<PytorchReport>,
    /// Likewise of TensorFlow's, which has no sums of its own: they are of what was seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tensorflow: Vec<PytorchReport>,
    /// Frameworks at whose call sites memory went into a pool of their own: what they hand out of it is
    /// not seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub framework_pools: Vec<&'static str>,
}

impl ProcessReport {
    /// Takes in what frameworks tell of what they have handed out: their pools are no secret.
    pub(crate) fn learn_tensors(
        &mut self,
        (pytorch, tensorflow): (Vec<PytorchReport>, Vec<PytorchReport>),
    ) {
        if !tensorflow.is_empty() {
            self.framework_pools.retain(|name| *name != TENSORFLOW);
        }
        (self.pytorch, self.tensorflow) = (pytorch, tensorflow);
    }

    /// Call sites, for people.
    pub fn listed(&self) -> &[SiteReport] {
        self.sites.as_deref().unwrap_or(&self.functions)
    }
}

/// What a process has on a GPU of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuShare {
    /// Index on the host, as `nvidia-smi` shows it; where that is not known, the process's own number.
    pub index: Option<u32>,
    /// Bytes that NVML says it uses, if NVML is there.
    pub used_bytes: Option<u64>,
    /// Bytes that were traced and are live.
    pub live_bytes: u64,
}

/// A pool of stream-ordered memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PoolReport {
    /// Its handle; `None` for the pool of a device that the program never asked for.
    #[serde(serialize_with = "optional_hex")]
    pub pool: Option<u64>,
    /// Its device, if it is at one.
    pub device: Option<u16>,
    /// Bytes allocated from it.
    pub used_bytes: u64,
    /// Their number of allocations.
    pub used_allocations: u64,
    /// Bytes that it holds, as the driver last told the program; unknown if it never did, or if
    /// that can no longer be true.
    pub reserved_bytes: Option<u64>,
}

/// One thread.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    /// Thread id; none if a file does not tell which call it was.
    pub tid: Option<u32>,
    /// Name, if known.
    pub comm: Option<String>,
    /// What it allocated and is live.
    #[serde(flatten)]
    pub live: Live,
    /// The largest of its allocations, largest first; `--top` limits their number.
    pub allocations: Vec<AllocationReport>,
    /// Allocations left out by `--top`.
    pub omitted_allocations: u64,
    /// Their bytes.
    pub omitted_bytes: u64,
    /// Allocations left out for their age or size.
    #[serde(rename = "filtered_out", skip_serializing_if = "Option::is_none")]
    pub filtered: Option<LeftOut>,
}

/// One live allocation.
#[derive(Clone, Debug, Serialize)]
pub struct AllocationReport {
    /// Device address, host address, or handle of an array, `0x...` in JSON. Of memory behind a
    /// handle, the lowest address that it is mapped at, or 0.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Device index as CUDA numbers it for the process, if known; none for host memory.
    pub device: Option<u16>,
    /// Kind of memory.
    #[serde(serialize_with = "kind_name")]
    pub kind: MemoryKind,
    /// It is memory of the host.
    #[serde(skip)]
    pub at_host: bool,
    /// The function that allocated it, as the user called it.
    pub api: Cow<'static, str>,
    /// The call site that it was allocated at, if stacks are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<u32>,
    /// When it was allocated; none if a file does not tell times of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// The same on the clock of events.
    #[serde(skip)]
    pub time_ns: u64,
    /// The size is computed from a descriptor; the driver may take more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub computed: bool,
    /// The mangled name of a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The handle of physical memory.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_hex"
    )]
    pub handle: Option<u64>,
    /// Bytes of it that are mapped, each mapping once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_bytes: Option<u64>,
    /// The pool that it is from.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_hex"
    )]
    pub pool: Option<u64>,
}

fn kind_name<S: Serializer>(kind: &MemoryKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

fn optional_hex<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => hex(number, serializer),
        None => serializer.serialize_none(),
    }
}
