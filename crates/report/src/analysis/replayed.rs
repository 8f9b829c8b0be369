//! State of a recording at some time, from a replay of its log through the engine: what its tables
//! do not have.

use std::ops::ControlFlow;

use anyhow::Result;

use super::Filter;
use crate::incidents::{self, IncidentReport, RefusedRequests};
use crate::memleak::{self, Memleak, PytorchReport, tensor_reports};
use crate::{Options, ReportSources};
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_recording::log::{Item, LOG, LogReader, Mark};
use gpuprobe_recording::player::{Played, Player};
use gpuprobe_recording::{Database, Session};

/// The table of tensors of a recording.
const TABLE: &str = "GPUPROBE_TENSORS";
/// The table of out-of-memory incidents.
const INCIDENTS: &str = "GPUPROBE_INCIDENTS";

/// The state of a recording at some time.
pub(crate) struct Replayed {
    player: Player,
    clock: WallClock,
    /// The last report of the run until then.
    mark: Option<Mark>,
}

/// The part of a log that is replayed.
#[derive(Clone, Copy, Debug)]
struct LogPart {
    /// Events of this process only.
    pid: Option<u32>,
    /// Events until this time of the session, nanoseconds.
    until_ns: Option<i64>,
}

impl LogPart {
    /// Events of all processes until this time, or all.
    fn until(until_ns: Option<i64>) -> Self {
        Self {
            pid: None,
            until_ns,
        }
    }
}

impl Replayed {
    /// Replays the recording `database` up to `until_ns` of the session, or to its end. Returns
    /// `None` if it has no tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has records that this version does not know.
    pub(crate) fn read(database: &Database, until_ns: Option<i64>) -> Result<Option<Self>> {
        Self::play(database, until_ns, |_, _| {})
    }

    /// Like [`Self::read`], if the recording has tensors or out-of-memory incidents.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Self::read`].
    pub(super) fn read_with_incidents(
        database: &Database,
        until_ns: Option<i64>,
    ) -> Result<Option<Self>> {
        let part = LogPart::until(until_ns);
        Self::play_of(database, &[TABLE, INCIDENTS], part, |_, _| {})
    }

    /// Like [`Self::read`], with all memory of what `filter` includes. Returns `None` if the
    /// file is of a run without `--memleak`, or has no log that this version can replay, or if the
    /// selected time begins later or one device is selected: an account of the log begins with it and has
    /// all devices.
    pub(super) fn read_memory(
        (database, session): (&Database, &Session),
        filter: &Filter,
        until_ns: Option<i64>,
    ) -> Result<Option<Self>> {
        let is_part = filter.device.is_some() || filter.from_ns.is_some();
        if is_part || !LogReader::has_memory(session) {
            return Ok(None);
        }
        let part = LogPart {
            pid: filter.pid,
            until_ns,
        };
        Self::play_of(database, &[LOG], part, |_, _| {})
    }

    /// Like [`Self::read`]; `see` is called with each event that was applied, and the state after
    /// it.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`Self::read`].
    pub(crate) fn play(
        database: &Database,
        until_ns: Option<i64>,
        see: impl FnMut(&Event, &Player),
    ) -> Result<Option<Self>> {
        Self::play_of(database, &[TABLE], LogPart::until(until_ns), see)
    }

    /// Replays `part` of a recording that has a row in one of `tables`.
    fn play_of(
        database: &Database,
        tables: &[&str],
        part: LogPart,
        mut see: impl FnMut(&Event, &Player),
    ) -> Result<Option<Self>> {
        let mut has_some = false;
        for table in tables {
            has_some |= database.has_rows(table)?;
        }
        if !has_some {
            return Ok(None);
        }
        let log = LogReader::open(database.path(), database.progress())?;
        let clock = log.clock();
        let until_ns = part.until_ns.map(|ns| of_events(&clock, ns));
        let mut player = Player::new(log.modes(), log.kinds());
        let mut last = None;
        log.play(until_ns, |item| {
            if let Item::Event(event) = &item
                && part.pid.is_some_and(|pid| event.pid() != pid)
            {
                return Ok(ControlFlow::Continue(()));
            }
            match player.play(item) {
                Played::Event(event, _) => see(&event, &player),
                Played::Report(mark) => last = Some(mark),
                Played::Nothing => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Some(Self {
            player,
            clock,
            mark: last,
        }))
    }

    /// Live memory at that time; `options` are those of the file, with times relative to the
    /// session.
    pub(super) fn memory(&self, options: &Options) -> Memleak {
        let sources = ReportSources {
            usage: self.mark.as_ref().and_then(|mark| mark.usage.as_ref()),
            ..ReportSources::of_file(Some(&self.clock), &self.player.symbols)
        };
        memleak::build(self.ledger(), &self.options(options), sources)
    }

    /// Options of the file, with the time on the clock of events.
    fn options(&self, options: &Options) -> Options {
        let now_ns = i64::try_from(options.now_ns).unwrap_or(i64::MAX);
        Options {
            now_ns: of_events(&self.clock, now_ns),
            stacks: true,
            ..*options
        }
    }

    /// Adds the tensors of its processes to `memory`; `options` are those of the file.
    pub(super) fn add_tensors(&self, mut memory: Memleak, options: &Options) -> Memleak {
        for process in &mut memory.processes {
            process.add_tensors(self.reports(process.pid, options));
        }
        memory
    }

    /// Reports of the tensors of process `pid`, of PyTorch and of TensorFlow; `options` are those
    /// of the file, with times relative to the session.
    fn reports(&self, pid: u32, options: &Options) -> (Vec<PytorchReport>, Vec<PytorchReport>) {
        let Some(process) = self.process(pid) else {
            return Default::default();
        };
        let sources = ReportSources::of_file(Some(&self.clock), &self.player.symbols);
        tensor_reports(process, &self.options(options), sources)
    }

    /// The out-of-memory incidents and their number; `options` are those of the file.
    pub(super) fn incidents(
        &self,
        options: &Options,
    ) -> (Vec<IncidentReport>, Option<RefusedRequests>) {
        let sources = ReportSources::of_file(Some(&self.clock), &self.player.symbols);
        incidents::build(self.ledger(), options, sources)
    }

    /// Converts a time of the clock of events to one of the session.
    pub(crate) fn session_ns(&self, monotonic_ns: u64) -> i64 {
        let since = i128::from(monotonic_ns) - i128::from(self.clock.monotonic_ns());
        i64::try_from(since).unwrap_or_default()
    }

    /// Tensors of process `pid`, with all call sites.
    pub(crate) fn sites(&self, pid: u32) -> Vec<PytorchReport> {
        let (mut all, others) = self.reports(pid, &Options::of_all_sites());
        all.extend(others);
        all
    }

    /// Memory accounts at that time.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.player.state.ledger
    }

    /// Names of the frames in the recording.
    pub(crate) fn symbols(&self) -> &KnownFrames {
        &self.player.symbols
    }

    fn process(&self, pid: u32) -> Option<&Process> {
        let ledger = self.ledger();
        ledger
            .process_of(pid)
            .or_else(|| ledger.ended(true).find(|process| process.pid == pid))
    }
}

/// Converts a time of the session to one of the clock of events.
fn of_events(clock: &WallClock, session_ns: i64) -> u64 {
    clock.monotonic_ns().saturating_add_signed(session_ns)
}
