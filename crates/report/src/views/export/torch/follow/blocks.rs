//! Allocations and frees.

use super::super::layout::{SegmentChange, SnapshotSegment};
use super::super::names::{Owner, StackId};
use super::{Follow, MappablePhysical};
use gpuprobe_cuda::{AddressSpace, Belongs, MemoryKind};
use gpuprobe_engine::Allocation;
use gpuprobe_model::event::Call;

impl<'a, 'b> Follow<'a, 'b> {
    pub(super) fn allocated(&mut self, call: &Call, allocation: &Allocation) {
        if allocation.belongs() != Belongs::Gpu {
            return;
        }
        let Some(process) = self.player.state.ledger.process_of(call.pid) else {
            return;
        };
        let device = process.device(allocation);
        let site = process.sites.of(allocation);
        let stack = site.and_then(|site| site.stack.as_ref());
        let stack = stack.map_or(StackId::NONE, |stack| self.names.stack(stack));
        let bytes = allocation.size_bytes;
        if allocation.space() == AddressSpace::Physical {
            let physical = MappablePhysical {
                bytes,
                device,
                stack,
            };
            self.physical.insert(allocation.address, physical);
            return;
        }
        let at_gpu = allocation.kind() != MemoryKind::Managed;
        let Some(segment) = self.segment(device, (bytes, SegmentChange::Whole), stack, at_gpu)
        else {
            return;
        };
        if let Some(layout) = device.and_then(|device| self.layout(device)) {
            match allocation.space() {
                AddressSpace::Arrays => {
                    let key = (AddressSpace::Arrays, allocation.address);
                    layout.add_synthetic(key, segment, call.end_ns);
                }
                _ => layout.add_segment(allocation.address, segment, call.end_ns),
            }
        }
    }

    /// Adds memory from CUDA and returns its number; `None` if it is empty or on an unknown device.
    pub(super) fn segment(
        &mut self,
        device: Option<u16>,
        (bytes, piece): (u64, SegmentChange),
        stack: StackId,
        at_gpu: bool,
    ) -> Option<SnapshotSegment> {
        self.segments += 1;
        if device.is_none() {
            self.nowhere = self.nowhere.saturating_add(bytes);
        }
        device.filter(|_| bytes > 0)?;
        let number = self.segments;
        let is_torch = self
            .findings
            .is_none_or(|findings| findings.is_torch(number, piece));
        let owner = if is_torch {
            Owner::PYTORCH
        } else {
            self.names.owner_of(stack)
        };
        Some(SnapshotSegment {
            bytes,
            piece,
            stack,
            owner,
            number,
            at_gpu,
        })
    }

    pub(super) fn freed(&mut self, call: &Call, allocation: &Allocation) {
        let key = (allocation.space(), allocation.address);
        for layout in self.layouts.values_mut() {
            match allocation.space() {
                AddressSpace::Device | AddressSpace::Variables => {
                    layout.remove_segment(allocation.address, call.end_ns);
                }
                _ => layout.remove_synthetic(key, call.end_ns),
            }
        }
        if allocation.space() == AddressSpace::Physical {
            self.physical.remove(&allocation.address);
        }
    }
}
