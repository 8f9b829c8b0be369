//! API calls of memory events, read in parallel with them.

use anyhow::Result;
use hashbrown::HashMap;
use rusqlite::Row;

use super::CallFilter;
use super::row::{MemoryRow, OriginatingCall, Trace};
use super::sorted::SortedRows;
use crate::ids;
use crate::numbers::Numbers;
use gpuprobe_cuda::nsys::class;

/// Table of API calls.
pub const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// Columns for [`CallRow::of`], all with numbers.
pub(super) const NUMBERS: &str =
    "start, end, eventClass, globalTid, correlationId, nameId, callchainId, returnValue";

/// Numbers of successful and failed calls by `nameId`. Driver calls nested in runtime calls are not
/// counted.
pub type Counts = HashMap<i64, [u64; 2]>;

/// A row of the table of API calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallRow {
    pub(super) start_ns: i64,
    end_ns: i64,
    class: i64,
    thread: i64,
    correlation: i64,
    function: Option<i64>,
    chain: Option<i64>,
    has_failed: bool,
}

impl CallRow {
    pub(super) fn of(row: &Row<'_>) -> Option<Self> {
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
    rows: SortedRows<'a, CallRow>,
    /// Events without a correlation id have no call, unlike in exports.
    is_ours: bool,
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
    pub(super) fn new(rows: SortedRows<'a, CallRow>, is_ours: bool, counted: CallFilter) -> Self {
        Self {
            rows,
            is_ours,
            next: None,
            open: Vec::new(),
            busy_until: HashMap::new(),
            counted,
            first_ns: None,
            counts: Counts::new(),
        }
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

    /// The API call of `event`: the best of those around it, with its correlation id, if it has one.
    pub(super) fn origin(&mut self, event: &MemoryRow) -> Result<OriginatingCall> {
        self.open.retain(|call| call.end_ns >= event.start_ns);
        while let Some(call) = self.next_if(|call| call.start_ns <= event.start_ns)? {
            self.count(&call);
            if call.end_ns >= event.start_ns {
                self.open.push(call);
            }
        }
        let agrees = |call: &&CallRow| match event.correlation {
            Some(number) => call.correlation == number,
            None => !self.is_ours,
        };
        let open = self.open.iter().filter(agrees);
        let around = open.filter(|call| call.surrounds(event));
        let best = around.max_by_key(|call| (call.rank(), call.start_ns));
        Ok(best.map_or(OriginatingCall::default(), CallRow::origin))
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
            self.next = self.rows.next()?;
        }
        Ok(self.next.take_if(|call| is_wanted(call)))
    }
}
