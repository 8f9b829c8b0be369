use super::*;
use crate::Ledger;
use crate::allocation::{AllocationPlace, NewAllocation};
use gpuprobe_cuda::FUNCTIONS;
use gpuprobe_model::event::Event;

/// Blocks that each live for 10 ns, one after the other.
fn freed(count: u64, address: impl Fn(u64) -> u64, every_ns: u64) -> usize {
    let rows = (0u16..).zip(FUNCTIONS);
    let [allocates, frees] = ["cudaMalloc", "cudaFree"].map(|symbol| {
        let found = rows.clone().find(|(_, f)| f.symbol == symbol);
        found.unwrap()
    });
    let mut ledger = Ledger::default();
    for n in 0..count {
        for ((row, function), after_ns) in [(allocates, 0), (frees, 5)] {
            let start_ns = n * every_ns + after_ns;
            ledger.apply_unreported(&Event::Call(Call {
                pid: 7,
                tid: 7,
                row,
                function,
                result: 0,
                captured: false,
                start_ns,
                end_ns: start_ns + 1,
                address: address(n),
                size_bytes: 512,
                device: Some(0),
                context: 0,
                stack: 0,
                detail: None,
            }));
        }
    }
    ledger.addresses.unwrap().past_blocks()
}

/// A block of `size_bytes` at `address`, all of whose bytes are found after its end.
fn is_found(address: u64, size_bytes: u64) -> bool {
    let mut ranges = BlockRanges::default();
    let at = AddressKind::Device(Some(1));
    let until_ns = 20;
    let past = PastBlocks {
        size_bytes,
        until_ns,
        at,
    };
    let class = class(size_bytes);
    ranges.classes |= 1 << class;
    ranges.past.insert((class, address, 10), past);
    let mut bytes = [0, size_bytes / 2, size_bytes - 1].into_iter();
    bytes.all(|byte| ranges.past_at(address + byte).count() == 1)
        && ranges.past_at(address + size_bytes).count() == 0
        && ranges.past_at(address - 1).count() == 0
}

#[test]
fn blocks_of_any_size_are_found_at_each_of_their_bytes() {
    for size in (1..70).chain([(1 << 40) - 1, 1 << 40, u64::MAX / 2]) {
        assert!(is_found(0x7000_0000, size), "{size}");
    }
}

#[test]
fn frees_cost_no_memory_though_nobody_reports() {
    let anew = |n| (n + 1) << 12;
    assert_eq!(freed(100_000, anew, 100_000) as u64, REMEMBER_NS / 100_000);
    // All of them within seconds.
    assert_eq!(freed(MAX_PAST as u64 * 3 / 2, anew, 100), MAX_PAST);
    // The same block over and over is one.
    assert_eq!(freed(100_000, |_| 1 << 12, 100), 1);
}

#[test]
fn memory_from_a_pool_of_the_host_is_there() {
    let mut ledger = Ledger::default();
    let mut apply = |symbol, address, stream| {
        let Event::Call(mut call) = crate::call(7, symbol, address, 10) else {
            unreachable!("it is a call");
        };
        let detail = call.detail.get_or_insert_default();
        (detail.stream, detail.values[0]) = (stream, 0x90);
        ledger.apply_unreported(&Event::Call(call));
    };
    apply("cuMemPoolCreate", 0x90, 2);
    apply("cuMemAllocFromPoolAsync", 0x1000, 0);
    apply("cuMemAlloc_v2", 0x2000, 0);
    apply("cuMemAllocManaged", 0x3000, 0);
    apply("cuMemAllocHost_v2", 0x4000, 0);
    let found = [0x1007, 0x2007, 0x2008, 0x3000, 0x4000];
    let found = found.map(|address| ledger.find_address(7, address, 20));
    let (host, device) = (Some(AddressKind::Host), Some(AddressKind::Device(Some(0))));
    assert_eq!(found, [host, device, None, None, None]);
}

fn block(address: u64, size_bytes: u64, since_ns: u64, device: u16) -> Allocation {
    Allocation::new(&NewAllocation {
        address,
        size_bytes,
        end_ns: since_ns,
        thread: 0,
        row: 0,
        site: 0,
        kind: gpuprobe_cuda::MemoryKind::Device,
        space: AddressSpace::Device,
        place: AllocationPlace::Device(device),
        slot: 0,
        context: 0,
    })
}

#[test]
fn the_same_block_over_and_over_is_one_unless_another_was_there() {
    let first = block(0x1000, 512, 10, 0);
    let again = block(0x1000, 512, 30, 0);
    let ends = |between: &[(Allocation, u64)], last: Allocation| {
        let mut ranges = BlockRanges::default();
        ranges.end(&first, 20);
        for (gone, until_ns) in between {
            ranges.end(gone, *until_ns);
        }
        ranges.end(&last, 40);
        ranges.past.len() - between.len()
    };
    assert_eq!(ends(&[], again), 1);
    assert_eq!(ends(&[], block(0x1000, 513, 30, 0)), 2);
    assert_eq!(ends(&[], block(0x1000, 512, 30, 1)), 2);
    for (address, size_bytes, until_ns, expected) in [
        (0x0f00, 0x101, 28, 2),
        (0x0f00, 0x100, 28, 1),
        (0x11ff, 0x101, 28, 2),
        (0x1200, 0x101, 28, 1),
        (0x0f00, 0x400, 20, 1),
        (0x0f00, 0x400, 21, 2),
    ] {
        let other = block(address, size_bytes, 5, 1);
        assert_eq!(
            ends(&[(other, until_ns)], again),
            expected,
            "{address:x} {until_ns}"
        );
    }
    // Many that are not there, of which not all are looked at.
    let many = |count: usize| -> Vec<_> {
        let other = |n| (block(0x0e00, 512, n, n as u16 % 2), 0);
        (0..count as u64).map(other).collect()
    };
    assert_eq!(ends(&many(MAX_STEPS - 1), again), 1);
    assert_eq!(ends(&many(MAX_STEPS), again), 2);
}

#[test]
fn blocks_are_forgotten_some_time_after_their_end() {
    for (after_ns, left) in [(REMEMBER_NS - 1, 2), (REMEMBER_NS, 1)] {
        let mut index = AddressIndex::default();
        index.by_pid.entry(7).or_default();
        index.end(7, &block(0x1000, 512, 10, 0), 20);
        index.end(7, &block(0x2000, 512, 10, 1), 20);
        // The same again.
        index.end(7, &block(0x1000, 512, 30, 0), 40);
        index.newest_ns = 20 + after_ns;
        index.forget_old();
        assert_eq!((index.past_blocks(), index.ends.len()), (left, left));
        let at = [0x1010, 0x2010].map(|address| index.find(7, None, address, 15));
        let found = [Some(0), (left > 1).then_some(1)];
        assert_eq!(at, found.map(|on| on.map(|n| AddressKind::Device(Some(n)))));
        index.newest_ns = 40 + REMEMBER_NS;
        index.forget_old();
        assert!(index.by_pid.is_empty() && index.ends.is_empty());
    }
}

#[test]
fn a_reused_address_is_where_it_was_at_the_time() {
    let mut ledger = Ledger::default();
    for (device, at_ns) in [(0, 10), (1, 30)] {
        let Event::Call(call) = crate::call(7, "cuMemAlloc_v2", 0x1000, at_ns) else {
            unreachable!("it is a call");
        };
        let device = Some(device);
        ledger.apply_unreported(&Event::Call(Call { device, ..call }));
    }
    let at = |ledger: &Ledger, at_ns| ledger.find_address(7, 0x1004, at_ns);
    let on = |device| Some(AddressKind::Device(device));
    let found = |ledger: &Ledger| [5, 10, 29, 30, 40].map(|at_ns| at(ledger, at_ns));
    let unknown = on(None);
    let expected = [unknown, on(Some(0)), on(Some(0)), on(Some(1)), on(Some(1))];
    assert_eq!(found(&ledger), expected);
    ledger.apply_unreported(&Event::Exit(crate::task(7, 7, 50)));
    assert_eq!(ledger.live_processes().count(), 0);
    assert_eq!((found(&ledger), at(&ledger, 50)), (expected, None));
}
