//! Busy time: the union of time intervals that arrive roughly in time order.
//!
//! Records of different streams and buffers arrive out of order, so intervals are kept, and merged where they touch.
//! Memory is bounded: beyond [`MAX_KEPT`] separate intervals the oldest is folded into the sums. An interval that
//! arrives later and begins before that point is clipped to it, and counted in [`Busy::late`].

use std::collections::BTreeMap;

use serde::Serialize;

use crate::totals::SizeCounts;

/// Separate intervals kept, some 30 bytes each: a minute of a program that keeps its GPU busy, a second of one that
/// launches a hundred thousand kernels per second with gaps between them.
const MAX_KEPT: usize = 1 << 17;

/// Idle gaps between intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// Number of gaps between intervals.
    pub count: u64,
    /// Sum of their lengths, nanoseconds.
    pub total_ns: u64,
    /// Length of the longest gap, nanoseconds.
    pub longest_ns: u64,
    /// Number of gaps by length in nanoseconds.
    pub by_length: SizeCounts,
}

impl Gaps {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
        self.by_length.add(ns);
    }
}

/// Sums over a union of intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusySums {
    /// Length of the union, nanoseconds.
    pub busy_ns: u64,
    /// Start of the first interval, nanoseconds.
    pub first_ns: u64,
    /// End of the last interval, nanoseconds.
    pub last_ns: u64,
    /// Gaps between the merged intervals.
    pub gaps: Gaps,
}

/// The union of the intervals added so far.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Ends of separate intervals, by their starts.
    kept: BTreeMap<u64, u64>,
    /// Sums of the intervals before `kept`; ends with the last of them.
    settled: BusySums,
    /// Number of intervals that arrived too late and were clipped or ignored.
    pub late: u64,
}

impl Busy {
    /// Adds the interval from `start_ns` to `end_ns`; ignored if it is empty.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        if end_ns <= start_ns {
            return;
        }
        self.late += u64::from(start_ns < self.settled.last_ns);
        let (mut start, mut end) = (start_ns.max(self.settled.last_ns), end_ns);
        if end <= start {
            return;
        }
        // Usually the new interval extends the last one, or overlaps it on another stream.
        while let Some((&first, &last)) = self.kept.range(..=end).next_back()
            && last >= start
        {
            if first <= start && end <= last {
                return;
            }
            self.kept.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.kept.insert(start, end);
        self.settle(MAX_KEPT);
    }

    /// Sums over all intervals added so far.
    pub fn sums(&self) -> BusySums {
        let mut sums = self.settled.clone();
        let kept = self.kept.iter();
        kept.for_each(|(&start, &end)| sums.append((start, end)));
        sums
    }

    /// Folds every interval into the sums, as few more will arrive.
    pub(super) fn settle_all(&mut self) {
        self.settle(0);
    }

    /// Folds all but the last `most` of `kept` into the sums.
    fn settle(&mut self, most: usize) {
        while self.kept.len() > most
            && let Some(oldest) = self.kept.pop_first()
        {
            self.settled.append(oldest);
        }
    }
}

impl BusySums {
    /// Appends an interval that begins after the last one.
    fn append(&mut self, (start, end): (u64, u64)) {
        if self.busy_ns == 0 {
            self.first_ns = start;
        } else if start > self.last_ns {
            self.gaps.add(start - self.last_ns);
        }
        self.busy_ns = self.busy_ns.saturating_add(end - start);
        self.last_ns = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The expected sums, computed nanosecond by nanosecond.
    fn by_moments(intervals: &[(u64, u64)]) -> BusySums {
        let runs = |t: u64| intervals.iter().any(|&(start, end)| start <= t && t < end);
        let last = intervals.iter().map(|i| i.1).max().unwrap_or(0);
        let mut sums = BusySums::default();
        let (mut begun, mut before) = (None, 0);
        for t in 0..=last {
            match (runs(t), begun) {
                (true, None) => begun = Some(t),
                (false, Some(start)) => {
                    if sums.busy_ns == 0 {
                        sums.first_ns = start;
                    } else {
                        sums.gaps.add(start - before);
                    }
                    sums.busy_ns += t - start;
                    (before, sums.last_ns) = (t, t);
                    begun = None;
                }
                _ => {}
            }
        }
        sums
    }

    proptest! {
        #[test]
        fn sums_match_a_count_of_nanoseconds(
            intervals in prop::collection::vec((0u64..200, 0u64..30), 0..60),
        ) {
            let intervals: Vec<_> = intervals.iter().map(|&(s, d)| (s, s + d)).collect();
            let mut busy = Busy::default();
            intervals.iter().for_each(|&(start, end)| busy.add(start, end));
            let real: Vec<_> = intervals.iter().copied().filter(|(s, e)| s < e).collect();
            prop_assert_eq!(busy.sums(), by_moments(&real));
            prop_assert_eq!(busy.late, 0);
        }

        #[test]
        fn folded_intervals_stay_counted(
            lengths in prop::collection::vec((1u64..50, 1u64..50), 1..40),
            settled in 0usize..40,
        ) {
            let mut at = 1;
            let intervals: Vec<_> = lengths.iter().map(|&(busy, gap)| {
                let interval = (at, at + busy);
                at += busy + gap;
                interval
            }).collect();
            let settled = settled.min(intervals.len());
            let mut busy = Busy::default();
            intervals.iter().for_each(|&(start, end)| busy.add(start, end));
            busy.settle(intervals.len() - settled);
            prop_assert_eq!(busy.sums(), by_moments(&intervals));
            // This one is too late: it touches intervals already folded into the sums.
            let late = settled > 0;
            busy.add(0, 1);
            prop_assert_eq!(busy.late, u64::from(late));
        }

        #[test]
        fn arbitrary_times_are_accepted(intervals in prop::collection::vec((0u64.., 0u64..), 0..20)) {
            let mut busy = Busy::default();
            intervals.iter().for_each(|&(start, end)| busy.add(start, end));
            busy.sums();
            busy.settle_all();
            busy.sums();
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut busy = Busy::default();
        let count = 3 * MAX_KEPT as u64;
        for n in 0..count {
            busy.add(10 * n, 10 * n + 3);
        }
        assert_eq!(busy.kept.len(), MAX_KEPT);
        let sums = busy.sums();
        assert_eq!(sums.busy_ns, 3 * count);
        assert_eq!(
            (sums.gaps.count, sums.gaps.total_ns),
            (count - 1, 7 * (count - 1))
        );
        busy.add(5, 6);
        busy.settle_all();
        assert_eq!((busy.sums().busy_ns, busy.late), (3 * count, 1));
        assert!(busy.kept.is_empty());
    }

    #[test]
    fn gaps_are_counted_by_length() {
        let mut busy = Busy::default();
        for (start, end) in [(10, 20), (21, 30), (40, 50), (60, 70)] {
            busy.add(start, end);
        }
        let gaps = busy.sums().gaps;
        assert_eq!((gaps.count, gaps.total_ns, gaps.longest_ns), (3, 21, 10));
        assert_eq!((gaps.by_length.0[1], gaps.by_length.0[4]), (1, 2));
        assert_eq!(gaps.by_length.0.iter().sum::<u64>(), 3);
    }

    #[test]
    fn a_late_interval_is_clipped_to_what_is_folded() {
        let mut busy = Busy::default();
        busy.add(1, 10);
        busy.settle(0);
        busy.add(5, 20);
        let sums = busy.sums();
        assert_eq!((sums.busy_ns, sums.gaps.count, sums.last_ns), (19, 0, 20));
    }
}
