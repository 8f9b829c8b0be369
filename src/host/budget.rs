//! A time budget for work that another process or user can cause at any rate.

use std::time::{Duration, Instant};

/// Period over which work is added up, at least.
const WINDOW: Duration = Duration::from_secs(1);
/// Share of the time that may be spent, as the divisor.
const SHARE: u32 = 10;

/// Work done within the current window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    since: Option<Instant>,
    took: Duration,
}

impl Budget {
    /// Whether the window is over and the time spent is within the share.
    pub fn is_over(&self) -> bool {
        let window = WINDOW.max(self.took * SHARE);
        self.since.is_none_or(|since| since.elapsed() > window)
    }

    /// Does the work, unless the share of the window is spent.
    pub fn spend<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        let begun = Instant::now();
        if self.is_over() {
            (self.since, self.took) = (Some(begun), Duration::ZERO);
        }
        (self.took < WINDOW / SHARE).then(|| {
            let done = work();
            self.took += begun.elapsed();
            done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_gets_a_tenth_of_the_time() {
        let mut budget = Budget::default();
        let begun = Instant::now();
        let mut spent = Duration::ZERO;
        let work = || std::thread::sleep(Duration::from_millis(40));
        while begun.elapsed() < Duration::from_millis(2500) {
            let before = Instant::now();
            match budget.spend(work) {
                Some(()) => spent += before.elapsed(),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        let last = Duration::from_millis(60);
        assert!(spent >= Duration::from_millis(100), "{spent:?}");
        assert!(
            spent < begun.elapsed() / SHARE + WINDOW / SHARE + last,
            "{spent:?}"
        );
    }
}
