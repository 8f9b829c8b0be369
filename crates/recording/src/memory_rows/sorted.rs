//! Rows of a table in the order of their times.
//!
//! Exports are sorted, or nearly so: rows are displaced by a few places at most, and sorted while they are read.
//! Where they are displaced by more, SQLite sorts them.

use std::collections::VecDeque;

use anyhow::Result;
use rusqlite::{Row, Rows, Statement};

use super::{CALLS, MEMORY};
use crate::Database;
use crate::row::integer;
use gpuprobe_os::progress::Pass;

/// Number of rows in the sorting window.
pub(super) const WINDOW: usize = 1 << 14;

/// The clause by which rows come nearly sorted: in the order of the rows, if that is near.
pub(super) fn order(database: &Database) -> Result<&'static str> {
    if let Some(known) = database.order.get() {
        return Ok(known);
    }
    let order = match is_near(database, MEMORY)? && is_near(database, CALLS)? {
        true => "ORDER BY rowid",
        false => "ORDER BY start, rowid",
    };
    Ok(database.order.get_or_init(|| order))
}

/// Whether the rows of `table` can be sorted while reading.
pub(super) fn is_near(database: &Database, table: &str) -> Result<bool> {
    let mut order = Reorder::new(WINDOW);
    let mut is_near = true;
    database.each(table, &["start"], "ORDER BY rowid", |found| {
        if let Some(start) = integer(found, 0) {
            is_near &= order.push(start, ());
            if order.is_full() {
                order.pop();
            }
        }
    })?;
    Ok(is_near)
}

/// Rows that are sorted while they are read.
pub(super) struct SortedRows<'a, T> {
    database: &'a Database,
    rows: Option<Rows<'a>>,
    pass: &'a Pass<'a>,
    /// Time and content of a row; `None` if it is invalid.
    read: fn(&Row<'_>) -> Option<(i64, T)>,
    waiting: Reorder<T>,
    /// Number of invalid rows so far.
    pub(super) malformed: u64,
}

impl<'a, T> SortedRows<'a, T> {
    pub(super) fn new(
        database: &'a Database,
        statement: Option<&'a mut Statement<'_>>,
        pass: &'a Pass<'a>,
        read: fn(&Row<'_>) -> Option<(i64, T)>,
    ) -> Result<Self> {
        let rows = statement.map(|statement| statement.query([])).transpose();
        Ok(Self {
            database,
            rows: rows.map_err(|error| database.explain(error))?,
            pass,
            read,
            waiting: Reorder::new(WINDOW),
            malformed: 0,
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<T>> {
        while !self.waiting.is_full()
            && let Some(rows) = &mut self.rows
        {
            let row = rows.next().map_err(|error| self.database.explain(error))?;
            let Some(row) = row else {
                self.rows = None;
                break;
            };
            self.pass.step();
            match (self.read)(row) {
                Some((time_ns, value)) => drop(self.waiting.push(time_ns, value)),
                None => self.malformed += 1,
            }
        }
        Ok(self.waiting.pop())
    }
}

/// Sorts nearly sorted values.
#[derive(Debug)]
struct Reorder<T> {
    waiting: VecDeque<(i64, T)>,
    given: i64,
    window: usize,
}

impl<T> Reorder<T> {
    /// A window of `window` values.
    fn new(window: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            given: i64::MIN,
            window,
        }
    }

    /// Adds the next value, unless it belongs before a value that was already returned. Returns whether it was added.
    fn push(&mut self, time: i64, value: T) -> bool {
        if time < self.given {
            return false;
        }
        // Nearly always at the end. The order of equal times is kept.
        if self.waiting.back().is_none_or(|(last, _)| *last <= time) {
            self.waiting.push_back((time, value));
            return true;
        }
        let later = self.waiting.iter().rev();
        let behind = later.take_while(|(other, _)| *other > time).count();
        let place = self.waiting.len() - behind;
        self.waiting.insert(place, (time, value));
        true
    }

    /// Whether the window is full, so that the first value can be returned.
    fn is_full(&self) -> bool {
        self.waiting.len() > self.window
    }

    /// Removes the first value.
    fn pop(&mut self) -> Option<T> {
        let (time, value) = self.waiting.pop_front()?;
        self.given = time;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_sorted_values_are_sorted() {
        let mut order = Reorder::new(2);
        let mut out = Vec::new();
        for (time, value) in [(1, 'a'), (3, 'c'), (2, 'b'), (3, 'd'), (5, 'f'), (4, 'e')] {
            assert!(order.push(time, value));
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
    fn values_outside_the_window_are_not_added() {
        let mut order = Reorder::new(1);
        assert!(order.push(5, ()));
        assert!(order.push(6, ()));
        order.pop();
        assert!(!order.push(4, ()));
        assert!(order.push(5, ()));
    }
}
