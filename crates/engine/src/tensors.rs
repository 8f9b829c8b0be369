//! Memory that allocators of frameworks place in memory from CUDA (tensors).
//!
//! It is kept by call site like the memory of a process, but separately: bytes of tensors are bytes
//! of the segments around them. With each block, an allocator reports how much it has allocated on
//! the device and how much it has reserved; the difference from the blocks seen was allocated
//! before tracing began.

mod found;
mod fragmentation;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use hashbrown::{HashMap, HashSet};

use super::allocation::{Allocation, AllocationPlace, NewAllocation, key};
use super::change::{Changes, TensorChange};
use super::live::Freed;
use super::process::Process;
use super::sites::Sites;
use super::totals::Total;
use found::FoundState;
use gpuprobe_cuda::{AddressSpace, Framework, KindSet, MemoryKind};
use gpuprobe_model::event::{MAX_DEVICES, Tensor, TensorRequest};

pub use fragmentation::{Fragmentation, Pinned};

/// Limit on the allocators of one process, one per device.
const MAX_ALLOCATORS: usize = 64;
/// A framework with this many events that don't fit, and fewer that do, is dropped.
const MAX_MISFITS: u64 = 64;
/// Limit on the chunks of a process whose memory from CUDA is not known yet.
const MAX_UNPLACED: usize = 1 << 14;
/// What one of these takes, in the units of [`Process::kept`].
const TENSOR_UNITS: usize = 2;
/// In a process with more allocations than this, the one around an address is not searched for.
const MAX_LOOKED_AT: usize = 1 << 14;

/// The allocators of a process: one per device.
#[derive(Debug, Default)]
pub struct TensorAllocators {
    /// By function and device.
    allocators: BTreeMap<(u16, u16), Allocator>,
    /// Memory from CUDA with tensors of allocators that do not report the device: bytes and device,
    /// by address.
    regions: BTreeMap<u64, (u64, u16)>,
    /// Of a process that began before the tracing, the last event of each allocator that reports neither, by function
    /// and allocator.
    last: BTreeMap<(u16, u64), Tensor>,
    /// Chunks of these outside of all known memory, by address: of the host, or of memory from before the tracing.
    unplaced: HashMap<u64, Tensor>,
    /// Of frameworks that do not report sums, the number of events that fit what is known of the memory, and of those
    /// that do not.
    fits: BTreeMap<Framework, [u64; 2]>,
    dropped: Vec<Framework>,
    /// Events come now and then only: blocks are counted by a census.
    pub(crate) is_census: bool,
}

/// The state of an allocator on one device of a process.
#[derive(Debug, Default)]
pub struct Allocator {
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// Index of its function in the function table.
    pub row: u16,
    /// Live blocks that were seen to be allocated, kept like the memory of a process.
    pub blocks: Process,
    /// Bytes allocated, as the allocator reports.
    pub allocated_bytes: u64,
    /// Bytes reserved from CUDA, as the allocator reports, less the segments freed since.
    pub reserved_bytes: u64,
    /// Peak of `allocated_bytes` while tracing.
    pub peak_allocated_bytes: u64,
    /// Peak of `reserved_bytes` while tracing.
    pub peak_reserved_bytes: u64,
    /// Whether its first event shows that nothing had been allocated before.
    pub since_start: bool,
    /// Bytes requested, and number, of the live blocks with a known requested size.
    pub requested: Total,
    /// Number of blocks allocated.
    pub allocations: u64,
    /// Number of blocks freed, including unknown ones.
    pub frees: u64,
    /// Number of blocks freed that were not seen to be allocated.
    pub unknown_frees: u64,
    /// Number of new peaks of `allocated_bytes`.
    peaks: u32,
    /// Bytes requested for the live blocks where that is known, by address.
    asked: HashMap<u64, u64>,
    /// Addresses of allocations from CUDA that are segments: a block was seen at their start.
    segments: HashSet<u64>,
    /// Addresses of reserved ranges that are segments: a block was seen in them.
    ranges: HashSet<u64>,
    found: FoundState,
}

impl TensorAllocators {
    /// Allocators that have sent an event, by framework and device.
    pub fn iter(&self) -> impl Iterator<Item = &Allocator> {
        self.allocators.values()
    }

    /// Frameworks whose blocks are not recorded any more, as most did not fit the memory from CUDA: a release of which
    /// gpuprobe misreads the functions.
    pub fn dropped(&self) -> &[Framework] {
        &self.dropped
    }

    /// The last events of the allocators of this function that report neither device nor sums, if there is memory that
    /// only they know.
    pub fn last_events(&self, row: u16) -> impl Iterator<Item = &Tensor> {
        let events = self.last.range((row, 0)..=(row, u64::MAX));
        events.map(|(_, event)| event)
    }

    /// Number of entries kept besides those of the allocators.
    pub(super) fn kept(&self) -> usize {
        (self.last.len() + self.unplaced.len()) * TENSOR_UNITS
    }

    /// Live blocks of all allocators.
    pub(super) fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        let allocators = self.allocators.values_mut();
        allocators.map(|allocator| &mut allocator.blocks)
    }

    /// The allocator of this device, which may be new; `None` if the device index is out of range
    /// or there are too many allocators.
    fn of(&mut self, pid: u32, device: u16, row: u16) -> Option<&mut Allocator> {
        let is_full = device >= MAX_DEVICES || self.allocators.len() >= MAX_ALLOCATORS;
        match self.allocators.entry((row, device)) {
            Entry::Vacant(_) if is_full => None,
            place => Some(place.or_insert_with(|| Allocator::new(pid, device, row))),
        }
    }

    /// Applies an event of an allocator that reports neither its device nor its sums. A block
    /// outside of memory from CUDA is host memory. Returns false if the device is out of range.
    fn chunk(&mut self, chunk: &Tensor, process: &Process, changes: &mut Changes) -> bool {
        let framework = gpuprobe_cuda::function(chunk.row).and_then(|row| row.framework);
        if self.drops(framework, chunk, process) {
            return true;
        }
        let is_wanted = self.is_census || !process.from_birth;
        let allocator = chunk.allocator().filter(|_| is_wanted);
        if let Some(allocator) = allocator {
            let is_full = self.last.len() >= MAX_ALLOCATORS;
            match self.last.entry((chunk.row, allocator)) {
                Entry::Vacant(_) if is_full => {}
                place => *place.or_insert(*chunk) = *chunk,
            }
            self.unplaced.remove(&chunk.address);
        }
        if chunk.is_free {
            let mut allocators = self.allocators.values_mut();
            let is_its = |a: &&mut Allocator| a.framework() == framework && a.holds(chunk.address);
            let held = allocators.find(is_its);
            if let Some(allocator) = held {
                let freed = allocator.take_back(chunk, process);
                allocator.add_up();
                changes.record_tensors(|| allocator.change([None, freed]));
            }
            return true;
        }
        let Some((address, (bytes, device))) = self.region_of(chunk.address, process) else {
            if allocator.is_some() && self.unplaced.len() < MAX_UNPLACED {
                self.unplaced.insert(chunk.address, *chunk);
            }
            return true;
        };
        let Some(allocator) = self.of(process.pid, device, chunk.row) else {
            return false;
        };
        if allocator.allocations == 0 {
            allocator.since_start = process.from_birth;
        }
        if allocator.found_at(address).is_none() && allocator.segments.insert(address) {
            allocator.reserved_bytes = allocator.reserved_bytes.saturating_add(bytes);
            let reserved = allocator.reserved_bytes;
            allocator.peak_reserved_bytes = allocator.peak_reserved_bytes.max(reserved);
        }
        let blocks = allocator.hand_out(chunk, process);
        allocator.add_up();
        changes.record_tensors(|| allocator.change(blocks));
        true
    }

    /// Whether the framework is dropped, of which this event may be the one too many.
    fn drops(&mut self, of: Option<Framework>, chunk: &Tensor, process: &Process) -> bool {
        let Some(framework) = of else {
            return false;
        };
        if self.dropped.contains(&framework) {
            return true;
        }
        let Some(is_fit) = self.fits(framework, chunk, process) else {
            return false;
        };
        let counts = self.fits.entry(framework).or_default();
        counts[usize::from(!is_fit)] += 1;
        let [fits, misfits] = *counts;
        if misfits < MAX_MISFITS || misfits <= fits {
            return false;
        }
        self.dropped.push(framework);
        self.allocators.retain(|_, a| a.framework() != of);
        true
    }

    /// Whether an event fits: a block that is handed out was free, and one that is taken back was not. In memory that is
    /// not from CUDA, if there may be none. `None` if that is unknown: the block may be of the host, or from before.
    fn fits(&mut self, framework: Framework, chunk: &Tensor, process: &Process) -> Option<bool> {
        let mut own = self.allocators.values();
        let is_live = own.any(|a| a.framework() == Some(framework) && a.holds(chunk.address));
        if chunk.is_free && is_live {
            return Some(true);
        }
        let is_complete = process.from_birth && !process.is_full;
        let Some((segment, _)) = self.region_of(chunk.address, process) else {
            let may_be = framework.has_host_blocks() || process.live.len() > MAX_LOOKED_AT;
            let is_around = |a: &Allocation| {
                let distance = chunk.address.checked_sub(a.address);
                distance.is_some_and(|distance| distance < a.size_bytes)
            };
            let is_known = is_complete && !chunk.is_free && !may_be;
            return (is_known && !process.live.iter().any(is_around)).then_some(false);
        };
        let mut own = self.allocators.values();
        let has = |a: &Allocator| a.framework() == Some(framework) && a.segments.contains(&segment);
        match chunk.is_free {
            false => Some(!is_live),
            true => (is_complete && own.any(has)).then_some(false),
        }
    }

    /// The allocation or mapping from CUDA around `address`: its address, bytes and device.
    fn region_of(&mut self, address: u64, process: &Process) -> Option<(u64, (u64, u16))> {
        let is_in = |(start, (bytes, _)): &(u64, (u64, u16))| address - start < *bytes;
        let known = self.regions.range(..=address).next_back();
        let known = known.map(|(&start, &region)| (start, region)).filter(is_in);
        if known.is_some() || process.live.len() > MAX_LOOKED_AT {
            return known;
        }
        let around = process.live.iter().find(|a| {
            a.space() == AddressSpace::Device
                && a.address <= address
                && address - a.address < a.size_bytes
        });
        let (start, bytes, around) = match around {
            Some(around) => (around.address, around.size_bytes, around),
            None => {
                let (start, bytes, piece) = process.physical.mapping_around(address)?;
                let piece = process.live.get(key(AddressSpace::Physical, piece?))?;
                (
                    start,
                    bytes,
                    Some(piece).filter(|piece| piece.gpu().is_some())?,
                )
            }
        };
        let region = (bytes, process.device(around).unwrap_or(0));
        self.regions.insert(start, region);
        Some((start, region))
    }

    /// Notes that memory from CUDA was freed.
    pub(super) fn segment_gone(&mut self, gone: &Allocation, changes: &mut Changes) {
        self.regions.remove(&gone.address);
        for allocator in self.allocators.values_mut() {
            if allocator.segments.remove(&gone.address) {
                allocator.gave_back(gone.size_bytes, changes);
            }
        }
    }

    /// Notes that the address range reserved at `range` is no longer what it was: the next one there may be
    /// another allocator's.
    pub(super) fn range_gone(&mut self, range: u64) {
        for allocator in self.allocators.values_mut() {
            allocator.ranges.remove(&range);
        }
    }

    /// Notes that `bytes` were unmapped at these addresses in a reserved range.
    pub(super) fn unmapped(
        &mut self,
        range: u64,
        at: &Range<u64>,
        bytes: u64,
        changes: &mut Changes,
    ) {
        self.regions.retain(|start, _| !at.contains(start));
        for allocator in self.allocators.values_mut() {
            if allocator.ranges.contains(&range) {
                allocator.segments.retain(|start| !at.contains(start));
                allocator.gave_back(bytes, changes);
            }
        }
    }
}

impl Process {
    /// Applies an allocated or freed block. Returns false, and drops it, if the device is out of
    /// range.
    pub(super) fn apply_tensor(&mut self, tensor: &Tensor, changes: &mut Changes) -> bool {
        let mut tensors = std::mem::take(&mut self.tensors);
        let is_known = match tensor.device {
            Some(device) => {
                let allocator = tensors.of(self.pid, device, tensor.row);
                let known = allocator.map(|allocator| allocator.apply(tensor, self, changes));
                known.is_some()
            }
            None => tensors.chunk(tensor, self, changes),
        };
        self.tensors = tensors;
        if !tensor.is_free {
            self.note_birth();
        }
        is_known
    }

    /// Applies an event with the requested size of a block.
    pub(super) fn apply_request(&mut self, request: &TensorRequest) {
        let mut allocators = self.tensors.allocators.values_mut();
        if let Some(allocator) = allocators.find(|a| a.holds(request.address)) {
            allocator.request(request.address, request.bytes);
        }
    }
}

impl Allocator {
    fn new(pid: u32, device: u16, row: u16) -> Self {
        Self {
            device,
            row,
            blocks: Process::new(pid, KindSet::ALL),
            ..Self::default()
        }
    }

    /// Bytes of live blocks allocated before tracing began that are not known.
    pub fn bytes_from_before(&self) -> u64 {
        let seen = self.blocks.totals.sums.gpu.bytes;
        self.allocated_bytes.saturating_sub(seen)
    }

    /// Memory of a call site of [`Self::blocks`] at the allocator's peak.
    pub fn at_peak(&self, site: &super::CallSite) -> super::totals::MemorySums {
        self.blocks.sites.at_peak(site, self.peaks)
    }

    /// Number of entries kept besides those of [`Self::blocks`].
    pub(super) fn kept(&self) -> usize {
        self.asked.len() + self.segments.len() + self.ranges.len() + self.found.segments.len()
    }

    /// Whether a block at `address` is live.
    fn holds(&self, address: u64) -> bool {
        self.blocks
            .live
            .get(key(AddressSpace::Device, address))
            .is_some()
    }

    /// An event has handed out the first of `blocks`, and taken back the second.
    fn change(&self, [allocated, freed]: [Option<Allocation>; 2]) -> TensorChange {
        TensorChange {
            device: self.device,
            allocated,
            freed,
            bytes_from_before: self.bytes_from_before(),
            reserved_bytes: self.reserved_bytes,
        }
    }

    fn apply(&mut self, tensor: &Tensor, process: &Process, changes: &mut Changes) {
        if self.allocations + self.frees == 0 {
            self.since_start = !tensor.is_free && tensor.allocated_bytes == tensor.bytes;
        }
        self.allocated_bytes = tensor.allocated_bytes;
        self.reserved_bytes = tensor.reserved_bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(self.reserved_bytes);
        let blocks = match tensor.is_free {
            true => [None, self.take_back(tensor, process)],
            false => self.hand_out(tensor, process),
        };
        self.note_peak();
        changes.record_tensors(|| self.change(blocks));
    }

    /// Returns the block, and the one that was at its address.
    fn hand_out(&mut self, tensor: &Tensor, process: &Process) -> [Option<Allocation>; 2] {
        self.allocations += 1;
        if process.is_full {
            self.blocks.left_out += 1;
            self.blocks.live_left_out += 1;
            return [None, None];
        }
        self.reach(tensor, process);
        learn(&mut self.blocks.sites, &process.sites, tensor.stack);
        let block = (tensor.address, tensor.bytes);
        let block = self.new_block(block, tensor.time_ns, tensor.row, tensor.stack);
        let old = self.blocks.add(block);
        old.iter().for_each(|old| self.note_gone(old));
        self.found.handed_out(tensor.address, tensor.bytes);
        self.forget_request(tensor.address);
        if let Some(bytes) = tensor.requested_bytes() {
            self.request(tensor.address, bytes);
        }
        self.note_segment(tensor.address, process);
        [Some(block), old]
    }

    /// A block at this address, of so many bytes, from this function and call stack.
    fn new_block(
        &mut self,
        (address, size_bytes): (u64, u64),
        end_ns: u64,
        row: u16,
        stack: u64,
    ) -> Allocation {
        Allocation::new(&NewAllocation {
            address,
            size_bytes,
            end_ns,
            // The thread is not reported.
            tid: self.blocks.pid,
            row,
            site: self.blocks.sites.site(stack, row),
            kind: MemoryKind::Tensor,
            space: AddressSpace::Device,
            place: AllocationPlace::Device(self.device),
            slot: 0,
        })
    }

    /// Sums up the blocks seen, for an allocator that does not report its sums.
    fn add_up(&mut self) {
        self.allocated_bytes = self.blocks.totals.sums.gpu.bytes;
        self.note_peak();
    }

    fn note_peak(&mut self) {
        if self.allocated_bytes > self.peak_allocated_bytes {
            self.peak_allocated_bytes = self.allocated_bytes;
            self.peaks = self.peaks.wrapping_add(1);
        }
    }

    /// The time is that of this event, and the process has allocated so often.
    fn reach(&mut self, tensor: &Tensor, process: &Process) {
        let sites = &mut self.blocks.sites;
        sites.after_peak(self.peaks, tensor.time_ns);
        sites.set_births(process.sites.births());
    }

    fn take_back(&mut self, tensor: &Tensor, process: &Process) -> Option<Allocation> {
        self.frees += 1;
        self.reach(tensor, process);
        let key = key(AddressSpace::Device, tensor.address);
        match self.blocks.live.free(key, tensor.time_ns) {
            Freed::Live(block) => {
                self.blocks.uncount(&block);
                self.note_gone(&block);
                self.forget_request(block.address);
                return Some(block);
            }
            Freed::Superseded => {}
            Freed::Unknown if self.blocks.frees_left_out() => {}
            Freed::Unknown => {
                self.unknown_frees += 1;
                // In a census, it was allocated since the last one.
                if self.found.census_ns.is_none() {
                    self.blocks.sites.note_unknown_free();
                }
            }
        }
        None
    }

    /// Notes the segment around a block at `address`, if it is new.
    fn note_segment(&mut self, address: u64, process: &Process) {
        if process
            .live
            .get(key(AddressSpace::Device, address))
            .is_some()
        {
            self.segments.insert(address);
        } else if let Some(range) = process.physical.range_of(address) {
            self.ranges.insert(range);
        }
    }

    fn gave_back(&mut self, bytes: u64, changes: &mut Changes) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
        changes.record_tensors(|| self.change([None, None]));
    }

    fn request(&mut self, address: u64, bytes: u64) {
        let key = key(AddressSpace::Device, address);
        let Some(size_bytes) = self.blocks.live.get(key).map(|block| block.size_bytes) else {
            return;
        };
        // The size was requested once; a program may report it again.
        self.forget_request(address);
        let asked = bytes.min(size_bytes);
        self.requested.add(asked);
        self.asked.insert(address, asked);
    }

    fn forget_request(&mut self, address: u64) {
        if let Some(asked) = self.asked.remove(&address) {
            self.requested.subtract(asked);
        }
    }
}

/// Copies the stack with this number from the sites of the process to those of the blocks.
fn learn(of_blocks: &mut Sites, of_process: &Sites, number: u64) {
    if number == 0 || of_blocks.stack(number).is_some() {
        return;
    }
    if let Some(stack) = of_process.stack(number) {
        of_blocks.learn(number, std::rc::Rc::clone(stack));
    }
}
