//! When something ran: the union of intervals that come in about the order of time.
//!
//! Records of several streams and buffers come out of order, so nothing is summed up that a later
//! record may still change: intervals are kept, merged where they touch. Memory is bounded: beyond
//! [`MAX_KEPT`] separate intervals the older half is added up and forgotten. Of what comes so late
//! that it begins before these, the part before is missing from the sums; it is counted.

/// Separate intervals that are kept: a few minutes of a program that never leaves its GPU idle,
/// two seconds of one that launches a hundred thousand kernels a second with gaps between them.
const MAX_KEPT: usize = 1 << 18;
/// GPUs of a process that can have all of that; where there are more, they share what these have.
const SHARES: usize = 16;
/// Intervals that are gathered before they are sorted in.
const GATHERED: usize = 4096;
/// Gaps by length: slot n counts those of 2^(n-1) to 2^n - 1 nanoseconds.
pub const SLOTS: usize = 65;

/// Gaps between intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// How many.
    pub count: u64,
    /// All of them together, nanoseconds.
    pub total_ns: u64,
    /// Nanoseconds.
    pub longest_ns: u64,
    /// By length, as [`SLOTS`] has it.
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

/// What the intervals come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Where any of them is, nanoseconds.
    pub busy_ns: u64,
    /// The beginning of the first.
    pub first_ns: u64,
    /// The end of the last.
    pub last_ns: u64,
    /// Between them.
    pub gaps: Gaps,
}

/// The union of intervals.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    /// Not sorted in yet.
    gathered: Vec<(u64, u64)>,
    /// Separate, in order.
    kept: Vec<(u64, u64)>,
    /// Of those before `kept`; ends with the last of them.
    settled: Sums,
    /// Intervals that came too late, in part or as a whole.
    pub late: u64,
    /// It is one of so many that share the memory of [`SHARES`].
    among: usize,
}

impl Busy {
    /// Adds the time from `start_ns` to `end_ns`; nothing if there is none.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        if end_ns <= start_ns {
            return;
        }
        // Most often the last one of a stream goes on, or another stream runs beside it.
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

    /// What all intervals come to by now.
    pub fn sums(&self) -> Sums {
        if !self.gathered.is_empty() {
            let mut sorted = self.clone();
            sorted.sort_in();
            return sorted.sums();
        }
        let mut sums = self.settled.clone();
        self.kept.iter().for_each(|&kept| sums.append(kept));
        sums
    }

    /// It is one of so many of its process.
    pub(super) fn shares_with(&mut self, count: usize) {
        self.among = count;
    }

    /// Adds everything up: little comes any more.
    pub(super) fn settle_all(&mut self) {
        self.sort_in();
        self.settle(self.kept.len());
        (self.kept, self.gathered) = Default::default();
    }

    /// Sorts what was gathered into what is kept.
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
            // Only what may touch the new ones, or lies after them, is moved.
            let from = self.kept.partition_point(|&(_, end)| end < start);
            let old = self.kept.split_off(from);
            merge(&mut self.kept, &old, &new);
        }
        new.clear();
        self.gathered = new;
        let most = MAX_KEPT * SHARES / self.among.max(SHARES);
        if self.kept.len() > most {
            self.settle(self.kept.len() - most / 2);
            self.kept.shrink_to(most);
        }
    }

    /// Adds up the first `count` of what is kept.
    fn settle(&mut self, count: usize) {
        for kept in self.kept.drain(..count) {
            self.settled.append(kept);
        }
    }
}

/// Appends two sorted lists to `merged`, whose intervals end before all of theirs begin.
fn merge(merged: &mut Vec<(u64, u64)>, old: &[(u64, u64)], new: &[(u64, u64)]) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    merged.reserve(old.len() + new.len());
    loop {
        let next = match (old.peek(), new.peek()) {
            (Some(a), Some(b)) if a <= b => old.next(),
            (_, Some(_)) => new.next(),
            (Some(_), None) => old.next(),
            (None, None) => return,
        };
        let Some(&(start, end)) = next else { return };
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
}

impl Sums {
    /// Appends an interval that begins after the last.
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

    /// The same, moment by moment.
    fn by_moments(intervals: &[(u64, u64)]) -> Sums {
        let runs = |t: u64| intervals.iter().any(|&(start, end)| start <= t && t < end);
        let last = intervals.iter().map(|i| i.1).max().unwrap_or(0);
        let mut sums = Sums::default();
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
        fn as_moment_by_moment(
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
        fn what_was_settled_stays_counted(
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
            // Too late, and touching what was settled.
            let late = settled > 0;
            busy.add(0, 1);
            busy.sort_in();
            prop_assert_eq!(busy.late, u64::from(late));
        }

        #[test]
        fn no_times_are_too_wild(intervals in prop::collection::vec((0u64.., 0u64..), 0..20)) {
            let mut busy = Busy::default();
            intervals.iter().for_each(|&(start, end)| busy.add(start, end));
            busy.sums();
            busy.settle_all();
            busy.sums();
        }
    }

    #[test]
    fn many_share_the_memory_of_some() {
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
}
