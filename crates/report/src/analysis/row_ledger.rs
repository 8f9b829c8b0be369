//! Memory events of a file, applied to the engine's ledger.

mod contexts;
mod finish;
mod step;

use std::ops::ControlFlow;

use anyhow::Result;

use super::callers::Callers;
use super::totals::{AnalysisTotals, Anomalies};
use super::{Filter, Visitor};
use gpuprobe_cuda::{Belongs, FUNCTIONS, MemoryKind, Op};
use gpuprobe_engine::{Allocation, AllocationRow, Ledger};
use gpuprobe_recording::memory_rows::{self, CallFilter, MemoryItem, RowSink};
use gpuprobe_recording::{Database, MemoryRow, OriginatingCall, Session, ids, kinds};

pub(super) use step::caller_of;
pub use step::{AllocationWithCaller, LedgerChange};

use contexts::ContextChanges;
use step::UNKNOWN_CALLER;

/// Live memory, by how much is known of the allocating calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveSums {
    /// GPU memory that is live.
    pub gpu: AnalysisTotals,
    /// Host memory that is live.
    pub host: AnalysisTotals,
}

/// Memory of a file at a point in its events.
pub struct RowLedger<'a> {
    /// Live memory by process.
    pub ledger: Ledger,
    /// Call stacks and functions of the calls.
    pub callers: Callers<'a>,
    /// Memory that is live now.
    pub live: LiveSums,
    /// Memory that was live at the peak.
    pub at_peak: LiveSums,
    /// Inconsistencies found in the events.
    pub findings: Anomalies,
    /// Contexts that the processes create and destroy.
    contexts: ContextChanges,
    filter: Filter,
    first_ns: Option<i64>,
    last_ns: i64,
    has_begun: bool,
    /// Number of successful plain frees.
    frees: u64,
}

struct Reading<'a, 'v> {
    row_ledger: RowLedger<'a>,
    visitor: &'v mut dyn Visitor,
}

impl RowSink for Reading<'_, '_> {
    fn take(&mut self, item: MemoryItem) -> Result<ControlFlow<()>> {
        match item {
            MemoryItem::Row(row, origin) => self.row_ledger.row(&row, origin, self.visitor),
            MemoryItem::Malformed => {
                self.row_ledger.findings.malformed += 1;
                Ok(ControlFlow::Continue(()))
            }
            MemoryItem::End(process, time_ns) => self
                .row_ledger
                .end(process, time_ns, self.visitor)
                .map(ControlFlow::Continue),
            MemoryItem::Restart => {
                self.row_ledger.clear();
                self.visitor.restart().map(ControlFlow::Continue)
            }
        }
    }

    fn can_restart(&self) -> bool {
        self.visitor.can_restart()
    }
}

/// A time as unsigned, as the engine uses it; negative times become 0.
fn unsigned(time_ns: i64) -> u64 {
    u64::try_from(time_ns).unwrap_or(0)
}

impl<'a> RowLedger<'a> {
    /// Reads all memory events of `database` that `filter` includes; `visitor` is called for
    /// every change.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has no memory events, or if the visitor
    /// fails.
    pub fn read(
        database: &'a Database,
        session: &Session,
        filter: &Filter,
        visitor: &mut dyn Visitor,
    ) -> Result<Self> {
        let row_ledger = Self::new(database, filter)?;
        let mut reading = Reading {
            row_ledger,
            visitor,
        };
        let counted = CallFilter {
            pid: filter.pid,
            from_ns: filter.from_ns,
            to_ns: filter.to_ns,
        };
        let calls = memory_rows::each(database, counted, &mut reading)?;
        let mut row_ledger = reading.row_ledger;
        row_ledger.finish(&calls, database)?;
        row_ledger.introduce(database, session)?;
        Ok(row_ledger)
    }

    fn new(database: &'a Database, filter: &Filter) -> Result<Self> {
        Ok(Self {
            ledger: Ledger::of_rows(),
            callers: Callers::new(database)?,
            live: LiveSums::default(),
            at_peak: LiveSums::default(),
            findings: Anomalies::default(),
            contexts: ContextChanges::read(database, filter)?,
            filter: *filter,
            first_ns: None,
            last_ns: i64::MIN,
            has_begun: false,
            frees: 0,
        })
    }

    fn clear(&mut self) {
        self.ledger = Ledger::of_rows();
        self.live = LiveSums::default();
        self.at_peak = LiveSums::default();
        self.findings = Anomalies::default();
        self.contexts.restart();
        self.first_ns = None;
        self.last_ns = i64::MIN;
        self.has_begun = false;
        self.frees = 0;
    }

    /// Time of the first event, nanoseconds of the session; `None` if there is none.
    pub fn first_ns(&self) -> Option<i64> {
        self.first_ns
    }

    /// Time of the last event that was read, nanoseconds of the session; `None` if there is none.
    pub fn last_ns(&self) -> Option<i64> {
        (self.last_ns != i64::MIN).then_some(self.last_ns)
    }

    /// Time of the peak, nanoseconds of the session; `None` if no event was selected.
    pub fn peak_ns(&self) -> Option<i64> {
        let peak_ns = self.ledger.peak_ns().filter(|_| self.has_begun)?;
        i64::try_from(peak_ns).ok()
    }

    /// Memory that was never freed: live now, or held by a process when it ended.
    pub fn never_freed(&self) -> LiveSums {
        let mut sums = LiveSums::default();
        for process in self.ledger.live_processes().chain(self.ledger.ended(true)) {
            for allocation in process.allocations() {
                let caller = caller_of(process, allocation);
                let side = match allocation.belongs() {
                    Belongs::Host => &mut sums.host,
                    _ => &mut sums.gpu,
                };
                side.add(self.callers.trace(caller), allocation.size_bytes);
            }
        }
        sums
    }

    /// Start and end of the selected time, seconds from the first event; `None` if there is no
    /// event.
    pub fn range(&self) -> (Option<f64>, Option<f64>) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let first_ns = self.first_ns.unwrap_or(0);
        let last_ns = self.last_ns().map(|last| last.saturating_sub(first_ns));
        let from = self.first_ns.map(|_| self.filter.from_ns.unwrap_or(0));
        let to = self.filter.to_ns.or(last_ns);
        (from.map(seconds), to.map(seconds))
    }

    /// Start of the selected time, nanoseconds of the session; `None` if it starts with the first
    /// event, or there is none.
    fn begin_ns(&self) -> Option<i64> {
        let (from, first) = self.filter.from_ns.zip(self.first_ns)?;
        Some(first.saturating_add(from))
    }

    fn is_beyond(&self, time_ns: i64) -> bool {
        let to = self.filter.to_ns.zip(self.first_ns);
        to.is_some_and(|(to, first)| time_ns.saturating_sub(first) > to)
    }

    fn row(
        &mut self,
        row: &MemoryRow,
        origin: OriginatingCall,
        visitor: &mut dyn Visitor,
    ) -> Result<ControlFlow<()>> {
        let first = *self.first_ns.get_or_insert(row.start_ns);
        if self.is_beyond(row.start_ns) {
            return Ok(ControlFlow::Break(()));
        }
        if !self.filter.includes(row) {
            return Ok(ControlFlow::Continue(()));
        }
        visitor.event(row, &origin)?;
        self.last_ns = self.last_ns.max(row.start_ns);
        let is_selected = self.begin_by(self.last_ns);
        if is_selected {
            let is_host = kinds::of_id(row.kind).kind.belongs() == Belongs::Host;
            self.findings.events += 1;
            self.findings.host_events += u64::from(is_host);
        }
        let (allocated, freed) = if row.allocates {
            let (part, replaced) = self.allocate(row, origin);
            (Some(part), replaced)
        } else {
            (None, self.free(row, origin, is_selected))
        };
        self.note_peak();
        if is_selected && (allocated.is_some() || freed.is_some()) {
            let step = LedgerChange {
                time_ns: self.last_ns.saturating_sub(first),
                event_ns: row.start_ns.saturating_sub(first),
                process: row.process,
                is_end: false,
                allocated,
                freed: freed.as_slice(),
            };
            visitor.change(&step, self)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether events at `time_ns` are selected. At the first selected event, the memory that is
    /// live becomes the peak.
    fn begin_by(&mut self, time_ns: i64) -> bool {
        let from = self.begin_ns();
        if from.is_some_and(|from| time_ns < from) {
            return false;
        }
        if !self.has_begun {
            self.has_begun = true;
            self.ledger.reset_sums(unsigned(from.unwrap_or(time_ns)));
            self.at_peak = self.live;
        }
        true
    }

    fn note_peak(&mut self) {
        // The peak only ever grows.
        if self.ledger.peak_bytes() > self.at_peak.gpu.total.bytes {
            self.at_peak = self.live;
        }
    }

    fn allocate(
        &mut self,
        row: &MemoryRow,
        origin: OriginatingCall,
    ) -> (AllocationWithCaller, Option<AllocationWithCaller>) {
        let (caller, function) = self.callers.number(origin, kinds::of_id(row.kind).kind);
        let called = FUNCTIONS.get(usize::from(function)).map(|f| match f.op {
            // The memory of its nodes.
            Op::GraphLaunch => MemoryKind::Graph,
            _ => f.kind,
        });
        let entered = AllocationRow {
            pid: ids::pid(row.process),
            tid: origin.thread.map_or(0, ids::tid),
            address: row.address,
            bytes: row.bytes,
            time_ns: unsigned(row.start_ns),
            kind: kinds::of_call(row.kind, called),
            space: kinds::of_id(row.kind).kind.space(),
            device: u16::try_from(row.device).ok(),
            function,
            caller,
            name: row.variable.as_deref(),
        };
        let (allocation, replaced) = self.ledger.allocate(&entered);
        let replaced = replaced.map(|gone| {
            self.findings.double_allocations += 1;
            self.part(entered.pid, gone)
        });
        let part = AllocationWithCaller { allocation, caller };
        replaced.iter().for_each(|gone| self.subtract(gone));
        let trace = self.callers.trace(caller);
        self.side(&part).add(trace, row.bytes);
        (part, replaced)
    }

    fn free(
        &mut self,
        row: &MemoryRow,
        origin: OriginatingCall,
        is_selected: bool,
    ) -> Option<AllocationWithCaller> {
        let pid = ids::pid(row.process);
        let function = origin.function.map(|id| self.callers.function_of(id));
        let function = function.and_then(|row| FUNCTIONS.get(usize::from(row)));
        // A superseded allocation is freed without a call of its own.
        let is_plain = function.is_none_or(|function| function.op == Op::Free);
        let space = kinds::of_id(row.kind).kind.space();
        let time_ns = unsigned(row.start_ns);
        let Some(gone) = self.ledger.free(pid, space, row.address, time_ns) else {
            self.findings.unmatched_frees += 1;
            return None;
        };
        self.frees += u64::from(is_plain && is_selected);
        self.findings.size_mismatches += u64::from(gone.size_bytes != row.bytes);
        let part = self.part(pid, gone);
        self.subtract(&part);
        Some(part)
    }

    fn part(&self, pid: u32, allocation: Allocation) -> AllocationWithCaller {
        let caller = self.ledger.process_of(pid);
        AllocationWithCaller {
            allocation,
            caller: caller.map_or(UNKNOWN_CALLER, |process| caller_of(process, &allocation)),
        }
    }

    fn side(&mut self, part: &AllocationWithCaller) -> &mut AnalysisTotals {
        match part.is_host() {
            true => &mut self.live.host,
            false => &mut self.live.gpu,
        }
    }

    fn subtract(&mut self, part: &AllocationWithCaller) {
        let trace = self.callers.trace(part.caller);
        self.side(part).subtract(trace, part.allocation.size_bytes);
    }

    /// Ends a process: the memory that it holds was never freed, and is no longer live.
    fn end(&mut self, process: i64, time_ns: i64, visitor: &mut dyn Visitor) -> Result<()> {
        let pid = ids::pid(process);
        if self.is_beyond(time_ns) {
            return Ok(());
        }
        self.apply_contexts(pid, time_ns);
        let Some(ended) = self.ledger.process_of(pid) else {
            return Ok(());
        };
        let Some(first) = self.first_ns else {
            // It made contexts and has no memory.
            self.ledger.end_process(pid, unsigned(time_ns));
            return Ok(());
        };
        let part = |allocation: &Allocation| AllocationWithCaller {
            allocation: *allocation,
            caller: caller_of(ended, allocation),
        };
        let freed: Vec<_> = ended.allocations().map(part).collect();
        self.last_ns = self.last_ns.max(time_ns);
        let is_selected = self.begin_by(self.last_ns);
        freed.iter().for_each(|part| self.subtract(part));
        self.ledger.end_process(pid, unsigned(time_ns));
        if is_selected && !freed.is_empty() {
            let step = LedgerChange {
                time_ns: self.last_ns.saturating_sub(first),
                event_ns: time_ns.saturating_sub(first),
                process,
                is_end: true,
                allocated: None,
                freed: &freed,
            };
            visitor.change(&step, self)?;
        }
        Ok(())
    }
}
