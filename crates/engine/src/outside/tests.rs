use super::*;
use crate::verdict::judge_outside;

const SECOND_NS: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// Figures of each second, MiB.
fn outside(mib: impl IntoIterator<Item = u64>) -> (SeriesShape, u64) {
    let mut outside = Outside::default();
    let mut now_ns = 0;
    for mib in mib {
        now_ns += SECOND_NS;
        outside.note(now_ns, mib * MIB);
    }
    (outside.shape(now_ns).unwrap(), now_ns)
}

/// Objects made at these times, seconds, none of which are destroyed.
fn made(seconds: impl IntoIterator<Item = u64>, now_ns: u64) -> SeriesShape {
    let (mut windows, mut series, mut all) = (Windows::default(), Series::default(), all(0));
    all.allocations = 0;
    windows.reach(SECOND_NS);
    for second in seconds {
        windows.reach(second * SECOND_NS);
        series.born(windows, second * SECOND_NS, 0, all);
        all.allocations += 1;
    }
    let mut shape = SeriesShape::new(windows, &Series::default(), now_ns);
    shape.add(windows, &series, all);
    shape
}

#[test]
fn steady_growth_is_found_with_its_rate() {
    let context = 500;
    let (shape, _) = outside((1..=80).map(|second| context + 10 * second));
    let found = judge_outside(&shape).unwrap();
    assert!(found.is_leak(), "{found:?}");
    let rate = found.bytes_per_second.unwrap() / MIB as f64;
    assert!((9.0..=11.0).contains(&rate), "{found:?}");
    for quiet in [
        outside((1..=80).map(|second| context + second / 10)),
        outside((1..=80).map(|second| context + 10 * second.min(20))),
        // Taken and given back.
        outside((1..=80).map(|second| context + 300 * (second % 2))),
    ] {
        assert_eq!(judge_outside(&quiet.0), None);
    }
}

#[test]
fn growth_is_that_of_the_objects_that_keep_pace_with_it() {
    // It grows from second 5 to 15.
    let (shape, now_ns) = outside((1..=20).map(|second: u64| 500 + 50 * second.clamp(5, 15)));
    let beside =
        |seconds: &mut dyn Iterator<Item = u64>| grown_beside(&shape, &made(seconds, now_ns));
    let grown = beside(&mut (5..=14)).unwrap().bytes;
    assert!((450 * MIB..=500 * MIB).contains(&grown), "{grown}");
    assert_eq!(beside(&mut [5; 100].into_iter()), None, "at once");
    assert_eq!(beside(&mut (16..=20)), None, "later");
    assert_eq!(beside(&mut (5..=20)), None, "beyond it");
    assert_eq!(beside(&mut [5, 14].into_iter()), None, "too few");
}
