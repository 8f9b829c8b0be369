//! A time budget for work that another process or user can cause at any rate.

use std::time::{Duration, Instant};

/// Period over which work is added up.
const WINDOW: Duration = Duration::from_secs(1);
/// Share of the time that may be spent, as the divisor.
const SHARE: u32 = 10;
/// Number of times per window that are allowed beyond that share.
const BURST_TIMES: u32 = 5;
/// Time per window up to which the [`BURST_TIMES`] are allowed.
const MAX_BURST_TIME: Duration = Duration::from_millis(500);

/// Work done within the current window.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    since: Instant,
    times: u32,
    took: Duration,
}

impl Budget {
    /// A budget of which nothing is spent at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            times: 0,
            took: Duration::ZERO,
        }
    }

    /// Whether the window is over and the time spent is within the share.
    pub fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) > WINDOW.max(self.took * SHARE)
    }

    /// Whether the work may be done again, at most `at_most` times per window.
    pub fn allows(&mut self, now: Instant, at_most: u32) -> bool {
        if self.is_over(now) {
            *self = Self::new(now);
        }
        let is_cheap = self.took < WINDOW / SHARE;
        let is_new = self.times < BURST_TIMES && self.took < MAX_BURST_TIME;
        self.times < at_most && (is_cheap || is_new)
    }

    /// Charges one more execution of this duration.
    pub fn spend(&mut self, took: Duration) {
        self.times += 1;
        self.took += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_work_is_limited_by_its_count() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        let mut times = 0;
        while budget.allows(start, 50) {
            budget.spend(Duration::from_micros(10));
            times += 1;
        }
        assert_eq!(times, 50);
        assert!(budget.allows(start + WINDOW * 2, 50));
    }

    #[test]
    fn expensive_work_gets_a_tenth_of_the_time() {
        for each in [50, 400, 3000].map(Duration::from_millis) {
            let start = Instant::now();
            let (mut now, mut took) = (start, Duration::ZERO);
            let mut budget = Budget::new(start);
            while now < start + Duration::from_secs(1000) {
                if budget.allows(now, 50) {
                    now += each;
                    took += each;
                    budget.spend(each);
                } else {
                    now += Duration::from_millis(100);
                }
            }
            assert!(took < Duration::from_secs(250), "{took:?}");
            assert!(took > Duration::from_secs(50), "{took:?}");
        }
    }

    #[test]
    fn a_few_expensive_executions_are_allowed_at_once() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        for _ in 0..BURST_TIMES {
            assert!(budget.allows(start, 50));
            budget.spend(Duration::from_millis(90));
        }
        assert!(!budget.allows(start, 50));
    }
}
