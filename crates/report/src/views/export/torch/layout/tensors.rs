//! Blocks that PyTorch allocates and frees.

use super::{
    DeviceLayout, FIRST_SYNTHETIC, SnapshotBlock, TensorChange, TraceAction, TraceEvent, range,
};
use crate::views::export::torch::names::Owner;

impl DeviceLayout {
    /// Adds a block that PyTorch has allocated.
    pub(in super::super) fn allocate(&mut self, tensor: TensorChange) {
        let place = range(tensor.address, tensor.bytes, FIRST_SYNTHETIC);
        let Some(range) = place.filter(|range| self.may_have_tensor(range)) else {
            self.left_out += 1;
            return;
        };
        // Blocks still there were freed, and the events lost.
        self.free_all(&range, tensor.time_ns);
        for gap in self.gaps(&range) {
            self.found.from_before.insert(gap.clone());
            self.push_unseen(TraceAction::SegmentMap, &gap, tensor.time_ns);
            self.unseen.insert(gap);
        }
        self.note_tensor(&range);
        self.untouched.remove(range);
        let segment = self.segments.range(..=tensor.address).next_back();
        let stream = segment.and_then(|(_, held)| held.stream);
        self.add_block(TraceEvent {
            action: TraceAction::Alloc,
            time_ns: tensor.time_ns,
            address: tensor.address,
            bytes: tensor.bytes,
            stream: stream.unwrap_or(0),
            stack: tensor.stack,
            owner: Owner::PYTORCH,
        });
    }

    /// Sets the requested size and the stream of the block at this address, which was allocated
    /// recently.
    pub(in super::super) fn request(&mut self, address: u64, bytes: u64, stream: i64) {
        let block = self.blocks.get(&address).copied();
        let Some(block) = block.filter(|block| block.owner == Owner::PYTORCH) else {
            return;
        };
        let requested = bytes.clamp(1, block.bytes);
        let Some(event) = self.event_mut(block.event) else {
            return;
        };
        (event.bytes, event.stream) = (requested, stream);
        let known = SnapshotBlock {
            requested,
            stream,
            ..block
        };
        self.blocks.insert(address, known);
        self.note_stream(address, stream);
    }

    /// Notes that the segment at this address has blocks of this stream.
    fn note_stream(&mut self, address: u64, stream: i64) {
        let Some((&at, held)) = self.segments.range_mut(..=address).next_back() else {
            return;
        };
        if address - at < held.segment.bytes && held.stream.is_none() {
            held.stream = Some(stream);
            let number = held.event;
            if let Some(event) = self.event_mut(number) {
                event.stream = stream;
            }
        }
    }

    /// Removes a block that PyTorch has freed.
    pub(in super::super) fn free(&mut self, tensor: TensorChange) {
        match self.blocks.get(&tensor.address).copied() {
            // A block newer than the free stays.
            Some(block) if block.since_ns > tensor.time_ns => {}
            Some(block) if block.owner == Owner::PYTORCH => {
                self.blocks.remove(&tensor.address);
                self.push_free(tensor.address, &block, tensor.time_ns, tensor.stack);
            }
            _ => self.free_from_before(tensor),
        }
    }

    /// Removes a block whose allocation was not seen. In the snapshot it was there from the
    /// beginning; this requires that its memory was, too, and nothing else in it.
    fn free_from_before(&mut self, tensor: TensorChange) {
        let place = range(tensor.address, tensor.bytes, FIRST_SYNTHETIC);
        let place = place.filter(|range| self.may_have_tensor(range));
        let Some(range) = place.filter(|range| self.blocks_in(range).is_empty()) else {
            self.left_out += 1;
            return;
        };
        for gap in self.gaps(&range) {
            self.found.from_before.insert(gap);
        }
        self.note_tensor(&range);
        if self.untouched.gaps(&range).next().is_some() {
            self.left_out += 1;
            return;
        }
        self.untouched.remove(range);
        self.push(TraceEvent {
            action: TraceAction::Free,
            time_ns: tensor.time_ns,
            address: tensor.address,
            bytes: tensor.bytes,
            stream: 0,
            stack: tensor.stack,
            owner: Owner::PYTORCH,
        });
    }
}
