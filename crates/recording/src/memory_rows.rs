//! The memory events of a file, each with the call that made it, in the order in which they happened.

mod calls;
mod order;
mod row;

use std::collections::VecDeque;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use rusqlite::Rows;

use crate::Database;
use crate::row::{integer, text};
use calls::Calls;
use order::{Disorder, Reorder};

pub use calls::{CALLS, Counts};
pub use row::{MEMORY, MemoryRow, Origin, Trace};

/// In which order rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// As they stand in a recording of ours, which is the order of the ledger.
    AsRecorded,
    /// As they stand, put in the order of their times on the way.
    ByTime,
    /// Sorted by SQLite.
    Sorted,
}

impl Order {
    fn clause(self) -> &'static str {
        match self {
            Self::AsRecorded | Self::ByTime => "ORDER BY rowid",
            Self::Sorted => "ORDER BY start, rowid",
        }
    }
}

/// What a file has of memory, in order.
#[derive(Debug)]
pub enum Item<'a> {
    /// Something was allocated or freed, by this call.
    Row(&'a MemoryRow, Origin),
    /// The process with this global id has ended, at this time of the session.
    End(i64, i64),
    /// Everything comes again, for it was not in order.
    Again,
}

/// Whoever takes what a file has of memory.
pub trait Taker {
    /// Takes the next item; [`ControlFlow::Break`] if no more rows are wanted. Ends of processes still
    /// come then.
    ///
    /// # Errors
    /// Returns whatever the taker does not go on after.
    fn take(&mut self, item: Item<'_>) -> Result<ControlFlow<()>>;

    /// Whether [`Item::Again`] may come once something was taken. If not, the order of the rows is
    /// looked at first, which takes time.
    fn can_start_again(&self) -> bool;
}

/// What there is to say of all rows.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Rows that make no sense.
    pub malformed: u64,
    /// How often functions were called.
    pub calls: Counts,
}

/// Which calls are counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Those of this process only.
    pub pid: Option<u32>,
    /// Those that begin at or after this time, nanoseconds from the first memory event.
    pub from_ns: Option<i64>,
    /// Those that begin at or before this one.
    pub to_ns: Option<i64>,
}

/// Gives `taker` all memory events of `database`, of all processes.
///
/// # Errors
/// The file cannot be read, is of Nsight Systems and without memory events, or `taker` fails.
pub fn each(database: &Database, counted: Counted, taker: &mut dyn Taker) -> Result<Summary> {
    let order = if has_ledger(database)? {
        Order::AsRecorded
    } else if taker.can_start_again()
        || (is_sorted(database, MEMORY)? && is_sorted(database, CALLS)?)
    {
        Order::ByTime
    } else {
        Order::Sorted
    };
    match each_in(database, counted, taker, order) {
        Err(error) if error.is::<Disorder>() && order == Order::ByTime => {
            tracing::debug!("{}: {error}; sorting", database.path().display());
            let _ = taker.take(Item::Again)?;
            each_in(database, counted, taker, Order::Sorted)
        }
        done => done,
    }
}

/// Whether the memory events are those of our ledger; CUPTI's in a recording of ours are like those
/// of an export.
fn has_ledger(database: &Database) -> Result<bool> {
    let mut is_told_by_cupti = false;
    let source = "WHERE key = 'memory_events'";
    database.each("GPUPROBE_META", &["val"], source, |found| {
        is_told_by_cupti |= text(found, 0).as_deref() == Some("cupti");
    })?;
    Ok(database.is_ours() && !is_told_by_cupti)
}

/// Whether the rows of `table` can be put in order on the way.
fn is_sorted(database: &Database, table: &str) -> Result<bool> {
    let mut order = Reorder::default();
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
    counted: Counted,
    taker: &mut dyn Taker,
    order: Order,
) -> Result<Summary> {
    let mut ends = Ends::read(database)?;
    let Some(mut memory) = database.select(MEMORY, &row::COLUMNS, order.clause())? else {
        if database.is_ours() {
            return Ok(Summary::default());
        }
        bail!(
            "{} has no memory events: profile again with `nsys profile --cuda-memory-usage=true`",
            database.path().display()
        );
    };
    let mut calls = database.select(CALLS, &calls::COLUMNS, order.clause())?;
    let calls = calls
        .as_mut()
        .map(|statement| statement.query([]))
        .transpose();
    let rows = calls.map_err(|e| database.explain(e))?;
    let mut calls = Calls::new(database, rows, order, counted);
    let rows = memory.query([]).map_err(|e| database.explain(e))?;
    let mut events = Events {
        database,
        rows: Some(rows),
        waiting: Reorder::default(),
        order,
        malformed: 0,
    };
    while let Some(event) = events.next()? {
        calls.begin(event.start_ns);
        ends.give_before(&event, order, taker)?;
        let origin = calls.origin(&event)?;
        if taker.take(Item::Row(&event, origin))?.is_break() {
            break;
        }
    }
    ends.give_rest(taker)?;
    Ok(Summary {
        malformed: events.malformed,
        calls: calls.count_rest()?,
    })
}

struct Events<'a> {
    database: &'a Database,
    rows: Option<Rows<'a>>,
    waiting: Reorder<MemoryRow>,
    order: Order,
    malformed: u64,
}

impl Events<'_> {
    fn next(&mut self) -> Result<Option<MemoryRow>> {
        while !self.waiting.is_full() {
            let Some(rows) = &mut self.rows else { break };
            match rows.next().map_err(|e| self.database.explain(e))? {
                Some(row) => match MemoryRow::of(row) {
                    Some(event) if self.order == Order::ByTime => {
                        self.waiting.push(event.start_ns, event)?;
                    }
                    Some(event) => return Ok(Some(event)),
                    None => self.malformed += 1,
                },
                None => self.rows = None,
            }
        }
        Ok(self.waiting.pop())
    }
}

/// The end of a process.
struct End {
    /// The last call before it.
    after: i64,
    process: i64,
    time_ns: i64,
}

/// The ends of processes, which our own recordings have.
struct Ends(VecDeque<End>);

impl Ends {
    fn read(database: &Database) -> Result<Self> {
        let mut ends = VecDeque::new();
        let columns = ["correlationId", "globalPid", "t0"];
        database.each("GPUPROBE_ENDS", &columns, "ORDER BY rowid", |found| {
            let number = |index| integer(found, index);
            if let (Some(after), Some(process), Some(time_ns)) = (number(0), number(1), number(2)) {
                ends.push_back(End {
                    after,
                    process,
                    time_ns,
                });
            }
        })?;
        Ok(Self(ends))
    }

    /// Gives the ends of processes that ended before the call of `event` returned.
    fn give_before(
        &mut self,
        event: &MemoryRow,
        order: Order,
        taker: &mut dyn Taker,
    ) -> Result<()> {
        let is_before = |end: &mut End| match (order, event.correlation) {
            (Order::AsRecorded, Some(number)) => end.after < number,
            (Order::AsRecorded, None) => false,
            (Order::ByTime | Order::Sorted, _) => end.time_ns < event.start_ns,
        };
        while let Some(end) = self.0.pop_front_if(is_before) {
            let _ = taker.take(Item::End(end.process, end.time_ns))?;
        }
        Ok(())
    }

    fn give_rest(self, taker: &mut dyn Taker) -> Result<()> {
        for end in &self.0 {
            let _ = taker.take(Item::End(end.process, end.time_ns))?;
        }
        Ok(())
    }
}
