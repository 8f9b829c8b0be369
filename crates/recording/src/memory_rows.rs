//! Memory events of a file in the order of their times, each with its API call.

mod calls;
mod row;
mod sorted;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use anyhow::{Result, bail};

use crate::Database;
use crate::row::integer;
use calls::{CallRow, CallRows};
use sorted::{SortedRows, order};

pub use calls::{CALLS, Counts};
pub use row::{MEMORY, MemoryRow, OriginatingCall, Trace};

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

/// Passes all memory events of `database`, of all processes, to `sink`. Returns the numbers of calls.
///
/// # Errors
/// Returns an error if the file cannot be read, is an nsys export without memory events, or if
/// `sink` fails.
pub fn each(database: &Database, counted: CallFilter, sink: &mut dyn RowSink) -> Result<Counts> {
    let mut ends = process_ends(database)?;
    let order = order(database)?;
    let mut memory = database.select_numbers(MEMORY, row::NUMBERS, &[row::NAME], order)?;
    if memory.is_none() && !database.is_ours() {
        bail!(
            "{} has no memory events: profile again with `nsys profile --cuda-memory-usage=true`",
            database.path().display()
        );
    }
    let mut calls = database.select_numbers(CALLS, calls::NUMBERS, &[], order)?;
    let pass = database.pass("memory events", &[MEMORY, CALLS]);
    let calls = SortedRows::new(database, calls.as_mut(), &pass, |row| {
        CallRow::of(row).map(|call| (call.start_ns, call))
    })?;
    let mut calls = CallRows::new(calls, database.is_ours(), counted);
    let mut events = SortedRows::new(database, memory.as_mut(), &pass, |row| {
        MemoryRow::of(row).map(|event| (event.start_ns, event))
    })?;
    while let Some(event) = events.next()? {
        calls.begin(event.start_ns);
        while let Some((process, time_ns)) = ends.pop_front_if(|end| end.1 < event.start_ns) {
            let _ = sink.take(MemoryItem::End(process, time_ns))?;
        }
        let origin = calls.origin(&event)?;
        if sink.take(MemoryItem::Row(event, origin))?.is_break() {
            break;
        }
    }
    for _ in 0..events.malformed {
        let _ = sink.take(MemoryItem::Malformed)?;
    }
    for (process, time_ns) in ends {
        let _ = sink.take(MemoryItem::End(process, time_ns))?;
    }
    match database.has_table(MEMORY) {
        true => calls.count_rest(),
        false => Ok(Counts::new()),
    }
}

/// Exits of processes (global id, session time), which only recordings have.
fn process_ends(database: &Database) -> Result<VecDeque<(i64, i64)>> {
    let mut ends = VecDeque::new();
    database.each("GPUPROBE_ENDS", &["globalPid", "t0"], "", |found| {
        ends.extend(integer(found, 0).zip(integer(found, 1)));
    })?;
    Ok(ends)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
