//! Segments that allocators take from the driver.

use super::super::allocation::Allocation;
use super::super::process::Process;
use super::{MAX_LOOKED_AT, TensorAllocators};
use gpuprobe_cuda::AddressSpace;
use gpuprobe_model::event::Tensor;

impl TensorAllocators {
    /// Applies an event of an allocator that reports neither its device nor its sums. A block
    /// outside of memory from CUDA is host memory. Returns false if the device is out of range.
    pub(super) fn chunk(&mut self, chunk: &Tensor, process: &Process) -> bool {
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

    /// The allocation from CUDA around `address`: its address, bytes and device.
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
        })?;
        let device = process.device(around).unwrap_or(0);
        let region = (around.size_bytes, device);
        self.regions.insert(around.address, region);
        Some((around.address, region))
    }

    /// Notes that memory from CUDA was freed.
    pub(crate) fn segment_gone(&mut self, gone: &Allocation) {
        self.regions.remove(&gone.address);
        for allocator in &mut self.allocators {
            if allocator.segments.remove(&gone.address) {
                allocator.gave_back(gone.size_bytes);
            }
        }
    }

    /// Notes that the address range reserved at `range` is no longer what it was: the next one there may be
    /// another allocator's.
    pub(crate) fn range_gone(&mut self, range: u64) {
        for allocator in &mut self.allocators {
            allocator.ranges.remove(&range);
        }
    }

    /// Notes that `bytes` were unmapped in a reserved address range.
    pub(crate) fn unmapped(&mut self, range: u64, bytes: u64) {
        for allocator in &mut self.allocators {
            if allocator.ranges.contains(&range) {
                allocator.gave_back(bytes);
            }
        }
    }
}
