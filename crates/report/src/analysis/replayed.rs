//! The log of a recording with tensors, event by event.

use std::ops::ControlFlow;

use anyhow::Result;

use crate::memleak::{PytorchReport, tensor_reports};
use crate::{Options, ReportSources};
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::KnownFrames;
use gpuprobe_recording::log::{Item, LogReader};
use gpuprobe_recording::player::{Played, Player};
use gpuprobe_recording::{Database, Session};

/// The table of tensors of a recording.
const TABLE: &str = "GPUPROBE_TENSORS";

/// The state of a recording at some time.
pub(crate) struct Replayed {
    player: Player,
    clock: WallClock,
}

impl Replayed {
    /// Replays the recording `database` up to `until_ns` of the session, or to its end; `see` is
    /// called with each event that was applied, and the state after it. Returns `None` if it has no
    /// tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has records that this version does not know.
    pub(crate) fn play(
        database: &Database,
        until_ns: Option<i64>,
        mut see: impl FnMut(&Event, &Player),
    ) -> Result<Option<Self>> {
        if !database.has_rows(TABLE)? {
            return Ok(None);
        }
        let session = Session::read(database)?;
        let log = LogReader::new(database, &session)?;
        let clock = log.wall_clock();
        let until_ns = until_ns.map(|ns| clock.monotonic_ns().saturating_add_signed(ns));
        let mut player = Player::new(log.modes(), log.kinds());
        let mut is_over = false;
        log.play(|item| {
            if let (Some(until_ns), Item::Event(event)) = (until_ns, &item) {
                is_over |= event.memory_ns() > Some(until_ns);
            }
            // Names of frames are often written later.
            let is_name = matches!(&item, Item::Note(note) if note.is_name());
            if (!is_over || is_name)
                && let Played::Event(event, _) = player.play(item)
            {
                see(&event, &player);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Some(Self { player, clock }))
    }

    /// Converts a time of the clock of events to one of the session.
    pub(crate) fn session_ns(&self, event_ns: u64) -> i64 {
        self.clock.since_start(event_ns)
    }

    /// Tensors of process `pid`, with all call sites.
    pub(crate) fn sites(&self, pid: u32) -> Vec<PytorchReport> {
        let Some(process) = self.process(pid) else {
            return Vec::new();
        };
        let all = Options::of_all_sites();
        let options = Options {
            now_ns: self.clock.monotonic_ns().saturating_add(all.now_ns),
            stacks: true,
            ..all
        };
        let sources = ReportSources::of_file(Some(&self.clock), &self.player.symbols);
        let (mut all, others) = tensor_reports(process, &options, sources);
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
