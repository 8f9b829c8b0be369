//! A file at some time: its items, played through the engine.

use std::collections::HashMap;
use std::ops::ControlFlow;

use anyhow::Result;
use chrono::{DateTime, FixedOffset};

use super::Filter;
use super::processes::Spans;
use super::range::TimeRange;
use gpuprobe_cuda::{Belongs, FUNCTIONS, Layer, Modes};
use gpuprobe_engine::{Allocation, CallSite, Change, Ledger, Process};
use gpuprobe_model::Total;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::{Event, MemoryEvent};
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_model::stack::{KnownFrames, Symbolize};
use gpuprobe_recording::log::{Item, LogNote, Mark};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::player::{Played as Outcome, Player};
use gpuprobe_recording::{Database, Session, Source, Trace, ids, row};
use gpuprobe_report::about::{AnalysisTotals, Anomalies};
use gpuprobe_report::copy_sites::{self, CopySiteReport};
use gpuprobe_report::incidents::{self, IncidentReport, RefusedRequests};
use gpuprobe_report::memleak::{self, Memleak};
use gpuprobe_report::{Options, ReportSources};

/// Upper limit of GPUs per host.
const MAX_GPUS: i64 = 255;

/// Live memory, by how much is known of the allocating calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveSums {
    /// GPU memory that is live.
    pub gpu: AnalysisTotals,
    /// Host memory that is live.
    pub host: AnalysisTotals,
}

impl LiveSums {
    /// The totals that `allocation` is part of.
    fn totals(&mut self, trace: Trace, allocation: &Allocation) -> [&mut Total; 2] {
        let side = match allocation.belongs() {
            Belongs::Host => &mut self.host,
            _ => &mut self.gpu,
        };
        let of_trace = match trace {
            Trace::Valid => &mut side.valid,
            Trace::Invalid => &mut side.invalid,
            Trace::Driver => &mut side.driver,
        };
        [&mut side.total, of_trace]
    }
}

/// A change of live memory by an event, or by the end of a process.
#[derive(Clone, Copy)]
pub struct MemoryChange<'a> {
    /// Time of the change, nanoseconds from the first memory event. Never decreases.
    pub time_ns: i64,
    /// Time of the event itself, which calls of other threads may have overtaken.
    pub event_ns: i64,
    /// The process.
    pub process: &'a Process,
    /// Number of earlier processes with its id.
    pub incarnation: u32,
    /// Whether they are no longer live because their process has ended.
    pub is_end: bool,
    /// The allocation that became live.
    pub allocated: Option<Allocation>,
    /// The allocations that are no longer live.
    pub freed: &'a [Allocation],
    /// All memory that is live after it.
    pub live: &'a LiveSums,
    /// Whether it is in the selected time, not before it.
    pub is_selected: bool,
}

impl MemoryChange<'_> {
    /// The allocations that are no longer live, and the one that became live.
    pub fn parts(&self) -> impl Iterator<Item = &Allocation> {
        self.freed.iter().chain(&self.allocated)
    }
}

/// Hears what happens in a file that is played.
pub trait Listener {
    /// Live memory has changed, perhaps before the selected time.
    fn memory(&mut self, _change: &MemoryChange<'_>) -> Result<()> {
        Ok(())
    }

    /// An event was applied, with these changes.
    fn event(&mut self, _event: &Event, _changes: &[Change], _played: &Played) -> Result<()> {
        Ok(())
    }

    /// A process is about to end, at this time of the session.
    fn end(&mut self, _process: &Process, _time_ns: i64) {}

    /// The run made a report.
    fn report(&mut self, _mark: &Mark, _played: &Played) {}
}

impl Listener for () {}

/// Hears the changes of live memory in the selected time.
impl<F: FnMut(&MemoryChange<'_>) -> Result<()>> Listener for F {
    fn memory(&mut self, change: &MemoryChange<'_>) -> Result<()> {
        match change.is_selected {
            true => self(change),
            false => Ok(()),
        }
    }
}

/// A file at some time.
pub struct Played {
    player: Player,
    /// The clock of its events; its start is time 0 of the session.
    clock: WallClock,
    has_wall: bool,
    is_log: bool,
    /// The last report of the run until then.
    mark: Option<Mark>,
    /// Memory that is live now.
    pub live: LiveSums,
    /// Memory that was live at the peak.
    pub at_peak: LiveSums,
    /// Inconsistencies found in the memory events.
    pub findings: Anomalies,
    /// First and last time of the selected memory events of each process, nanoseconds of the session.
    pub(super) spans: Spans,
    filter: Filter,
    /// Within which copies count.
    range: TimeRange,
    /// Number of processes that have ended, by id.
    ended: HashMap<u32, u32>,
    /// Time of the first event, nanoseconds of the session; `None` if there is none.
    pub first_ns: Option<i64>,
    last_ns: i64,
    /// Time from which events are selected, once there is one.
    begun_ns: Option<i64>,
    /// Changes of memory so far, at the peak, and those that are played.
    changes: u64,
    peak_changes: u64,
    until: Option<u64>,
    is_over: bool,
}

impl Played {
    /// The same memory as it was at its peak, with the counts of calls of the whole time.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub fn read_peak(&self, database: &Database, session: &Session) -> Result<Self> {
        let until = Some(self.peak_changes);
        let mut then = Self::read(database, session, &self.filter, until, &mut ())?;
        let ledger = &mut then.player.state.ledger;
        ledger.keep_holders();
        ledger.counts = self.ledger().counts.clone();
        Ok(then)
    }

    /// Plays the memory that `filter` selects to its end, or `until` that many changes, with all that `listener` hears.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has no memory events, or if `listener` fails.
    pub fn read(
        database: &Database,
        session: &Session,
        filter: &Filter,
        until: Option<u64>,
        listener: &mut dyn Listener,
    ) -> Result<Self> {
        let source = gpuprobe_recording::memory_of(database, session)?;
        Self::play(&*source, database, session, filter, until, listener)
    }

    /// The same of the memory or the copies of `source`, which is of that file.
    pub(crate) fn play(
        source: &dyn Source,
        database: &Database,
        session: &Session,
        filter: &Filter,
        until: Option<u64>,
        listener: &mut dyn Listener,
    ) -> Result<Self> {
        let (clock, kinds) = (source.clock(), source.kinds());
        let modes = Modes {
            cudatrace: false,
            activity: false,
            ..source.modes()
        };
        let mut player = Player::new(modes, kinds);
        player.state.ledger = Ledger::of_file(kinds);
        player.state.watch_tensors();
        let mut played = Self {
            player,
            clock: clock.unwrap_or_else(|| WallClock::at(DateTime::default(), 0)),
            has_wall: clock.is_some(),
            is_log: source.is_log(),
            mark: None,
            live: LiveSums::default(),
            at_peak: LiveSums::default(),
            findings: Anomalies::default(),
            spans: Spans::default(),
            filter: *filter,
            range: TimeRange::of(database, filter)?,
            ended: HashMap::new(),
            first_ns: None,
            last_ns: i64::MIN,
            begun_ns: None,
            changes: 0,
            peak_changes: 0,
            until,
            is_over: until == Some(0),
        };
        if played.is_log {
            // The first in the order of the log, which is that of the rows.
            database.each(MEMORY, "start", "ORDER BY rowid LIMIT 1", |found| {
                played.first_ns = row::integer(found, 0);
            })?;
        }
        let counts = source.play(filter.rows(), &mut |item| played.item(item, listener))?;
        played.finish();
        played.findings.malformed = counts.malformed;
        for (row, [succeeded, failed]) in counts.calls {
            let ledger = &mut played.player.state.ledger;
            ledger.add_calls(row, succeeded, failed);
        }
        if !played.is_log {
            played.introduce(database, session)?;
        }
        Ok(played)
    }

    /// Memory accounts at that time.
    pub fn ledger(&self) -> &Ledger {
        &self.player.state.ledger
    }

    /// The copies of the selected time by call site, and the number of further sites; of an export, none.
    pub(crate) fn copy_sites(&self, options: &Options) -> (Vec<CopySiteReport>, u64) {
        let transfers = &self.player.state.transfers;
        copy_sites::build(transfers, options, None, &self.player.symbols)
    }

    /// Whether a process had tensors.
    pub fn has_tensors(&self) -> bool {
        self.ledger()
            .processes(true)
            .any(|process| process.tensors.iter().next().is_some())
    }

    /// Names of the frames in the file.
    pub fn symbols(&self) -> &KnownFrames {
        &self.player.symbols
    }

    /// Time of the last selected event, nanoseconds of the session; `None` if there is none.
    pub fn last_ns(&self) -> Option<i64> {
        (self.last_ns != i64::MIN).then_some(self.last_ns)
    }

    /// Time of the peak, nanoseconds of the session; `None` if no event was selected.
    pub fn peak_ns(&self) -> Option<i64> {
        let begun_ns = self.begun_ns?;
        let peak_ns = self.ledger().peak_ns;
        Some(peak_ns.map_or(begun_ns, |peak_ns| self.session_ns(peak_ns)))
    }

    /// Converts a time of the clock of events to one of the session.
    pub fn session_ns(&self, event_ns: u64) -> i64 {
        self.clock.since_start(event_ns)
    }

    /// Converts a time of the session to one of the clock of events.
    pub fn event_ns(&self, session_ns: i64) -> u64 {
        let zero_ns = self.clock.monotonic_ns();
        zero_ns.saturating_add_signed(session_ns)
    }

    /// Time of day of a time of the session; `None` if the file has none.
    pub fn wall(&self, session_ns: i64) -> Option<DateTime<FixedOffset>> {
        let event_ns = self.event_ns(session_ns);
        self.has_wall.then(|| self.clock.wall(event_ns))
    }

    /// Start and end of the selected time, seconds from the first event; `None` if there is no
    /// event.
    pub fn range(&self) -> (Option<f64>, Option<f64>) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let first_ns = self.first_ns.unwrap_or(0);
        let last_ns = self.last_ns().map(|last| last.saturating_sub(first_ns));
        let from = self.first_ns.map(|_| self.filter.begin_ns().unwrap_or(0));
        let to = self.filter.end_ns().or(last_ns);
        (from.map(seconds), to.map(seconds))
    }

    /// Memory that was never freed: live now, or held by a process when it ended.
    pub fn never_freed(&self) -> LiveSums {
        let mut sums = LiveSums::default();
        for process in self.ledger().processes(true) {
            for allocation in self.allocations(process) {
                let trace = self.trace(process, allocation);
                for total in sums.totals(trace, allocation) {
                    total.add(allocation.size_bytes);
                }
            }
        }
        sums
    }

    /// The counted allocations of a process.
    pub fn allocations<'a>(&self, process: &'a Process) -> impl Iterator<Item = &'a Allocation> {
        process.allocations().filter(|one| is_counted(process, one))
    }

    /// Memory at that time; `options` are those of the file, with times of the session.
    pub(crate) fn memory(&self, options: &Options) -> Memleak {
        let trace = |site: &CallSite| self.trace_of(site).name();
        let sources = ReportSources {
            trace: Some(&trace),
            ..self.sources()
        };
        let mut memory = memleak::build(self.ledger(), &self.options(options), sources);
        if self.until.is_some() {
            // A verdict needs the time after it, too.
            let sites = memory.processes.iter_mut();
            let sites = sites.flat_map(|one| &mut one.lists.sites);
            sites.flatten().for_each(|site| site.judgement = None);
            let handles = memory.processes.iter_mut().flat_map(|one| &mut one.handles);
            handles.for_each(|one| one.judgement = None);
        }
        memory
    }

    /// The out-of-memory incidents and their number.
    pub(super) fn incidents(
        &self,
        options: &Options,
    ) -> (Vec<IncidentReport>, Option<RefusedRequests>) {
        let (mut incidents, refused) =
            incidents::build(self.ledger(), &self.options(options), self.sources());
        let is_meant = |pid: u32| self.filter.pid.is_none_or(|meant| meant == pid);
        incidents.retain(|incident| is_meant(incident.who.pid));
        (incidents, refused)
    }

    fn sources(&self) -> ReportSources<'_> {
        ReportSources {
            usage: self.mark.as_ref().and_then(|mark| mark.usage.as_ref()),
            ..ReportSources::of_file(self.has_wall.then_some(&self.clock), &self.player.symbols)
        }
    }

    /// Options of the file, with the time on the clock of events.
    fn options(&self, options: &Options) -> Options {
        let now_ns = i64::try_from(options.now_ns).unwrap_or(i64::MAX);
        Options {
            now_ns: self.event_ns(now_ns),
            stacks: true,
            ..*options
        }
    }

    /// How much is known of the call that made `allocation`.
    fn trace(&self, process: &Process, allocation: &Allocation) -> Trace {
        let site = process.sites.get(allocation.site);
        site.map_or(Trace::Invalid, |site| self.trace_of(site))
    }

    /// How much is known of the calls of a site.
    fn trace_of(&self, site: &CallSite) -> Trace {
        let has_stack = site.stack.is_some();
        let is_driver = match FUNCTIONS.get(usize::from(site.row)) {
            Some(function) => function.layer == Layer::Driver,
            None => {
                let name = self.player.symbols.function(site.row);
                name.is_some_and(|name| name.starts_with("cu") && !name.starts_with("cuda"))
            }
        };
        match (is_driver, has_stack) {
            // In an export, a call of the driver has its stack in another row.
            (true, true) if !self.is_log => Trace::Valid,
            (true, _) => Trace::Driver,
            (false, true) => Trace::Valid,
            (false, false) => Trace::Invalid,
        }
    }

    fn item(&mut self, item: Item<'_>, listener: &mut dyn Listener) -> Result<ControlFlow<()>> {
        match item {
            Item::Event(Event::Copy(copy)) => {
                let is_meant = self.filter.pid.is_none_or(|pid| pid == copy.pid);
                if is_meant && self.range.has(self.session_ns(copy.start_ns)) {
                    self.player.play(Item::Event(Event::Copy(copy)));
                    // Changes are of memory here.
                    self.player.state.changes().clear();
                }
            }
            Item::Event(event) if !self.is_over => self.event(event, listener)?,
            // Names of frames are often written later.
            Item::Note(note) if !self.is_over || note.is_name() => {
                if let LogNote::Vanished(pid) = note {
                    self.end(pid, self.last_ns, listener)?;
                }
                if let Outcome::Report(mark) = self.player.play(Item::Note(note)) {
                    listener.report(&mark, self);
                    self.mark = Some(mark);
                }
            }
            _ => {}
        }
        Ok(match self.is_over && !self.is_log {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    fn event(&mut self, event: Event, listener: &mut dyn Listener) -> Result<()> {
        if let Event::Memory(memory) = &event {
            let time_ns = self.session_ns(memory.time_ns);
            self.first_ns.get_or_insert(time_ns);
        }
        let pid = event.pid();
        if self.filter.pid.is_some_and(|meant| meant != pid) || !self.is_of_device(&event) {
            return Ok(());
        }
        let time_ns = event.time_ns().map(|ns| self.session_ns(ns));
        let changes_memory = match &event {
            Event::Memory(_) => true,
            Event::Call(call) => call.result == 0 && call.function.op.is_memory(),
            _ => false,
        };
        if let Some(time_ns) = time_ns {
            if self.is_beyond(time_ns) {
                self.is_over |= changes_memory;
                return Ok(());
            }
            if let Event::Exit(_) | Event::Exec(_) = &event {
                self.end(pid, time_ns, listener)?;
            }
        }
        if let Some(time_ns) = time_ns.filter(|_| changes_memory) {
            self.begin_by(self.last_ns.max(time_ns));
        }
        let Outcome::Event(event, _) = self.player.play(Item::Event(event)) else {
            return Ok(());
        };
        let mut changes = std::mem::take(self.player.state.changes());
        self.changed_by(&event, &changes, listener)?;
        listener.event(&event, &changes, self)?;
        changes.clear();
        *self.player.state.changes() = changes;
        // The peak only ever grows.
        if self.ledger().peak_bytes > self.at_peak.gpu.total.bytes {
            self.at_peak = self.live;
            self.peak_changes = self.changes;
        }
        self.is_over |= self.until.is_some_and(|until| self.changes >= until);
        Ok(())
    }

    /// Whether an event is of the selected device, or may be.
    fn is_of_device(&self, event: &Event) -> bool {
        let device = match event {
            Event::Memory(memory) => memory.device,
            Event::Call(call) => call.device,
            _ => None,
        };
        let known = self.filter.device.zip(device.map(i64::from));
        known.is_none_or(|(selected, device)| selected == device)
    }

    /// Takes in the changes by an event. That of an export is one change; of a call, each has a row of its own in an
    /// export.
    fn changed_by(
        &mut self,
        event: &Event,
        changes: &[Change],
        listener: &mut dyn Listener,
    ) -> Result<()> {
        let (row, start_ns, end_ns) = match event {
            Event::Memory(row) => (Some(row), row.time_ns, row.time_ns),
            Event::Call(call) => (None, call.start_ns, call.end_ns),
            _ => return Ok(()),
        };
        let pid = event.pid();
        let (mut allocated, mut freed) = (None, None);
        for change in changes {
            let (changed, block, time_ns) = match change {
                Change::Allocated(block) => (&mut allocated, block, end_ns),
                Change::Freed(block) => {
                    let is_other = |row: &MemoryEvent| block.allocation.size_bytes != row.bytes;
                    self.findings.size_mismatches += u64::from(row.is_some_and(is_other));
                    (&mut freed, block, start_ns)
                }
                Change::Superseded(block) => {
                    self.findings.double_allocations += u64::from(row.is_some());
                    (&mut freed, block, end_ns)
                }
                Change::UnknownFree(_) => {
                    self.findings.unmatched_frees += u64::from(row.is_some());
                    continue;
                }
                _ => continue,
            };
            let one = *changed.insert(block.allocation);
            let process = self.ledger().process_of(pid);
            if row.is_none() {
                let both = (allocated.take(), freed.take());
                if process.is_some_and(|process| is_counted(process, &one)) {
                    self.changed((pid, one.belongs()), time_ns, both, listener)?;
                }
            }
        }
        row.map_or(Ok(()), |row| {
            let of = (pid, row.kind.belongs());
            self.changed(of, end_ns, (allocated, freed), listener)
        })
    }

    fn changed(
        &mut self,
        (pid, side): (u32, Belongs),
        time_ns: u64,
        (allocated, freed): (Option<Allocation>, Option<Allocation>),
        listener: &mut dyn Listener,
    ) -> Result<()> {
        let event_ns = self.session_ns(time_ns);
        self.changes += 1;
        if self.begin_by(self.last_ns.max(event_ns)) {
            self.findings.events += 1;
            self.findings.host_events += u64::from(side == Belongs::Host);
            self.spans.saw(pid, event_ns, event_ns);
        }
        let freed = freed.as_slice();
        self.tell(pid, event_ns, (allocated, freed, false), listener)
    }

    /// Enters memory that became live and that is no longer, at the end of its process or not.
    fn tell(
        &mut self,
        pid: u32,
        event_ns: i64,
        (allocated, freed, is_end): (Option<Allocation>, &[Allocation], bool),
        listener: &mut dyn Listener,
    ) -> Result<()> {
        self.last_ns = self.last_ns.max(event_ns);
        let is_selected = self.begin_by(self.last_ns);
        let mut live = self.live;
        let Some(process) = self.player.state.ledger.process_of(pid) else {
            return Ok(());
        };
        for one in freed {
            let trace = self.trace(process, one);
            for total in live.totals(trace, one) {
                total.subtract(one.size_bytes);
            }
        }
        if let Some(one) = &allocated {
            let trace = self.trace(process, one);
            for total in live.totals(trace, one) {
                total.add(one.size_bytes);
            }
        }
        self.live = live;
        if allocated.is_none() && freed.is_empty() {
            return Ok(());
        }
        let first_ns = self.first_ns.unwrap_or(event_ns);
        listener.memory(&MemoryChange {
            time_ns: self.last_ns.saturating_sub(first_ns),
            event_ns: event_ns.saturating_sub(first_ns),
            process,
            incarnation: self.incarnation(pid),
            is_end,
            allocated,
            freed,
            live: &self.live,
            is_selected,
        })
    }

    /// A process is about to end: the memory that it holds was never freed, and is no longer live.
    fn end(&mut self, pid: u32, event_ns: i64, listener: &mut dyn Listener) -> Result<()> {
        let Some(process) = self.player.state.ledger.process_of(pid) else {
            return Ok(());
        };
        listener.end(process, event_ns);
        let freed: Vec<_> = self.allocations(process).copied().collect();
        if !freed.is_empty() {
            self.tell(pid, event_ns, (None, &freed, true), listener)?;
        }
        *self.ended.entry(pid).or_default() += 1;
        Ok(())
    }

    /// Number of earlier processes with this id.
    pub(crate) fn incarnation(&self, pid: u32) -> u32 {
        self.ended.get(&pid).copied().unwrap_or(0)
    }

    /// The process with this id, after so many others with it.
    pub fn process(&self, pid: u32, incarnation: u32) -> Option<&Process> {
        let mut ended = self.ledger().ended(true).filter(|one| one.pid == pid);
        let ended = ended.nth(incarnation as usize);
        ended.or_else(|| self.ledger().process_of(pid))
    }

    /// Start of the selected time, nanoseconds of the session; `None` if it is the start of the file.
    fn begin_ns(&self) -> Option<i64> {
        let (from, first) = self.filter.begin_ns().zip(self.first_ns)?;
        Some(first.saturating_add(from))
    }

    fn is_beyond(&self, time_ns: i64) -> bool {
        let to = self.filter.end_ns().zip(self.first_ns);
        to.is_some_and(|(to, first)| time_ns.saturating_sub(first) > to)
    }

    /// Whether events at `time_ns` are selected. At the first selected event, the memory that is
    /// live becomes the peak.
    fn begin_by(&mut self, time_ns: i64) -> bool {
        let from = self.begin_ns();
        if from.is_some_and(|from| time_ns < from) {
            return false;
        }
        if self.begun_ns.is_none() {
            self.begun_ns = Some(from.unwrap_or(time_ns));
            if let Some(from) = from {
                let begin_ns = self.event_ns(from);
                self.player.state.ledger.reset_sums(begin_ns);
            }
            self.at_peak = self.live;
            self.peak_changes = self.changes;
        }
        true
    }

    /// Ends the events. If none of them was in the selected time, the peak is the memory that was
    /// live at its start.
    fn finish(&mut self) {
        if let Some(from) = self.begin_ns().filter(|_| self.last_ns().is_some()) {
            self.begin_by(self.last_ns.max(from));
        }
    }

    /// Sets the names and identities of processes and threads, which an export has in its tables.
    fn introduce(&mut self, database: &Database, session: &Session) -> Result<()> {
        let last = session.gpus.keys().max().copied().unwrap_or(-1);
        let device = |id: i64| DeviceIdentity {
            physical_index: None,
            // Format of NVML.
            uuid: session.gpu_uuids.get(&id).map(|uuid| match uuid {
                named if named.starts_with("GPU-") || named.starts_with("MIG-") => named.clone(),
                bare => format!("GPU-{bare}"),
            }),
        };
        let devices: Vec<_> = (0..=last.min(MAX_GPUS)).map(device).collect();
        let ledger = &mut self.player.state.ledger;
        for process in ledger.processes_mut() {
            // Exports have the path of the program.
            let name = session.processes.get(&process.pid);
            let name = name.map(|name| name.rsplit('/').next().unwrap_or(name));
            process.comm = name.map(str::to_owned);
            process.uid = session.users.get(&process.pid).copied();
            process.identity.devices.clone_from(&devices);
        }
        let resolver = gpuprobe_recording::Resolver::new(database)?;
        database.each("ThreadNames", "globalTid, nameId", "", |found| {
            if let Some((thread, name)) = row::integer(found, 0).zip(row::integer(found, 1)) {
                let of_process = |process: &&mut Process| process.pid == ids::pid(thread);
                for process in ledger.processes_mut().filter(of_process) {
                    process.name_thread(ids::tid(thread), &resolver.string(name));
                }
            }
        })?;
        Ok(())
    }
}

/// Whether an allocation is counted in `process`: of a traced kind, and not memory of others.
fn is_counted(process: &Process, allocation: &Allocation) -> bool {
    process.counted.contains(allocation.kind()) && allocation.belongs() != Belongs::Elsewhere
}
