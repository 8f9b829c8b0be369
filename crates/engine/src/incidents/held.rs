//! What a process held when it was refused more, and who else held something.

use std::cmp::Reverse;
use std::rc::Rc;

use super::{Asked, GivenUp, Incident, Outcome};
use crate::pools;
use crate::process::Process;
use crate::sites::Sites;
use crate::tensors::{Allocator, Fragmentation};
use crate::totals::{Sums, Total};
use crate::{Identity, arrays};
use gpuprobe_cuda::{Belongs, Layer, MemoryKind, Op};
use gpuprobe_model::event::{Call, OutOfMemory};
use gpuprobe_model::stack::CallStack;

/// Call sites that are kept, to be added up by owner, or by line of Python.
const MAX_SITES: usize = 1024;
/// Other processes that are kept.
const MAX_OTHERS: usize = 64;

/// What a process held.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The three sums.
    pub sums: Sums,
    /// The same by kind.
    pub kinds: Vec<(MemoryKind, Total)>,
    /// GPU memory on the device that was asked, if that is known.
    pub on_device: Option<Total>,
    /// The call sites that hold most of what was asked for, memory of the GPU or of the host, most first.
    pub sites: Vec<HeldSite>,
    /// What the others hold, and how many these are.
    pub other_sites: (u64, Total),
    /// What PyTorch's allocator has handed out of it on that device, if it was heard of.
    pub pytorch: Option<HeldByPytorch>,
}

/// A call site and what it held.
#[derive(Clone, Debug)]
pub struct HeldSite {
    /// Its number within the process.
    pub number: u32,
    /// Row of the function that was called.
    pub row: u16,
    /// From where; `None` if that is not known.
    pub stack: Option<Rc<CallStack>>,
    /// What was live.
    pub live: Total,
}

/// What PyTorch's allocator had handed out on a device.
#[derive(Clone, Debug)]
pub struct HeldByPytorch {
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// Bytes that it has handed out, as it says.
    pub allocated_bytes: u64,
    /// Bytes that it has from CUDA for that, as it says, less what it was seen to give back since.
    pub reserved_bytes: u64,
    /// How that lies.
    pub segments: u64,
    /// Bytes of the segments that were seen.
    pub segment_bytes: u64,
    /// Bytes of the largest block in them that is free.
    pub largest_free_bytes: u64,
    /// The largest request that one of them has room for.
    pub largest_fit_bytes: u64,
    /// Bytes that CUDA would get back if all that is not in use were given back.
    pub empty_cache_bytes: u64,
    /// Bytes that are held by less than 5 % of them, and the tensors that hold these.
    pub pinned: (u64, u64),
    /// The call sites of most of what is handed out, most first.
    pub sites: Vec<HeldSite>,
    /// What the others have been handed out, and how many these are.
    pub other_sites: (u64, Total),
}

/// Another traced process that held something on the same GPU.
#[derive(Clone, Debug)]
pub struct Other {
    /// Process id.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name, if known.
    pub comm: Option<String>,
    /// Who it is.
    pub identity: Identity,
    /// What it held there.
    pub live: Total,
}

/// Whether `call` asks for memory of the host.
fn is_of_host(call: &Call) -> bool {
    call.function.kind.belongs() == Belongs::Host
        || call.function.op == Op::HandleCreate && pools::is_host(call.value(0))
}

/// What CUDA has given a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Bytes that were asked for, if the call says.
    pub(super) bytes: Option<u64>,
    pub(super) at_host: bool,
}

impl From<&Call> for Given {
    fn from(call: &Call) -> Self {
        Self {
            bytes: asked_bytes(call),
            at_host: is_of_host(call),
        }
    }
}

/// Bytes that `call` asked for, if it says; it may have failed.
fn asked_bytes(call: &Call) -> Option<u64> {
    let values = call.detail.as_deref().map(|detail| &detail.values);
    match (call.function.kind, values) {
        (MemoryKind::Array, Some(values)) if call.function.layer == Layer::Runtime => {
            Some(arrays::of_runtime(values))
        }
        (MemoryKind::Array, Some(values)) => Some(arrays::of_driver(values)),
        // Rows of this many bytes; there is no pitch.
        (MemoryKind::Pitched, Some([width, height, depth, ..])) => {
            let rows = (*height).max(1).saturating_mul((*depth).max(1));
            Some(width.saturating_mul(rows))
        }
        (MemoryKind::Imported, _) if call.function.op != Op::HandleImport => None,
        _ => Some(call.size_bytes),
    }
}

impl Asked {
    /// What `call` of `process` has asked for.
    pub(crate) fn of(call: &Call, process: &Process) -> Self {
        let at_host = is_of_host(call);
        Self {
            row: call.row,
            result: Some(call.result),
            kind: call.function.kind,
            bytes: asked_bytes(call),
            device: call.device.filter(|_| !at_host),
            at_host,
            stack: process.sites.stack(call.stack).cloned(),
            stack_number: call.stack,
        }
    }

    /// What `told` says was asked for, where no call was refused.
    pub(crate) fn told(told: &OutOfMemory, process: &Process) -> Self {
        Self {
            row: told.row,
            result: None,
            kind: MemoryKind::Device,
            bytes: Some(told.bytes),
            device: Some(told.device),
            at_host: false,
            stack: process.sites.stack(told.stack).cloned(),
            stack_number: told.stack,
        }
    }
}

impl GivenUp {
    pub(crate) fn of(told: &OutOfMemory, process: &Process) -> Self {
        Self {
            time_ns: told.time_ns,
            bytes: told.bytes,
            allocated_bytes: told.allocated_bytes,
            reserved_bytes: told.reserved_bytes,
            device: told.device,
            stack: process.sites.stack(told.stack).cloned(),
        }
    }
}

impl Incident {
    /// A request of `process` that was just refused.
    pub(crate) fn new(
        id: u64,
        process: &Process,
        (tid, time_ns): (u32, u64),
        asked: Asked,
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
            given_up: None,
            held: Held::of(process, device, asked.at_host),
            others: Vec::new(),
            gpu: None,
            outcome: Outcome::Pending,
            outcome_ns: None,
            is_reported: false,
            asked,
        }
    }

    /// The same with those of `processes` that hold something on the GPU that was asked.
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
                Some((process, live))
            })
            .collect();
        others.sort_by_key(|(process, live)| (Reverse(live.bytes), process.pid));
        others.truncate(MAX_OTHERS);
        let other = |(process, live): (&Process, Total)| Other {
            pid: process.pid,
            uid: process.uid,
            comm: process.comm.clone(),
            identity: process.identity.clone(),
            live,
        };
        self.others = others.into_iter().map(other).collect();
        self
    }

    /// Whether what `process` calls `number` is the GPU that we call `device`: by its UUID, by its place in
    /// the host, or else by the number.
    fn is_on(&self, device: Option<u16>, process: &Process, number: Option<u16>) -> bool {
        let (Some(device), Some(number)) = (device, number) else {
            return false;
        };
        let (ours, theirs) = (
            self.identity.device(device),
            process.identity.device(number),
        );
        match (ours.uuid, theirs.uuid) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => match (ours.physical_index, theirs.physical_index) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => device == number,
            },
        }
    }
}

impl Held {
    /// What `process` holds now; `device` is the one that was asked.
    pub(crate) fn of(process: &Process, device: Option<u16>, at_host: bool) -> Self {
        let (sites, other_sites) = largest(&process.sites, |live| match at_host {
            true => live.host,
            false => live.gpu,
        });
        let devices = process.devices();
        let on_device = device.map(|device| {
            let found = devices.iter().find(|(number, _)| *number == Some(device));
            found.map_or_else(Total::default, |(_, total)| *total)
        });
        let pytorch = process
            .tensors
            .iter()
            .find(|one| one.is_pytorch() && !at_host && device.is_none_or(|d| d == one.device));
        Self {
            sums: process.totals.sums,
            kinds: process.totals.kinds().collect(),
            on_device,
            sites,
            other_sites,
            pytorch: pytorch.map(|allocator| HeldByPytorch::of(allocator, process)),
        }
    }
}

impl HeldByPytorch {
    fn of(allocator: &Allocator, process: &Process) -> Self {
        let (sites, other_sites) = largest(&allocator.blocks.sites, |live| live.gpu);
        let found: Fragmentation = allocator.fragmentation(process);
        Self {
            device: allocator.device,
            allocated_bytes: allocator.allocated_bytes,
            reserved_bytes: allocator.reserved_bytes,
            segments: found.segments.len() as u64,
            segment_bytes: found.bytes(),
            largest_free_bytes: found.largest_free_bytes,
            largest_fit_bytes: found.largest_fit_bytes,
            empty_cache_bytes: found.unused_bytes,
            pinned: (found.pinned.bytes, found.pinned.by.allocations),
            sites,
            other_sites,
        }
    }
}

/// The sites at which most is live, most first, and what the others have together.
fn largest(sites: &Sites, of: impl Fn(Sums) -> Total) -> (Vec<HeldSite>, (u64, Total)) {
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
