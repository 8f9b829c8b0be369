//! Blocks that were found in the memory of a process: those from before the tracing, and what their allocator does not
//! report with its events.

use std::collections::BTreeMap;
use std::rc::Rc;

use hashbrown::HashMap;

use super::{Allocator, TensorAllocators, learn};
use crate::allocation::{Allocation, key};
use crate::change::Changes;
use crate::process::Process;
use crate::totals::Total;
use gpuprobe_cuda::{AddressSpace, BEFORE, BETWEEN, is_found};
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundBlocks, FoundSegment};
use gpuprobe_model::event::Tensor;
use gpuprobe_model::stack::CallStack;

/// What an allocator was found to have when it was last looked for.
#[derive(Debug, Default)]
pub(super) struct FoundState {
    /// Bytes of blocks that are free once a stream has passed, by address.
    pub(super) pending: BTreeMap<u64, u64>,
    /// Its segments.
    pub(super) segments: Vec<FoundSegment>,
    /// Live blocks from before the tracing.
    pub(super) before: Total,
    /// When blocks were last read for a census.
    pub(super) census_ns: Option<u64>,
}

impl FoundState {
    /// Notes that a block is now at these addresses.
    pub(super) fn handed_out(&mut self, address: u64, bytes: u64) {
        if !self.pending.is_empty() {
            let end = address.saturating_add(bytes);
            self.pending.retain(|at, _| !(address..end).contains(at));
        }
    }
}

impl Process {
    /// What of these blocks is not known yet; `None` if they do not agree with the events so far, all of which have to be
    /// applied.
    pub fn news_of(&self, mut found: FoundBlocks) -> Option<FoundBlocks> {
        let allocators = &self.tensors.allocators;
        let has_sums = has_sums(found.row);
        if !has_sums {
            self.place(&mut found.devices);
        }
        if found.census.is_some() {
            return Some(self.changes_in(found));
        }
        // Without sums, there must be no event since.
        let is_since = |event: &&Tensor| !has_sums && event.time_ns >= found.time_ns;
        let mut since = self.tensors.last_events(found.row).filter(is_since);
        let has = |event: &Tensor| {
            let mut devices = found.devices.iter();
            devices.any(|device| at(&device.segments, event.address).is_some())
        };
        if since.any(has) {
            return None;
        }
        for device in &mut found.devices {
            if let Some(allocator) = allocators.get(&(found.row, device.device)) {
                let blocks = device.blocks.iter().filter(|block| !block.is_pending);
                let sizes: HashMap<u64, u64> = blocks.map(|b| (b.address, b.bytes)).collect();
                let is_there =
                    |block: &Allocation| sizes.get(&block.address) == Some(&block.size_bytes);
                let is_sum = allocator.allocated_bytes == device.allocated_bytes;
                if !allocator.blocks.live.iter().all(is_there)
                    || has_sums && allocator.has_events() && !is_sum
                {
                    return None;
                }
                device
                    .blocks
                    .retain(|block| block.is_pending || !allocator.holds(block.address));
            }
        }
        found.devices.retain(|device| {
            let known = allocators.get(&(found.row, device.device));
            known.is_none_or(|allocator| allocator.lacks(device))
        });
        Some(found)
    }

    /// What has changed since the last census, with no event meanwhile.
    fn changes_in(&self, mut found: FoundBlocks) -> FoundBlocks {
        let row = found.row;
        let own = (self.tensors.allocators.values()).filter(|one| one.row == row);
        let is_read = found.census == Some(true);
        for allocator in own.clone().filter(|one| !is_read || has_sums(one.row)) {
            let mut devices = found.devices.iter();
            if !devices.any(|device| device.device == allocator.device) {
                let mut device = allocator.as_found();
                device.allocated_bytes *= u64::from(!is_read);
                found.devices.push(device);
            }
        }
        let is_news = |device: &mut DeviceBlocks| {
            let mut known = own.clone();
            let Some(allocator) = known.find(|one| one.device == device.device) else {
                return true;
            };
            let in_use = device.blocks.iter().filter(|block| !block.is_pending);
            let sizes: HashMap<u64, u64> = in_use.map(|b| (b.address, b.bytes)).collect();
            let is_gone = |block: &&Allocation| match is_read {
                true => sizes.get(&block.address) != Some(&block.size_bytes),
                false => allocator.is_new(block),
            };
            let gone = allocator.blocks.live.iter().filter(is_gone);
            device.gone = gone.map(|block| block.address).collect();
            device.gone.sort_unstable();
            let known = |at: u64| allocator.blocks.live.get(key(AddressSpace::Device, at));
            let is_known =
                |b: &FoundBlock| known(b.address).is_some_and(|it| it.size_bytes == b.bytes);
            device.blocks.retain(|b| b.is_pending || !is_known(b));
            let mut live = allocator.blocks.live.iter();
            live.any(|block| allocator.is_new(block)) || allocator.lacks(device)
        };
        found.devices.retain_mut(is_news);
        found
    }

    /// Makes allocators of a device one, and numbers them as CUDA does where it has told of their memory.
    fn place(&self, devices: &mut Vec<DeviceBlocks>) {
        for mut device in std::mem::take(devices) {
            let mut starts = device.segments.iter().map(|segment| segment.address);
            let seen = starts.find_map(|start| self.live.get(key(AddressSpace::Device, start)));
            device.device = seen
                .and_then(|seen| self.device(seen))
                .unwrap_or(device.device);
            match devices
                .iter_mut()
                .find(|other| other.device == device.device)
            {
                Some(other) => other.join(device),
                None => devices.push(device),
            }
        }
    }

    /// Applies what was found. Returns false if a device index is out of range.
    pub(crate) fn apply_found(&mut self, found: &FoundBlocks, changes: &mut Changes) -> bool {
        let mut tensors = std::mem::take(&mut self.tensors);
        let mut is_known = true;
        for device in &found.devices {
            let seen = tensors.take_unplaced(found.row, device);
            match tensors.of(self.pid, device.device, found.row) {
                Some(allocator) => {
                    for chunk in &seen {
                        let blocks = allocator.hand_out(chunk, self);
                        changes.record_tensors(|| allocator.change(blocks));
                    }
                    let is_later = allocator.found.census_ns.is_some() || self.from_birth;
                    let row = match is_later && found.census.is_some() {
                        true => BETWEEN,
                        false => BEFORE,
                    };
                    if let Some(is_read) = found.census {
                        allocator.begin_census(device, is_read, found.time_ns, changes);
                    }
                    allocator.apply_found(device, (found.time_ns, row), self, changes);
                }
                None => is_known = false,
            }
        }
        self.tensors = tensors;
        is_known
    }
}

/// Whether the events of this function have their device and its sums.
fn has_sums(row: u16) -> bool {
    gpuprobe_cuda::function(row).is_some_and(|function| function.device.is_there())
}

impl TensorAllocators {
    /// The memory of an allocator that does not report its device is known from now on; returns the blocks in it that
    /// were seen to be allocated.
    fn take_unplaced(&mut self, row: u16, found: &DeviceBlocks) -> Vec<Tensor> {
        if has_sums(row) {
            return Vec::new();
        }
        let old = self.allocators.get(&(row, found.device));
        for region in old.iter().flat_map(|allocator| &allocator.found.segments) {
            self.regions.remove(&region.address);
        }
        let regions = found.segments.iter();
        let regions = regions.map(|region| (region.address, (region.bytes, found.device)));
        self.regions.extend(regions);
        let seen = found.blocks.iter().filter_map(|block| {
            let seen = self.unplaced.remove(&block.address)?;
            (seen.bytes == block.bytes).then_some(seen)
        });
        let mut seen: Vec<_> = seen.collect();
        seen.sort_unstable_by_key(|chunk| chunk.time_ns);
        seen
    }
}

impl Allocator {
    fn has_events(&self) -> bool {
        self.allocations + self.frees > 0
    }

    /// Whether there is something in what was found that is not known.
    fn lacks(&self, device: &DeviceBlocks) -> bool {
        let pending = device.blocks.iter().filter(|block| block.is_pending);
        let pending = pending.map(|block| (block.address, block.bytes));
        let has_new = device.blocks.iter().any(|block| !block.is_pending);
        has_new
            || !device.gone.is_empty()
            || !pending.eq(self.found.pending.iter().map(|(at, bytes)| (*at, *bytes)))
            || device.segments != self.found.segments
            || device.allocated_bytes != self.allocated_bytes
            || device.reserved_bytes != self.reserved_bytes
    }

    /// Whether a block was allocated, as its event said, since the last census.
    fn is_new(&self, block: &Allocation) -> bool {
        !is_found(block.row) && block.end_ns > self.found.census_ns.unwrap_or(0)
    }

    /// What it is known to have, without its allocated blocks.
    fn as_found(&self) -> DeviceBlocks {
        DeviceBlocks {
            device: self.device,
            allocated_bytes: self.allocated_bytes,
            peak_allocated_bytes: self.peak_allocated_bytes,
            reserved_bytes: self.reserved_bytes,
            peak_reserved_bytes: self.peak_reserved_bytes,
            segments: self.found.segments.clone(),
            ..DeviceBlocks::default()
        }
    }

    /// Removes what is gone. A block that would usually have been freed by now is not known to be the one that was seen:
    /// another may have come to its address.
    fn begin_census(
        &mut self,
        device: &DeviceBlocks,
        is_read: bool,
        time_ns: u64,
        changes: &mut Changes,
    ) {
        let sites = &self.blocks.sites;
        let is_doubtful =
            |block: &&Allocation| self.is_new(block) && !(is_read && sites.outlives_others(block));
        let doubtful: Vec<_> = self
            .blocks
            .live
            .iter()
            .filter(is_doubtful)
            .copied()
            .collect();
        for old in doubtful {
            let block = (old.address, old.size_bytes);
            let new = self.new_block(block, old.end_ns, BETWEEN, 0);
            self.blocks.sites.replace(&old, &new);
            if let Some(block) = self.blocks.live.get_mut(old.key()) {
                *block = new;
            }
            changes.record_tensors(|| self.change([Some(new), Some(old)]));
        }
        if is_read {
            self.found.census_ns = Some(time_ns);
        }
        self.blocks.sites.after_peak(self.peaks, time_ns);
        for &address in &device.gone {
            if let Some(block) = self.blocks.remove(AddressSpace::Device, address) {
                self.note_gone(&block);
                self.forget_request(address);
                changes.record_tensors(|| self.change([None, Some(block)]));
            }
        }
    }

    fn apply_found(
        &mut self,
        device: &DeviceBlocks,
        (time_ns, row): (u64, u16),
        process: &Process,
        changes: &mut Changes,
    ) {
        self.allocated_bytes = device.allocated_bytes;
        self.reserved_bytes = device.reserved_bytes;
        self.peak_reserved_bytes = self.peak_reserved_bytes.max(device.peak_reserved_bytes);
        self.peak_allocated_bytes = self.peak_allocated_bytes.max(device.peak_allocated_bytes);
        self.blocks.sites.after_peak(self.peaks, time_ns);
        let (pending, before): (Vec<&FoundBlock>, Vec<&FoundBlock>) =
            device.blocks.iter().partition(|block| block.is_pending);
        let mut added = Vec::new();
        for block in before {
            if process.is_full || self.holds(block.address) {
                continue;
            }
            learn(&mut self.blocks.sites, &process.sites, block.stack);
            let place = (block.address, block.bytes);
            let allocation = self.new_block(place, time_ns, row, block.stack);
            self.blocks.add(allocation);
            added.push(allocation);
            if row == BEFORE {
                self.found.before.add(block.bytes);
            }
            if block.requested_bytes > 0 {
                self.requested.add(block.requested_bytes);
                self.asked.insert(block.address, block.requested_bytes);
            }
        }
        self.found.pending = pending
            .iter()
            .map(|block| (block.address, block.bytes))
            .collect();
        self.found.segments.clone_from(&device.segments);
        // None of them counts among the unknown any more.
        for allocation in added {
            changes.record_tensors(|| self.change([Some(allocation), None]));
        }
        changes.record_tensors(|| self.change([None, None]));
    }

    /// Bytes of live blocks from before the tracing, whether or not they were found.
    pub fn before_bytes(&self) -> u64 {
        let unknown = match self.found.census_ns {
            None => self.bytes_from_before(),
            Some(_) => 0,
        };
        self.found.before.bytes.saturating_add(unknown)
    }

    /// In a census, bytes of live blocks that were seen to be allocated.
    pub fn seen_bytes(&self) -> Option<u64> {
        self.found.census_ns?;
        let sites = self.blocks.sites.iter();
        let seen = sites.filter(|site| !is_found(site.row) || site.stack.is_some());
        Some(seen.map(|site| site.live.all().bytes).sum())
    }

    /// Notes that a live block is gone.
    pub(super) fn note_gone(&mut self, block: &Allocation) {
        if block.row == BEFORE {
            self.found.before.subtract(block.size_bytes);
        }
        if is_found(block.row) {
            self.blocks.sites.note_free_of_found(block.end_ns);
        }
    }

    /// Where a block that was found at this time was allocated, if that was traced.
    pub fn stack_of(&self, found: &FoundBlock, time_ns: u64) -> Option<&Rc<CallStack>> {
        let key = key(AddressSpace::Device, found.address);
        let block = self.blocks.live.get(key)?;
        let is_it = block.size_bytes == found.bytes && block.end_ns <= time_ns;
        let site = self.blocks.sites.get(block.site).filter(|_| is_it)?;
        site.stack.as_ref()
    }

    /// Blocks that are free once a stream has passed: address and bytes.
    pub fn pending_frees(&self) -> impl Iterator<Item = (u64, u64)> {
        self.found.pending.iter().map(|(at, bytes)| (*at, *bytes))
    }

    /// The found segment at an address.
    pub(super) fn found_at(&self, address: u64) -> Option<&FoundSegment> {
        at(&self.found.segments, address)
    }
}

/// The segment at an address.
fn at(segments: &[FoundSegment], address: u64) -> Option<&FoundSegment> {
    let next = segments.partition_point(|segment| segment.address <= address);
    let segment = segments.get(next.checked_sub(1)?)?;
    (address - segment.address < segment.bytes).then_some(segment)
}
