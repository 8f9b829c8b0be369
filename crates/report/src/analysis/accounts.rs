//! Memory events of a file, entered into the engine's ledger.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::rc::Rc;

use anyhow::Result;

use super::callers::Callers;
use super::totals::{Findings, Totals};
use super::{Selection, Visitor};
use gpuprobe_cuda::{Belongs, FUNCTIONS, Op};
use gpuprobe_engine::{Allocation, Counts, Ledger, Process, Row};
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_recording::memory_rows::{self, Counted, Item, Summary, Taker};
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, MemoryRow, Origin, Session, ids, kinds};

/// One allocation, with who made it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The allocation.
    pub allocation: Allocation,
    /// The number of its caller.
    pub caller: u32,
}

impl Part {
    /// An allocation of `process`.
    pub fn of(process: &Process, allocation: &Allocation) -> Self {
        Self {
            allocation: *allocation,
            caller: caller_of(process, allocation),
        }
    }

    /// Whether it is memory of the host.
    pub fn is_host(&self) -> bool {
        self.allocation.belongs() == Belongs::Host
    }
}

/// What an event, or the end of a process, did.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// When, nanoseconds from the first event. Never goes back.
    pub time_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// What became live.
    pub allocated: Option<Part>,
    /// What is no longer live.
    pub freed: &'a [Part],
}

impl Step<'_> {
    /// All that it is about.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.freed.iter().chain(&self.allocated)
    }
}

/// How much is live, by what is known of its calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live {
    /// Memory of GPUs.
    pub gpu: Totals,
    /// Memory of the host.
    pub host: Totals,
}

/// The memory of a file.
pub struct Accounts<'a> {
    /// Who holds memory.
    pub ledger: Ledger,
    /// Who made the calls.
    pub callers: Callers<'a>,
    /// What is live now.
    pub live: Live,
    /// What was live at the highest point.
    pub at_peak: Live,
    /// What was odd.
    pub findings: Findings,
    selection: Selection,
    first_ns: Option<i64>,
    last_ns: i64,
    has_begun: bool,
    /// Plain frees of something.
    frees: u64,
}

/// The number of no caller.
const NOBODY: u32 = u32::MAX;

/// GPUs of a host, at most.
const MAX_GPUS: i64 = 255;

struct Reading<'a, 'v> {
    accounts: Accounts<'a>,
    visitor: &'v mut dyn Visitor,
}

impl Taker for Reading<'_, '_> {
    fn take(&mut self, item: Item<'_>) -> Result<ControlFlow<()>> {
        match item {
            Item::Row(row, origin) => self.accounts.row(row, origin, self.visitor),
            Item::End(process, time_ns) => self
                .accounts
                .end(process, time_ns, self.visitor)
                .map(ControlFlow::Continue),
            Item::Again => {
                self.accounts.clear();
                self.visitor.restart().map(ControlFlow::Continue)
            }
        }
    }

    fn can_start_again(&self) -> bool {
        self.visitor.can_restart()
    }
}

/// The engine counts from 0.
fn unsigned(time_ns: i64) -> u64 {
    u64::try_from(time_ns).unwrap_or(0)
}

impl<'a> Accounts<'a> {
    /// Reads all memory events of `database` that `selection` names; `visitor` sees every change.
    ///
    /// # Errors
    /// The file cannot be read, it has no memory events, or the visitor fails.
    pub fn read(
        database: &'a Database,
        session: &Session,
        selection: &Selection,
        visitor: &mut dyn Visitor,
    ) -> Result<Self> {
        let accounts = Self::new(database, selection)?;
        let mut reading = Reading { accounts, visitor };
        let counted = Counted {
            pid: selection.pid,
            from_ns: selection.from_ns,
            to_ns: selection.to_ns,
        };
        let summary = memory_rows::each(database, counted, &mut reading)?;
        let mut accounts = reading.accounts;
        accounts.finish(&summary, database)?;
        accounts.introduce(database, session)?;
        Ok(accounts)
    }

    fn new(database: &'a Database, selection: &Selection) -> Result<Self> {
        Ok(Self {
            ledger: Ledger::of_rows(),
            callers: Callers::new(database)?,
            live: Live::default(),
            at_peak: Live::default(),
            findings: Findings::default(),
            selection: *selection,
            first_ns: None,
            last_ns: i64::MIN,
            has_begun: false,
            frees: 0,
        })
    }

    fn clear(&mut self) {
        self.ledger = Ledger::of_rows();
        self.live = Live::default();
        self.at_peak = Live::default();
        self.findings = Findings::default();
        self.first_ns = None;
        self.last_ns = i64::MIN;
        self.has_begun = false;
        self.frees = 0;
    }

    /// The first event, nanoseconds of the session.
    pub fn first_ns(&self) -> Option<i64> {
        self.first_ns
    }

    /// The last event that was looked at, nanoseconds of the session.
    pub fn last_ns(&self) -> Option<i64> {
        (self.last_ns != i64::MIN).then_some(self.last_ns)
    }

    /// The highest point, nanoseconds of the session; none if nothing was selected.
    pub fn peak_ns(&self) -> Option<i64> {
        let peak_ns = self.ledger.peak_ns().filter(|_| self.has_begun)?;
        i64::try_from(peak_ns).ok()
    }

    /// What was never freed: what is live now, and what processes held when they ended.
    pub fn never_freed(&self) -> Live {
        let mut sums = Live::default();
        for process in self.ledger.living().chain(self.ledger.ended(true)) {
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

    /// What is looked at, seconds from the first event; none if there is no event.
    pub fn range(&self) -> (Option<f64>, Option<f64>) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let first_ns = self.first_ns.unwrap_or(0);
        let last_ns = self.last_ns().map(|last| last.saturating_sub(first_ns));
        let from = self.first_ns.map(|_| self.selection.from_ns.unwrap_or(0));
        let to = self.selection.to_ns.or(last_ns);
        (from.map(seconds), to.map(seconds))
    }

    /// When the selected time begins, nanoseconds of the session; none if it begins with the first
    /// event, or there is none.
    fn begins_ns(&self) -> Option<i64> {
        let (from, first) = self.selection.from_ns.zip(self.first_ns)?;
        Some(first.saturating_add(from))
    }

    fn is_beyond(&self, time_ns: i64) -> bool {
        let to = self.selection.to_ns.zip(self.first_ns);
        to.is_some_and(|(to, first)| time_ns.saturating_sub(first) > to)
    }

    fn row(
        &mut self,
        row: &MemoryRow,
        origin: Origin,
        visitor: &mut dyn Visitor,
    ) -> Result<ControlFlow<()>> {
        let first = *self.first_ns.get_or_insert(row.start_ns);
        if self.is_beyond(row.start_ns) {
            return Ok(ControlFlow::Break(()));
        }
        if !self.selection.includes(row) {
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
            let step = Step {
                time_ns: self.last_ns.saturating_sub(first),
                process: row.process,
                allocated,
                freed: freed.as_slice(),
            };
            visitor.change(&step, self)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Whether what happens at `time_ns` is selected; if nothing was before, what is live now is the
    /// highest point so far.
    fn begin_by(&mut self, time_ns: i64) -> bool {
        let from = self.begins_ns();
        if from.is_some_and(|from| time_ns < from) {
            return false;
        }
        if !self.has_begun {
            self.has_begun = true;
            self.ledger.begin_again(unsigned(from.unwrap_or(time_ns)));
            self.at_peak = self.live;
        }
        true
    }

    fn note_peak(&mut self) {
        // It only ever grows.
        if self.ledger.peak_bytes() > self.at_peak.gpu.total.bytes {
            self.at_peak = self.live;
        }
    }

    fn allocate(&mut self, row: &MemoryRow, origin: Origin) -> (Part, Option<Part>) {
        let (caller, function) = self.callers.number(origin, kinds::of_id(row.kind).kind);
        let called = FUNCTIONS.get(usize::from(function)).map(|f| f.kind);
        let entered = Row {
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
        let part = Part { allocation, caller };
        replaced.iter().for_each(|gone| self.subtract(gone));
        let trace = self.callers.trace(caller);
        self.side(&part).add(trace, row.bytes);
        (part, replaced)
    }

    fn free(&mut self, row: &MemoryRow, origin: Origin, is_selected: bool) -> Option<Part> {
        let pid = ids::pid(row.process);
        let function = origin.function.map(|id| self.callers.function_of(id));
        let function = function.and_then(|row| FUNCTIONS.get(usize::from(row)));
        // A free that had not returned when its address was handed out again belongs to no call.
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

    fn part(&self, pid: u32, allocation: Allocation) -> Part {
        let caller = self.ledger.process_of(pid);
        Part {
            allocation,
            caller: caller.map_or(NOBODY, |process| caller_of(process, &allocation)),
        }
    }

    fn side(&mut self, part: &Part) -> &mut Totals {
        match part.is_host() {
            true => &mut self.live.host,
            false => &mut self.live.gpu,
        }
    }

    fn subtract(&mut self, part: &Part) {
        let trace = self.callers.trace(part.caller);
        self.side(part).subtract(trace, part.allocation.size_bytes);
    }

    /// A process has ended: what it holds was never freed, and is no longer there.
    fn end(&mut self, process: i64, time_ns: i64, visitor: &mut dyn Visitor) -> Result<()> {
        let pid = ids::pid(process);
        let Some(first) = self.first_ns.filter(|_| !self.is_beyond(time_ns)) else {
            return Ok(());
        };
        let Some(ended) = self.ledger.process_of(pid) else {
            return Ok(());
        };
        let part = |allocation: &Allocation| Part {
            allocation: *allocation,
            caller: caller_of(ended, allocation),
        };
        let freed: Vec<_> = ended.allocations().map(part).collect();
        self.last_ns = self.last_ns.max(time_ns);
        let is_selected = self.begin_by(self.last_ns);
        freed.iter().for_each(|part| self.subtract(part));
        self.ledger.end_process(pid, unsigned(time_ns));
        if is_selected && !freed.is_empty() {
            let step = Step {
                time_ns: self.last_ns.saturating_sub(first),
                process,
                allocated: None,
                freed: &freed,
            };
            visitor.change(&step, self)?;
        }
        Ok(())
    }

    /// No more events come. If none of what was selected was in the selected time, the highest point
    /// is what was live when it began.
    fn finish(&mut self, summary: &Summary, database: &Database) -> Result<()> {
        self.findings.malformed = summary.malformed;
        if let Some(from) = self.begins_ns().filter(|_| self.last_ns().is_some()) {
            self.begin_by(self.last_ns.max(from));
        }
        let mut counts = Counts::default();
        for (&function, &[succeeded, failed]) in &summary.calls {
            let row = usize::from(self.callers.function_of(function));
            let Some(function) = FUNCTIONS.get(row).filter(|f| f.op.is_memory()) else {
                continue;
            };
            counts.failed_calls += failed;
            counts.by_row[row] += succeeded;
            counts.alloc_calls += if function.op.allocates() {
                succeeded
            } else {
                0
            };
            counts.free_calls += if function.op.frees() { succeeded } else { 0 };
            counts.null_frees += if function.op == Op::Free {
                succeeded
            } else {
                0
            };
        }
        counts.unknown_frees = self.findings.unmatched_frees + self.unknown_frees(database)?;
        // Plain frees that neither were of something nor of something unknown.
        let of_something = self.frees.saturating_add(counts.unknown_frees);
        counts.null_frees = counts.null_frees.saturating_sub(of_something);
        counts.free_calls -= counts.null_frees;
        self.ledger.set_counts(counts);
        Ok(())
    }

    /// Frees of memory that was allocated before a recording of ours began.
    fn unknown_frees(&self, database: &Database) -> Result<u64> {
        let mut frees = 0;
        let columns = ["globalPid", "t0"];
        database.each("GPUPROBE_UNMATCHED_FREES", &columns, "", |found| {
            let (Some(process), Some(time_ns)) = (integer(found, 0), integer(found, 1)) else {
                return;
            };
            let is_early = self.begins_ns().is_some_and(|from| time_ns < from);
            let is_selected = !is_early && !self.is_beyond(time_ns);
            let is_of = |pid| pid == ids::pid(process);
            frees += u64::from(is_selected && self.selection.pid.is_none_or(is_of));
        })?;
        Ok(frees)
    }

    /// Says who processes and threads are.
    fn introduce(&mut self, database: &Database, session: &Session) -> Result<()> {
        let mut threads: HashMap<u32, Vec<(u32, Rc<str>)>> = HashMap::new();
        let columns = ["globalTid", "nameId"];
        database.each("ThreadNames", &columns, "", |found| {
            if let (Some(thread), Some(name)) = (integer(found, 0), integer(found, 1)) {
                let name = self.callers.string(name);
                let of_process = threads.entry(ids::pid(thread)).or_default();
                of_process.push((ids::tid(thread), name));
            }
        })?;
        let last = session.gpus.keys().max().copied().unwrap_or(-1);
        let device = |id: i64| DeviceIdentity {
            physical_index: None,
            // As NVML writes it.
            uuid: session.gpu_uuids.get(&id).map(|uuid| match uuid {
                named if named.starts_with("GPU-") || named.starts_with("MIG-") => named.clone(),
                bare => format!("GPU-{bare}"),
            }),
        };
        let devices: Vec<_> = (0..=last.min(MAX_GPUS)).map(device).collect();
        for process in self.ledger.processes_mut() {
            // Exports have the path of the program.
            let name = session.processes.get(&process.pid);
            let name = name.map(|name| name.rsplit('/').next().unwrap_or(name));
            process.comm = name.map(str::to_owned);
            process.uid = session.users.get(&process.pid).copied();
            process.identity.devices.clone_from(&devices);
            for (tid, name) in threads.get(&process.pid).into_iter().flatten() {
                process.name_thread(*tid, name);
            }
        }
        Ok(())
    }
}

/// The number of whoever made `allocation`.
pub(super) fn caller_of(process: &Process, allocation: &Allocation) -> u32 {
    let site = process.sites.of(allocation);
    site.and_then(|site| site.caller).unwrap_or(NOBODY)
}
