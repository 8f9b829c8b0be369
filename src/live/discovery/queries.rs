//! Probes on the driver's queries for the current device: their results tell the device of threads that
//! chose it before gpuprobe attached.
//!
//! Frameworks query it thousands of times a second, which doubles the time of a short training step. So the
//! queries are probed for a twentieth of the time only, while there are threads whose device is unknown; a thread of a
//! framework is met in the first part, and one that waits meanwhile in a later one.

use std::time::{Duration, Instant};

/// How long the queries are probed at once.
const PROBE_ON: Duration = Duration::from_millis(50);
/// From the end of such a time to the next one.
const PROBE_OFF: Duration = Duration::from_millis(950);
/// How many times there are.
const TIMES: u32 = 10;

/// The times at which queries are probed.
#[derive(Debug)]
pub(super) struct QueryTimes {
    /// Number of times that are left, with the current one.
    left: u32,
    is_on: bool,
    /// When they are probed again, or no longer.
    due: Instant,
}

impl QueryTimes {
    /// Queries that are probed from now on, unless they are not needed. Detaching is slow if each probe is detached by
    /// itself: then they are probed once.
    pub(super) fn new(are_needed: bool, one_by_one: bool) -> Self {
        let times = if one_by_one { 1 } else { TIMES };
        Self {
            left: if are_needed { times } else { 0 },
            is_on: are_needed,
            due: Instant::now() + PROBE_ON,
        }
    }

    /// Whether queries are probed, now or later.
    pub(super) fn are_wanted(&self) -> bool {
        self.left > 0
    }

    /// Whether they are probed now.
    pub(super) fn are_on(&self) -> bool {
        self.is_on
    }

    /// When the next [`Self::switch`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.are_wanted().then_some(self.due)
    }

    /// Notes that the probes have been attached or detached.
    pub(super) fn switch(&mut self, now: Instant) {
        self.is_on = !self.is_on;
        self.due = now + if self.is_on { PROBE_ON } else { PROBE_OFF };
        self.left -= u32::from(!self.is_on);
    }

    /// Leaves out a time at which they would be probed.
    pub(super) fn skip(&mut self, now: Instant) {
        self.due = now + PROBE_OFF;
        self.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_probed_for_a_twentieth_of_the_time() {
        let mut queries = QueryTimes::new(true, false);
        let (mut on, mut off, mut times) = (Duration::ZERO, Duration::ZERO, 0);
        while let Some(due) = queries.due() {
            match queries.are_on() {
                true => (on, times) = (on + PROBE_ON, times + 1),
                false => off += PROBE_OFF,
            }
            queries.switch(due);
        }
        assert_eq!((times, on), (TIMES, PROBE_ON * TIMES));
        assert!(on * 20 <= on + off + PROBE_OFF);
        assert!(!queries.are_on());
    }

    #[test]
    fn times_that_are_left_out_count() {
        let mut queries = QueryTimes::new(true, false);
        let now = Instant::now();
        queries.switch(now);
        for _ in 1..TIMES {
            assert!(queries.due().is_some() && !queries.are_on());
            queries.skip(now);
        }
        assert_eq!(queries.due(), None);
    }

    #[test]
    fn slow_probes_are_attached_once() {
        let mut queries = QueryTimes::new(true, true);
        assert!(queries.are_wanted() && queries.are_on());
        queries.switch(Instant::now());
        assert!(!queries.are_wanted() && queries.due().is_none());
        let unneeded = QueryTimes::new(false, false);
        assert!(!unneeded.are_wanted() && !unneeded.are_on());
    }
}
