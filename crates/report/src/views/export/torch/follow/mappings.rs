//! Mappings of virtual memory.

use super::super::layout::SegmentChange;
use super::Follow;
use gpuprobe_model::event::Call;

impl<'a, 'b> Follow<'a, 'b> {
    /// Applies a mapping of physical memory. Memory mapped a second time is still the same memory.
    pub(super) fn mapped(&mut self, call: &Call, address: u64) {
        let Some(process) = self.process() else {
            return;
        };
        let Some((bytes, Some(id))) = process.physical.mapping_at(address) else {
            return;
        };
        let mapped_bytes = process
            .physical
            .get(id)
            .map_or(0, |piece| piece.mapped_bytes);
        let Some(physical) = self.physical.get(&id).copied() else {
            return;
        };
        if mapped_bytes > physical.bytes {
            return;
        }
        let range = process.physical.range_of(address).unwrap_or(address);
        // A range reserved before tracing began gets a number that no other has.
        let range = self.reservations.get(&range).copied().unwrap_or(!range);
        let piece = (bytes, SegmentChange::Mapped(range));
        let segment = self.segment(physical.device, piece, physical.stack, true);
        let layout = physical.device.and_then(|device| self.layout(device));
        if let (Some(segment), Some(layout)) = (segment, layout) {
            layout.add_segment(address, segment, call.end_ns);
        }
    }

    pub(super) fn unmapped(&mut self, call: &Call) {
        for layout in self.layouts.values_mut() {
            for begin in layout.unmap(call.address, call.size_bytes, call.end_ns) {
                let process = self.player.state.ledger.process_of(call.pid);
                // A mapping made since the call was entered stays.
                if process.is_none_or(|process| process.physical.mapping_at(begin).is_none()) {
                    layout.remove_segment(begin, call.end_ns);
                }
            }
        }
    }
}
