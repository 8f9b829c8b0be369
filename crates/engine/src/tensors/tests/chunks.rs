//! An allocator that reports neither its device nor its sums.

use gpuprobe_cuda::Framework;
use gpuprobe_model::event::{Event, Tensor};

use super::{PID, Program, row};
use crate::tensors::{Allocator, MAX_LOOKED_AT};

impl Program {
    pub(super) fn chunk(&mut self, address: u64, bytes: u64, is_free: bool) {
        self.chunk_of("BFCAllocator", address, bytes, is_free);
    }

    fn chunk_of(&mut self, symbol: &str, address: u64, bytes: u64, is_free: bool) {
        self.now_ns += 10;
        self.apply(&Event::Tensor(Tensor {
            row: row(symbol),
            pid: PID,
            tid: PID,
            time_ns: self.now_ns,
            address,
            bytes,
            is_free,
            allocated_bytes: 77,
            reserved_bytes: 77,
            device: None,
            stack: 0,
        }));
    }
}

/// Allocated and reserved bytes, and the peaks of both.
pub(super) fn sums(allocator: &Allocator) -> [u64; 4] {
    [
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        allocator.peak_allocated_bytes,
        allocator.peak_reserved_bytes,
    ]
}

#[test]
fn sums_are_those_of_its_chunks_and_of_the_memory_around_them() {
    let mut program = Program::default();
    program.apply(&Event::Process(crate::task(PID, PID, 0)));
    program.call("cudaMalloc", 0x10_0000, 0x1000);
    program.call("cudaMalloc", 0x20_0000, 0x2000);
    // Outside of memory from CUDA: of the host.
    for address in [0x0f_ffff, 0x10_1000, 0x50_0000] {
        program.chunk(address, 64, false);
        program.chunk(address, 64, true);
    }
    assert_eq!(program.process().tensors.iter().count(), 0);
    program.chunk(0x10_0000, 0x100, false);
    assert_eq!(sums(program.allocator()), [0x100, 0x1000, 0x100, 0x1000]);
    assert!(program.allocator().since_start);
    // Behind memory that is known.
    program.chunk(0x10_1000, 64, false);
    assert_eq!(program.allocator().allocations, 1);
    program.chunk(0x10_0fff, 1, false);
    program.chunk(0x20_1000, 0x200, false);
    assert_eq!(sums(program.allocator()), [0x301, 0x3000, 0x301, 0x3000]);
    let holds = |address| program.allocator().holds(address);
    assert!(holds(0x10_0fff) && !holds(0x10_0ffe));
    program.chunk(0x20_1000, 0x200, true);
    program.chunk(0x20_1000, 0x200, true);
    assert_eq!(sums(program.allocator()), [0x101, 0x3000, 0x301, 0x3000]);
    let allocator = program.allocator();
    assert_eq!(
        (
            allocator.allocations,
            allocator.frees,
            allocator.unknown_frees
        ),
        (3, 1, 0)
    );
    program.call("cudaFree", 0x20_0000, 0);
    assert_eq!(sums(program.allocator())[1], 0x1000);
    // Chunks of an allocator that reports its device are its own.
    program.tensor(0, 0x10_0000, 0x100, false);
    program.chunk(0x10_0000, 0x100, true);
    let live: Vec<_> = program
        .process()
        .tensors
        .iter()
        .map(|a| a.blocks.held())
        .collect();
    assert_eq!(live.iter().sum::<usize>(), 2, "{live:?}");
    let found = program
        .process()
        .tensors
        .iter()
        .find(|a| a.row == row("BFCAllocator"))
        .unwrap();
    assert_eq!(found.blocks.held(), 1);
}

#[test]
fn a_framework_whose_blocks_do_not_fit_is_dropped() {
    const BUFFER: &str = "rmm::mr::pool_memory_resource::allocate";
    const ARENA: &str = "onnxruntime::BFCArena::Alloc";
    let mut program = Program::default();
    program.apply(&Event::Process(crate::task(PID, PID, 0)));
    program.call("cudaMalloc", 0x10_0000, 0x1000);
    program.call("cudaMallocHost", 0x30_0000, 0x1000);
    let dropped = |program: &Program| program.process().tensors.dropped().to_vec();
    let live = |program: &Program| program.process().tensors.iter().count();
    for n in 0..100 {
        // Memory of the host, of an allocator that has some, and pinned memory.
        program.chunk(0x50_0000 + n, 64, false);
        program.chunk_of(BUFFER, 0x30_0000 + n, 64, false);
        // As an allocator does it; before, memory was reserved that is no block.
        program.chunk_of(ARENA, 0x10_0000 + 64 * n, 64, true);
        program.chunk(0x10_0000, 64, false);
        program.chunk(0x10_0000, 64, true);
        program.chunk(0x10_0000, 64, true);
    }
    assert_eq!((dropped(&program), live(&program)), (vec![], 1));
    // Nowhere in memory from CUDA.
    for n in 0..super::super::MAX_MISFITS {
        assert!(dropped(&program).is_empty());
        program.chunk_of(BUFFER, 0x50_0000 + n, 64, false);
    }
    assert_eq!(dropped(&program), [Framework::Rmm]);
    // Frees are not seen as such: blocks are handed out again and again.
    for n in 0..=super::super::MAX_MISFITS {
        assert_eq!(
            (dropped(&program).len(), live(&program)),
            (1, 1 + usize::from(n > 0))
        );
        program.chunk_of(ARENA, 0x10_0400, 64, false);
        program.chunk_of(ARENA, 7, 64, true);
    }
    assert_eq!(dropped(&program), [Framework::Rmm, Framework::OnnxRuntime]);
    program.chunk_of(ARENA, 0x10_0400, 64, false);
    assert_eq!(live(&program), 1);
    // In a process with a history, its memory may be of then.
    let mut late = Program::default();
    late.call("cudaMalloc", 0x10_0000, 0x1000);
    for n in 0..100 {
        late.chunk_of(BUFFER, 0x50_0000 + n, 64, false);
    }
    assert!(dropped(&late).is_empty());
}

#[test]
fn chunks_in_mapped_memory_are_known() {
    let mut program = Program::default();
    program.call("cuMemAddressReserve", 0x10_0000, 0x10_0000);
    program.call("cuMemCreate", 0, 0x2000);
    program.call("cuMemMap", 0x10_0000, 0x2000);
    program.chunk(0x10_1000, 0x100, false);
    program.chunk(0x10_1f00, 0x100, false);
    program.chunk(0x10_2000, 0x100, false);
    assert_eq!(sums(program.allocator()), [0x200, 0x2000, 0x200, 0x2000]);
    assert_eq!(
        program.allocator().fragmentation(program.process()).bytes(),
        0x2000
    );
    program.chunk(0x10_1000, 0x100, true);
    program.call("cuMemUnmap", 0x10_0000, 0x2000);
    assert_eq!(sums(program.allocator()), [0x100, 0, 0x200, 0x2000]);
    program.call("cuMemMap", 0x10_0000, 0x2000);
    program.chunk(0x10_1000, 0x100, false);
    assert_eq!(sums(program.allocator())[1], 0x2000);
}

#[test]
fn memory_at_the_peak_is_told_by_site() {
    let mut program = Program::default();
    program.call("cudaMalloc", 0x10_0000, 0x1000);
    program.chunk(0x10_0000, 0x100, false);
    program.chunk(0x10_0000, 0x100, true);
    program.chunk(0x10_0100, 0x20, false);
    assert!(!program.allocator().since_start);
    let allocator = program.allocator();
    let site = allocator.blocks.sites.iter().next().unwrap();
    assert_eq!(allocator.at_peak(site).gpu.bytes, 0x100);
    assert_eq!(site.live.gpu.bytes, 0x20);
}

#[test]
fn among_many_allocations_only_known_memory_is_searched() {
    let mut program = Program::default();
    let most = MAX_LOOKED_AT as u64;
    for n in 1..=most {
        program.call("cudaMalloc", n << 20, 0x1000);
    }
    program.chunk(1 << 20, 0x100, false);
    program.call("cudaMalloc", (most + 1) << 20, 0x1000);
    program.chunk(1 << 20 | 0x100, 0x100, false);
    program.chunk(2 << 20, 0x100, false);
    assert_eq!(sums(program.allocator()), [0x200, 0x1000, 0x200, 0x1000]);
}

/// The segments, each with whether it is expandable, and their bytes.
fn segments(program: &Program) -> (Vec<(u64, bool)>, u64) {
    let found = program.allocator().fragmentation(program.process());
    let segments = found.segments.iter();
    let segments = segments.map(|s| (s.bytes, !s.pieces.is_empty())).collect();
    (segments, found.bytes())
}

#[test]
fn segments_mapped_piece_by_piece_are_expandable() {
    let mut program = Program::default();
    program.call("cudaMalloc", 0x10_0000, 0x1000);
    program.hand_out(0x10_0000, 0x100);
    assert_eq!(segments(&program), (vec![(0x1000, false)], 0x1000));
    let mut program = Program::default();
    program.call("cuMemAddressReserve", 0x10_0000, 0x10_0000);
    program.call("cuMemCreate", 0x50, 0x1000);
    program.call("cuMemMap", 0x10_0000, 0x1000);
    program.hand_out(0x10_0000, 0x100);
    assert_eq!(segments(&program), (vec![(0x1000, true)], 0x1000));
}

#[test]
fn a_peak_is_when_it_was_reached_first() {
    let mut program = Program::default();
    program.call_from(1);
    program.hand_out(0x1000, 512);
    program.take_back(0x1000);
    program.call_from(2);
    program.hand_out(0x2000, 512);
    let allocator = program.allocator();
    let sites = allocator.blocks.sites.iter();
    let bytes: Vec<_> = sites
        .map(|site| allocator.at_peak(site).gpu.bytes)
        .collect();
    assert_eq!(bytes, [512, 0]);
}

#[test]
fn what_is_kept_of_an_allocator_is_counted() {
    let mut program = Program::default();
    program.call("cudaMalloc", 0x10_0000, 0x10_0000);
    program.hand_out(0x10_0000, 512);
    assert_eq!(program.allocator().kept(), 1);
    program.request(0x10_0000, 500);
    assert_eq!(program.allocator().kept(), 1 + 1);
    program.hand_out(0x20_0000, 0x10_0000);
    program.request(0x20_0000, 1);
    assert_eq!(program.allocator().kept(), 1 + 2);
    program.call("cuMemAddressReserve", 0x40_0000, 0x10_0000);
    program.hand_out(0x40_0100, 512);
    assert_eq!(program.allocator().kept(), 1 + 2 + 1);
    let blocks = program.allocator().blocks.kept();
    let kept = program.process().kept();
    // One thread and one site of each; the allocation, a segment, two requests, a range and its reservation.
    assert_eq!((blocks, kept), (26 + 3, 26 + 26 + 3 + 1 + 4 + 1));
}

#[test]
fn requests_are_those_of_the_block_at_their_address() {
    let mut program = Program::default();
    for n in 1..=300 {
        program.hand_out(n << 20, 512);
    }
    for n in 1..=300 {
        program.request(n << 20, n);
    }
    for n in 1..=300 {
        assert_eq!(program.asked(n << 20), Some(n), "{n}");
    }
    program.tensor(1, 0x1000, 512, false);
    program.request(0x1000, 100);
    let requested: Vec<_> = program
        .process()
        .tensors
        .iter()
        .map(|a| a.requested.bytes)
        .collect();
    assert_eq!(requested, [300 * 301 / 2, 100]);
}
