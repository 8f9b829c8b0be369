//! Tensors at some time of a recording, and the out-of-memory incidents until then, from a replay
//! of its log through the engine.

use anyhow::Result;

use crate::incidents::{self, IncidentReport, RefusedRequests};
use crate::memleak::{PytorchReport, tensor_reports};
use crate::tape::Tape;
use crate::{Options, ReportSources};
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event;
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_recording::Database;
use gpuprobe_recording::log::LogEntry;
use gpuprobe_recording::player::{Played, Player};

/// The table of tensors of a recording.
const TABLE: &str = "GPUPROBE_TENSORS";
/// The table of out-of-memory incidents.
const INCIDENTS: &str = "GPUPROBE_INCIDENTS";

/// The state of a recording at some time.
pub(crate) struct TensorState {
    player: Player,
    clock: WallClock,
}

impl TensorState {
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
        Self::play_of(database, &[TABLE, INCIDENTS], until_ns, |_, _| {})
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
        Self::play_of(database, &[TABLE], until_ns, see)
    }

    /// Replays a recording that has a row in one of `tables`.
    fn play_of(
        database: &Database,
        tables: &[&str],
        until_ns: Option<i64>,
        mut see: impl FnMut(&Event, &Player),
    ) -> Result<Option<Self>> {
        let mut has_some = false;
        for table in tables {
            has_some |= database.has_rows(table)?;
        }
        if !has_some {
            return Ok(None);
        }
        let tape = Tape::open(database.path(), database.progress())?;
        let clock = tape.clock();
        let until_ns = until_ns.map(|ns| of_events(&clock, ns));
        let mut player = Player::new(tape.modes(), tape.kinds());
        let mut is_over = false;
        tape.play(|entry| {
            if let LogEntry::Record(bytes) = &entry {
                let time_ns = until_ns.and_then(|_| time_of(bytes));
                is_over |= time_ns > until_ns;
                if is_over {
                    return Ok(());
                }
            }
            // Frame names often follow later in the log.
            if let Played::Event(event, _) = player.play(entry) {
                see(&event, &player);
            }
            Ok(())
        })?;
        Ok(Some(Self { player, clock }))
    }

    /// Reports of the tensors of process `pid`, of PyTorch and of TensorFlow; `options` are those
    /// of the file, with times relative to the session.
    pub(super) fn reports(
        &self,
        pid: u32,
        options: &Options,
    ) -> (Vec<PytorchReport>, Vec<PytorchReport>) {
        let Some(process) = self.process(pid) else {
            return Default::default();
        };
        let now_ns = i64::try_from(options.now_ns).unwrap_or(i64::MAX);
        let options = Options {
            now_ns: of_events(&self.clock, now_ns),
            stacks: true,
            ..*options
        };
        let sources = ReportSources::of_file(Some(&self.clock), &self.player.symbols);
        tensor_reports(process, &options, sources)
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

/// Time of a record, if it is about memory.
fn time_of(bytes: &[u8]) -> Option<u64> {
    match event::decode(bytes).ok()? {
        Event::Tensor(tensor) => Some(tensor.time_ns),
        Event::OutOfMemory(told) => Some(told.time_ns),
        Event::Call(call) => Some(call.end_ns),
        _ => None,
    }
}
