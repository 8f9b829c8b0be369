//! Blocks that were found in the memory of a program, of an allocator that reports neither its device nor its sums.

use gpuprobe_model::blocks::{DeviceBlocks, FoundBlock, FoundBlocks, FoundSegment};
use gpuprobe_model::event::Event;

use super::chunks::sums;
use super::{PID, Program, row};

/// What an allocator has: a region, and blocks in it.
fn found(device: u16, region: (u64, u64), blocks: &[(u64, u64)]) -> DeviceBlocks {
    let blocks = blocks.iter().map(|&(address, bytes)| FoundBlock {
        address,
        bytes,
        requested_bytes: bytes - 1,
        is_pending: false,
        ..FoundBlock::default()
    });
    let blocks: Vec<_> = blocks.collect();
    let allocated_bytes = blocks.iter().map(|block| block.bytes).sum();
    DeviceBlocks {
        device,
        allocated_bytes,
        peak_allocated_bytes: allocated_bytes + 0x100,
        reserved_bytes: region.1,
        peak_reserved_bytes: region.1,
        segments: vec![FoundSegment {
            address: region.0,
            bytes: region.1,
            stream: 0,
            pool: (0, 0),
            is_expandable: false,
        }],
        blocks,
        ..DeviceBlocks::default()
    }
}

impl Program {
    /// What is new of what was found `after_ns` after the last event.
    fn news(&self, devices: &[DeviceBlocks], after_ns: u64) -> Option<FoundBlocks> {
        self.process().news_of(FoundBlocks {
            pid: PID,
            row: row("BFCAllocator"),
            time_ns: self.now_ns + after_ns,
            census: None,
            devices: devices.to_vec(),
        })
    }

    fn find(&mut self, devices: &[DeviceBlocks]) {
        let news = self.news(devices, 1).unwrap();
        self.apply(&Event::Blocks(news));
    }

    /// Number of blocks allocated, of live ones, and bytes of those from before.
    fn counts(&self) -> (u64, u64, u64) {
        let allocator = self.allocator();
        (
            allocator.allocations,
            self.live().1,
            allocator.before_bytes(),
        )
    }
}

const REGION: (u64, u64) = (0x50_0000, 0x1000);

#[test]
fn memory_from_before_is_known_once_it_was_found() {
    let mut program = Program::default();
    program.chunk(0x50_0000, 0x100, false);
    program.chunk(0x50_0200, 0x40, false);
    program.chunk(0x50_0200, 0x40, true);
    // Of the host.
    program.chunk(0x90_0000, 0x100, false);
    assert_eq!(program.process().tensors.iter().count(), 0);
    program.find(&[found(2, REGION, &[(0x50_0000, 0x100), (0x50_0400, 0x200)])]);
    assert_eq!(sums(program.allocator()), [0x300, 0x1000, 0x400, 0x1000]);
    assert_eq!(
        (program.allocator().device, program.counts()),
        (2, (1, 2, 0x200))
    );
    let asked = [0x50_0000, 0x50_0400].map(|address| program.asked(address));
    assert_eq!(asked, [77, 0x1ff].map(Some));

    program.chunk(0x50_0800, 0x200, false);
    assert_eq!(sums(program.allocator()), [0x500, 0x1000, 0x500, 0x1000]);
    program.chunk(0x50_0400, 0x200, true);
    assert_eq!(program.counts(), (2, 2, 0));
    // Nothing is new.
    let now = found(2, REGION, &[(0x50_0000, 0x100), (0x50_0800, 0x200)]);
    let news = program.news(std::slice::from_ref(&now), 1);
    assert_eq!(news.map(|news| news.devices), Some(vec![]));
    // The memory is another one now.
    let moved = found(2, (0x60_0000, 0x2000), &[(0x60_0000, 0x100)]);
    program.chunk(0x50_0000, 0x100, true);
    program.chunk(0x50_0800, 0x200, true);
    program.find(&[moved]);
    program.chunk(0x50_0000, 0x100, false);
    assert_eq!(sums(program.allocator())[..2], [0x100, 0x2000]);
}

#[test]
fn what_was_read_while_it_changed_is_not_applied() {
    let mut program = Program::default();
    program.chunk(0x50_0000, 0x100, false);
    let first = found(0, REGION, &[(0x50_0000, 0x100)]);
    let is_news = |program: &Program, found: &DeviceBlocks, after_ns| {
        program
            .news(std::slice::from_ref(found), after_ns)
            .is_some()
    };
    assert!(!is_news(&program, &first, 0));
    assert!(is_news(&program, &first, 1));
    program.find(std::slice::from_ref(&first));
    // The host's are others.
    program.chunk(0x90_0000, 0x100, false);
    assert!(is_news(&program, &first, 0));
    // A live block is not there, or is another one.
    for blocks in [&[(0x50_0400, 0x100)][..], &[(0x50_0000, 0x200)]] {
        assert!(!is_news(&program, &found(0, REGION, blocks), 1));
    }
}

#[test]
fn allocators_of_a_device_are_one_and_have_its_number() {
    let mut program = Program::default();
    program.call("cudaMalloc", 0x10_0000, 0x1000);
    program.chunk(0x10_0000, 0x100, false);
    let both = [
        found(7, (0x50_0000, 0x1000), &[(0x50_0000, 0x80)]),
        found(5, (0x10_0000, 0x1000), &[(0x10_0000, 0x100)]),
        found(0, (0x20_0000, 0x1000), &[(0x20_0000, 0x200)]),
    ];
    let news = program.news(&both, 1).unwrap().devices;
    let devices: Vec<_> = news
        .iter()
        .map(|it| (it.device, it.segments.len()))
        .collect();
    assert_eq!(devices, [(7, 1), (0, 2)]);
    program.find(&both[1..]);
    assert_eq!(sums(program.allocator()), [0x300, 0x2000, 0x300, 0x2000]);
    assert_eq!(program.counts(), (1, 2, 0x200));
}

#[test]
fn nothing_is_looked_for_in_a_program_that_was_seen_to_begin() {
    let mut program = Program::default();
    program.apply(&Event::Process(crate::task(PID, PID, 0)));
    program.chunk(0x50_0000, 0x100, false);
    let tensors = &program.process().tensors;
    assert_eq!(
        (
            tensors.last_events(row("BFCAllocator")).count(),
            tensors.kept()
        ),
        (0, 0)
    );
}
