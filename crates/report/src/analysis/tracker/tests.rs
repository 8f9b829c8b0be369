use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn event(address: u64, bytes: u64, allocates: bool, start_ns: i64) -> MemoryEvent {
    MemoryEvent {
        start_ns,
        process: 1 << 24,
        device: 0,
        address,
        bytes,
        kind: 2,
        allocates,
        variable: None,
        correlation: None,
    }
}

#[test]
fn the_peak_is_what_was_live_then() {
    let mut tracker = Tracker::new(Selection::default());
    for (address, bytes, allocates) in [
        (1, 10, true),
        (2, 20, true),
        (1, 10, false),
        (3, 5, true),
        (2, 20, false),
        (4, 1, true),
    ] {
        let time = i64::try_from(address).unwrap_or(0);
        tracker.apply(&event(address, bytes, allocates, time), Origin::default());
    }
    assert_eq!(
        tracker.peak().totals.total,
        Amount {
            bytes: 30,
            allocations: 2
        }
    );
    let mut at_peak: Vec<_> = tracker
        .at_peak()
        .map(|(_, place, _)| place.address)
        .collect();
    at_peak.sort_unstable();
    assert_eq!(at_peak, [1, 2]);
    assert_eq!(
        tracker.totals().total,
        Amount {
            bytes: 6,
            allocations: 2
        }
    );
}

#[test]
fn the_peak_of_a_quiet_time_is_what_was_live_in_it() {
    let selection = Selection {
        from_ns: Some(100),
        to_ns: Some(200),
        ..Selection::default()
    };
    let of_other = |mut event: MemoryEvent| {
        event.process = 2 << 24;
        event
    };
    for in_it in [false, true] {
        let mut tracker = Tracker::new(selection);
        tracker.apply(&event(1, 10, true, 1000), Origin::default());
        tracker.apply(&event(2, 20, true, 1001), Origin::default());
        tracker.apply(&of_other(event(1, 40, true, 1002)), Origin::default());
        assert!(!tracker.has_peak());
        // One ends before, and leaves what it had.
        let ended = tracker.end(2 << 24, 1003, |_, _| Ok(()));
        assert!(ended.is_ok());
        if in_it {
            tracker.apply(&event(2, 20, false, 1150), Origin::default());
        }
        assert!(tracker.is_beyond(&event(3, 1, true, 1300)));
        tracker.finish();
        assert!(tracker.has_peak());
        assert_eq!(tracker.peak().totals.total.bytes, 30);
        let at_peak: u64 = tracker.at_peak().map(|(_, _, a)| a.bytes).sum();
        assert_eq!(at_peak, 30, "{in_it}");
        let left: u64 = tracker.never_freed().map(|(_, _, a)| a.bytes).sum();
        assert_eq!(left, if in_it { 50 } else { 70 });
    }
}

#[test]
fn oddities_are_counted() {
    let mut tracker = Tracker::new(Selection::default());
    for (bytes, allocates) in [(5, false), (8, true), (8, true), (7, false), (8, false)] {
        tracker.apply(&event(1, bytes, allocates, 0), Origin::default());
    }
    let expected = Findings {
        events: 5,
        double_allocations: 1,
        unmatched_frees: 2,
        size_mismatches: 1,
        ..Findings::default()
    };
    assert_eq!(tracker.findings, expected);
    assert_eq!(tracker.totals().total.bytes, 0);
    assert_eq!(tracker.peak().totals.total.bytes, 8);
}

#[test]
fn a_process_that_ended_before_the_peak_is_not_part_of_it() {
    let mut tracker = Tracker::new(Selection::default());
    let mut other = event(1, 10, true, 1);
    other.process = 2 << 24;
    tracker.apply(&other, Origin::default());
    let mut freed = 0;
    let ended = tracker.end(2 << 24, 2, |change, tracker| {
        freed += change.freed.map_or(0, |part| part.bytes);
        assert_eq!((tracker.totals().total.bytes, change.is_last), (0, true));
        Ok(())
    });
    assert!(ended.is_ok());
    assert_eq!(freed, 10);
    tracker.apply(&event(1, 11, true, 3), Origin::default());
    assert_eq!(tracker.peak().totals.total.bytes, 11);
    assert_eq!(tracker.at_peak().count(), 1);
    assert_eq!(tracker.never_freed().count(), 2);
}

#[test]
fn a_range_begins_with_what_is_live() {
    let range = Selection {
        from_ns: Some(5),
        to_ns: Some(9),
        ..Selection::default()
    };
    let mut tracker = Tracker::new(range);
    for (address, time) in [(1, 0), (2, 1)] {
        assert!(
            tracker
                .apply(&event(address, 10, true, time), Origin::default())
                .is_none()
        );
    }
    assert!(
        tracker
            .apply(&event(1, 10, false, 6), Origin::default())
            .is_some()
    );
    assert_eq!(tracker.peak().totals.total.bytes, 20);
    assert_eq!(tracker.at_peak().count(), 2);
    assert!(tracker.is_beyond(&event(3, 1, true, 10)));
}

proptest! {
    /// Against keeping a copy of the live set at every new peak.
    #[test]
    fn the_peak_agrees_with_copying(steps in prop::collection::vec((0u64..12, 1u64..50, any::<bool>()), 0..200)) {
        let mut tracker = Tracker::new(Selection::default());
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let mut peak: BTreeMap<u64, u64> = BTreeMap::new();
        for (address, bytes, allocates) in steps {
            tracker.apply(&event(address, bytes, allocates, 0), Origin::default());
            if allocates {
                live.insert(address, bytes);
            } else {
                live.remove(&address);
            }
            if live.values().sum::<u64>() > peak.values().sum() {
                peak = live.clone();
            }
        }
        let found: BTreeMap<_, _> = tracker.at_peak().map(|(_, place, a)| (place.address, a.bytes)).collect();
        prop_assert_eq!(found, peak);
        let left: BTreeMap<_, _> = tracker.never_freed().map(|(_, place, a)| (place.address, a.bytes)).collect();
        prop_assert_eq!(left, live);
    }
}
