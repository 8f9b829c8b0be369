//! The traces of the processes of a file.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use anyhow::Result;
use indexmap::IndexMap;

use super::StackId;
use super::layout::{DeviceLayout, Kind, Piece};
use crate::{Listener, Played};
use gpuprobe_cuda::{AddressSpace, Belongs, Framework, MemoryKind, Op};
use gpuprobe_engine::{Allocation, Allocator, Change, Process};
use gpuprobe_model::blocks::FoundBlocks;
use gpuprobe_model::event::{Call, Event, MAX_DEVICES, Tensor};
use gpuprobe_model::stack::CallStack;
use gpuprobe_recording::log::Mark;

/// Where addresses of arrays begin. Those of programs are below.
const ARRAYS_AT: u64 = 1 << 49;

/// Processes from their first events, or from `exec`, to their ends or the next `exec`: by process
/// id, and the number of earlier processes with it.
#[derive(Default)]
pub(super) struct Traces(pub(super) BTreeMap<(u32, u32), ProcessTrace>);

/// The memory of a process on each device.
#[derive(Default)]
pub(super) struct ProcessTrace {
    pub(super) devices: BTreeMap<u16, DeviceLayout>,
    /// Its call stacks by number. The engine keeps each stack once.
    pub(super) stacks: IndexMap<*const CallStack, Rc<CallStack>>,
    /// Number of tensors allocated.
    pub(super) tensors: u64,
    /// Number of calls on memory from CUDA.
    pub(super) calls: u64,
    /// Bytes of memory on an unknown device.
    pub(super) nowhere: u64,
    /// Addresses that stand for live arrays, which have none, by handle; and bytes of all arrays so far.
    arrays: HashMap<u64, u64>,
    array_bytes: u64,
    /// Times of its first and of its last event.
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: u64,
    /// How often address ranges were reserved, by base address.
    reserved: HashMap<u64, u64>,
}

impl Listener for Traces {
    fn event(&mut self, event: &Event, changes: &[Change], played: &Played) -> Result<()> {
        let pid = event.pid();
        let process = played.ledger().process_of(pid);
        let is_seen = matches!(
            event,
            Event::Call(_) | Event::Tensor(_) | Event::Request(_) | Event::Blocks(_)
        );
        if let Some(process) = process.filter(|_| is_seen) {
            let key = (pid, played.incarnation(pid));
            let trace = self.0.entry(key).or_default();
            match event {
                Event::Call(call) => trace.call(call, changes, process),
                Event::Tensor(tensor) => trace.tensor(tensor, process),
                Event::Blocks(found) => trace.found(found, process),
                Event::Request(request) => {
                    for layout in trace.devices.values_mut() {
                        layout.request(request.address, request.bytes, request.stream as i64);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn report(&mut self, mark: &Mark, played: &Played) {
        for (&pid, used) in mark.usage.iter().flat_map(|usage| &usage.processes) {
            let trace = self.0.get_mut(&(pid, played.incarnation(pid)));
            if let Some((trace, process)) = trace.zip(played.ledger().process_of(pid)) {
                used.iter()
                    .for_each(|&(gpu, bytes)| trace.used(gpu, bytes, process));
            }
        }
    }
}

impl ProcessTrace {
    fn at(&mut self, time_ns: u64) {
        let first_ns = self.first_ns.get_or_insert(time_ns);
        *first_ns = time_ns.min(*first_ns);
        self.last_ns = time_ns.max(self.last_ns);
    }

    fn device(&mut self, device: u16) -> Option<&mut DeviceLayout> {
        (device < MAX_DEVICES).then(|| self.devices.entry(device).or_default())
    }

    pub(super) fn stack(&mut self, stack: Option<&Rc<CallStack>>) -> StackId {
        let Some(stack) = stack else {
            return StackId::None;
        };
        // It keeps its address while it is here.
        let found = self.stacks.insert_full(Rc::as_ptr(stack), Rc::clone(stack));
        StackId::Known(found.0)
    }

    /// PyTorch always reports the device; PyTorch's viewers do not show tensors of other frameworks.
    fn tensor(&mut self, tensor: &Tensor, process: &Process) {
        self.at(tensor.time_ns);
        let block = Piece {
            stack: self.stack(process.sites.stack(tensor.stack)),
            ..Piece::new(Kind::Block, tensor.address, tensor.bytes, tensor.time_ns)
        };
        let Some(device) = tensor.device else {
            return;
        };
        self.tensors += u64::from(!tensor.is_free);
        if let Some(layout) = self.device(device) {
            match tensor.is_free {
                true => layout.free(block),
                false => layout.allocate(block),
            }
        }
    }

    /// Blocks from before the tracing come when they are found.
    fn found(&mut self, found: &FoundBlocks, process: &Process) {
        self.at(found.time_ns);
        for device in &found.devices {
            let before = device.blocks.iter().filter(|block| !block.is_pending);
            self.tensors += before.clone().count() as u64;
            let stacks = before.clone().map(|block| process.sites.stack(block.stack));
            let stacks: Vec<_> = stacks.map(|stack| self.stack(stack)).collect();
            let Some(layout) = self.device(device.device) else {
                continue;
            };
            for segment in &device.segments {
                layout.found(segment, found.time_ns);
            }
            for (block, stack) in before.zip(stacks) {
                layout.allocate(Piece {
                    stack,
                    ..Piece::new(Kind::Block, block.address, block.bytes, found.time_ns)
                });
                let behind = device
                    .segments
                    .partition_point(|one| one.address <= block.address);
                let segment = behind.checked_sub(1).map(|at| &device.segments[at]);
                let stream = segment.map_or(0, |segment| segment.stream.cast_signed());
                layout.request(block.address, block.asked_bytes(), stream);
            }
        }
    }

    fn call(&mut self, call: &Call, changes: &[Change], process: &Process) {
        let (address, time_ns) = (call.address, call.end_ns);
        self.at(time_ns);
        self.calls += u64::from(call.function.op.is_memory());
        for change in changes {
            match change {
                Change::Allocated(block) => self.allocated(&block.allocation, time_ns, process),
                Change::Freed(block) | Change::Superseded(block) => {
                    let gone = &block.allocation;
                    let address = match gone.space() {
                        AddressSpace::Device | AddressSpace::Variables => Some(gone.address),
                        AddressSpace::Arrays => self.arrays.remove(&gone.address),
                        _ => None,
                    };
                    if let Some(address) = address {
                        let layouts = self.devices.values_mut();
                        layouts.for_each(|layout| layout.remove_segment(address, time_ns));
                    }
                }
                Change::UnknownFree(address) => {
                    let layouts = self.devices.values_mut();
                    layouts.for_each(|layout| layout.free_unseen(*address, time_ns));
                }
                _ => {}
            }
        }
        if call.result != 0 || call.captured {
            return;
        }
        match call.function.op {
            Op::Map => self.mapped(address, time_ns, process),
            Op::Unmap => {
                let is_mapped = |at| process.physical.mapping_at(at).is_some();
                for layout in self.devices.values_mut() {
                    layout.unmap((address, call.size_bytes), time_ns, is_mapped);
                }
            }
            Op::Reserve => *self.reserved.entry(address).or_default() += 1,
            _ => {}
        }
    }

    fn allocated(&mut self, allocation: &Allocation, time_ns: u64, process: &Process) {
        if allocation.belongs() != Belongs::Gpu || allocation.space() == AddressSpace::Physical {
            return;
        }
        let bytes = allocation.size_bytes;
        let address = match allocation.space() {
            AddressSpace::Arrays => {
                let address = ARRAYS_AT.saturating_add(self.array_bytes);
                self.array_bytes = self.array_bytes.saturating_add(bytes);
                self.arrays.insert(allocation.address, address);
                address
            }
            _ => allocation.address,
        };
        let segment = Piece::new(Kind::Allocation, address, bytes, time_ns);
        self.add(segment, allocation, process);
    }

    /// Physical memory was mapped. If it is mapped a second time, it is still the same memory.
    fn mapped(&mut self, address: u64, time_ns: u64, process: &Process) {
        let Some((bytes, Some(id))) = process.physical.mapping_at(address) else {
            return;
        };
        let piece = process.physical.get(id);
        let mapped_bytes = piece.map_or(0, |piece| piece.mapped_bytes);
        let memory = process.physical_allocation(id);
        let memory = memory.filter(|memory| memory.belongs() == Belongs::Gpu);
        let range = process.physical.range_of(address).unwrap_or(address);
        // A range that is reserved again is another one.
        let range = range.wrapping_add(self.reserved.get(&range).copied().unwrap_or(0));
        if let Some(memory) = memory.filter(|memory| mapped_bytes <= memory.size_bytes) {
            let segment = Piece::new(Kind::Mapping(range), address, bytes, time_ns);
            self.add(segment, memory, process);
        }
    }

    /// Adds a segment of this memory to its device.
    fn add(&mut self, segment: Piece, memory: &Allocation, process: &Process) {
        let Some(device) = process.device(memory) else {
            self.nowhere = self.nowhere.saturating_add(segment.bytes);
            return;
        };
        let site = process.sites.get(memory.site);
        let segment = Piece {
            stack: self.stack(site.and_then(|site| site.stack.as_ref())),
            at_gpu: memory.kind() != MemoryKind::Managed,
            ..segment
        };
        if let Some(layout) = self.device(device).filter(|_| segment.bytes > 0) {
            layout.add_segment(segment);
        }
    }

    /// NVML says that the process uses this much memory of the GPU with this index on the host.
    fn used(&mut self, gpu: u32, bytes: u64, process: &Process) {
        let identity = &process.identity;
        let is_it = |device: &u16| identity.device(*device).physical_index == Some(gpu);
        let known = (0..MAX_DEVICES).find(is_it);
        let known = known.or(identity.single_gpu.then_some(0));
        let Some(device) = known.or(u16::try_from(gpu).ok()) else {
            return;
        };
        let reserved = pytorch(process, device).map_or(0, |pytorch| pytorch.reserved_bytes);
        if let Some(layout) = self.device(device) {
            layout.context = bytes.saturating_sub(layout.at_gpu(reserved));
        }
    }
}

/// PyTorch's allocator on a device.
pub(super) fn pytorch(process: &Process, device: u16) -> Option<&Allocator> {
    let mut allocators = process.tensors.iter();
    allocators.find(|one| one.framework() == Some(Framework::PyTorch) && one.device == device)
}
