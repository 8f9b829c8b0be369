//! Busy time: the union of time intervals that arrive roughly in time order.
//!
//! Records of different streams and buffers arrive out of order, so an interval is only summed once
//! no later record is expected to change it: until then intervals are kept, and merged where they
//! touch. Memory is bounded: beyond [`MAX_KEPT`] separate intervals the older half is folded into
//! the sums and dropped. An interval that arrives later and begins before that point is clipped to
//! it, and counted in [`Busy::late`].

/// Separate intervals kept: a few minutes of a program that keeps its GPU busy, two seconds of one
/// that launches a hundred thousand kernels per second with gaps between them.
const MAX_KEPT: usize = 1 << 18;
/// GPUs of one process that may each keep [`MAX_KEPT`] intervals; more GPUs share the same total.
const SHARES: usize = 16;
/// Intervals collected before they are sorted and merged.
const GATHERED: usize = 4096;
/// Slots of a histogram by length: slot n counts lengths of 2^(n-1) to 2^n - 1 nanoseconds.
pub const SLOTS: usize = 65;

/// Idle gaps between intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// Number of gaps between intervals.
    pub count: u64,
    /// Sum of their lengths, nanoseconds.
    pub total_ns: u64,
    /// Length of the longest gap, nanoseconds.
    pub longest_ns: u64,
    /// Number of gaps by length; see [`SLOTS`].
    pub by_length: [u64; SLOTS],
}

impl Default for Gaps {
    fn default() -> Self {
        Self {
            count: 0,
            total_ns: 0,
            longest_ns: 0,
            by_length: [0; SLOTS],
        }
    }
}

impl Gaps {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.longest_ns = self.longest_ns.max(ns);
        self.by_length[64 - ns.leading_zeros() as usize] += 1;
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
    /// Intervals not yet sorted and merged.
    gathered: Vec<(u64, u64)>,
    /// Separate intervals, in time order.
    kept: Vec<(u64, u64)>,
    /// Sums of the intervals before `kept`; ends with the last of them.
    settled: BusySums,
    /// Number of intervals that arrived too late and were clipped or ignored.
    pub late: u64,
    /// Number of GPUs that share the memory of [`SHARES`] GPUs.
    among: usize,
}

impl Busy {
    /// Adds the interval from `start_ns` to `end_ns`; ignored if it is empty.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        if end_ns <= start_ns {
            return;
        }
        // Usually the new interval extends the last one, or overlaps it on another stream.
        if let Some(last) = self.gathered.last_mut()
            && last.0 <= start_ns
            && start_ns <= last.1
        {
            last.1 = last.1.max(end_ns);
            return;
        }
        self.gathered.push((start_ns, end_ns));
        if self.gathered.len() >= GATHERED {
            self.sort_in();
        }
    }

    /// Sums over all intervals added so far.
    pub fn sums(&self) -> BusySums {
        if !self.gathered.is_empty() {
            let mut sorted = self.clone();
            sorted.sort_in();
            return sorted.sums();
        }
        let mut sums = self.settled.clone();
        self.kept.iter().for_each(|&kept| sums.append(kept));
        sums
    }

    /// Sets the number of GPUs of the process, which share the memory limit.
    pub(super) fn shares_with(&mut self, count: usize) {
        self.among = count;
    }

    /// Folds every interval into the sums, as few more will arrive.
    pub(super) fn settle_all(&mut self) {
        self.sort_in();
        self.settle(self.kept.len());
        (self.kept, self.gathered) = Default::default();
    }

    /// Sorts and merges the collected intervals into `kept`.
    pub(super) fn sort_in(&mut self) {
        let settled_ns = self.settled.last_ns;
        let mut new = std::mem::take(&mut self.gathered);
        let late = &mut self.late;
        new.retain_mut(|interval| {
            *late += u64::from(interval.0 < settled_ns);
            interval.0 = interval.0.max(settled_ns);
            interval.0 < interval.1
        });
        new.sort_unstable();
        if let Some(&(start, _)) = new.first() {
            // Only intervals that may touch the new ones, or come after them, are moved.
            let from = self.kept.partition_point(|&(_, end)| end < start);
            let mut later = self.kept.split_off(from);
            later.append(&mut new);
            // Two sorted runs, which a stable sort merges.
            later.sort();
            self.kept.reserve(later.len());
            for (start, end) in later {
                match self.kept.last_mut() {
                    Some(last) if start <= last.1 => last.1 = last.1.max(end),
                    _ => self.kept.push((start, end)),
                }
            }
        }
        self.gathered = new;
        let most = MAX_KEPT * SHARES / self.among.max(SHARES);
        if self.kept.len() > most {
            self.settle(self.kept.len() - most / 2);
            self.kept.shrink_to(most);
        }
    }

    /// Folds the first `count` of `kept` into the sums.
    fn settle(&mut self, count: usize) {
        for kept in self.kept.drain(..count) {
            self.settled.append(kept);
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
            asked in prop::collection::vec(any::<bool>(), 60),
        ) {
            let intervals: Vec<_> = intervals.iter().map(|&(s, d)| (s, s + d)).collect();
            let mut busy = Busy::default();
            for (&(start, end), asked) in intervals.iter().zip(asked) {
                busy.add(start, end);
                if asked {
                    busy.sort_in();
                }
            }
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
            busy.sort_in();
            busy.settle(settled);
            prop_assert_eq!(busy.sums(), by_moments(&intervals));
            // This one is too late: it touches intervals already folded into the sums.
            let late = settled > 0;
            busy.add(0, 1);
            busy.sort_in();
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
    fn many_gpus_share_the_memory_limit() {
        let mut all = vec![Busy::default(); 241];
        for busy in &mut all {
            busy.shares_with(241);
            for n in 0..MAX_KEPT as u64 / 4 {
                busy.add(10 * n, 10 * n + 3);
            }
            assert_eq!(busy.sums().busy_ns, 3 * MAX_KEPT as u64 / 4);
        }
        let kept: usize = all.iter().map(|busy| busy.kept.capacity()).sum();
        assert!(kept <= SHARES * MAX_KEPT + 241 * GATHERED, "{kept}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut busy = Busy::default();
        let count = 3 * MAX_KEPT as u64;
        for n in 0..count {
            busy.add(10 * n, 10 * n + 3);
        }
        assert!(busy.kept.len() + busy.gathered.len() <= MAX_KEPT + GATHERED);
        let sums = busy.sums();
        assert_eq!(sums.busy_ns, 3 * count);
        assert_eq!(
            (sums.gaps.count, sums.gaps.total_ns),
            (count - 1, 7 * (count - 1))
        );
        busy.add(5, 6);
        busy.settle_all();
        assert_eq!((busy.sums().busy_ns, busy.late), (3 * count, 1));
        assert_eq!((busy.kept.capacity(), busy.gathered.capacity()), (0, 0));
    }

    #[test]
    fn gaps_are_counted_by_length() {
        let mut busy = Busy::default();
        for (start, end) in [(10, 20), (21, 30), (40, 50), (60, 70)] {
            busy.add(start, end);
        }
        let gaps = busy.sums().gaps;
        assert_eq!((gaps.count, gaps.total_ns, gaps.longest_ns), (3, 21, 10));
        assert_eq!((gaps.by_length[1], gaps.by_length[4]), (1, 2));
        assert_eq!(gaps.by_length.iter().sum::<u64>(), 3);
    }

    #[test]
    fn a_late_interval_is_clipped_to_what_is_folded() {
        let mut busy = Busy::default();
        busy.add(1, 10);
        busy.sort_in();
        busy.settle(1);
        busy.add(5, 20);
        let sums = busy.sums();
        assert_eq!((sums.busy_ns, sums.gaps.count, sums.last_ns), (19, 0, 20));
    }

    #[test]
    fn the_older_half_is_folded_beyond_the_limit() {
        let mut busy = Busy::default();
        for (count, kept) in [(MAX_KEPT, MAX_KEPT), (MAX_KEPT + 1, MAX_KEPT / 2)] {
            for n in (busy.kept.len() as u64)..count as u64 {
                busy.add(10 * n, 10 * n + 3);
            }
            busy.sort_in();
            assert_eq!(busy.kept.len(), kept);
        }
        assert_eq!(busy.sums().busy_ns, 3 * (MAX_KEPT as u64 + 1));
    }
}
