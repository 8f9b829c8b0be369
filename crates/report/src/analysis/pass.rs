//! One pass over the memory events of a file.

use std::collections::VecDeque;

use anyhow::{Result, bail};
use rusqlite::Rows;

use super::Selection;
use super::calls::{CALL_COLUMNS, CALLS, Calls};
use super::events::{MEMORY, MEMORY_COLUMNS, MemoryEvent, Origin};
use super::order::{Disorder, Reorder};
use super::tracker::{Change, Tracker};
use gpuprobe_recording::{Database, row};

/// In which order rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
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

/// Sees every change of what is live.
pub trait Visitor {
    /// Something has changed what is live in `tracker`.
    ///
    /// # Errors
    /// Those of where the visitor writes to.
    fn change(&mut self, change: &Change, tracker: &Tracker) -> Result<()>;

    /// An event was read that is selected, whatever it changed.
    ///
    /// # Errors
    /// Those of where the visitor writes to.
    fn event(&mut self, event: &MemoryEvent, origin: &Origin) -> Result<()> {
        let _ = (event, origin);
        Ok(())
    }

    /// Whether the visitor can begin again after it has seen something. If not, the order of the
    /// rows is looked at first, which takes time.
    fn can_restart(&self) -> bool {
        false
    }

    /// Everything begins again: the rows were not in order.
    ///
    /// # Errors
    /// Those of where the visitor writes to.
    fn restart(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Sees nothing.
impl Visitor for () {
    fn change(&mut self, _: &Change, _: &Tracker) -> Result<()> {
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }
}

/// Reads all memory events of `database` that `selection` names.
///
/// # Errors
/// Those of the file and of the visitor; there are no memory events.
pub fn pass(
    database: &Database,
    selection: &Selection,
    visitor: &mut dyn Visitor,
) -> Result<Tracker> {
    let order = if has_ledger(database)? {
        Order::AsRecorded
    } else if visitor.can_restart() || (is_sorted(database, MEMORY)? && is_sorted(database, CALLS)?)
    {
        Order::ByTime
    } else {
        Order::Sorted
    };
    match pass_in(database, selection, visitor, order) {
        Err(error) if error.is::<Disorder>() && order == Order::ByTime => {
            tracing::debug!("{}: {error}; sorting", database.path().display());
            visitor.restart()?;
            pass_in(database, selection, visitor, Order::Sorted)
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
        is_told_by_cupti |= row::text(found, 0).as_deref() == Some("cupti");
    })?;
    Ok(database.is_ours() && !is_told_by_cupti)
}

/// Whether the rows of `table` can be put in order on the way.
fn is_sorted(database: &Database, table: &str) -> Result<bool> {
    let mut order = Reorder::default();
    let mut is_sorted = true;
    database.each(table, &["start"], "ORDER BY rowid", |found| {
        if let Some(start) = row::integer(found, 0) {
            is_sorted &= order.push(start, ()).is_ok();
            if order.is_full() {
                order.pop();
            }
        }
    })?;
    Ok(is_sorted)
}

fn pass_in(
    database: &Database,
    selection: &Selection,
    visitor: &mut dyn Visitor,
    order: Order,
) -> Result<Tracker> {
    let mut tracker = Tracker::new(*selection);
    let mut ends = Ends::read(database)?;
    let Some(mut memory) = database.select(MEMORY, &MEMORY_COLUMNS, order.clause())? else {
        if database.is_ours() {
            return Ok(tracker);
        }
        bail!(
            "{} has no memory events: profile again with `nsys profile --cuda-memory-usage=true`",
            database.path().display()
        );
    };
    let mut calls = database.select(CALLS, &CALL_COLUMNS, order.clause())?;
    let calls = calls
        .as_mut()
        .map(|statement| statement.query([]))
        .transpose();
    let mut calls = Calls::new(database, calls.map_err(|e| database.explain(e))?, order);
    let rows = memory.query([]).map_err(|e| database.explain(e))?;
    let mut events = Events {
        database,
        rows: Some(rows),
        waiting: Reorder::default(),
        order,
        malformed: 0,
    };
    while let Some(event) = events.next()? {
        match order {
            Order::AsRecorded => ends.apply_before(&event, &mut tracker, visitor)?,
            Order::ByTime | Order::Sorted => {
                ends.apply_until(event.start_ns.saturating_sub(1), &mut tracker, visitor)?;
            }
        }
        if tracker.is_beyond(&event) {
            break;
        }
        let origin = calls.origin(&event)?;
        if selection.includes(&event) {
            visitor.event(&event, &origin)?;
        }
        if let Some(change) = tracker.apply(&event, origin) {
            visitor.change(&change, &tracker)?;
        }
    }
    if let Some(from) = tracker.from_ns() {
        ends.apply_until(from, &mut tracker, visitor)?;
    }
    tracker.finish();
    ends.apply_rest(&mut tracker, visitor)?;
    tracker.findings.malformed = events.malformed;
    Ok(tracker)
}

struct Events<'a> {
    database: &'a Database,
    rows: Option<Rows<'a>>,
    waiting: Reorder<MemoryEvent>,
    order: Order,
    malformed: u64,
}

impl Events<'_> {
    fn next(&mut self) -> Result<Option<MemoryEvent>> {
        while !self.waiting.is_full() {
            let Some(rows) = &mut self.rows else { break };
            match rows.next().map_err(|e| self.database.explain(e))? {
                Some(row) => match MemoryEvent::of(row) {
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
            let number = |index| row::integer(found, index);
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

    /// Ends the processes that ended before the call of `event` returned.
    fn apply_before(
        &mut self,
        event: &MemoryEvent,
        tracker: &mut Tracker,
        visitor: &mut dyn Visitor,
    ) -> Result<()> {
        let Some(number) = event.correlation else {
            return Ok(());
        };
        while let Some(end) = self.0.pop_front_if(|end| end.after < number) {
            end.apply(tracker, visitor)?;
        }
        Ok(())
    }

    /// Ends the processes that ended by `time_ns` of the session.
    fn apply_until(
        &mut self,
        time_ns: i64,
        tracker: &mut Tracker,
        visitor: &mut dyn Visitor,
    ) -> Result<()> {
        while let Some(end) = self.0.pop_front_if(|end| end.time_ns <= time_ns) {
            end.apply(tracker, visitor)?;
        }
        Ok(())
    }

    fn apply_rest(self, tracker: &mut Tracker, visitor: &mut dyn Visitor) -> Result<()> {
        let to = tracker.to_ns();
        self.0
            .iter()
            .filter(|end| to.is_none_or(|to| end.time_ns <= to))
            .try_for_each(|end| end.apply(tracker, visitor))
    }
}

impl End {
    fn apply(&self, tracker: &mut Tracker, visitor: &mut dyn Visitor) -> Result<()> {
        tracker.end(self.process, self.time_ns, |change, tracker| {
            visitor.change(change, tracker)
        })
    }
}
