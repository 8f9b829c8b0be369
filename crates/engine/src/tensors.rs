//! What allocators of frameworks hand out, within memory that they have from CUDA.
//!
//! It is kept as the memory of a process is, by call site, but apart from it: bytes of tensors are bytes
//! of the segments that they lie in. An allocator tells with each block how much it has handed out on the
//! device and how much it holds for that; what was handed out before we came is the difference.

mod fragmentation;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};

use super::allocation::{Allocation, New, Place, key};
use super::live::Freed;
use super::process::Process;
use super::shares::Full;
use super::sites::Sites;
use super::totals::Total;
use gpuprobe_cuda::{KindSet, MemoryKind, Space};
use gpuprobe_model::event::{MAX_DEVICES, Request, Tensor};

pub use fragmentation::{Fragmentation, Pinned};

/// Devices of one process whose allocators are told apart, and streams of one of these.
const MAX_ALLOCATORS: usize = 64;
const MAX_STREAMS: usize = 254;
/// A process with more allocations than these is not looked through for one around an address.
const MAX_LOOKED_AT: usize = 1 << 14;
/// The stream of what nothing is known of.
const NO_STREAM: u8 = u8::MAX;
/// In [`Allocation::context`]: what was asked for is not known; more was handed out beyond it than fits.
const NOT_ASKED: u16 = 0;
const MUCH_MORE: u16 = u16::MAX;

/// The allocators of a process: one for each device.
#[derive(Debug, Default)]
pub struct Tensors {
    allocators: Vec<Allocator>,
    /// Memory from CUDA in which allocators that do not say where they are have handed something out:
    /// bytes and device, by address.
    regions: BTreeMap<u64, (u64, u16)>,
}

/// What an allocator has handed out on one device of a process.
#[derive(Debug)]
pub struct Allocator {
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// Row of the function table.
    pub row: u16,
    /// What it was seen to hand out and has not taken back, as if a process of its own held it.
    pub blocks: Process,
    /// Bytes that it has handed out, as it says.
    pub allocated_bytes: u64,
    /// Bytes that it has from CUDA for that, as it says, less what it was seen to give back since.
    pub reserved_bytes: u64,
    /// The most of both.
    pub peak_allocated_bytes: u64,
    /// Likewise.
    pub peak_reserved_bytes: u64,
    /// Nothing had been handed out when it was first heard of.
    pub since_start: bool,
    /// Bytes that were asked for of the live blocks of which that is known, and how many these are.
    pub requested: Total,
    /// Blocks that were handed out.
    pub allocations: u64,
    /// Blocks that were taken back, seen to be handed out or not.
    pub frees: u64,
    /// Those among them that were not seen to be handed out.
    pub unknown_frees: u64,
    /// How often more was handed out than ever before.
    peaks: u32,
    streams: Vec<u64>,
    /// Bytes beyond what was asked for, of those blocks that have no room to say so.
    much_more: HashMap<u64, u64>,
    /// Memory from CUDA whose first bytes were handed out once: the allocator's segments.
    segments: HashSet<u64>,
    /// Reserved address space in which something was handed out, likewise.
    ranges: HashSet<u64>,
}

impl Tensors {
    /// Those of which anything was heard, by framework and device.
    pub fn iter(&self) -> impl Iterator<Item = &Allocator> {
        self.allocators.iter()
    }

    /// What the allocators have handed out.
    pub(super) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.allocators
            .iter_mut()
            .map(|allocator| &mut allocator.blocks)
    }

    /// Of what no more is to be kept.
    pub(super) fn set_full(&mut self, full: Full) {
        self.blocks_mut().for_each(|blocks| blocks.set_full(full));
    }

    /// Where what is at `address` was handed out: the device, and the number of the call site there.
    pub fn site_at(&self, address: u64) -> Option<(u16, u32)> {
        let key = key(Space::Device, address);
        let holds = |a: &Allocator| Some((a.device, a.blocks.live.get(key)?.site));
        self.iter().find_map(holds)
    }

    /// The allocator of this device, which may be new; `None` if there can be no such device, or no more of
    /// them.
    fn of(&mut self, pid: u32, device: u16, row: u16) -> Option<&mut Allocator> {
        let wanted = (row, device);
        let place = self
            .allocators
            .partition_point(|a| (a.row, a.device) < wanted);
        let found = self.allocators.get(place);
        if found.is_none_or(|a| (a.row, a.device) != wanted) {
            if device >= MAX_DEVICES || self.allocators.len() >= MAX_ALLOCATORS {
                return None;
            }
            self.allocators
                .insert(place, Allocator::new(pid, device, row));
        }
        self.allocators.get_mut(place)
    }

    /// Enters what an allocator has handed out or taken back that does not say where, nor how much that is
    /// by now. What is in no memory from CUDA is the host's. False if there can be no such device.
    fn chunk(&mut self, chunk: &Tensor, process: &Process) -> bool {
        if chunk.is_free {
            let mut allocators = self.allocators.iter_mut();
            let held = allocators.find(|a| a.row == chunk.row && a.holds(chunk.address));
            if let Some(allocator) = held {
                allocator.take_back(chunk);
                allocator.add_up();
            }
            return true;
        }
        let Some((address, (bytes, device))) = self.region_of(chunk.address, process) else {
            return true;
        };
        let Some(allocator) = self.of(process.pid, device, chunk.row) else {
            return false;
        };
        if allocator.allocations == 0 {
            allocator.since_start = process.from_birth;
        }
        if allocator.segments.insert(address) {
            allocator.reserved_bytes = allocator.reserved_bytes.saturating_add(bytes);
            let reserved = allocator.reserved_bytes;
            allocator.peak_reserved_bytes = allocator.peak_reserved_bytes.max(reserved);
        }
        allocator.hand_out(chunk, process);
        allocator.add_up();
        true
    }

    /// The memory from CUDA that `address` is in: its own address, its bytes and device.
    fn region_of(&mut self, address: u64, process: &Process) -> Option<(u64, (u64, u16))> {
        let is_in = |(start, (bytes, _)): &(u64, (u64, u16))| address - start < *bytes;
        let known = self.regions.range(..=address).next_back();
        let known = known.map(|(&start, &region)| (start, region)).filter(is_in);
        if known.is_some() || process.live.len() > MAX_LOOKED_AT {
            return known;
        }
        let around = process.live.iter().find(|a| {
            a.space() == Space::Device && a.address <= address && address - a.address < a.size_bytes
        })?;
        let device = process.device(around).unwrap_or(0);
        let region = (around.size_bytes, device);
        self.regions.insert(around.address, region);
        Some((around.address, region))
    }

    /// Memory from CUDA at this address is given back.
    pub(super) fn segment_gone(&mut self, gone: &Allocation) {
        self.regions.remove(&gone.address);
        for allocator in &mut self.allocators {
            if allocator.segments.remove(&gone.address) {
                allocator.gave_back(gone.size_bytes);
            }
        }
    }

    /// So many bytes are no longer mapped in this range of reserved addresses.
    pub(super) fn unmapped(&mut self, range: u64, bytes: u64) {
        for allocator in &mut self.allocators {
            if allocator.ranges.contains(&range) {
                allocator.gave_back(bytes);
            }
        }
    }
}

impl Process {
    /// Enters a block that was handed out or taken back. False if there can be no such device: no account
    /// is kept of it.
    pub(super) fn apply_tensor(&mut self, tensor: &Tensor) -> bool {
        let mut tensors = std::mem::take(&mut self.tensors);
        let is_known = match tensor.device {
            Some(device) => {
                let allocator = tensors.of(self.pid, device, tensor.row);
                let known = allocator.map(|allocator| allocator.apply(tensor, self));
                known.is_some()
            }
            None => tensors.chunk(tensor, self),
        };
        self.tensors = tensors;
        is_known
    }

    /// Enters what was asked for.
    pub(super) fn apply_request(&mut self, request: &Request) {
        let mut allocators = self.tensors.allocators.iter_mut();
        if let Some(allocator) = allocators.find(|a| a.holds(request.address)) {
            allocator.request(request);
        }
    }
}

impl Allocator {
    fn new(pid: u32, device: u16, row: u16) -> Self {
        Self {
            device,
            row,
            blocks: Process::new(pid, KindSet::ALL),
            allocated_bytes: 0,
            reserved_bytes: 0,
            peak_allocated_bytes: 0,
            peak_reserved_bytes: 0,
            since_start: false,
            requested: Total::default(),
            allocations: 0,
            frees: 0,
            unknown_frees: 0,
            peaks: 0,
            streams: Vec::new(),
            much_more: HashMap::new(),
            segments: HashSet::new(),
            ranges: HashSet::new(),
        }
    }

    /// Bytes that had been handed out before we came and still are.
    pub fn bytes_from_before(&self) -> u64 {
        let seen = self.blocks.totals.sums.gpu.bytes;
        self.allocated_bytes.saturating_sub(seen)
    }

    /// What was live at a site of [`Self::blocks`] when most was handed out.
    pub fn at_peak(&self, site: &super::Site) -> super::totals::Sums {
        self.blocks.sites.at_peak(site, self.peaks)
    }

    /// Bytes that were asked for of `block`, which is one of [`Self::blocks`], if that is known.
    pub fn requested_of(&self, block: &Allocation) -> Option<u64> {
        let more = match block.context() {
            NOT_ASKED => return None,
            MUCH_MORE => *self.much_more.get(&block.address)?,
            more => u64::from(more) - 1,
        };
        Some(block.size_bytes.saturating_sub(more))
    }

    /// The stream that `block` is for, if that is known.
    pub fn stream_of(&self, block: &Allocation) -> Option<u64> {
        self.streams.get(usize::from(block.slot())).copied()
    }

    /// Entries that are kept besides those of [`Self::blocks`].
    pub(super) fn kept(&self) -> usize {
        self.much_more.len() + self.segments.len() + self.ranges.len() + self.streams.len()
    }

    /// Whether it has handed out what is at `address`.
    fn holds(&self, address: u64) -> bool {
        self.blocks.live.get(key(Space::Device, address)).is_some()
    }

    fn apply(&mut self, tensor: &Tensor, process: &Process) {
        if self.allocations + self.frees == 0 {
            self.since_start = !tensor.is_free && tensor.allocated_bytes == tensor.bytes;
        }
        self.allocated_bytes = tensor.allocated_bytes;
        self.reserved_bytes = tensor.reserved_bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.reserved_bytes);
        if tensor.is_free {
            self.take_back(tensor);
        } else {
            self.hand_out(tensor, process);
        }
        self.note_peak();
    }

    fn hand_out(&mut self, tensor: &Tensor, process: &Process) {
        self.allocations += 1;
        if process.full().allocations {
            self.blocks.left_out += 1;
            self.blocks.live_left_out += 1;
            return;
        }
        self.blocks.sites.after_peak(self.peaks, tensor.time_ns);
        learn(&mut self.blocks.sites, &process.sites, tensor.stack);
        let block = Allocation::new(&New {
            address: tensor.address,
            size_bytes: tensor.bytes,
            end_ns: tensor.time_ns,
            // Nobody asks which thread it was.
            thread: self.blocks.thread(process.pid),
            row: tensor.row,
            site: self.blocks.sites.site(tensor.stack, tensor.row),
            kind: MemoryKind::Tensor,
            space: Space::Device,
            place: Place::Device(self.device),
            slot: NO_STREAM,
            context: NOT_ASKED,
        });
        if let Some(old) = self.blocks.add(block) {
            self.forget_request(&old);
        }
        self.note_segment(tensor.address, process);
    }

    /// It does not say how much it has handed out: that is what was seen.
    fn add_up(&mut self) {
        self.allocated_bytes = self.blocks.totals.sums.gpu.bytes;
        self.note_peak();
    }

    /// Notes if more is handed out than ever before.
    fn note_peak(&mut self) {
        if self.allocated_bytes > self.peak_allocated_bytes {
            self.peak_allocated_bytes = self.allocated_bytes;
            self.peaks = self.peaks.wrapping_add(1);
        }
    }

    fn take_back(&mut self, tensor: &Tensor) {
        self.frees += 1;
        self.blocks.sites.after_peak(self.peaks, tensor.time_ns);
        let key = key(Space::Device, tensor.address);
        match self.blocks.live.free(key, tensor.time_ns) {
            Freed::Live(block) => {
                self.blocks.uncount(&block);
                self.forget_request(&block);
            }
            Freed::Superseded => {}
            Freed::Unknown if self.blocks.frees_left_out() => {}
            Freed::Unknown => {
                self.unknown_frees += 1;
                self.blocks.sites.note_unknown_free();
            }
        }
    }

    /// Something lies at this address: notes the memory from CUDA that it is in, if it is new.
    fn note_segment(&mut self, address: u64, process: &Process) {
        if process.live.get(key(Space::Device, address)).is_some() {
            self.segments.insert(address);
        } else if let Some(range) = process.physical.range_of(address) {
            self.ranges.insert(range);
        }
    }

    fn gave_back(&mut self, bytes: u64) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
    }

    fn request(&mut self, request: &Request) {
        let stream = self.stream(request.stream);
        let key = key(Space::Device, request.address);
        let Some(block) = self.blocks.live.get(key).copied() else {
            return;
        };
        // It was asked for once; a program may say so again.
        self.forget_request(&block);
        let asked = request.bytes.min(block.size_bytes);
        let more = block.size_bytes - asked;
        let said = match u16::try_from(more.saturating_add(1)) {
            Ok(said) if said != MUCH_MORE => said,
            _ => {
                self.much_more.insert(request.address, more);
                MUCH_MORE
            }
        };
        self.requested.add(asked);
        self.blocks.live.note_request(key, stream, said);
    }

    fn forget_request(&mut self, block: &Allocation) {
        if let Some(asked) = self.requested_of(block) {
            self.requested.subtract(asked);
        }
        if block.context() == MUCH_MORE {
            self.much_more.remove(&block.address);
        }
    }

    /// The number that `stream` has here.
    fn stream(&mut self, stream: u64) -> u8 {
        let known = self.streams.iter().position(|known| *known == stream);
        let number = known.unwrap_or(self.streams.len());
        if number == MAX_STREAMS {
            return NO_STREAM;
        }
        if known.is_none() {
            self.streams.push(stream);
        }
        u8::try_from(number).unwrap_or(NO_STREAM)
    }
}

/// Lets the sites of blocks know the stack of this number that those of the process know.
fn learn(of_blocks: &mut Sites, of_process: &Sites, number: u64) {
    if number == 0 || of_blocks.stack(number).is_some() {
        return;
    }
    if let Some(stack) = of_process.stack(number) {
        of_blocks.learn(number, std::rc::Rc::clone(stack));
    }
}
