//! API calls of memory events, read in parallel with them.

use anyhow::Result;
use hashbrown::HashMap;
use rusqlite::{Row, Rows};

use super::order::Reorder;
use super::row::{MemoryRow, OriginatingCall, Trace};
use super::{CallFilter, Order};
use crate::numbers::Numbers;
use crate::{Database, ids};
use gpuprobe_cuda::nsys::class;
use gpuprobe_os::progress::Pass;

/// Table of API calls.
pub const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Columns for [`CallRow::of`], all with numbers.
pub(super) const NUMBERS: [&str; 8] = [
    "start",
    "end",
    "eventClass",
    "globalTid",
    "correlationId",
    "nameId",
    "callchainId",
    "returnValue",
];

/// Numbers of successful and failed calls by `nameId`. Driver calls nested in runtime calls are not
/// counted.
pub type Counts = HashMap<i64, [u64; 2]>;

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
        let numbers = Numbers::of(row)?;
        Some(Self {
            start_ns: numbers.get(0)?,
            end_ns: numbers.get(1)?,
            class: numbers.get(2)?,
            thread: numbers.get(3)?,
            correlation: numbers.get(4).unwrap_or(0),
            function: numbers.get(5),
            chain: numbers.get(6),
            has_failed: numbers.get(7).is_some_and(|result| result != 0),
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

    /// Whether `event` happened during this call.
    fn surrounds(&self, event: &MemoryRow) -> bool {
        ids::process_of(self.thread) == event.process
            && self.start_ns <= event.start_ns
            && event.start_ns <= self.end_ns
    }
}

/// API calls of a file in order.
pub(super) struct CallRows<'a> {
    database: &'a Database,
    rows: Option<Rows<'a>>,
    pass: &'a Pass<'a>,
    order: Order,
    waiting: Reorder<CallRow>,
    next: Option<CallRow>,
    /// Calls that later events may belong to.
    open: Vec<CallRow>,
    /// End of the last runtime call, by thread.
    busy_until: HashMap<i64, i64>,
    counted: CallFilter,
    first_ns: Option<i64>,
    counts: Counts,
}

impl<'a> CallRows<'a> {
    pub(super) fn new(
        database: &'a Database,
        (rows, pass): (Option<Rows<'a>>, &'a Pass<'a>),
        order: Order,
        counted: CallFilter,
    ) -> Self {
        Self {
            database,
            rows,
            pass,
            order,
            waiting: order.reorder(),
            next: None,
            open: Vec::new(),
            busy_until: HashMap::new(),
            counted,
            first_ns: None,
            counts: Counts::new(),
        }
    }

    /// The API call of `event`.
    pub(super) fn origin(&mut self, event: &MemoryRow) -> Result<OriginatingCall> {
        let best = match self.order {
            Order::AsRecorded => self.by_number(event)?,
            Order::ByTime | Order::Sorted => self.by_time(event)?,
        };
        Ok(best.map_or(OriginatingCall::default(), |call| call.origin()))
    }

    /// Sets the time of the first event.
    pub(super) fn begin(&mut self, start_ns: i64) {
        self.first_ns.get_or_insert(start_ns);
    }

    /// Reads the remaining calls and returns the counts.
    pub(super) fn count_rest(mut self) -> Result<Counts> {
        while let Some(call) = self.next_if(|_| true)? {
            self.count(&call);
        }
        Ok(self.counts)
    }

    fn is_counted(&self, call: &CallRow) -> bool {
        let CallFilter {
            pid,
            from_ns,
            to_ns,
        } = self.counted;
        let time_ns = call.start_ns.saturating_sub(self.first_ns.unwrap_or(0));
        pid.is_none_or(|pid| pid == ids::pid(call.thread))
            && from_ns.is_none_or(|from| time_ns >= from)
            && to_ns.is_none_or(|to| time_ns <= to)
    }

    /// In recordings, calls are numbered in row order.
    fn by_number(&mut self, event: &MemoryRow) -> Result<Option<CallRow>> {
        let Some(wanted) = event.correlation else {
            return Ok(None);
        };
        self.open.retain(|call| call.correlation == wanted);
        while let Some(call) = self.next_if(|call| call.correlation <= wanted)? {
            self.count(&call);
            if call.correlation == wanted {
                self.open.push(call);
            }
        }
        Ok(self.open.iter().copied().max_by_key(CallRow::rank))
    }

    /// In exports, an event lies within its call; the correlation id, if present, must match.
    fn by_time(&mut self, event: &MemoryRow) -> Result<Option<CallRow>> {
        self.open.retain(|call| call.end_ns >= event.start_ns);
        while let Some(call) = self.next_if(|call| call.start_ns <= event.start_ns)? {
            self.count(&call);
            if call.end_ns >= event.start_ns {
                self.open.push(call);
            }
        }
        let agrees = |call: &&CallRow| match event.correlation {
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

    /// Adds `call` to the counts.
    fn count(&mut self, call: &CallRow) {
        match call.class {
            class::RUNTIME => {
                self.busy_until.insert(call.thread, call.end_ns);
            }
            class::DRIVER => {
                let runtime = self.busy_until.get(&call.thread);
                if runtime.is_some_and(|&end_ns| call.start_ns < end_ns) {
                    return;
                }
            }
            _ => return,
        }
        if let Some(function) = call.function
            && self.is_counted(call)
        {
            let [succeeded, failed] = self.counts.entry(function).or_default();
            *(if call.has_failed { failed } else { succeeded }) += 1;
        }
    }

    /// Removes the next call if it is one that `is_wanted`.
    fn next_if(&mut self, is_wanted: impl FnOnce(&CallRow) -> bool) -> Result<Option<CallRow>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next.take_if(|call| is_wanted(call)))
    }

    fn read(&mut self) -> Result<Option<CallRow>> {
        while !self.waiting.is_full() {
            let Some(rows) = &mut self.rows else { break };
            match rows.next().map_err(|e| self.database.explain(e))? {
                Some(row) => {
                    self.pass.step();
                    let Some(call) = CallRow::of(row) else {
                        continue;
                    };
                    // The ledger's are calls of probes.
                    let is_recorded = self.order == Order::AsRecorded;
                    if is_recorded && ids::is_of_cupti(call.correlation) {
                        continue;
                    }
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
