//! Results of the first pass over a process: which of its memory is PyTorch's.

use std::collections::{BTreeMap, HashSet};

use rangemap::RangeSet;

use super::layout::{AllocatorState, SegmentChange};

/// Results of the first pass.
#[derive(Debug, Default)]
pub(super) struct FirstPass {
    /// Devices that the process has used.
    pub(super) devices: BTreeMap<u16, DeviceFindings>,
    /// Numbers of the segments, and of the reserved address ranges, in which tensors were seen.
    with_tensors: SmallSet,
    ranges: HashSet<u64>,
    /// Time of its first event, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    /// Bytes of memory on an unknown device.
    pub(super) nowhere: u64,
}

/// Results of the first pass for a device.
#[derive(Debug, Default)]
pub(super) struct DeviceFindings {
    /// PyTorch's memory from before tracing began.
    pub(super) from_before: RangeSet<u64>,
    /// Bytes that the process last used beyond traced memory.
    pub(super) context: u64,
}

impl FirstPass {
    /// Results for a process with its first event at `began_ns`, and with `nowhere` bytes on no
    /// known device.
    pub(super) fn of(began_ns: u64, nowhere: u64) -> Self {
        Self {
            began_ns,
            nowhere,
            ..Self::default()
        }
    }

    /// Adds the results for a device.
    pub(super) fn add(&mut self, device: u16, found: AllocatorState, context: u64) {
        for number in found.segments {
            self.with_tensors.insert(number);
        }
        self.ranges.extend(found.ranges);
        let of_device = DeviceFindings {
            from_before: found.from_before,
            context,
        };
        self.devices.insert(device, of_device);
    }

    /// Whether the segment with this number is PyTorch's.
    pub(super) fn is_torch(&self, number: u64, piece: SegmentChange) -> bool {
        let is_in_range = match piece {
            SegmentChange::Mapped(range) => self.ranges.contains(&range),
            SegmentChange::Whole => false,
        };
        is_in_range || self.with_tensors.contains(number)
    }
}

/// A set of small numbers.
#[derive(Debug, Default)]
struct SmallSet(Vec<u64>);

impl SmallSet {
    fn insert(&mut self, number: u64) {
        let word = usize::try_from(number / 64).unwrap_or(usize::MAX);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    fn contains(&self, number: u64) -> bool {
        let word = usize::try_from(number / 64).ok();
        let word = word.and_then(|word| self.0.get(word));
        word.is_some_and(|word| word & 1 << (number % 64) != 0)
    }
}
