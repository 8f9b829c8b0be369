//! A share of our time for what others can make take as long, and wish for as often, as they like.

use std::time::{Duration, Instant};

/// In this time, what is done is counted.
const WINDOW: Duration = Duration::from_secs(1);
/// One in so many parts of the time may be spent.
const SHARE: u32 = 10;
/// So often it is done at once even if it takes more than that, unless it takes much more.
const ALWAYS: u32 = 5;
const MUCH: Duration = Duration::from_millis(500);

/// What was done for somebody lately.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    since: Instant,
    times: u32,
    took: Duration,
}

impl Budget {
    /// Nothing was done until `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            times: 0,
            took: Duration::ZERO,
        }
    }

    /// Whether none of it matters any more.
    pub fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) > WINDOW.max(self.took * SHARE)
    }

    /// Whether it may be done again, so often in a second at most.
    pub fn allows(&mut self, now: Instant, at_most: u32) -> bool {
        if self.is_over(now) {
            *self = Self::new(now);
        }
        let is_cheap = self.took < WINDOW / SHARE;
        let is_new = self.times < ALWAYS && self.took < MUCH;
        self.times < at_most && (is_cheap || is_new)
    }

    /// It was done once more and took so long.
    pub fn spend(&mut self, took: Duration) {
        self.times += 1;
        self.took += took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cheap_is_done_as_often_as_is_allowed() {
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
    fn what_is_dear_has_a_tenth_of_the_time() {
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
    fn the_first_few_times_are_at_once() {
        let start = Instant::now();
        let mut budget = Budget::new(start);
        for _ in 0..ALWAYS {
            assert!(budget.allows(start, 50));
            budget.spend(Duration::from_millis(90));
        }
        assert!(!budget.allows(start, 50));
    }
}
