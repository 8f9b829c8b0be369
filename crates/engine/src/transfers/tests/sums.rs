//! Sums of copies, also of processes that have ended.

use super::*;

/// A process that begins and ends, with the events of its copies still to come.
fn ended(transfers: &mut Transfers, pid: u32, time_ns: u64) {
    let task = crate::task(pid, pid, time_ns);
    let ledger = Ledger::default();
    for event in [Event::Process(task.clone()), Event::Exit(task)] {
        transfers.apply(&event, &ledger, low_is_host);
    }
}

fn selected(pid: u32, mode: Mode) -> CopyFilter {
    CopyFilter {
        pid,
        direction: Direction::HostToDevice,
        mode,
    }
}

#[test]
fn processes_that_ended_a_while_ago_are_merged_if_there_are_many() {
    let many = u32::try_from(MAX_ENDED).unwrap();
    for (before, after_ns, is_dropped) in [
        (many, LATE_NS, true),
        (many, LATE_NS - 1, false),
        (many - 1, LATE_NS, false),
    ] {
        let mut transfers = Transfers::default();
        (1..=before).for_each(|pid| ended(&mut transfers, pid, 10));
        ended(&mut transfers, 50_000, 10 + after_ns);
        // What has just ended stays.
        assert!(transfers.has_ended(50_000) && transfers.name(50_000).is_some());
        assert_eq!(
            transfers.name(2).is_none(),
            is_dropped,
            "{before} {after_ns}"
        );
        assert_eq!(transfers.has_ended(2), !is_dropped);
    }
    assert!(Transfers::default().has_ended(EARLIER));
    assert!(!Transfers::default().has_ended(7));
}

#[test]
fn meters_of_ended_processes_are_merged_with_all_their_sums() {
    let count = u32::try_from(MAX_ENDED).unwrap() + 1;
    let mut transfers = Transfers::default();
    for pid in 1..=count {
        transfers.enter(selected(pid, Mode::Sync), 1, 100, 10);
        transfers.introduce(pid, "copies", None);
    }
    transfers.enter(selected(2, Mode::Sync), 1, 4000, 10);
    transfers.mark_reported();
    transfers.enter(selected(2, Mode::Async), 1, 8, 1);
    // The first goes on.
    (2..=count).for_each(|pid| ended(&mut transfers, pid, 10));
    ended(&mut transfers, 100_000, 10 + LATE_NS);
    let meters: Vec<_> = transfers.meters().collect();
    let expected = [
        selected(EARLIER, Mode::Sync),
        selected(EARLIER, Mode::Async),
        selected(1, Mode::Sync),
    ];
    assert_eq!(
        meters.iter().map(|(which, _)| **which).collect::<Vec<_>>(),
        expected
    );
    let merged = meters[0].1;
    let ended = u64::from(count - 1);
    assert_eq!(
        (merged.calls, merged.bytes),
        (ended + 1, 100 * ended + 4000)
    );
    assert_eq!(
        (merged.ns, merged.ns_reported),
        (10 * ended + 10, 10 * ended + 10)
    );
    assert_eq!(merged.bytes_reported, merged.bytes);
    assert_eq!((merged.sizes.0[7], merged.sizes.0[12]), (ended, 1));
    assert!((merged.peak_bytes_per_second - 400e9).abs() < 1.0);
    assert!(transfers.name(2).is_none() && !transfers.has_ended(2));
    assert_eq!(transfers.name(1).map(|(comm, _)| comm), Some("copies"));
}

#[test]
fn a_later_copy_is_that_of_another_process() {
    let mut both = Both::default();
    ended(&mut both.transfers, 7, 5000);
    let copy = copied("cuMemcpyHtoD_v2", 1 << 20, 0x10, 0xd000);
    for (start_ns, has_ended) in [(4999, true), (5000, true), (5001, false)] {
        let end_ns = start_ns + 8;
        both.apply(&Event::Copy(Copy {
            start_ns,
            end_ns,
            ..copy
        }));
        assert_eq!(both.transfers.has_ended(7), has_ended, "{start_ns}");
    }
}

#[test]
fn throughput_is_known_of_synchronous_copies_that_took_time() {
    let mut both = Both::default();
    let mut speed = |symbol, end_ns| {
        let copy = Copy {
            end_ns,
            ..copied(symbol, 1 << 20, 0x10, 0xd000)
        };
        let transfer = both.apply(&Event::Copy(copy)).unwrap();
        transfer.bytes_per_second()
    };
    let found = speed("cuMemcpyHtoD_v2", 3000).unwrap();
    assert!((found - f64::from(1 << 20) * 5e5).abs() < 1.0, "{found}");
    assert_eq!(speed("cuMemcpyHtoD_v2", 1000), None);
    assert_eq!(speed("cuMemcpyHtoDAsync_v2", 3000), None);
    let of_kind = Copy {
        kind: 2,
        ..copied("cudaMemcpy", 1 << 20, 0x20, 0x10)
    };
    assert_eq!(both.which(of_kind), (Direction::DeviceToHost, Mode::Sync));
}

#[test]
fn sizes_are_counted_by_powers_of_two() {
    let mut transfers = Transfers::default();
    for bytes in [0, 1, 2, 3, 4, u64::MAX] {
        transfers.enter(selected(7, Mode::Async), 1, bytes, 0);
    }
    let (_, meter) = transfers.meters().next().unwrap();
    assert_eq!(meter.sizes.0[..5], [1, 1, 2, 1, 0]);
    assert_eq!(
        (meter.sizes.0[64], meter.calls, meter.bytes),
        (1, 6, u64::MAX)
    );
}
