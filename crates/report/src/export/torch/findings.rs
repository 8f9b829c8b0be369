//! What a first look at a process finds out: which of its memory is PyTorch's.

use std::collections::{BTreeMap, HashSet};

use rangemap::RangeSet;

use super::layout::{Found, Piece};

/// What a first look has found out.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Devices that the process has used.
    pub(super) devices: BTreeMap<u16, DeviceFindings>,
    /// Numbers of the segments in which tensors were, and of the ranges of reserved addresses.
    with_tensors: Numbers,
    ranges: HashSet<u64>,
    /// When it did something first, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    /// Bytes of memory on a device that is not known.
    pub(super) nowhere: u64,
}

/// What a first look has found out about a device.
#[derive(Debug, Default)]
pub(super) struct DeviceFindings {
    /// Memory that PyTorch had before it was seen to get it.
    pub(super) from_before: RangeSet<u64>,
    /// Bytes that the process used beyond what was traced, when that was looked at last.
    pub(super) context: u64,
}

impl Findings {
    /// Of a process that did something first at `began_ns`, and has so many bytes on no device that is
    /// known.
    pub(super) fn of(began_ns: u64, nowhere: u64) -> Self {
        Self {
            began_ns,
            nowhere,
            ..Self::default()
        }
    }

    /// Adds what was found out about a device.
    pub(super) fn add(&mut self, device: u16, found: Found, context: u64) {
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

    /// Whether the segment of this number is PyTorch's.
    pub(super) fn is_torch(&self, number: u64, piece: Piece) -> bool {
        let is_in_range = match piece {
            Piece::Mapped(range) => self.ranges.contains(&range),
            Piece::Whole => false,
        };
        is_in_range || self.with_tensors.contains(number)
    }
}

/// A set of small numbers.
#[derive(Debug, Default)]
struct Numbers(Vec<u64>);

impl Numbers {
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
