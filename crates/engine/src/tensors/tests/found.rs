//! Blocks that were found in the memory of a process.

use gpuprobe_cuda::BEFORE;
use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundBlocks, FoundSegment};
use gpuprobe_model::event::Event;

use super::{MIB, PID, Program, row};

/// A segment from before the tracing.
const SEGMENT: u64 = 0x40_0000;

pub(super) fn block(address: u64, bytes: u64, is_pending: bool) -> FoundBlock {
    FoundBlock {
        address,
        bytes,
        requested_bytes: bytes - 12,
        is_pending,
        ..FoundBlock::default()
    }
}

/// What was found on device 0: these blocks in one segment of 20 MiB.
pub(super) fn found(blocks: &[FoundBlock]) -> FoundBlocks {
    let allocated = blocks.iter().filter(|block| !block.is_pending);
    let allocated_bytes = allocated.map(|block| block.bytes).sum();
    FoundBlocks {
        pid: PID,
        row: row("reportMemoryUsageToProfiler"),
        time_ns: 12,
        census: None,
        devices: vec![DeviceBlocks {
            device: 0,
            allocated_bytes,
            peak_allocated_bytes: allocated_bytes + MIB,
            reserved_bytes: 20 * MIB,
            peak_reserved_bytes: 40 * MIB,
            segments: vec![FoundSegment {
                address: SEGMENT,
                bytes: 20 * MIB,
                stream: 0,
                pool: (0, 0),
                is_expandable: false,
            }],
            blocks: blocks.to_vec(),
            ..DeviceBlocks::default()
        }],
    }
}

impl Program {
    /// A block of 1 MiB from before at `SEGMENT`, and a new one behind it; the allocator has the sum.
    fn late() -> Self {
        let mut program = Self::default();
        program.tensor_with_sums(0, (SEGMENT + MIB, 512), false, (MIB + 512, 20 * MIB));
        program
    }
}

#[test]
fn what_is_found_is_known_from_then_on() {
    let mut program = Program::late();
    let blocks = [
        block(SEGMENT, MIB, false),
        block(SEGMENT + MIB, 512, false),
        block(SEGMENT + 2 * MIB, 1024, true),
    ];
    let news = program.process().news_of(found(&blocks)).unwrap();
    assert_eq!(news.devices[0].blocks, [blocks[0], blocks[2]]);
    program.apply(&Event::Blocks(news));
    // The same again is no news.
    let again = program.process().news_of(found(&blocks)).unwrap();
    assert_eq!(again.devices, []);
    let allocator = program.allocator();
    assert_eq!(
        [allocator.before_bytes(), allocator.bytes_from_before()],
        [MIB, 0]
    );
    assert_eq!(
        [
            allocator.peak_allocated_bytes,
            allocator.peak_reserved_bytes
        ],
        [2 * MIB + 512, 40 * MIB]
    );
    let sites = || program.allocator().blocks.sites.iter();
    assert_eq!(sites().filter(|site| site.row == BEFORE).count(), 1);
    let within = allocator.fragmentation(program.process());
    let free = 20 * MIB - 2 * MIB - 1024;
    assert_eq!(
        [
            within.segments.len() as u64,
            within.largest_free_bytes,
            within.pending.bytes
        ],
        [1, free, 1024]
    );
    assert_eq!(within.outside.bytes, 0);

    // Where it waited, there is another block now; that from before is freed.
    program.tensor_with_sums(0, (SEGMENT + 2 * MIB, 512), false, (MIB + 1024, 20 * MIB));
    program.tensor_with_sums(0, (SEGMENT, MIB), true, (1024, 20 * MIB));
    let allocator = program.allocator();
    let within = allocator.fragmentation(program.process());
    assert_eq!(
        [
            within.pending.bytes,
            allocator.unknown_frees,
            allocator.before_bytes()
        ],
        [0; 3]
    );
}

#[test]
fn what_does_not_agree_with_events_is_not_taken() {
    let program = Program::late();
    let [before, new] = [(SEGMENT, MIB), (SEGMENT + MIB, 512)];
    let one = |(address, bytes)| block(address, bytes, false);
    let other = (SEGMENT + 8 * MIB, 512);
    for blocks in [
        // Another sum; the right one without the known block; with another size of it; with its free.
        vec![one(before), one(new), one(other)],
        vec![one(before), one(other)],
        vec![one((SEGMENT, MIB - 512)), one((SEGMENT + MIB, 1024))],
        vec![one(before), block(new.0, new.1, true), one(other)],
    ] {
        assert_eq!(
            program.process().news_of(found(&blocks)),
            None,
            "{blocks:?}"
        );
    }
}

#[test]
fn free_memory_of_private_pools_is_not_given_back() {
    let mut program = Program::default();
    program.apply(&Event::Process(crate::task(PID, PID, 0)));
    let mut found = found(&[block(SEGMENT, 512, false)]);
    let private = FoundSegment {
        address: 0x4000_0000,
        bytes: 2 * MIB,
        stream: 0,
        pool: (0, 1),
        is_expandable: false,
    };
    let empty = FoundSegment {
        address: 0x8000_0000,
        pool: (0, 0),
        ..private
    };
    found.devices[0].segments.extend([private, empty]);
    program.apply(&Event::Blocks(found));
    let within = program.allocator().fragmentation(program.process());
    assert_eq!(
        [
            within.unused_bytes,
            within.private_bytes,
            within.private_free_bytes
        ],
        [2 * MIB; 3]
    );
}
