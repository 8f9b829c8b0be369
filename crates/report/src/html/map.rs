//! The map of an allocator's segments.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::document::{MemoryMap, SegmentData};
use gpuprobe_engine::{Allocation, Allocator, Process};

/// Limit on the blocks of a map; the smallest are left out.
const BLOCKS: usize = 50_000;
/// The segments of an allocator with their blocks; `age_of` gives ages in nanoseconds.
pub(super) fn map_of(
    process: &Process,
    allocator: &Allocator,
    sites: &HashMap<u32, usize>,
    age_of: impl Fn(&Allocation) -> i64,
) -> MemoryMap {
    let mut blocks: Vec<_> = allocator.blocks.allocations().collect();
    blocks.sort_unstable_by_key(|block| block.address);
    let mut sizes: Vec<_> = blocks
        .iter()
        .map(|block| Reverse(block.size_bytes))
        .collect();
    sizes.sort_unstable();
    let least = sizes.get(BLOCKS).map_or(0, |Reverse(bytes)| *bytes + 1);
    let segments = allocator.fragmentation(process).segments.into_iter();
    let segments = segments.map(|segment| {
        let end = segment.address.saturating_add(segment.bytes);
        let first = blocks.partition_point(|block| block.address < segment.address);
        let last = blocks.partition_point(|block| block.address < end);
        let mut flat = Vec::new();
        let mut next = segment.address;
        let mut push = |address: u64, bytes: u64, site: i64, age_ns: i64| {
            let offset = address.saturating_sub(segment.address);
            let numbers = [offset, bytes].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
            flat.extend(numbers.into_iter().chain([site, age_ns]));
        };
        for block in blocks.get(first..last).unwrap_or_default() {
            if block.address > next {
                push(next, block.address - next, FREE, -1);
            }
            if block.size_bytes >= least {
                let site = sites
                    .get(&block.site)
                    .and_then(|&site| i64::try_from(site).ok());
                push(
                    block.address,
                    block.size_bytes,
                    site.unwrap_or(-1),
                    age_of(block),
                );
            }
            next = next.max(block.address.saturating_add(block.size_bytes));
        }
        if next < end {
            push(next, end - next, FREE, -1);
        }
        SegmentData {
            address: format!("{:#x}", segment.address),
            bytes: segment.bytes,
            blocks: flat,
        }
    });
    MemoryMap {
        segments: segments.collect(),
    }
}

/// Stands for the site of a free block.
const FREE: i64 = -2;
