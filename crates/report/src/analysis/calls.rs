//! The calls behind memory events, read side by side with them.

use anyhow::Result;
use rusqlite::{Row, Rows};

use super::events::{MemoryEvent, Origin, Trace};
use super::order::Reorder;
use super::pass::Order;
use gpuprobe_cuda::nsys::class;
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, ids};

/// The table of calls.
pub const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Its columns, as [`Call::of`] expects them.
pub const CALL_COLUMNS: [&str; 7] = [
    "start",
    "end",
    "eventClass",
    "globalTid",
    "correlationId",
    "nameId",
    "callchainId",
];

/// A row of the table of calls.
#[derive(Clone, Copy, Debug)]
struct Call {
    start_ns: i64,
    end_ns: i64,
    class: i64,
    thread: i64,
    correlation: i64,
    function: Option<i64>,
    chain: Option<i64>,
}

impl Call {
    fn of(row: &Row<'_>) -> Option<Self> {
        Some(Self {
            start_ns: integer(row, 0)?,
            end_ns: integer(row, 1)?,
            class: integer(row, 2)?,
            thread: integer(row, 3)?,
            correlation: integer(row, 4).unwrap_or(0),
            function: integer(row, 5),
            chain: integer(row, 6),
        })
    }

    /// How well a row tells about an event; of several, the best is taken.
    fn rank(&self) -> u8 {
        match self.class {
            class::BACKTRACE => 3,
            class::DRIVER => 2,
            class::RUNTIME => 1,
            _ => 0,
        }
    }

    fn origin(&self) -> Origin {
        Origin {
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

    /// Whether `event` happened within this call.
    fn surrounds(&self, event: &MemoryEvent) -> bool {
        ids::process_of(self.thread) == event.process
            && self.start_ns <= event.start_ns
            && event.start_ns <= self.end_ns
    }
}

/// The calls of a file, from the first to the last.
pub(super) struct Calls<'a> {
    database: &'a Database,
    rows: Option<Rows<'a>>,
    order: Order,
    waiting: Reorder<Call>,
    next: Option<Call>,
    /// Calls that an event may still belong to.
    open: Vec<Call>,
}

impl<'a> Calls<'a> {
    pub(super) fn new(database: &'a Database, rows: Option<Rows<'a>>, order: Order) -> Self {
        Self {
            database,
            rows,
            order,
            waiting: Reorder::default(),
            next: None,
            open: Vec::new(),
        }
    }

    /// The call that `event` belongs to.
    pub(super) fn origin(&mut self, event: &MemoryEvent) -> Result<Origin> {
        let best = match self.order {
            Order::AsRecorded => self.by_number(event)?,
            Order::ByTime | Order::Sorted => self.by_time(event)?,
        };
        Ok(best.map_or(Origin::default(), |call| call.origin()))
    }

    /// In our own recordings calls are numbered in the order of their rows.
    fn by_number(&mut self, event: &MemoryEvent) -> Result<Option<Call>> {
        let Some(wanted) = event.correlation else {
            return Ok(None);
        };
        self.open.retain(|call| call.correlation == wanted);
        while let Some(call) = self.peek()? {
            if call.correlation > wanted {
                break;
            }
            self.next = None;
            if call.correlation == wanted {
                self.open.push(call);
            }
        }
        Ok(self.open.iter().copied().max_by_key(Call::rank))
    }

    /// Elsewhere an event lies within its call; the number, if there is one, must agree.
    fn by_time(&mut self, event: &MemoryEvent) -> Result<Option<Call>> {
        self.open.retain(|call| call.end_ns >= event.start_ns);
        while let Some(call) = self.peek()? {
            if call.start_ns > event.start_ns {
                break;
            }
            self.next = None;
            if call.end_ns >= event.start_ns {
                self.open.push(call);
            }
        }
        let agrees = |call: &&Call| match event.correlation {
            Some(number) => call.correlation == number,
            None => true,
        };
        let around = self
            .open
            .iter()
            .filter(|call| call.surrounds(event))
            .filter(agrees);
        Ok(around
            .copied()
            .max_by_key(|call| (call.rank(), call.start_ns)))
    }

    fn peek(&mut self) -> Result<Option<Call>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next)
    }

    fn read(&mut self) -> Result<Option<Call>> {
        while !self.waiting.is_full() {
            let Some(rows) = &mut self.rows else { break };
            match rows.next().map_err(|e| self.database.explain(e))? {
                Some(row) => {
                    let Some(call) = Call::of(row) else { continue };
                    if self.order != Order::ByTime {
                        return Ok(Some(call));
                    }
                    self.waiting.push(call.start_ns, call)?;
                }
                None => self.rows = None,
            }
        }
        Ok(self.waiting.pop())
    }
}
