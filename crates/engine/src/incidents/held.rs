//! Memory that a process, and others on the same GPU, held when a request failed.

use std::cmp::Reverse;
use std::rc::Rc;

use super::{Incident, IncidentOutcome, MemoryRequest};
use crate::allocation::AllocationPlace;
use crate::pools;
use crate::process::Process;
use crate::sites::Sites;
use crate::tensors::{Allocator, Fragmentation};
use crate::totals::{MemorySums, Total};
use crate::{Identity, arrays};
use gpuprobe_cuda::{Belongs, Framework, MemoryKind, Op};
use gpuprobe_model::event::{Call, OutOfMemory};
use gpuprobe_model::stack::CallStack;

/// Call sites kept per incident, to be grouped by owner or by Python line.
pub(super) const MAX_SITES: usize = 1024;
/// Other processes kept per incident.
const MAX_OTHERS: usize = 64;

/// Memory that a process held.
#[derive(Clone, Debug, Default)]
pub struct HeldByProcess {
    /// Sums of GPU, host and imported memory.
    pub sums: MemorySums,
    /// Live memory by kind.
    pub kinds: Vec<(MemoryKind, Total)>,
    /// GPU memory on the device of the request, if that is known.
    pub on_device: Option<Total>,
    /// The call sites with the most memory of the requested sort (GPU or host), largest first.
    pub sites: Vec<HeldSite>,
    /// Number of further call sites, and the memory that they hold.
    pub other_sites: (u64, Total),
    /// State of a framework's allocator on that device, if one is in use.
    pub allocator: Option<HeldByAllocator>,
}

/// A call site and the memory that it held.
#[derive(Clone, Debug)]
pub struct HeldSite {
    /// Number of the call site within the process.
    pub number: u32,
    /// Index of the allocating function in the function table.
    pub row: u16,
    /// Call stack; `None` if unknown.
    pub stack: Option<Rc<CallStack>>,
    /// Live memory of the call site.
    pub live: Total,
}

/// State of a framework's allocator on a device.
#[derive(Clone, Debug)]
pub struct HeldByAllocator {
    /// The framework.
    pub framework: Option<Framework>,
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// Bytes allocated, as the allocator reports.
    pub allocated_bytes: u64,
    /// Bytes reserved from CUDA, as the allocator reports, less the segments freed since.
    pub reserved_bytes: u64,
    /// Its segments whose allocation was seen.
    pub found: Fragmentation,
    /// The call sites with the most allocated bytes, largest first.
    pub sites: Vec<HeldSite>,
    /// Number of further call sites, and their allocated memory.
    pub other_sites: (u64, Total),
}

/// Another traced process with memory on the same GPU.
#[derive(Clone, Debug)]
pub struct Other {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Identity of the process.
    pub identity: Identity,
    /// Memory that it held on the GPU.
    pub live: Total,
}

/// Whether `call` requests host memory.
pub(super) fn is_of_host(call: &Call) -> bool {
    call.function.kind.belongs() == Belongs::Host
        || call.function.op == Op::HandleCreate
            && pools::place(call.value(0), None) == AllocationPlace::Host
}

/// Bytes that `call`, which may have failed, requested, if it has a size.
pub(super) fn asked_bytes(call: &Call) -> Option<u64> {
    let values = call.detail.as_deref().map(|detail| &detail.values);
    match (call.function.kind, values) {
        (MemoryKind::Array, Some(values)) => arrays::of_layer(call.function.layer, values),
        // Rows of this many bytes; a failed call returns no pitch.
        (MemoryKind::Pitched, Some([width, height, depth, ..])) => {
            let rows = (*height).max(1).saturating_mul((*depth).max(1));
            Some(width.saturating_mul(rows))
        }
        (MemoryKind::Imported, _) if call.function.op != Op::HandleImport => None,
        _ => Some(call.size_bytes),
    }
}

impl MemoryRequest {
    /// The request that `call` of `process` made.
    pub(crate) fn of(call: &Call) -> Self {
        let at_host = is_of_host(call);
        Self {
            row: call.row,
            result: Some(call.result),
            kind: call.function.kind,
            bytes: asked_bytes(call),
            device: call.device.filter(|_| !at_host),
            at_host,
            stack: call.stack,
        }
    }

    /// The request that `oom` reports as failed, if no failed call was seen.
    pub(crate) fn reported(oom: &OutOfMemory) -> Self {
        Self {
            row: oom.row,
            result: None,
            kind: MemoryKind::Device,
            bytes: Some(oom.bytes),
            device: oom.device,
            at_host: false,
            stack: oom.stack,
        }
    }
}

impl Incident {
    /// An incident of `process`, with a request that has just failed.
    pub(crate) fn new(
        id: u64,
        process: &Process,
        (tid, time_ns): (u32, u64),
        asked: MemoryRequest,
    ) -> Self {
        let device = asked.device.or(process.only_device());
        Self {
            id,
            pid: process.pid,
            tid,
            uid: process.uid,
            comm: process.comm.clone(),
            identity: process.identity.clone(),
            time_ns,
            last_ns: time_ns,
            attempts: u64::from(asked.result.is_some()),
            repeats: 0,
            stack: process.sites.stack(asked.stack).cloned(),
            given_up: None,
            held: HeldByProcess::of(process, device, asked.at_host),
            others: Vec::new(),
            gpu: None,
            outcome: IncidentOutcome::Pending,
            outcome_ns: None,
            is_reported: false,
            asked,
        }
    }

    /// Adds those of `processes` with memory on the GPU of the request.
    #[must_use]
    pub(crate) fn among<'a>(mut self, processes: impl Iterator<Item = &'a Process>) -> Self {
        if self.asked.at_host {
            return self;
        }
        let device = self.device();
        let mut others: Vec<_> = processes
            .filter(|process| process.pid != self.pid)
            .filter_map(|process| {
                let held = process.devices().into_iter();
                let here = held.filter(|(number, _)| self.is_on(device, process, *number));
                let live = here.map(|(_, total)| total).reduce(|mut sum, total| {
                    sum.merge(total);
                    sum
                })?;
                Some(Other {
                    pid: process.pid,
                    uid: process.uid,
                    comm: process.comm.clone(),
                    identity: process.identity.clone(),
                    live,
                })
            })
            .collect();
        others.sort_by_key(|other| (Reverse(other.live.bytes), other.pid));
        others.truncate(MAX_OTHERS);
        self.others = others;
        self
    }

    /// Whether device `number` of `process` is device `device` of this process: compared by UUID,
    /// else by index on the host, else by device index.
    fn is_on(&self, device: Option<u16>, process: &Process, number: Option<u16>) -> bool {
        let (Some(device), Some(number)) = (device, number) else {
            return false;
        };
        let ours = self.identity.device(device);
        let theirs = process.identity.device(number);
        match (ours.uuid, theirs.uuid) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => match (ours.physical_index, theirs.physical_index) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => device == number,
            },
        }
    }
}

impl HeldByProcess {
    /// Memory that `process` holds now; `device` is the device of the request.
    pub(crate) fn of(process: &Process, device: Option<u16>, at_host: bool) -> Self {
        let (sites, other_sites) = largest(&process.sites, |live| match at_host {
            true => live.host,
            false => live.gpu,
        });
        let on_device = device.map(|device| {
            let mut devices = process.devices().into_iter();
            let found = devices.find(|(number, _)| *number == Some(device));
            found.unwrap_or_default().1
        });
        let is_on = |one: &&Allocator| !at_host && device.is_none_or(|d| d == one.device);
        let allocator = process.tensors.iter().find(is_on);
        Self {
            sums: process.totals.sums,
            kinds: process.totals.kinds().collect(),
            on_device,
            sites,
            other_sites,
            allocator: allocator.map(|allocator| HeldByAllocator::of(allocator, process)),
        }
    }
}

impl HeldByAllocator {
    fn of(allocator: &Allocator, process: &Process) -> Self {
        let (sites, other_sites) = largest(&allocator.blocks.sites, |live| live.gpu);
        Self {
            framework: allocator.framework(),
            device: allocator.device,
            allocated_bytes: allocator.allocated_bytes,
            reserved_bytes: allocator.reserved_bytes,
            found: allocator.fragmentation(process),
            sites,
            other_sites,
        }
    }
}

/// The call sites with the most live memory, largest first, and the number and sum of the others.
fn largest(sites: &Sites, of: impl Fn(MemorySums) -> Total) -> (Vec<HeldSite>, (u64, Total)) {
    let mut found: Vec<_> = (0..)
        .zip(sites.iter())
        .map(|(number, site)| (number, of(site.live)))
        .filter(|(_, live)| live.allocations > 0)
        .collect();
    found.sort_unstable_by_key(|(number, live)| (Reverse(live.bytes), *number));
    let mut others = Total::default();
    let rest = found.get(MAX_SITES..).unwrap_or_default();
    rest.iter().for_each(|(_, live)| others.merge(*live));
    let count = rest.len() as u64;
    found.truncate(MAX_SITES);
    let held = found.into_iter().filter_map(|(number, live)| {
        let site = sites.get(number)?;
        Some(HeldSite {
            number,
            row: site.row,
            stack: site.stack.clone(),
            live,
        })
    });
    (held.collect(), (count, others))
}
