use super::*;
use crate::Ledger;
use gpuprobe_model::event::Event;

#[test]
fn the_last_blocks_are_remembered_for_some_time() {
    let mut ledger = Ledger::default();
    let mut apply = |symbol, n, at_ns| {
        let call = crate::call(7, symbol, n << 12, at_ns);
        ledger.apply_unreported(&call);
    };
    let count = MAX_PAST as u64 + 10;
    for n in 1..=count {
        apply("cudaMalloc", n, 10 * n);
        apply("cudaFree", n, 10 * n + 5);
    }
    let past = |ledger: &Ledger| ledger.addresses.as_ref().map(|a| a.by_pid[&7].past.len());
    let at = |ledger: &Ledger, n| ledger.find_address(7, n << 12, 10 * n + 2);
    let device = Some(AddressKind::Device(Some(0)));
    assert_eq!([at(&ledger, 10), at(&ledger, 11)], [None, device]);
    assert_eq!(past(&ledger), Some(MAX_PAST));
    ledger.apply_unreported(&crate::call(
        7,
        "cudaMalloc",
        1 << 40,
        10 * count + 4 + REMEMBER_NS,
    ));
    assert_eq!((past(&ledger), at(&ledger, count)), (Some(1), device));
    ledger.apply_unreported(&crate::call(
        7,
        "cudaMalloc",
        1 << 41,
        10 * count + 5 + REMEMBER_NS,
    ));
    assert_eq!((past(&ledger), at(&ledger, count)), (Some(0), None));
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
