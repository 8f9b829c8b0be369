//! The numbers of a judgement, and the limits of its rules, on series that are written down.

use super::*;

const BEGIN_NS: u64 = 100 * SECOND_NS;

/// Memory that is left in each window of so many seconds, of 1000 bytes each; the first was allocated after
/// `born_s`, the last a second before the end.
fn shape(seconds: u64, left: &[u64], born_s: u64) -> SeriesShape {
    let zeros = vec![0; left.len()];
    let now_ns = BEGIN_NS + left.len() as u64 * seconds * SECOND_NS;
    SeriesShape {
        width_ns: seconds * SECOND_NS,
        begin_ns: BEGIN_NS,
        now_ns,
        left: left.to_vec(),
        left_bytes: left.iter().map(|left| left * 1000).collect(),
        live: zeros.clone(),
        bytes: zeros.clone(),
        born_ns: Some((BEGIN_NS + born_s * SECOND_NS, now_ns - SECOND_NS)),
        unknown_frees: zeros,
        ..SeriesShape::default()
    }
}

/// The verdict, and how sure it is.
fn said(shape: &SeriesShape) -> (Verdict, Confidence) {
    let said = judge(shape).unwrap();
    (said.verdict, said.confidence)
}

use Confidence::{Certain, Likely, NotEnough};
use Verdict::{Cache, FreedLate, Growing, GrowingPerCycle, OneOff, Plateau};

#[test]
fn growth_has_the_time_and_the_rate_since_it_began() {
    let found = judge(&shape(10, &[2; 10], 3)).unwrap();
    let rate = found.bytes_per_second.unwrap();
    assert!((rate - 20_000.0 / 97.0).abs() < 1e-6, "{rate}");
    let expected = Judgement {
        verdict: Growing,
        confidence: Likely,
        since_ns: BEGIN_NS + 3 * SECOND_NS,
        span_ns: 97 * SECOND_NS,
        blocks: 20,
        bytes: 20_000,
        bytes_per_second: Some(rate),
        frees: 0,
        usual_age_ns: None,
        cycles: 0,
        quiet_ns: SECOND_NS,
        has_ended: false,
        teardown_ns: None,
    };
    assert_eq!(found, expected);
    // From a later window on.
    let mut late = shape(10, &[0, 0, 2, 2, 2, 2, 2, 2, 2, 2], 3);
    late.left_bytes[0] = 77;
    let found = judge(&late).unwrap();
    assert_eq!(
        (found.since_ns, found.blocks),
        (BEGIN_NS + 20 * SECOND_NS, 16)
    );
    assert_eq!((found.bytes, found.span_ns), (16_000, 80 * SECOND_NS));
    assert!(judge(&shape(10, &[0; 10], 3)).is_none());
}

#[test]
fn growth_is_certain_after_minutes_and_nothing_in_the_first() {
    // To the end of the first window, too.
    assert_eq!(said(&shape(5, &[2; 10], 3)).1, NotEnough(5 * SECOND_NS));
    let mut least = shape(6, &[2; 10], 9);
    assert_eq!(said(&least), (Growing, Likely));
    assert!(judge(&least).unwrap().is_leak());
    least.born_ns = least.born_ns.map(|(first, last)| (first + 1, last));
    assert_eq!(said(&least), (Growing, NotEnough(1)));
    assert!(!judge(&least).unwrap().is_leak());
    let mut certain = shape(31, &[2; 10], 10);
    assert_eq!(said(&certain).1, Certain);
    certain.born_ns = certain.born_ns.map(|(first, last)| (first + 1, last));
    assert_eq!(said(&certain).1, Likely);
}

#[test]
fn growth_may_replace_what_was_there_before() {
    let mut replaced = shape(10, &[2; 10], 0);
    replaced.unknown_frees[9] = 9;
    assert_eq!(said(&replaced).1, Likely);
    replaced.unknown_frees[9] = 10;
    assert_eq!(said(&replaced).1, NotEnough(100 * SECOND_NS));
    // Only at first: from then on it is growth.
    replaced.unknown_frees = [10, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
    let found = judge(&replaced).unwrap();
    assert_eq!((found.confidence, found.blocks), (Likely, 18));
}

#[test]
fn growth_per_cycle_goes_through_cycles_still() {
    let with = |count, last_ns| {
        let mut cycles = shape(9, &[2; 10], 0);
        cycles.cycles = (count, BEGIN_NS + last_ns);
        let found = judge(&cycles).unwrap();
        assert_eq!(found.cycles, count);
        found.verdict
    };
    // The last was two cycles before the end.
    let last_ns = 60 * SECOND_NS;
    assert_eq!(with(4, last_ns), GrowingPerCycle);
    assert_eq!(with(4, last_ns - 4), Growing);
    assert_eq!(with(3, 80 * SECOND_NS), Growing);
    // One of each stays at least.
    assert_eq!(with(20, 90 * SECOND_NS), GrowingPerCycle);
    assert_eq!(with(21, 90 * SECOND_NS), Growing);
}

#[test]
fn what_does_not_grow_levels_off_or_was_allocated_at_once() {
    let first = [50, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let with = |seconds, last_ns| {
        let mut steady = shape(seconds, &first, 0);
        steady.born_ns = Some((BEGIN_NS, BEGIN_NS + last_ns));
        judge(&steady).unwrap()
    };
    let found = with(10, 5 * SECOND_NS);
    let expected = Judgement {
        verdict: OneOff,
        confidence: Likely,
        since_ns: BEGIN_NS,
        span_ns: 100 * SECOND_NS,
        blocks: 50,
        bytes: 50_000,
        bytes_per_second: None,
        frees: 0,
        usual_age_ns: None,
        cycles: 0,
        quiet_ns: 95 * SECOND_NS,
        has_ended: false,
        teardown_ns: None,
    };
    assert_eq!(found, expected);
    assert_eq!(with(10, 5 * SECOND_NS + 1).verdict, Plateau);
    let later = judge(&shape(10, &first, 3)).unwrap();
    assert_eq!(later.since_ns, BEGIN_NS + 3 * SECOND_NS);
    // What was allocated since, and is gone, is no news.
    assert_eq!(with(10, 30 * SECOND_NS).quiet_ns, 90 * SECOND_NS);
    // Four times as long as it took, and 10 s to 20 s.
    assert_eq!(with(2, 5 * SECOND_NS).confidence, NotEnough(2 * SECOND_NS));
    assert_eq!(with(2, 4 * SECOND_NS).confidence, Likely);
    assert_eq!(with(1, SECOND_NS).confidence, NotEnough(SECOND_NS));
}

#[test]
fn what_is_freed_as_often_as_it_stays_is_a_cache() {
    let with = |seconds, frees| {
        let mut freed = shape(seconds, &[50, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
        freed.ages[0] = frees;
        judge(&freed).unwrap()
    };
    assert_eq!((with(10, 13).verdict, with(10, 13).frees), (Cache, 13));
    assert_eq!(with(10, 12).verdict, Plateau);
    assert_eq!(with(2, 13).confidence, Likely);
    assert_eq!(with(1, 13).confidence, NotEnough(10 * SECOND_NS));
}

#[test]
fn some_that_live_much_longer_than_usual_are_freed_late() {
    let with = |left: &[u64], frees| {
        let mut late = shape(10, left, 0);
        late.ages[0] = frees;
        judge(&late).unwrap()
    };
    let left = [1, 0, 3, 0, 0, 0, 0, 0, 0, 2];
    let found = with(&left, 20);
    assert_eq!((found.verdict, found.confidence), (FreedLate, Likely));
    assert_eq!((found.blocks, found.bytes), (4, 4000));
    assert_eq!(with(&left, 19).verdict, Cache);
    // What was there at first and stays is no straggler.
    assert_eq!(with(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 2], 20).verdict, Cache);
    assert_eq!(with(&[1, 0, 0, 0, 0, 0, 0, 0, 3, 2], 20).verdict, Cache);
}

#[test]
fn the_usual_age_is_that_of_99_in_100() {
    let with = |ages: &[(usize, u64)]| {
        let mut freed = shape(10, &[50, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
        ages.iter()
            .for_each(|&(bucket, count)| freed.ages[bucket] = count);
        judge(&freed).unwrap().usual_age_ns.unwrap()
    };
    assert_eq!(with(&[(0, 99), (3, 1)]), 1_000_000);
    assert_eq!(with(&[(0, 98), (3, 2)]), 8_000_000);
    assert_eq!(with(&[(0, 49), (3, 1)]), 8_000_000);
    assert_eq!(with(&[(AGES - 1, 1)]), least_age_ns(AGES - 1));
}

/// Something that is made anew, of at least so many bytes in each window, with so many live.
fn anew(bytes: &[u64], live: &[u64]) -> SeriesShape {
    let mut left = vec![0; bytes.len()];
    left[bytes.len() - 1] = 1;
    let mut shape = shape(10, &left, 0);
    (shape.bytes, shape.live) = (bytes.to_vec(), live.to_vec());
    shape
}

fn rising(from: u64) -> Vec<u64> {
    (0..10).map(|window| from + 10 * window).collect()
}

#[test]
fn what_is_made_anew_and_larger_each_time_grows() {
    let found = judge(&anew(&rising(10), &[1; 10])).unwrap();
    assert_eq!((found.verdict, found.blocks, found.bytes), (Growing, 1, 90));
    assert_eq!((found.since_ns, found.span_ns), (BEGIN_NS, 100 * SECOND_NS));
    let grows = |bytes: &[u64], live: &[u64]| judge(&anew(bytes, live)).unwrap().verdict == Growing;
    // By a third of all at least.
    assert!(grows(&rising(180), &[1; 10]) && !grows(&rising(181), &[1; 10]));
    // Not more of the same: a quarter more, or one.
    let live = |before, now| [[before; 9].to_vec(), vec![now]].concat();
    assert!(grows(&rising(10), &live(4, 5)) && !grows(&rising(10), &live(4, 6)));
    assert!(grows(&rising(10), &live(8, 10)) && !grows(&rising(10), &live(8, 11)));
    assert!(grows(&rising(10), &live(1, 2)) && !grows(&rising(10), &live(0, 1)));
    // From the second window on.
    let later = [vec![0], vec![1; 9]].concat();
    let found = judge(&anew(&rising(10), &later)).unwrap();
    assert_eq!(
        (found.since_ns, found.bytes),
        (BEGIN_NS + 10 * SECOND_NS, 80)
    );
    // In each part, and in the last.
    let by = |rises: [u64; 9]| {
        let mut bytes = vec![10];
        bytes.extend(rises.iter().scan(10, |sum, rise| {
            *sum += rise;
            Some(*sum)
        }));
        grows(&bytes, &[1; 10])
    };
    assert!(by([10; 9]) && by([10, 10, 10, 0, 10, 10, 10, 10, 10]));
    assert!(!by([10, 10, 0, 0, 10, 10, 10, 10, 10]));
    assert!(!by([13, 13, 13, 2, 2, 13, 13, 13, 8]));
    assert!(!by([10, 10, 10, 10, 10, 10, 10, 10, 0]));
    assert!(!by([0; 9]));
}

#[test]
fn growth_is_spread_over_the_whole_time() {
    let grows = |left: &[u64]| said(&shape(10, left, 0)).0 == Growing;
    assert!(grows(&[1; 8]) && !grows(&[1; 7]));
    assert!(grows(&[2, 2, 2, 0, 2, 2, 2, 2, 2]) && !grows(&[2, 2, 0, 0, 2, 2, 2, 2, 2]));
    assert!(!grows(&[2, 2, 2, 2, 2, 2, 2, 2, 0]) && !grows(&[0, 2, 2, 2, 2, 2, 2, 2]));
    // The last third has two thirds of the others at least.
    assert!(grows(&[3, 3, 3, 3, 3, 3, 3, 3, 1]));
    assert!(grows(&[3, 3, 3, 3, 3, 3, 2, 2, 2]) && !grows(&[3, 3, 3, 3, 3, 3, 2, 2, 1]));
    // One freed for ten that stay.
    let mut freed = shape(10, &[2; 10], 0);
    freed.ages[AGES - 1] = 2;
    assert_eq!(said(&freed).0, Growing);
    freed.ages[AGES - 1] = 3;
    assert_ne!(said(&freed).0, Growing);
}

#[test]
fn growth_in_step_is_known_sooner() {
    let with = |change: fn(&mut SeriesShape)| {
        let mut shape = shape(1, &[10; 14], 0);
        change(&mut shape);
        judge(&shape).unwrap().is_leak()
    };
    assert!(with(|_| ()));
    // Not by requests at random, of all sizes, some of which go, in too few steps, or for less long.
    assert!(!with(
        |shape| shape.left = [10, 7, 14, 9, 12, 6, 11, 10, 13, 8, 10, 14, 7, 10].to_vec()
    ));
    assert!(!with(|shape| shape.left_bytes[5] += 1000));
    assert!(!with(|shape| shape.ages[14] = 1));
    assert!(with(|shape| shape.ages[3] = 1000));
    assert!(!with(|shape| shape.left = vec![7; 14]));
    assert!(!with(|shape| shape.now_ns -= SECOND_NS + 1));
}

#[test]
fn a_process_that_has_ended_leaks_or_never_freed() {
    let with = |windows, change: fn(&mut Judgement)| {
        let mut found = judge(&shape(6, &vec![2; windows], 0)).unwrap();
        found.has_ended = true;
        change(&mut found);
        (found.shown(), found.severity())
    };
    assert_eq!(with(10, |_| ()), (Growing, Severity::Leak));
    assert_eq!(with(8, |_| ()), (Verdict::TooEarly, Severity::Early));
    let level = |found: &mut Judgement| found.verdict = Plateau;
    assert_eq!(with(8, level), (Verdict::NeverFreed, Severity::Note));
}
