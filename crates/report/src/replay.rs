//! Implements `gpuprobe replay`: plays a recording through the live reporters.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::DateTime;

use crate as report;
use crate::bandwidth::CopyReport;
use crate::records;
use crate::{ReportWriter, View};
use gpuprobe_model::Lost;
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::Event;
use gpuprobe_model::link::PcieLink;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::log::{Item, LogReader, Mark};
use gpuprobe_recording::player::{Played, Player};
use gpuprobe_recording::{Database, Session};

/// Options of `gpuprobe replay`.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// The recording to replay.
    pub file: PathBuf,
    /// Limit on the rows per thread or process; `None` for all.
    pub top: Option<usize>,
    /// Grouping, filters and order of live memory.
    pub view: View,
    /// Write every single copy.
    pub per_call: bool,
    /// Write every single activity record.
    pub per_record: bool,
    /// Write the last report only.
    pub only_last: bool,
}

/// Writes with `writer` the reports that the recorded run wrote, or would have written; `progress`
/// shows how far it is.
///
/// # Errors
///
/// Returns an error if the file cannot be read, if it is not a recording of a supported version, or
/// if `out` cannot be written.
pub fn run(
    config: &ReplayConfig,
    writer: &mut dyn ReportWriter,
    out: &mut dyn Write,
    progress: &SharedProgress,
) -> Result<()> {
    let database = Database::open_with(&config.file, progress)?;
    let session = Session::read(&database)?;
    let log = LogReader::new(&database, &session)?;
    let mut replay = Replay {
        config,
        player: Player::new(log.modes(), log.kinds()),
        clock: log.wall_clock(),
        writer,
        batches: Vec::new(),
        history: report::History::default(),
        last: None,
        out,
    };
    log.play(|item| replay.item(item).map(ControlFlow::Continue))?;
    replay.finish()
}

struct Replay<'a> {
    config: &'a ReplayConfig,
    player: Player,
    clock: WallClock,
    writer: &'a mut dyn ReportWriter,
    /// Activity records since the last report, if they are to be written.
    batches: Vec<ActivityBatch>,
    history: report::History,
    /// The last report, if only that is to be written.
    last: Option<report::Report>,
    out: &'a mut dyn Write,
}

impl Replay<'_> {
    fn item(&mut self, item: Item<'_>) -> Result<()> {
        match self.player.play(item) {
            Played::Event(_, Some(transfer)) if self.config.per_call => {
                let copy = CopyReport::of(&transfer, &self.clock);
                self.writer
                    .write_copy(&copy, self.out)
                    .context("cannot write the report")?;
            }
            Played::Event(Event::Activity(batch), _) if self.config.per_record => {
                self.batches.push(batch);
            }
            Played::Report(mark) => {
                self.records()?;
                self.report(&mark)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the activity records since the last report.
    fn records(&mut self) -> Result<()> {
        let began_ns = self.clock.monotonic_ns();
        let activities = &self.player.state.activity;
        for record in &records::in_order(std::mem::take(&mut self.batches)) {
            let line = records::line(record, activities, began_ns);
            self.writer
                .write_activity(&line, self.out)
                .context("cannot write the report")?;
        }
        Ok(())
    }

    fn report(&mut self, mark: &Mark) -> Result<()> {
        let link = mark.link.map(|(gigatransfers, lanes)| PcieLink {
            gigatransfers,
            lanes,
        });
        let options = report::Options {
            modes: self.player.modes,
            top: self.config.top,
            view: self.config.view,
            stacks: mark.stacks,
            host_wide: mark.host_wide,
            now_ns: mark.now_ns.unwrap_or_else(|| self.monotonic_ns(mark)),
            is_final: mark.is_final,
            allocations: true,
            since_last: Duration::from_nanos(mark.since_last_ns),
            since_start: Duration::from_nanos(mark.since_start_ns),
            link,
            ..report::Options::default()
        };
        let mut report = report::build(
            &self.player.state,
            Lost::from_names(&self.player.lost),
            &options,
            report::ReportSources {
                clock: Some(&self.clock),
                usage: mark.usage.as_ref(),
                lost_by_user: &mark.lost_by_user,
                history: Some(&self.history),
                launches: None,
                symbols: &self.player.symbols,
                trace: None,
            },
        );
        let ledger = &self.player.state.ledger;
        self.history.note(ledger, &report, options.now_ns);
        if let Ok(time) = DateTime::parse_from_rfc3339(&mark.time) {
            report.time = Some(time);
        }
        self.player.state.mark_reported();
        if self.config.only_last {
            self.last = Some(report);
            return Ok(());
        }
        self.writer
            .write(&report, self.out)
            .context("cannot write the report")
    }

    /// Time of a report on the clock of events, for recordings without it.
    fn monotonic_ns(&self, mark: &Mark) -> u64 {
        let began = self.clock.wall(self.clock.monotonic_ns());
        let since = DateTime::parse_from_rfc3339(&mark.time)
            .ok()
            .and_then(|time| (time - began).num_nanoseconds())
            .and_then(|ns| u64::try_from(ns).ok());
        self.clock.monotonic_ns().saturating_add(since.unwrap_or(0))
    }

    fn finish(self) -> Result<()> {
        if let Some(report) = &self.last {
            let written = self.writer.write(report, self.out);
            written.context("cannot write the report")?;
        }
        self.out.flush().context("cannot write the report")
    }
}
