//! Progress of work of a known length.

use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;

/// Number of updates per pass, at most about: they must not slow down the work.
const UPDATES: u64 = 1000;

/// Shows how far a pass is. The program decides whether and where; `()` shows nothing.
pub trait ProgressDisplay: Debug + Send + Sync {
    /// Starts a pass over `total` units. Returns false if another pass is in progress: the inner one
    /// is not shown.
    fn begin(&self, _what: &'static str, _total: u64) -> bool {
        false
    }

    /// Called when `done` units of the pass are done.
    fn advance(&self, _done: u64) {}

    /// Called now and then during work that completes no unit, like sorting.
    fn tick(&self) {}

    /// Ends the pass. Nothing of it remains visible.
    fn end(&self) {}
}

/// A display that several files share.
pub type SharedProgress = Arc<dyn ProgressDisplay>;

impl ProgressDisplay for () {}

/// Counts the units of a pass; ends the pass when dropped.
#[derive(Debug)]
pub struct Pass<'a> {
    /// `None` if the pass is not shown.
    progress: Option<&'a dyn ProgressDisplay>,
    /// Units between two updates.
    every: u64,
    done: Cell<u64>,
}

impl<'a> Pass<'a> {
    /// Starts a pass over `total` units of `what`, such as `kernels`.
    pub fn begin(progress: &'a dyn ProgressDisplay, what: &'static str, total: u64) -> Self {
        Self {
            progress: Some(progress).filter(|progress| progress.begin(what, total)),
            every: (total / UPDATES).max(1),
            done: Cell::new(0),
        }
    }

    /// Counts a unit as done; about a thousand of these calls per pass update the display.
    pub fn step(&self) {
        self.advance(1);
    }

    /// Counts `units` as done, and updates the display like [`Self::step`].
    pub fn advance(&self, units: u64) {
        let before = self.done.get();
        let done = before.saturating_add(units);
        self.done.set(done);
        if let Some(progress) = self.progress
            && before / self.every != done / self.every
        {
            progress.advance(done);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(progress) = self.progress {
            progress.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps the calls; refuses passes of no units.
    #[derive(Debug, Default)]
    struct Calls(Mutex<Vec<(&'static str, u64)>>);

    impl Calls {
        fn push(&self, call: &'static str, number: u64) {
            if let Ok(mut calls) = self.0.lock() {
                calls.push((call, number));
            }
        }

        fn take(&self) -> Vec<(&'static str, u64)> {
            self.0
                .lock()
                .map(|mut calls| std::mem::take(&mut *calls))
                .unwrap_or_default()
        }
    }

    impl ProgressDisplay for Calls {
        fn begin(&self, what: &'static str, total: u64) -> bool {
            self.push(what, total);
            total > 0
        }

        fn advance(&self, done: u64) {
            self.push("done", done);
        }

        fn end(&self) {
            self.push("end", 0);
        }
    }

    #[test]
    fn every_unit_of_a_short_pass_is_counted() {
        let calls = Calls::default();
        let pass = Pass::begin(&calls, "rows", 3);
        pass.step();
        pass.advance(2);
        drop(pass);
        let expected = [("rows", 3), ("done", 1), ("done", 3), ("end", 0)];
        assert_eq!(calls.take(), expected);
    }

    #[test]
    fn a_long_pass_has_few_updates_and_reaches_its_total() {
        let calls = Calls::default();
        let total = 5_000_000;
        let pass = Pass::begin(&calls, "rows", total);
        (0..total).for_each(|_| pass.step());
        drop(pass);
        let calls = calls.take();
        assert_eq!(calls.len() as u64, 1 + UPDATES + 1);
        assert_eq!(calls[calls.len() - 2..], [("done", total), ("end", 0)]);
    }

    #[test]
    fn a_refused_pass_says_nothing_more() {
        let calls = Calls::default();
        let pass = Pass::begin(&calls, "rows", 0);
        pass.step();
        drop(pass);
        assert_eq!(calls.take(), [("rows", 0)]);
    }
}
