use super::*;
use crate::Ledger;
use gpuprobe_model::event::Event;

#[test]
fn ended_blocks_are_remembered_for_some_time() {
    let mut ledger = Ledger::default();
    let mut at_ns = 0;
    let mut cycle = |ledger: &mut Ledger, address| {
        ledger.apply_unreported(&crate::call(7, "cudaMalloc", address, at_ns + 10));
        ledger.apply_unreported(&crate::call(7, "cudaFree", address, at_ns + 15));
        at_ns += 20;
    };
    // Whatever comes and goes at one address, it is found by its time.
    for _ in 0..MAX_PAST {
        cycle(&mut ledger, 1 << 20);
    }
    let device = Some(AddressKind::Device(Some(0)));
    let at = |ledger: &Ledger, at_ns| ledger.find_address(7, 1 << 20, at_ns);
    assert_eq!([at(&ledger, 12), at(&ledger, 1_000_012)], [device, device]);
    // Two generations are kept, if they are not too old.
    for n in 1..MAX_PAST as u64 {
        cycle(&mut ledger, (1 << 30) + (n << 12));
    }
    assert_eq!(at(&ledger, 12), device);
    cycle(&mut ledger, 1 << 40);
    assert_eq!(at(&ledger, 12), None);
    assert!(ledger.find_address(7, 1 << 40, at_ns - 8).is_some());
    let late = crate::call(7, "cudaMalloc", 1 << 41, 3 * REMEMBER_NS);
    ledger.apply_unreported(&late);
    assert_eq!(ledger.find_address(7, 1 << 40, at_ns - 8), None);
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
    assert_eq!(found, [host, device, None, None, host]);
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
