//! Sorting of nearly sorted rows by time.
//!
//! Exports are sorted, or nearly so: rows are displaced by a few places at most. Where they are
//! displaced by more, SQLite sorts them.

use std::collections::VecDeque;
use std::fmt;

/// Number of rows in the sorting window.
pub(super) const WINDOW: usize = 1 << 14;

/// A row is displaced by more than the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disorder;

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows are not in the order of their times")
    }
}

impl std::error::Error for Disorder {}

/// Sorts nearly sorted values.
#[derive(Debug)]
pub(super) struct Reorder<T> {
    waiting: VecDeque<(i64, T)>,
    given: i64,
    window: usize,
}

impl<T> Reorder<T> {
    /// Creates a window of `window` values.
    pub(super) fn with_window(window: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            given: i64::MIN,
            window,
        }
    }

    /// Adds the next value.
    ///
    /// # Errors
    /// Returns [`Disorder`] if it belongs before a value that was already returned.
    pub(super) fn push(&mut self, time: i64, value: T) -> Result<(), Disorder> {
        if time < self.given {
            return Err(Disorder);
        }
        // Nearly always at the end. The order of equal times is kept.
        if self.waiting.back().is_none_or(|(last, _)| *last <= time) {
            self.waiting.push_back((time, value));
            return Ok(());
        }
        let behind = self
            .waiting
            .iter()
            .rev()
            .take_while(|(other, _)| *other > time)
            .count();
        self.waiting
            .insert(self.waiting.len() - behind, (time, value));
        Ok(())
    }

    /// Whether the window is full, so that the first value can be returned.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() > self.window
    }

    /// Removes the first value.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (time, value) = self.waiting.pop_front()?;
        self.given = time;
        Some(value)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nearly_sorted_values_are_sorted() {
        let mut order = Reorder::with_window(2);
        let mut out = Vec::new();
        for (time, value) in [(1, 'a'), (3, 'c'), (2, 'b'), (3, 'd'), (5, 'f'), (4, 'e')] {
            order.push(time, value).unwrap();
            if order.is_full() {
                out.extend(order.pop());
            }
        }
        while let Some(value) = order.pop() {
            out.push(value);
        }
        assert_eq!(out.into_iter().collect::<String>(), "abcdef");
    }

    #[test]
    fn values_outside_the_window_are_an_error() {
        let mut order = Reorder::with_window(1);
        order.push(5, ()).unwrap();
        order.push(6, ()).unwrap();
        order.pop();
        assert_eq!(order.push(4, ()), Err(Disorder));
        assert_eq!(order.push(5, ()), Ok(()));
    }
}
