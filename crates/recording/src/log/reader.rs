//! The log of a recording, and its metadata.

use std::collections::HashMap;

use anyhow::{Result, bail};
use chrono::DateTime;
use rusqlite::types::ValueRef;

use gpuprobe_cuda::{FUNCTIONS, KindSet, MemoryKind, Modes};
use gpuprobe_model::clock::WallClock;

use super::raw;
use crate::log;
use crate::memory_rows::RowFilter;
use crate::source::{Counts, Source, Take};
use crate::{Database, Session, row};

/// The table of the log.
pub const LOG: &str = "GPUPROBE_LOG";

/// A recording with a log that this version can replay.
pub struct LogReader<'a> {
    database: &'a Database,
    session: &'a Session,
    /// Rows of the current function table, by row of the recorded one.
    rows: HashMap<u16, u16>,
}

impl<'a> LogReader<'a> {
    /// The log of the recording `database`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not a recording, or if its records have another layout.
    pub fn new(database: &'a Database, session: &'a Session) -> Result<Self> {
        let shown = database.path().display();
        if !database.is_ours() {
            bail!("{shown} is no recording of gpuprobe; `gpuprobe report` reads it");
        }
        if !Self::is_known(session) {
            let version = session.note("version");
            bail!(
                "{shown} was recorded by gpuprobe {version}, whose records this version does not know; \
                 `gpuprobe report` reads it"
            );
        }
        Ok(Self {
            database,
            session,
            rows: rows(database)?,
        })
    }

    /// Whether `session` is of a recording with a log that this version can replay.
    fn is_known(session: &Session) -> bool {
        let is = |key, value| session.notes.get(key).is_some_and(|noted| noted == value);
        is("log", log::VERSION) || is("record_layout", raw::LAYOUT)
    }

    /// Whether `session` is of a recording with a log of another version.
    pub fn is_unknown(session: &Session) -> bool {
        let has = |key| session.notes.contains_key(key);
        (has("log") || has("record_layout")) && !Self::is_known(session)
    }

    /// Whether `session` is of a recording with a log of memory that this version can replay.
    pub fn has_memory(session: &Session) -> bool {
        Self::is_known(session) && modes(session).memleak
    }

    /// Modes of the recorded run of `session`; `None` if it is no recording.
    pub fn recorded(session: &Session) -> Option<Modes> {
        let is_said = session.notes.contains_key("modes");
        is_said.then(|| modes(session))
    }

    /// Whether it has one of copies, and of memory only the addresses that these go between.
    pub fn has_only_copies(session: &Session) -> bool {
        let modes = modes(session);
        Self::is_known(session) && modes.bandwidth_util && !modes.memleak
    }

    /// When the recording ended, on the clock of its events, nanoseconds, if that is known.
    pub fn end_ns(&self) -> Option<u64> {
        let stop_ns = u64::try_from(self.session.stop_ns?).ok()?;
        Some(self.wall_clock().monotonic_ns().saturating_add(stop_ns))
    }

    /// The clock of its events.
    pub fn wall_clock(&self) -> WallClock {
        let wall = DateTime::parse_from_rfc3339(self.session.note("began"));
        match (wall, self.session.note("monotonic_ns").parse()) {
            (Ok(wall), Ok(monotonic_ns)) => WallClock::at(wall, monotonic_ns),
            _ => WallClock::now(),
        }
    }
}

impl Source for LogReader<'_> {
    fn clock(&self) -> Option<WallClock> {
        Some(self.wall_clock())
    }

    fn kinds(&self) -> KindSet {
        let kinds = self.session.note("kinds");
        let named = |kind: &MemoryKind| kinds.split(' ').any(|word| word == kind.name());
        let is_meant = |kind: &MemoryKind| !kind.is_traced() || named(kind);
        MemoryKind::ALL.into_iter().filter(is_meant).collect()
    }

    fn modes(&self) -> Modes {
        modes(self.session)
    }

    fn is_log(&self) -> bool {
        true
    }

    fn play(&self, _: RowFilter, take: &mut Take<'_>) -> Result<Counts> {
        let selected = self.database.select(LOG, "entries", "ORDER BY seq")?;
        let Some(mut statement) = selected else {
            return Ok(Counts::default());
        };
        let explain = |error| self.database.explain(error);
        let mut batches = statement.query([]).map_err(explain)?;
        let mut read = 0u64;
        let pass = self.database.pass("log", &[LOG]);
        while let Some(found) = batches.next().map_err(explain)? {
            pass.step();
            let Ok(ValueRef::Blob(batch)) = found.get_ref(0) else {
                continue;
            };
            read = read.saturating_add(batch.len() as u64);
            self.database.check_has(read)?;
            for item in log::items(batch, |row| self.rows.get(&row).copied()) {
                if take(item)?.is_break() {
                    return Ok(Counts::default());
                }
            }
        }
        Ok(Counts::default())
    }
}

/// Modes of the recorded run.
fn modes(session: &Session) -> Modes {
    let modes = session.note("modes");
    let has = |name| modes.split(' ').any(|word| word == name);
    Modes {
        memleak: has("memleak"),
        cudatrace: has("cudatrace"),
        bandwidth_util: has("bandwidth-util"),
        activity: has("activity"),
    }
}

/// Maps rows of the recorded function table to rows of the current one.
fn rows(database: &Database) -> Result<HashMap<u16, u16>> {
    let ours: HashMap<_, _> = FUNCTIONS
        .iter()
        .zip(0u16..)
        .map(|(f, row)| (f.symbol, row))
        .collect();
    let mut rows = HashMap::new();
    database.each("GPUPROBE_FUNCTIONS", "line, symbol", "", |found| {
        let theirs = row::integer(found, 0).and_then(|line| u16::try_from(line).ok());
        let symbol = row::text(found, 1);
        if let (Some(theirs), Some(our)) = (theirs, symbol.and_then(|s| ours.get(s.as_str()))) {
            rows.insert(theirs, *our);
        }
    })?;
    Ok(rows)
}
