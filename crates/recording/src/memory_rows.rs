//! Memory events of a file in the order of their times, each with its API call.

mod ahead;
mod calls;
mod order;
mod row;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use rusqlite::Rows;

use crate::Database;
use crate::row::{integer, text};
use calls::CallRows;
use gpuprobe_os::progress::Pass;
use order::{Reorder, WINDOW};

pub use calls::{CALLS, Counts};
pub use row::{MEMORY, MemoryRow, OriginatingCall, Trace};

/// Order in which rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Row order of a recording, which is the order of the ledger.
    AsRecorded,
    /// Row order, sorted by time while reading, in a window.
    ByTime,
    /// Sorted by SQLite, by time and row.
    Sorted,
}

impl Order {
    fn clause(self) -> &'static str {
        match self {
            Self::AsRecorded | Self::ByTime => "ORDER BY rowid",
            Self::Sorted => "ORDER BY start, rowid",
        }
    }

    /// Sorts the rows of a table while they are read.
    fn reorder<T>(self) -> Reorder<T> {
        Reorder::with_window(match self {
            Self::ByTime => WINDOW,
            Self::AsRecorded | Self::Sorted => 0,
        })
    }
}

/// A memory event or process exit.
#[derive(Debug)]
pub enum MemoryItem {
    /// An allocation or free, with its API call.
    Row(MemoryRow, OriginatingCall),
    /// An invalid row.
    Malformed,
    /// Exit of a process: global id, session time.
    End(i64, i64),
}

/// Consumer of memory events.
pub trait RowSink {
    /// Processes the next item. After [`ControlFlow::Break`], only process exits follow.
    ///
    /// # Errors
    /// Returns an error to stop reading.
    fn take(&mut self, item: MemoryItem) -> Result<ControlFlow<()>>;
}

/// Filter of the calls that are counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallFilter {
    /// Only calls of this process.
    pub pid: Option<u32>,
    /// Only calls that start at or after this time, nanoseconds from the first memory event.
    pub from_ns: Option<i64>,
    /// Only calls that start at or before this time, nanoseconds from the first memory event.
    pub to_ns: Option<i64>,
}

/// Passes all memory events of `database`, of all processes, to `sink`. They are read by another thread.
/// Returns the numbers of calls.
///
/// # Errors
/// Returns an error if the file cannot be read, is an nsys export without memory events, or if
/// `sink` fails.
pub fn each(database: &Database, counted: CallFilter, sink: &mut dyn RowSink) -> Result<Counts> {
    ahead::each(database, counted, sink)
}

/// Passes all memory events to `sink`, in the best order that is possible.
fn in_order(database: &Database, counted: CallFilter, sink: &mut dyn RowSink) -> Result<Counts> {
    let order = if has_ledger(database)? {
        Order::AsRecorded
    } else if is_sorted(database, MEMORY)? && is_sorted(database, CALLS)? {
        Order::ByTime
    } else {
        Order::Sorted
    };
    each_in(database, counted, sink, order)
}

/// Whether the memory events come from gpuprobe's ledger; memory events from CUPTI in a recording
/// are treated like those of an export.
fn has_ledger(database: &Database) -> Result<bool> {
    let mut is_from_cupti = false;
    let source = "WHERE key = 'memory_events'";
    database.each("GPUPROBE_META", &["val"], source, |found| {
        is_from_cupti |= text(found, 0).as_deref() == Some("cupti");
    })?;
    Ok(database.is_ours() && !is_from_cupti)
}

/// Whether the rows of `table` can be sorted while reading.
fn is_sorted(database: &Database, table: &str) -> Result<bool> {
    let mut order = Reorder::with_window(WINDOW);
    let mut is_sorted = true;
    database.each(table, &["start"], "ORDER BY rowid", |found| {
        if let Some(start) = integer(found, 0) {
            is_sorted &= order.push(start, ()).is_ok();
            if order.is_full() {
                order.pop();
            }
        }
    })?;
    Ok(is_sorted)
}

fn each_in(
    database: &Database,
    counted: CallFilter,
    sink: &mut dyn RowSink,
    order: Order,
) -> Result<Counts> {
    let mut ends = ProcessEnds::read(database)?;
    let columns = (&row::NUMBERS[..], &[row::NAME][..]);
    let Some(mut memory) = database.select_numbers(MEMORY, columns, order.clause())? else {
        if database.is_ours() {
            ends.give_rest(sink)?;
            return Ok(Counts::default());
        }
        bail!(
            "{} has no memory events: profile again with `nsys profile --cuda-memory-usage=true`",
            database.path().display()
        );
    };
    let mut calls = database.select_numbers(CALLS, (&calls::NUMBERS, &[]), order.clause())?;
    let calls = calls
        .as_mut()
        .map(|statement| statement.query([]))
        .transpose();
    let rows = calls.map_err(|e| database.explain(e))?;
    let pass = database.pass("memory events", &[MEMORY, CALLS]);
    let mut calls = CallRows::new(database, (rows, &pass), order, counted);
    let rows = memory.query([]).map_err(|e| database.explain(e))?;
    let mut events = MemoryEventRows {
        database,
        rows: Some(rows),
        pass: &pass,
        waiting: order.reorder(),
        order,
    };
    while let Some(event) = events.next(sink)? {
        calls.begin(event.start_ns);
        ends.give_before(&event, order, sink)?;
        let origin = calls.origin(&event)?;
        if sink.take(MemoryItem::Row(event, origin))?.is_break() {
            break;
        }
    }
    ends.give_rest(sink)?;
    calls.count_rest()
}

struct MemoryEventRows<'a> {
    database: &'a Database,
    rows: Option<Rows<'a>>,
    pass: &'a Pass<'a>,
    waiting: Reorder<MemoryRow>,
    order: Order,
}

impl MemoryEventRows<'_> {
    fn next(&mut self, sink: &mut dyn RowSink) -> Result<Option<MemoryRow>> {
        while !self.waiting.is_full() {
            let Some(rows) = &mut self.rows else { break };
            let Some(row) = rows.next().map_err(|e| self.database.explain(e))? else {
                self.rows = None;
                break;
            };
            self.pass.step();
            match MemoryRow::of(row) {
                Some(event) if self.order == Order::ByTime => {
                    self.waiting.push(event.start_ns, event)?;
                }
                Some(event) => return Ok(Some(event)),
                None => {
                    let _ = sink.take(MemoryItem::Malformed)?;
                }
            }
        }
        Ok(self.waiting.pop())
    }
}

/// Exit of a process.
struct ProcessEnd {
    /// Correlation id of the last call before it.
    after: i64,
    process: i64,
    time_ns: i64,
}

/// Process exits, which only recordings have.
struct ProcessEnds(VecDeque<ProcessEnd>);

impl ProcessEnds {
    fn read(database: &Database) -> Result<Self> {
        let mut ends = VecDeque::new();
        let columns = ["correlationId", "globalPid", "t0"];
        database.each("GPUPROBE_ENDS", &columns, "ORDER BY rowid", |found| {
            let number = |index| integer(found, index);
            if let (Some(after), Some(process), Some(time_ns)) = (number(0), number(1), number(2)) {
                ends.push_back(ProcessEnd {
                    after,
                    process,
                    time_ns,
                });
            }
        })?;
        Ok(Self(ends))
    }

    /// Passes on exits that precede the return of the call of `event`.
    fn give_before(
        &mut self,
        event: &MemoryRow,
        order: Order,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let is_before = |end: &mut ProcessEnd| match (order, event.correlation) {
            (Order::AsRecorded, Some(number)) => end.after < number,
            (Order::AsRecorded, None) => false,
            (Order::ByTime | Order::Sorted, _) => end.time_ns < event.start_ns,
        };
        while let Some(end) = self.0.pop_front_if(is_before) {
            let _ = sink.take(MemoryItem::End(end.process, end.time_ns))?;
        }
        Ok(())
    }

    fn give_rest(self, sink: &mut dyn RowSink) -> Result<()> {
        for end in &self.0 {
            let _ = sink.take(MemoryItem::End(end.process, end.time_ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
