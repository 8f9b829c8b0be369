//! Call stacks that were read from their ring and wait to be processed.

use std::collections::VecDeque;

use anyhow::Result;
use gpuprobe_model::abi::{RawStack, record};
use zerocopy::FromBytes;

use super::ring::{Progress, Ring};

/// Bytes of waiting call stacks beyond which the rest stays in the ring.
const MAX_BYTES: usize = 96 << 20;

/// Call stacks between their ring and their consumer, oldest first.
///
/// The first stacks through a library take as long as its unwinding tables take to read. The first step of a large
/// model under trace sends enough of them to fill the ring in that time, and the next step as many again.
#[derive(Default)]
pub(super) struct StackBacklog {
    records: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl StackBacklog {
    /// Takes the records out of the ring, as far as there is room. Returns `Busy` if one of them is still being
    /// written, and `OutOfTime` if there are more.
    pub(super) fn fill(&mut self, ring: &mut Ring) -> Result<Progress> {
        let end = ring.end();
        let room = MAX_BYTES.saturating_sub(self.bytes);
        let until = end.min(ring.position().saturating_add(room as u64));
        let mut keep = |bytes: &[u8]| self.push(bytes);
        let progress = ring.read_to(until, &mut keep, None)?;
        Ok(match progress {
            Progress::Done if ring.position() < end => Progress::OutOfTime,
            progress => progress,
        })
    }

    /// Number of waiting records.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Removes the oldest record.
    pub(super) fn pop(&mut self) -> Option<Box<[u8]>> {
        let record = self.records.pop_front()?;
        self.bytes -= record.len();
        Some(record)
    }

    fn push(&mut self, bytes: &[u8]) {
        let used = without_padding(bytes);
        self.bytes += used.len();
        self.records.push_back(used.into());
    }
}

/// A record without the bytes of its buffer that the copy of the stack did not need.
fn without_padding(bytes: &[u8]) -> &[u8] {
    if bytes.first_chunk::<2>() != Some(&record::STACK.to_ne_bytes()) {
        return bytes;
    }
    let Ok((stack, rest)) = RawStack::read_from_prefix(bytes) else {
        return bytes;
    };
    let copied = usize::try_from(stack.copied).unwrap_or(usize::MAX);
    bytes
        .get(..size_of::<RawStack>().saturating_add(copied.min(rest.len())))
        .unwrap_or(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    /// A record whose buffer has room for `room` bytes of the stack.
    fn stack(copied: u64, room: usize) -> Vec<u8> {
        let mut stack = RawStack::new_zeroed();
        (stack.record_type, stack.copied) = (record::STACK, copied);
        let mut bytes = stack.as_bytes().to_vec();
        bytes.resize(bytes.len() + room, 7);
        bytes
    }

    #[test]
    fn records_are_kept_in_order_without_their_padding() {
        let mut backlog = StackBacklog::default();
        let kept = |copied, room| size_of::<RawStack>() + usize::min(copied, room);
        for (copied, room) in [(100, 4096), (4096, 4096), (9999, 4096), (0, 0)] {
            backlog.push(&stack(copied, room));
        }
        backlog.push(b"another record");
        assert_eq!(backlog.len(), 5);
        for length in [
            kept(100, 4096),
            kept(4096, 4096),
            kept(9999, 4096),
            kept(0, 0),
            14,
        ] {
            assert_eq!(backlog.pop().unwrap().len(), length);
        }
        assert_eq!((backlog.pop(), backlog.bytes), (None, 0));
    }

    #[test]
    fn a_record_that_is_too_short_is_kept_as_it_is() {
        let mut bytes = record::STACK.to_ne_bytes().to_vec();
        bytes.push(0);
        assert_eq!(without_padding(&bytes), bytes);
    }
}
