//! Writer of a recording, on its own thread.
//!
//! It writes rows for events and their changes and keeps no accounts. If writing fails, it prints
//! one message and leaves a valid file, and tracing continues.

mod activity;
mod chains;
mod contexts;
mod facts;
mod file;
mod gpus;
mod incidents;
mod launches;
mod rows;
mod schema;
mod tables;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rusqlite::Connection;

use super::batch::LogBatch;
use super::recorder::RecorderState;
use gpuprobe_os::say;

pub use facts::Facts;

use file::RecordingFile;
use rows::Rows;
use tables::Tables;

/// Maximum age of uncommitted rows.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// Approximate number of rows per transaction: it must fit into the reserved space.
const MAX_ROWS: u64 = 20_000;

/// Writes a recording.
pub(super) struct RecordingWriter {
    file: RecordingFile,
    facts: Facts,
    max_bytes: Option<u64>,
}

/// Number of calls in a complete file, and whether it has reached its maximum size before the end of the run.
type Written = (i64, bool);

impl RecordingWriter {
    /// Creates the new file `path` with the tables that do not depend on events.
    pub(super) fn create(path: &Path, facts: Facts, max_bytes: Option<u64>) -> Result<Self> {
        let file = RecordingFile::create(path)?;
        let written = file.connection.execute_batch("BEGIN").and_then(|()| {
            facts.write(&mut Tables::new(&file.connection, 0))?;
            file.connection.execute_batch("COMMIT")
        });
        written.with_context(|| format!("cannot write to {}", path.display()))?;
        Ok(Self {
            file,
            facts,
            max_bytes,
        })
    }

    /// Writes batches until the channel is closed or the file is full; on a thread of its own, which drops its rights.
    pub(super) fn run(self, batches: &Receiver<LogBatch>, shared: &RecorderState) {
        self.file.user.stay_in(&self.file.folder);
        let written = self.write(batches, shared);
        self.close(written, shared);
    }

    fn write(
        &self,
        batches: &Receiver<LogBatch>,
        shared: &RecorderState,
    ) -> rusqlite::Result<Written> {
        let connection = &self.file.connection;
        let most = self.max_bytes.unwrap_or(u64::MAX);
        let mut writing = Writing {
            connection,
            rows: Rows::new(connection, &self.facts),
            sequence: 0,
            written: 0,
            round: Instant::now(),
        };
        let is_full = loop {
            let wait = COMMIT_EVERY.saturating_sub(writing.round.elapsed());
            match batches.recv_timeout(wait) {
                Ok(batch) => {
                    let bytes = batch.bytes();
                    writing.batch(batch)?;
                    shared.queued.fetch_sub(bytes, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break false,
            }
            if writing.advance()? && self.file.bytes()? >= most {
                break true;
            }
        };
        Ok((writing.finish(is_full)?, is_full))
    }

    /// Closes the file and prints the result.
    fn close(self, written: rusqlite::Result<Written>, shared: &RecorderState) {
        let mut file = self.file;
        let path = file.path.clone();
        let shown = path.display();
        let (calls, is_full) = match written {
            _ if shared.discarded.load(Ordering::Relaxed) => return file.remove(),
            Ok(written) => written,
            Err(error) => {
                let why = file::explain(&error);
                shared.stop(format_args!(
                    "cannot write to {shown}: {why}; what was recorded until now can be read"
                ));
                file.reserve = None;
                leave_valid(&file.connection, &why);
                if let Err(error) = file.close() {
                    tracing::debug!("{shown}: {}", file::explain(&error));
                }
                return;
            }
        };
        if let Err(error) = file.close() {
            say(format_args!(
                "warning: {shown} needs {shown}-wal beside it: {}",
                file::explain(&error)
            ));
        }
        match is_full {
            false if shared.is_quiet.load(Ordering::Relaxed) => {}
            false => say(format_args!("recorded {calls} calls in {shown}")),
            true => shared.stop(format_args!(
                "{shown} has reached its --max-file-size, with {calls} calls"
            )),
        }
    }
}

/// After an error: keeps committed rows and marks the recording as incomplete.
fn leave_valid(connection: &Connection, why: &str) {
    // Fails where no transaction is open.
    let _ = connection.execute_batch("ROLLBACK");
    let sql = "INSERT OR REPLACE INTO GPUPROBE_META VALUES ('stopped', ?)";
    if let Err(error) = connection.execute(sql, [why]) {
        tracing::debug!("{error}");
    }
}

/// A file that is being written in transactions.
struct Writing<'c> {
    connection: &'c Connection,
    rows: Rows<'c>,
    /// Number of log chunks written.
    sequence: i64,
    /// Approximate number of rows in the transaction.
    written: u64,
    /// Start of the current round.
    round: Instant,
}

impl Writing<'_> {
    fn begin(&mut self) -> rusqlite::Result<()> {
        match self.connection.is_autocommit() {
            true => self.connection.execute_batch("BEGIN"),
            false => Ok(()),
        }
    }

    fn batch(&mut self, batch: LogBatch) -> rusqlite::Result<()> {
        self.begin()?;
        self.sequence += 1;
        self.written += 1;
        self.rows.log(self.sequence, &batch.log)?;
        let mut changes = &batch.changes[..];
        for step in batch.steps {
            self.written += self.rows.step(step, &mut changes)?;
        }
        Ok(())
    }

    /// Does periodic work. Returns whether something was committed.
    fn advance(&mut self) -> rusqlite::Result<bool> {
        let is_round = self.round.elapsed() >= COMMIT_EVERY;
        if is_round {
            self.round = Instant::now();
            self.rows.next_round();
            self.settle(false)?;
        }
        let is_open = !self.connection.is_autocommit();
        if !is_open || !is_round && self.written <= MAX_ROWS {
            return Ok(false);
        }
        self.commit()?;
        if is_round {
            // As far as readers permit, so that after a kill the rows are visible to readers without write-ahead logs.
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            self.connection.query_row(checkpoint, [], |_| Ok(()))?;
        }
        Ok(true)
    }

    /// Writes the records that were held long enough; at the end, all of them.
    fn settle(&mut self, is_end: bool) -> rusqlite::Result<()> {
        while let Some(batch) = self.rows.due(is_end) {
            self.begin()?;
            self.written += self.rows.activity(&batch)?;
            if self.written > MAX_ROWS {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Commits, with the current counters.
    fn commit(&mut self) -> rusqlite::Result<()> {
        self.rows.write_counts()?;
        self.rows.chains(false)?;
        self.connection.execute_batch("COMMIT")?;
        self.written = 0;
        Ok(())
    }

    /// Writes what is held and the reason of the end. Returns the number of calls.
    fn finish(&mut self, is_full: bool) -> rusqlite::Result<i64> {
        self.settle(true)?;
        self.begin()?;
        self.rows.chains(true)?;
        let calls = self.rows.calls();
        let is_complete = self.rows.dropped == 0 && !is_full;
        let ends = [
            ("ended_ns", self.rows.tables.last_ns.to_string()),
            ("complete", is_complete.to_string()),
        ];
        let why = is_full.then(|| ("stopped", "it has reached its --max-file-size".to_owned()));
        let remarks = self.rows.remarks();
        for (key, value) in ends.into_iter().chain(why).chain(remarks) {
            let sql = "INSERT OR REPLACE INTO GPUPROBE_META VALUES (?, ?)";
            self.connection.execute(sql, [key, &value])?;
        }
        self.commit()?;
        Ok(calls)
    }
}
