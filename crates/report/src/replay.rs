//! `gpuprobe replay`: a recording through the live reporters.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::DateTime;
use rusqlite::types::ValueRef;

use crate as report;
use crate::bandwidth::CopyReport;
use crate::records;
use crate::{Format, View};
use gpuprobe_cuda::{FUNCTIONS, KindSet, MemoryKind, Modes};
use gpuprobe_model::Lost;
use gpuprobe_model::activity::Batch;
use gpuprobe_model::clock::Clock;
use gpuprobe_model::event::Event;
use gpuprobe_model::link::Link;
use gpuprobe_recording::log::{self, Entry, Mark};
use gpuprobe_recording::player::{Played, Player};
use gpuprobe_recording::{Database, Session, row};

/// What `gpuprobe replay` does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The recording.
    pub file: PathBuf,
    /// Format of the reports.
    pub format: Format,
    /// Rows per thread or process; `None` for all.
    pub top: Option<usize>,
    /// What of live memory is listed.
    pub view: View,
    /// Write every single copy.
    pub per_call: bool,
    /// Write every single record of what the GPU did.
    pub per_record: bool,
    /// Write the last report only.
    pub only_last: bool,
    /// Columns of a line, in text; `None` for lines of any length.
    pub columns: Option<usize>,
}

/// Writes the reports that the recorded run wrote, or would have written.
///
/// # Errors
/// The file is no recording, or one of another version; those of the file and of `out`.
pub fn run(config: &Config, out: &mut dyn Write) -> Result<()> {
    let database = Database::open(&config.file)?;
    let shown = config.file.display();
    if !database.is_ours() {
        bail!("{shown} is no recording of gpuprobe; `gpuprobe report` reads it");
    }
    let session = Session::read(&database)?;
    let note = |key: &str| session.notes.get(key).map_or("", String::as_str);
    if note("record_layout") != log::layout() {
        bail!(
            "{shown} was recorded by gpuprobe {}, whose records this version does not know; \
             `gpuprobe report` reads it",
            note("version")
        );
    }
    let mut replay = Replay {
        config,
        player: Player::new(modes(note("modes")), kinds(note("kinds"))),
        clock: clock(note("began"), note("monotonic_ns")),
        rows: rows(&database)?,
        writer: config.format.writer(config.per_call || config.per_record),
        batches: Vec::new(),
        history: report::History::default(),
        last: None,
        out,
    };
    replay.writer.resize(config.columns);
    let Some(mut statement) = database.select("GPUPROBE_LOG", &["entries"], "ORDER BY seq")? else {
        return Ok(());
    };
    let mut batches = statement.query([]).map_err(|e| database.explain(e))?;
    while let Some(found) = batches.next().map_err(|e| database.explain(e))? {
        if let Ok(ValueRef::Blob(batch)) = found.get_ref(0) {
            replay.batch(batch)?;
        }
    }
    replay.finish()
}

fn modes(text: &str) -> Modes {
    let has = |name| text.split(' ').any(|word| word == name);
    Modes {
        memleak: has("memleak"),
        cudatrace: has("cudatrace"),
        bandwidth_util: has("bandwidth-util"),
        activity: has("activity"),
    }
}

fn kinds(text: &str) -> KindSet {
    let named = |kind: &MemoryKind| text.split(' ').any(|word| word == kind.name());
    let is_meant = |kind: &MemoryKind| !kind.is_traced() || named(kind);
    MemoryKind::ALL.into_iter().filter(is_meant).collect()
}

fn clock(wall: &str, monotonic_ns: &str) -> Clock {
    match (DateTime::parse_from_rfc3339(wall), monotonic_ns.parse()) {
        (Ok(wall), Ok(monotonic_ns)) => Clock::at(wall, monotonic_ns),
        _ => Clock::now(),
    }
}

/// From rows of the recorded function table to rows of ours.
fn rows(database: &Database) -> Result<HashMap<u16, u16>> {
    let ours: HashMap<_, _> = FUNCTIONS
        .iter()
        .zip(0u16..)
        .map(|(f, row)| (f.symbol, row))
        .collect();
    let mut rows = HashMap::new();
    database.each("GPUPROBE_FUNCTIONS", &["line", "symbol"], "", |found| {
        let theirs = row::integer(found, 0).and_then(|line| u16::try_from(line).ok());
        let symbol = row::text(found, 1);
        if let (Some(theirs), Some(our)) = (theirs, symbol.and_then(|s| ours.get(s.as_str()))) {
            rows.insert(theirs, *our);
        }
    })?;
    Ok(rows)
}

struct Replay<'a> {
    config: &'a Config,
    player: Player,
    clock: Clock,
    rows: HashMap<u16, u16>,
    writer: Box<dyn report::Writer>,
    /// What the GPU did since the last report, if that is to be written.
    batches: Vec<Batch>,
    history: report::History,
    /// The last report, if only that is wanted.
    last: Option<report::Report>,
    out: &'a mut dyn Write,
}

impl Replay<'_> {
    fn batch(&mut self, batch: &[u8]) -> Result<()> {
        for entry in log::entries(batch) {
            let played = match entry {
                Entry::Record(bytes) => self.record(bytes),
                Entry::Count(mut key, runs, captured) => {
                    let Some(row) = self.rows.get(&key.row) else {
                        continue;
                    };
                    key.row = *row;
                    self.player.play(Entry::Count(key, runs, captured))
                }
                note @ Entry::Note(_) => self.player.play(note),
            };
            match played {
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
        }
        Ok(())
    }

    /// Writes what the GPU did since the last report.
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

    /// Plays a record, with the row that its function has in our table.
    fn record(&mut self, bytes: &[u8]) -> Played {
        let Some(offset) = log::row_offset(bytes) else {
            return self.player.play(Entry::Record(bytes));
        };
        let theirs = u16::from_ne_bytes([bytes[offset], bytes[offset + 1]]);
        let Some(row) = self.rows.get(&theirs) else {
            return Played::Nothing;
        };
        let mut bytes = bytes.to_vec();
        bytes[offset..offset + 2].copy_from_slice(&row.to_ne_bytes());
        self.player.play(Entry::Record(&bytes))
    }

    fn report(&mut self, mark: &Mark) -> Result<()> {
        let link = mark.link.map(|(gigatransfers, lanes)| Link {
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
        };
        let mut report = report::build(
            &self.player.state,
            self.lost(),
            &options,
            report::Sources {
                clock: Some(&self.clock),
                usage: mark.usage.as_ref(),
                history: Some(&self.history),
                symbols: &self.player.symbols,
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

    /// The time of a report on the clock of events, for recordings that do not have it.
    fn monotonic_ns(&self, mark: &Mark) -> u64 {
        let began = self.clock.wall(self.clock.monotonic_ns());
        let since = DateTime::parse_from_rfc3339(&mark.time)
            .ok()
            .and_then(|time| (time - began).num_nanoseconds())
            .and_then(|ns| u64::try_from(ns).ok());
        self.clock.monotonic_ns().saturating_add(since.unwrap_or(0))
    }

    fn lost(&self) -> Lost {
        let lost = serde_json::to_value(&self.player.lost);
        lost.and_then(serde_json::from_value).unwrap_or_default()
    }

    fn finish(self) -> Result<()> {
        let written = match &self.last {
            Some(report) => {
                let mut writer = self.writer;
                writer.write(report, self.out)
            }
            None => Ok(()),
        };
        written
            .and_then(|()| self.out.flush())
            .context("cannot write the report")
    }
}
