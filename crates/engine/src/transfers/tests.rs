//! Directions and modes of copies. Their sums are tested in `sums`.

mod sums;

use super::*;
use gpuprobe_cuda::{FUNCTIONS, Function};
use gpuprobe_model::event::Call;

fn row(symbol: &str) -> (u16, &'static Function) {
    let found = (0u16..).zip(FUNCTIONS).find(|(_, f)| f.symbol == symbol);
    found.unwrap()
}

fn copied(symbol: &str, bytes: u64, from: u64, to: u64) -> Copy {
    let (row, function) = row(symbol);
    Copy {
        row,
        function,
        result: 0,
        pid: 7,
        tid: 7,
        start_ns: 1_000,
        end_ns: 2_000,
        bytes,
        destination: to,
        source: from,
        kind: 0,
        destination_type: 0,
        captured: false,
        stack: 0,
    }
}

fn called(symbol: &str, address: u64, start_ns: u64) -> Event {
    called_on(None, symbol, address, start_ns)
}

fn called_on(device: Option<u16>, symbol: &str, address: u64, start_ns: u64) -> Event {
    let (row, function) = row(symbol);
    Event::Call(Call {
        row,
        function,
        result: 0,
        pid: 7,
        tid: 7,
        start_ns,
        end_ns: start_ns + 1,
        address,
        size_bytes: 4096,
        device,
        context: 0,
        captured: false,
        stack: 0,
        detail: None,
    })
}

fn low_is_host(_: u32, address: u64) -> Option<AddressKind> {
    (address < 0x1000).then_some(AddressKind::Host)
}

/// The transfers, and the ledger that locates their addresses.
#[derive(Default)]
struct Both {
    ledger: Ledger,
    transfers: Transfers,
}

impl Both {
    fn apply(&mut self, event: &Event) -> Option<Transfer> {
        self.ledger.apply_unreported(event);
        self.transfers.apply(event, &self.ledger, low_is_host)
    }

    fn which(&mut self, copy: Copy) -> (Direction, Mode) {
        let transfer = self.apply(&Event::Copy(copy)).unwrap();
        (transfer.which.direction, transfer.which.mode)
    }
}

#[test]
fn throughput_is_for_synchronous_copies_over_the_link() {
    let mut both = Both::default();
    let large = 1 << 20;
    for (symbol, bytes, expected) in [
        (
            "cuMemcpyHtoD_v2",
            large,
            (Direction::HostToDevice, Mode::Sync),
        ),
        (
            "cuMemcpyHtoD_v2",
            65_536,
            (Direction::HostToDevice, Mode::Async),
        ),
        ("cuMemcpyDtoH_v2", 16, (Direction::DeviceToHost, Mode::Sync)),
        (
            "cuMemcpyDtoD_v2",
            large,
            (Direction::DeviceToDevice, Mode::Async),
        ),
        (
            "cuMemcpyHtoDAsync_v2",
            large,
            (Direction::HostToDevice, Mode::Async),
        ),
        ("cuMemsetD8_v2", large, (Direction::Set, Mode::Async)),
        (
            "cuMemcpyBatchAsync",
            large,
            (Direction::HostToHost, Mode::Async),
        ),
    ] {
        let found = both.which(copied(symbol, bytes, 1, 2));
        assert_eq!(found, expected, "{symbol} {bytes}");
    }
    let (_, meter) = both.transfers.meters().next().unwrap();
    assert_eq!((meter.calls, meter.bytes, meter.ns), (1, 1 << 20, 1_000));
    let expected = f64::from(1 << 20) * 1e6;
    assert!((meter.peak_bytes_per_second - expected).abs() < 1.0);
}

#[test]
fn a_batch_is_one_call_with_a_direction_for_each_copy() {
    let mut both = Both::default();
    both.apply(&called("cudaMalloc", 0xd000, 10));
    for (number, from, to) in [(0, 0x10, 0xd000), (1, 0xd000, 0x10), (2, 0x10, 0xd000)] {
        let copy = copied("cuMemcpyBatchAsync_v2", 100, from, to);
        both.apply(&Event::Copy(Copy {
            destination_type: number,
            ..copy
        }));
        both.apply(&Event::Copy(Copy {
            destination_type: number,
            captured: true,
            ..copy
        }));
    }
    let sums = |(which, meter): (&CopyFilter, &Meter)| {
        (which.direction, meter.calls, meter.bytes, meter.ns)
    };
    let found: Vec<_> = both.transfers.meters().map(sums).collect();
    let expected = [
        (Direction::HostToDevice, 1, 200, 1000),
        (Direction::DeviceToHost, 0, 100, 0),
    ];
    assert_eq!(found, expected);
    let sites = both.transfers.sites();
    let calls: u64 = sites.map(|(_, copies)| copies.sums.calls).sum();
    assert_eq!((calls, both.transfers.captured), (1, 1));
}

#[test]
fn prefetches_go_to_a_device_or_to_the_host() {
    use Direction::{PrefetchToDevice, PrefetchToHost, Unknown};
    let mut both = Both::default();
    for (symbol, kind, expected) in [
        ("cuMemPrefetchAsync", 0, PrefetchToDevice),
        ("cuMemPrefetchAsync", -1, PrefetchToHost),
        ("cuMemPrefetchAsync", -2, Unknown),
        ("cuMemPrefetchAsync_v2", 1, PrefetchToDevice),
        ("cuMemPrefetchAsync_v2", 6, PrefetchToDevice),
        ("cuMemPrefetchBatchAsync", 3, PrefetchToHost),
        ("cuMemPrefetchBatchAsync", 7, Unknown),
        // Several locations.
        ("cuMemPrefetchBatchAsync", -1, Unknown),
    ] {
        let copy = copied(symbol, 100, 0, 0xd000);
        let found = both.which(Copy { kind, ..copy });
        assert_eq!(found, (expected, Mode::Async), "{symbol} {kind}");
    }
}

#[test]
fn addresses_give_the_direction() {
    let mut both = Both::default();
    both.apply(&called("cudaMalloc", 0xd000, 10));
    let mut direction = |from, to| both.which(copied("cuMemcpy", 1 << 20, from, to)).0;
    assert_eq!(direction(0x10, 0xd800), Direction::HostToDevice);
    assert_eq!(direction(0xdfff, 0x10), Direction::DeviceToHost);
    assert_eq!(direction(0xd000, 0xd800), Direction::DeviceToDevice);
    assert_eq!(direction(0x10, 0x20), Direction::HostToHost);
    assert_eq!(direction(0x10, 0xe000), Direction::Unknown);
}

#[test]
fn copies_are_counted_by_site_and_memory_of_the_host() {
    let mut both = Both::default();
    let stack = Rc::new(CallStack::default());
    both.ledger.set_stack(7, 3, Rc::clone(&stack));
    both.apply(&called("cudaMalloc", 0xd000, 10));
    both.apply(&called("cudaMallocHost", 0xa000, 10));
    let copy = |both: &mut Both, symbol, from, to, stack| {
        let copied = copied(symbol, 8, from, to);
        both.apply(&Event::Copy(Copy { stack, ..copied })).unwrap();
    };
    copy(&mut both, "cuMemcpyDtoHAsync_v2", 0xd000, 0x10, 3);
    copy(&mut both, "cuMemcpyDtoH_v2", 0xd000, 0xa000, 3);
    // Before it is known that the process was traced from its start, other memory may be pinned.
    both.apply(&Event::Process(crate::task(7, 1, 0)));
    for stack in [3, 3, 4] {
        copy(&mut both, "cuMemcpyDtoHAsync_v2", 0xd000, 0x10, stack);
    }
    copy(&mut both, "cuMemcpyHtoDAsync_v2", 0x10, 0xd000, 0);
    // When it has ended, its last copies are counted like the others.
    both.apply(&Event::Exit(crate::task(7, 1, 3_000)));
    copy(&mut both, "cuMemcpyDtoHAsync_v2", 0xd000, 0x10, 3);
    let sites = both.transfers.sites().map(|(site, copies)| {
        let CopySums { calls, waits, .. } = copies.sums;
        let is_async = gpuprobe_cuda::function(site.row).unwrap().is_async;
        (
            is_async,
            site.host_memory.map(MemoryKind::name),
            calls,
            waits,
            copies.stack.is_some(),
        )
    });
    let mut sites: Vec<_> = sites.collect();
    sites.sort_unstable();
    let (pinned, pageable) = (Some("pinned"), Some("pageable"));
    assert_eq!(
        sites,
        [
            (false, pinned, 1, 1, true),
            (true, None, 1, 0, true),
            (true, pageable, 1, 0, false),
            (true, pageable, 1, 1, false),
            (true, pageable, 3, 3, true),
        ]
    );
}

#[test]
fn between_two_devices_a_copy_is_peer_to_peer() {
    let mut both = Both::default();
    for (device, address) in [(Some(0), 0xa000), (Some(1), 0xb000), (None, 0xc000)] {
        both.apply(&called_on(device, "cuMemAlloc_v2", address, 10));
    }
    let unified = Copy {
        kind: 4,
        destination_type: 4,
        ..copied("cuMemcpy2D_v2", 1 << 20, 0, 0)
    };
    let devices = Copy {
        kind: 2,
        destination_type: 2,
        ..unified
    };
    let by_kind = |kind| Copy {
        kind,
        ..copied("cudaMemcpy", 1 << 20, 0, 0)
    };
    for copy in [
        copied("cuMemcpy", 1 << 20, 0, 0),
        copied("cuMemcpyAsync", 1 << 20, 0, 0),
        copied("cuMemcpyDtoD_v2", 1 << 20, 0, 0),
        copied("cuMemcpyDtoDAsync_v2", 1 << 20, 0, 0),
        by_kind(3),
        by_kind(4),
        unified,
        devices,
    ] {
        for (source, destination, expected) in [
            (0xa010, 0xb010, Direction::PeerToPeer),
            (0xb010, 0xa010, Direction::PeerToPeer),
            (0xa010, 0xa810, Direction::DeviceToDevice),
            (0xb010, 0xb810, Direction::DeviceToDevice),
            // The location of one address is unknown.
            (0xa010, 0xc010, Direction::DeviceToDevice),
        ] {
            let copy = Copy {
                source,
                destination,
                ..copy
            };
            let symbol = copy.function.symbol;
            assert_eq!(
                both.which(copy),
                (expected, Mode::Async),
                "{symbol} {source:x} {destination:x}"
            );
        }
    }
    // Freed, and allocated on the other device before the copy is seen.
    both.apply(&called("cuMemFree_v2", 0xb000, 3_000));
    both.apply(&called_on(Some(0), "cuMemAlloc_v2", 0xb000, 4_000));
    let before = copied("cuMemcpyDtoD_v2", 64, 0xa000, 0xb000);
    assert_eq!(both.which(before).0, Direction::PeerToPeer);
    let after = Copy {
        start_ns: 5_000,
        ..before
    };
    assert_eq!(both.which(after).0, Direction::DeviceToDevice);
}

#[test]
fn a_copy_may_be_seen_after_the_free_that_followed_it() {
    let mut both = Both::default();
    both.apply(&called("cudaMalloc", 0xd000, 10));
    both.apply(&called("cudaFree", 0xd000, 5_000));
    let copy = copied("cuMemcpy", 1 << 20, 0x10, 0xd000);
    assert_eq!(both.which(copy).0, Direction::HostToDevice);
    let later = Copy {
        start_ns: 6_000,
        end_ns: 7_000,
        ..copy
    };
    assert_eq!(both.which(later).0, Direction::Unknown);
}

#[test]
fn descriptors_and_kinds_give_the_direction() {
    let mut both = Both::default();
    let mut typed = |source: i32, destination: u16| {
        let copy = Copy {
            kind: source,
            destination_type: destination,
            ..copied("cuMemcpy2D_v2", 1 << 20, 0x10, 0x20)
        };
        both.which(copy).0
    };
    assert_eq!(typed(1, 2), Direction::HostToDevice);
    assert_eq!(typed(3, 1), Direction::ArrayToHost);
    assert_eq!(typed(4, 2), Direction::HostToDevice);
    assert_eq!(typed(9, 2), Direction::Unknown);
    for (kind, expected) in [
        (0, Direction::HostToHost),
        (1, Direction::HostToDevice),
        (4, Direction::HostToHost),
        (7, Direction::Unknown),
    ] {
        let copy = Copy {
            kind,
            ..copied("cudaMemcpy", 1 << 20, 0x10, 0x20)
        };
        assert_eq!(both.which(copy).0, expected, "{kind}");
    }
}

#[test]
fn failed_and_captured_copies_are_counted_separately() {
    let mut both = Both::default();
    let copy = copied("cuMemcpyHtoD_v2", 1 << 20, 1, 2);
    for event in [
        Event::Copy(Copy { result: 1, ..copy }),
        Event::Copy(Copy {
            captured: true,
            ..copy
        }),
    ] {
        assert!(both.apply(&event).is_none());
    }
    assert_eq!(
        (both.transfers.failed_calls, both.transfers.captured),
        (1, 1)
    );
    assert_eq!(both.transfers.meters().count(), 0);
}
