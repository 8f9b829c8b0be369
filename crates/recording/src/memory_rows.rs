//! Memory events of a file in the order of their times, each with its API call.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use hashbrown::HashMap;
use rusqlite::{Row, Statement};

use crate::row::{integer, text};
use crate::{Database, ids};
use gpuprobe_cuda::nsys::class;
use gpuprobe_os::progress::Pass;

/// Table of memory events.
pub const MEMORY: &str = "CUDA_GPU_MEMORY_USAGE_EVENTS";
/// Table of API calls.
pub const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Columns of [`MEMORY`], in the order of [`MemoryRow::of`].
const MEMORY_COLUMNS: &str = "start, globalPid, deviceId, address, bytes, memKind, memoryOperationType, \
     correlationId, name";
/// Columns of [`CALLS`], in the order of [`CallRow::of`].
const CALL_COLUMNS: &str =
    "start, end, eventClass, globalTid, correlationId, nameId, callchainId, returnValue";

/// Filter of the rows that are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowFilter {
    /// Only rows of this process.
    pub pid: Option<u32>,
    /// Only rows of this device, and rows without a device.
    pub device: Option<i64>,
    /// Only calls that start at or after this time, nanoseconds from the first memory event.
    pub from_ns: Option<i64>,
    /// Only calls that start at or before this time, nanoseconds from the first memory event.
    pub to_ns: Option<i64>,
}

/// A memory event or process exit.
#[derive(Debug)]
pub enum MemoryItem {
    /// An allocation or free, with its API call.
    Row(MemoryRow, OriginatingCall),
    /// Exit of a process: global id, session time.
    End(i64, i64),
}

/// An allocation or free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRow {
    /// Session time of the event, nanoseconds.
    pub start_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// Index of the device.
    pub device: i64,
    /// Address of the allocation.
    pub address: u64,
    /// Size of the allocation, bytes.
    pub bytes: u64,
    /// Number of the memory kind.
    pub kind: u8,
    /// It is an allocation.
    pub allocates: bool,
    /// Name of the variable, for static memory.
    pub variable: Option<Box<str>>,
    /// Correlation id of the API call.
    pub correlation: Option<i64>,
}

impl MemoryRow {
    /// Reads a row; `None` if it is invalid.
    fn of(row: &Row<'_>) -> Option<Self> {
        let kind = integer(row, 5).and_then(|kind| u8::try_from(kind).ok());
        Some(Self {
            start_ns: integer(row, 0)?,
            process: integer(row, 1)?,
            device: integer(row, 2).unwrap_or(0),
            address: integer(row, 3)?.cast_unsigned(),
            bytes: u64::try_from(integer(row, 4)?).ok()?,
            kind: kind.unwrap_or(7),
            allocates: match integer(row, 6)? {
                0 => true,
                1 => false,
                _ => return None,
            },
            variable: text(row, 8)
                .filter(|name| !name.is_empty())
                .map(String::into_boxed_str),
            correlation: integer(row, 7).filter(|&id| id != 0),
        })
    }
}

gpuprobe_cuda::named! {
    /// Call stack information of a memory event.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Trace {
        /// A call with a call stack.
        Valid = "valid",
        /// A call without a call stack.
        #[default]
        Invalid = "invalid",
        /// A direct driver call without a call stack.
        Driver = "driver",
    }
}

/// The API call of a memory event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginatingCall {
    /// Whether the call has a call stack.
    pub trace: Trace,
    /// `callchainId` of the call stack.
    pub chain: Option<i64>,
    /// `nameId` of the function.
    pub function: Option<i64>,
    /// Global id of the thread.
    pub thread: Option<i64>,
}

/// Numbers of successful and failed calls by `nameId`. Driver calls nested in runtime calls are not
/// counted.
pub type Counts = HashMap<i64, [u64; 2]>;

/// Passes all memory events of `database`, of all processes, to `take`. After [`ControlFlow::Break`], only process
/// exits follow. Returns the numbers of calls and of invalid rows.
///
/// # Errors
/// Returns an error if the file cannot be read, is an nsys export without memory events, or if
/// `take` fails.
pub fn each(
    database: &Database,
    counted: RowFilter,
    take: &mut dyn FnMut(MemoryItem) -> Result<ControlFlow<()>>,
) -> Result<(Counts, u64)> {
    let mut ends = VecDeque::new();
    database.each("GPUPROBE_ENDS", "globalPid, t0", "", |found| {
        ends.extend(integer(found, 0).zip(integer(found, 1)));
    })?;
    let mut memory = database.select(MEMORY, MEMORY_COLUMNS, order(database, MEMORY)?)?;
    if memory.is_none() && !database.is_ours() {
        bail!(
            "{} has no memory events: profile again with `nsys profile --cuda-memory-usage=true`",
            database.path().display()
        );
    }
    let mut calls = database.select(CALLS, CALL_COLUMNS, order(database, CALLS)?)?;
    let pass = database.pass("memory events", &[MEMORY, CALLS]);
    let calls = rows(database, calls.as_mut(), &pass, CallRow::of)?;
    let mut calls = CallRows {
        rows: calls.filter_map(Result::transpose).peekable(),
        is_ours: database.is_ours(),
        open: Vec::new(),
        busy_until: HashMap::new(),
        counted,
        first_ns: None,
        counts: Counts::new(),
    };
    let mut malformed = 0;
    for event in rows(database, memory.as_mut(), &pass, MemoryRow::of)? {
        let Some(event) = event? else {
            malformed += 1;
            continue;
        };
        calls.first_ns.get_or_insert(event.start_ns);
        while let Some((process, time_ns)) = ends.pop_front_if(|end| end.1 < event.start_ns) {
            let _ = take(MemoryItem::End(process, time_ns))?;
        }
        let origin = calls.origin(&event)?;
        if take(MemoryItem::Row(event, origin))?.is_break() {
            break;
        }
    }
    for (process, time_ns) in ends {
        let _ = take(MemoryItem::End(process, time_ns))?;
    }
    if database.has_table(MEMORY) {
        while let Some(call) = calls.next_if(|_| true)? {
            calls.count(&call);
        }
    }
    Ok((calls.counts, malformed))
}

/// The clause by which the rows of `table` come in the order of their times: those of exports do, and sorting them again
/// takes as long as reading them.
fn order(database: &Database, table: &str) -> Result<&'static str> {
    let (mut last, mut is_sorted) = (None, true);
    database.each(table, "start", "ORDER BY rowid", |row| {
        let start = integer(row, 0);
        is_sorted &= last <= start;
        last = start;
    })?;
    Ok(match is_sorted {
        true => "ORDER BY rowid",
        false => "ORDER BY start, rowid",
    })
}

/// The rows of a table as `read` gives them: `None` for one that is invalid.
fn rows<T>(
    database: &Database,
    statement: Option<&mut Statement<'_>>,
    pass: &Pass<'_>,
    read: fn(&Row<'_>) -> Option<T>,
) -> Result<impl Iterator<Item = Result<Option<T>>>> {
    let read = move |row: &Row<'_>| {
        pass.step();
        Ok(read(row))
    };
    let explain = |error| database.explain(error);
    let rows = statement.map(|statement| statement.query_map([], read));
    let rows = rows.transpose().map_err(explain)?;
    Ok(rows
        .into_iter()
        .flatten()
        .map(move |row| row.map_err(explain)))
}

/// A row of the table of API calls.
#[derive(Clone, Copy, Debug)]
struct CallRow {
    start_ns: i64,
    end_ns: i64,
    class: i64,
    thread: i64,
    correlation: i64,
    function: Option<i64>,
    chain: Option<i64>,
    has_failed: bool,
}

impl CallRow {
    fn of(row: &Row<'_>) -> Option<Self> {
        Some(Self {
            start_ns: integer(row, 0)?,
            end_ns: integer(row, 1)?,
            class: integer(row, 2)?,
            thread: integer(row, 3)?,
            correlation: integer(row, 4).unwrap_or(0),
            function: integer(row, 5),
            chain: integer(row, 6),
            has_failed: integer(row, 7).is_some_and(|result| result != 0),
        })
    }

    /// Quality of the row as the call of an event; the highest is used.
    fn rank(&self) -> u8 {
        match self.class {
            class::BACKTRACE => 3,
            class::DRIVER => 2,
            class::RUNTIME => 1,
            _ => 0,
        }
    }

    fn origin(&self) -> OriginatingCall {
        OriginatingCall {
            trace: match self.class {
                class::BACKTRACE => Trace::Valid,
                class::DRIVER => Trace::Driver,
                _ if self.chain.is_some() => Trace::Valid,
                _ => Trace::Invalid,
            },
            chain: self.chain,
            function: self.function,
            thread: Some(self.thread),
        }
    }
}

/// API calls of a file in order, read in parallel with its memory events.
struct CallRows<I: Iterator> {
    rows: Peekable<I>,
    /// Events without a correlation id have no call, unlike in exports.
    is_ours: bool,
    /// Calls that later events may belong to.
    open: Vec<CallRow>,
    /// End of the last runtime call, by thread.
    busy_until: HashMap<i64, i64>,
    counted: RowFilter,
    /// Time of the first event.
    first_ns: Option<i64>,
    counts: Counts,
}

impl<I: Iterator<Item = Result<CallRow>>> CallRows<I> {
    /// The API call of `event`: the best of those around it, with its correlation id, if it has one.
    fn origin(&mut self, event: &MemoryRow) -> Result<OriginatingCall> {
        self.open.retain(|call| call.end_ns >= event.start_ns);
        while let Some(call) = self.next_if(|call| call.start_ns <= event.start_ns)? {
            self.count(&call);
            if call.end_ns >= event.start_ns {
                self.open.push(call);
            }
        }
        let around = self.open.iter().filter(|call| {
            let agrees = match event.correlation {
                Some(number) => call.correlation == number,
                None => !self.is_ours,
            };
            agrees && ids::process_of(call.thread) == event.process
        });
        let best = around.max_by_key(|call| (call.rank(), call.start_ns));
        Ok(best.map_or(OriginatingCall::default(), CallRow::origin))
    }

    /// Adds `call` to the counts.
    fn count(&mut self, call: &CallRow) {
        match call.class {
            class::RUNTIME => drop(self.busy_until.insert(call.thread, call.end_ns)),
            class::DRIVER => {
                let runtime = self.busy_until.get(&call.thread);
                if runtime.is_some_and(|&end_ns| call.start_ns < end_ns) {
                    return;
                }
            }
            _ => return,
        }
        let wanted = self.counted;
        let time_ns = call.start_ns.saturating_sub(self.first_ns.unwrap_or(0));
        if let Some(function) = call.function
            && wanted.pid.is_none_or(|pid| pid == ids::pid(call.thread))
            && wanted.from_ns.is_none_or(|from| time_ns >= from)
            && wanted.to_ns.is_none_or(|to| time_ns <= to)
        {
            let [succeeded, failed] = self.counts.entry(function).or_default();
            *(if call.has_failed { failed } else { succeeded }) += 1;
        }
    }

    /// Removes the next call if it is one that `is_wanted`, or cannot be read.
    fn next_if(&mut self, is_wanted: impl FnOnce(&CallRow) -> bool) -> Result<Option<CallRow>> {
        let is_next = |call: &Result<CallRow>| call.as_ref().map_or(true, is_wanted);
        self.rows.next_if(is_next).transpose()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
