use super::*;

#[test]
fn ages_have_the_bucket_that_they_are_at_least_as_old_as() {
    let ms = MILLISECOND_NS;
    for (age_ns, expected) in [
        (0, 0),
        (ms - 1, 0),
        (ms, 1),
        (2 * ms, 2),
        (3 * ms, 2),
        (4 * ms, 3),
        (1 << 40, 21),
        (u64::MAX, AGES - 1),
    ] {
        assert_eq!(bucket(age_ns), expected, "{age_ns}");
        assert!(least_age_ns(bucket(age_ns)) <= age_ns);
    }
}

#[test]
fn windows_become_wider_as_time_goes_on() {
    let mut all = Windows::default();
    all.reach(1_000);
    assert_eq!((all.index(1_000), all.shift), (0, 0));
    all.reach(1_000 + 23 * UNIT_NS);
    assert_eq!((all.index(1_000 + 23 * UNIT_NS), all.shift), (23, 0));
    all.reach(1_000 + 24 * UNIT_NS);
    assert_eq!((all.index(1_000 + 24 * UNIT_NS), all.shift), (12, 1));
    all.reach(u64::MAX);
    assert!(usize::from(all.index(u64::MAX)) < MAX_WINDOWS);
}

#[test]
fn a_cycle_is_half_of_what_came_freed_and_allocated_again() {
    let mut cycle = Cycle::default();
    for round in 0..5 {
        for live in [2, 4, 6, 8, 10, 7, 4, 2].map(|live| live + 2 * round) {
            cycle.note(live, round);
        }
    }
    assert_eq!((cycle.count, cycle.last_ns), (4, 4));
    let mut steady = Cycle::default();
    for live in [100, 101, 99, 100, 98, 99, 101] {
        steady.note(live, 1);
    }
    assert_eq!(steady.count, 0);
}

#[test]
fn more_than_half_has_to_come_again() {
    let mut cycle = Cycle::default();
    for (live, count) in [
        (10, 0),
        (0, 0),
        (5, 0),
        (6, 1),
        (7, 1),
        (8, 1),
        (1, 1),
        (4, 1),
        (5, 2),
    ] {
        cycle.note(live, live);
        assert_eq!(cycle.count, count, "{live}");
    }
    let Cycle {
        base,
        high,
        low,
        last_ns,
        ..
    } = cycle;
    assert_eq!((base, high, low, last_ns), (1, 5, 5, 5));
}

#[test]
fn a_window_has_the_fewest_that_were_live_in_it() {
    let total = |allocations, bytes| Total { bytes, allocations };
    let (mut all, mut series) = (Windows::default(), Series::default());
    let second_ns = 4 * UNIT_NS;
    all.reach(0);
    series.born(all, 0, 100, total(0, 0));
    series.born(all, 1, 100, total(1, 100));
    all.reach(second_ns);
    series.born(all, second_ns, 30, total(2, 200));
    series.died(all, 0, 100, second_ns + 1, total(2, 130));
    assert_eq!((series.cycle.high, series.cycle.low), (3, 2));
    let now_ns = 2 * second_ns;
    let mut shape = SeriesShape::new(all, &Series::default(), now_ns);
    shape.add(all, &series, total(2, 130));
    assert_eq!(shape.left, [1, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(shape.left_bytes, [100, 0, 0, 0, 30, 0, 0, 0, 0]);
    assert_eq!(shape.live, [0, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(shape.bytes, [0, 130, 130, 130, 130, 130, 130, 130, 130]);
    assert_eq!(
        (shape.born_ns, shape.ages[bucket(second_ns)]),
        (Some((0, second_ns)), 1)
    );
}
