//! What PyTorch hands out and takes back.

use super::{Action, Block, Event, Layout, MADE_UP, Tensor, range};
use crate::export::torch::names::Owner;

impl Layout {
    /// PyTorch hands out a block.
    pub(in super::super) fn hand_out(&mut self, tensor: Tensor) {
        let place = range(tensor.address, tensor.bytes, MADE_UP);
        let Some(range) = place.filter(|range| self.may_have_tensor(range)) else {
            self.left_out += 1;
            return;
        };
        // What is still there was given back: that was lost.
        self.free_all(&range, tensor.time_ns);
        for gap in self.gaps(&range) {
            self.found.from_before.insert(gap.clone());
            self.push_unseen(Action::SegmentMap, &gap, tensor.time_ns);
            self.unseen.insert(gap);
        }
        self.note_tensor(&range);
        self.untouched.remove(range);
        let segment = self.segments.range(..=tensor.address).next_back();
        let stream = segment.and_then(|(_, held)| held.stream);
        self.add_block(Event {
            action: Action::Alloc,
            time_ns: tensor.time_ns,
            address: tensor.address,
            bytes: tensor.bytes,
            stream: stream.unwrap_or(0),
            stack: tensor.stack,
            owner: Owner::PYTORCH,
        });
    }

    /// What was asked for of the block at this address, which was handed out a while ago at most, and the
    /// stream that it is for.
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
        let known = Block {
            requested,
            stream,
            ..block
        };
        self.blocks.insert(address, known);
        self.note_stream(address, stream);
    }

    /// The segment at this address has blocks for this stream.
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

    /// PyTorch takes a block back.
    pub(in super::super) fn take_back(&mut self, tensor: Tensor) {
        match self.blocks.get(&tensor.address).copied() {
            // A newer one than was given back stays.
            Some(block) if block.since_ns > tensor.time_ns => {}
            Some(block) if block.owner == Owner::PYTORCH => {
                self.blocks.remove(&tensor.address);
                self.push_free(tensor.address, &block, tensor.time_ns, tensor.stack);
            }
            _ => self.take_back_from_before(tensor),
        }
    }

    /// A block that was not seen to be handed out. To the viewer, it was there from the beginning; so its
    /// memory must have been, and nothing else in it.
    fn take_back_from_before(&mut self, tensor: Tensor) {
        let place = range(tensor.address, tensor.bytes, MADE_UP);
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
        self.push(Event {
            action: Action::Free,
            time_ns: tensor.time_ns,
            address: tensor.address,
            bytes: tensor.bytes,
            stream: 0,
            stack: tensor.stack,
            owner: Owner::PYTORCH,
        });
    }
}
