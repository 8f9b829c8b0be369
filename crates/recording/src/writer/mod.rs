//! The writing side of a recording, a thread of its own.
//!
//! It writes rows for the events of the run and for what these have changed, as it is told; it keeps
//! no accounts. If it cannot write any more, it says so once, leaves a valid file, and tracing goes
//! on.

mod activity;
mod carry;
mod chains;
mod common;
mod contexts;
mod facts;
mod file;
mod gpus;
mod incidents;
mod insert;
mod launches;
mod opened;
mod parts;
mod pools;
mod rows;
mod schema;
mod tasks;
mod tensors;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rusqlite::Connection;

use super::batch::Batch;
use super::recorder::{Limits, Shared};
use gpuprobe_os::privileges::WriteRights;
use gpuprobe_os::say;

pub use facts::Facts;

use carry::Carry;
use file::RecordingFile;
use parts::Parts;
use rows::Rows;

/// What is committed at once is at most this old.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// Rows of a transaction, about: it must fit into the room that is kept for the end.
const MAX_ROWS: usize = 20_000;

/// Writes a recording.
pub(super) struct Writer {
    file: RecordingFile,
    facts: Facts,
    limits: Limits,
}

/// Why nothing more is written to a file.
enum End {
    /// Nothing more comes: so many calls were written.
    OfRun(i64),
    /// It is full.
    OfFile {
        /// Calls that were written.
        calls: i64,
        /// Records that have not found their way here so far.
        dropped: u64,
    },
}

impl Writer {
    /// Makes the new file `path`, with everything in it that does not depend on events.
    pub(super) fn create(path: &Path, facts: Facts, limits: Limits) -> Result<Self> {
        let file = RecordingFile::create(path)?;
        let why = || format!("cannot write to {}", path.display());
        let transaction = |sql: &str| file.connection.execute_batch(sql).with_context(why);
        transaction("BEGIN")?;
        let lazy = schema::LAZY.iter().filter(|_| facts.all_tables);
        for table in schema::ALWAYS.iter().chain(schema::OURS).chain(lazy) {
            transaction(&schema::create(table))?;
        }
        facts.write(&file.connection)?;
        gpus::write(&file.connection).with_context(why)?;
        transaction("COMMIT")?;
        Ok(Self {
            file,
            facts,
            limits,
        })
    }

    /// Whether no more is to be written to the file, which began with `carried` bytes: of these, what else
    /// there is must be a good part, or each file would be full from the start.
    fn is_full(&self, carried: u64) -> rusqlite::Result<bool> {
        let Some(limit) = self.limits.file_bytes else {
            return Ok(false);
        };
        let bytes = self.file.bytes()?;
        Ok(bytes >= limit && bytes - carried.min(bytes) >= limit / 4)
    }

    /// The rights that this takes.
    pub(super) fn rights(&self) -> WriteRights {
        self.file.rights
    }

    /// Writes what comes until nothing more comes, or nothing more may be written.
    pub(super) fn run(self, batches: &Receiver<Batch>, shared: &Shared) {
        let mut carry = (self.limits.files > 1).then(Carry::default);
        let mut parts = Parts::new(self.limits.files);
        let (mut writer, mut first) = (self, Vec::new());
        loop {
            let written = write_all(&writer, first, batches, shared, carry.as_mut());
            let (facts, limits) = (writer.facts.clone(), writer.limits);
            let (path, end) = writer.close(written, shared);
            let (Some(End::OfFile { dropped, .. }), Some(carry)) = (end, &carry) else {
                return;
            };
            let next = parts.after(path);
            writer = match Self::create(&next, facts, limits) {
                Ok(next) => next,
                Err(error) => {
                    shared.stop(format_args!("{error:#}"));
                    return;
                }
            };
            tracing::info!("the recording goes on in {}", next.display());
            first = carry.batches(dropped);
        }
    }

    /// Closes the file, and says what has become of it. Returns its path, and why it is closed if what was
    /// to be written is.
    fn close(self, written: rusqlite::Result<End>, shared: &Shared) -> (PathBuf, Option<End>) {
        let Self {
            mut file, limits, ..
        } = self;
        let path = file.path.clone();
        let shown = path.display();
        let end = match written {
            _ if shared.discarded.load(Ordering::Relaxed) => {
                file.remove();
                return (path, None);
            }
            Ok(end) => end,
            Err(error) => {
                let why = file::explain(&error);
                shared.stop(format_args!(
                    "cannot write to {shown}: {why}; what was recorded until now can be read"
                ));
                file.release_reserve();
                leave_valid(&file.connection, &why);
                if let Err(error) = file.close() {
                    tracing::debug!("{shown}: {}", file::explain(&error));
                }
                return (path, None);
            }
        };
        if let Err(error) = file.close() {
            let why = file::explain(&error);
            say(format_args!(
                "warning: {shown} needs {shown}-wal beside it: {why}"
            ));
            return (path, Some(end));
        }
        let path = renamed(&path, shared);
        let shown = path.display();
        match end {
            End::OfRun(calls) => say(format_args!("recorded {calls} calls in {shown}")),
            End::OfFile { .. } if limits.files > 1 => {}
            End::OfFile { calls, .. } => shared.stop(format_args!(
                "{shown} has reached its --max-file-size, with {calls} calls"
            )),
        }
        (path, Some(end))
    }
}

/// Gives the whole file at `path` the name that it is to have at the end; gives the one that it has.
fn renamed(path: &Path, shared: &Shared) -> PathBuf {
    let wanted = shared.renamed.lock().ok().and_then(|mut name| name.take());
    let Some(wanted) = wanted else {
        return path.to_owned();
    };
    let done = match fs::symlink_metadata(&wanted) {
        Err(error) if error.kind() == ErrorKind::NotFound => fs::rename(path, &wanted),
        Err(error) => Err(error),
        Ok(_) => Err(ErrorKind::AlreadyExists.into()),
    };
    match done {
        Ok(()) => wanted,
        Err(error) => {
            tracing::warn!(
                "cannot rename {} to {}: {error}; it keeps its name",
                path.display(),
                wanted.display()
            );
            path.to_owned()
        }
    }
}

/// After an error: what was committed stays, and says that it is not all.
fn leave_valid(connection: &Connection, why: &str) {
    let undone = if connection.is_autocommit() {
        Ok(())
    } else {
        connection.execute_batch("ROLLBACK")
    };
    let sql = "INSERT OR REPLACE INTO GPUPROBE_META VALUES ('stopped', ?)";
    if let Err(error) = undone.and_then(|()| connection.execute(sql, [why]).map(|_| ())) {
        tracing::debug!("{error}");
    }
}

/// Writes `first`, and what comes, until that ends or the file is full.
fn write_all(
    writer: &Writer,
    first: Vec<Batch>,
    batches: &Receiver<Batch>,
    shared: &Shared,
    mut carry: Option<&mut Carry>,
) -> rusqlite::Result<End> {
    let connection = &writer.file.connection;
    let mut rows = Rows::new(connection, &writer.facts);
    let mut sequence = 0;
    let mut begun: Option<Instant> = None;
    let mut written = 0;
    let mut round = Instant::now();
    for batch in first {
        sequence += 1;
        connection.execute_batch("BEGIN")?;
        write_batch(&mut rows, sequence, batch)?;
        commit(connection, &mut rows)?;
    }
    let carried = writer.file.bytes()?;
    let end = loop {
        let wait = begun.map_or(COMMIT_EVERY, |begun| {
            COMMIT_EVERY.saturating_sub(begun.elapsed())
        });
        let batch = match batches.recv_timeout(wait) {
            Ok(batch) => Some(batch),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break None,
        };
        // Records that wait for others are written even if nothing more comes.
        if begun.is_none() && (batch.is_some() || rows.is_waiting()) {
            connection.execute_batch("BEGIN")?;
            begun = Some(Instant::now());
        }
        if let Some(batch) = batch {
            sequence += 1;
            let bytes = batch.bytes();
            if let Some(carry) = &mut carry {
                carry.take(&batch);
            }
            written += write_batch(&mut rows, sequence, batch)?;
            shared.queued.fetch_sub(bytes, Ordering::Relaxed);
        }
        let is_round = begun.is_some() && round.elapsed() >= COMMIT_EVERY;
        if is_round {
            rows.next_round();
            round = Instant::now();
        }
        if is_round || rows.is_crowded() {
            while rows.settle(false, MAX_ROWS)? {
                connection.execute_batch("COMMIT; BEGIN")?;
            }
        }
        let is_time = is_round || begun.is_some_and(|begun| begun.elapsed() >= COMMIT_EVERY);
        if is_time || written > MAX_ROWS as u64 {
            commit(connection, &mut rows)?;
            if is_time {
                file::settle(connection)?;
            }
            (begun, written) = (None, 0);
            if writer.is_full(carried)? {
                break Some(rows.dropped);
            }
        }
    };
    if begun.is_none() {
        connection.execute_batch("BEGIN")?;
    }
    let why = end.map(|_| match writer.limits.files {
        0 | 1 => STOPPED,
        _ => CONTINUED,
    });
    let calls = finish(connection, &mut rows, why)?;
    Ok(match end {
        None => End::OfRun(calls),
        Some(dropped) => End::OfFile { calls, dropped },
    })
}

/// How a file ends that is full: a key, and what it says. Of a recording that stops, it is not complete.
const STOPPED: (&str, &str) = ("stopped", "it has reached its --max-file-size");
const CONTINUED: (&str, &str) = ("continued", "in the file with the next number");

/// Writes what waited, and how the run ended, or why the file has. Returns how many calls there are.
fn finish(
    connection: &Connection,
    rows: &mut Rows<'_>,
    why: Option<(&str, &str)>,
) -> rusqlite::Result<i64> {
    while rows.settle(true, MAX_ROWS)? {
        connection.execute_batch("COMMIT; BEGIN")?;
    }
    while rows.chains(true, MAX_ROWS)? {
        connection.execute_batch("COMMIT; BEGIN")?;
    }
    let calls = rows.calls();
    let is_complete = rows.dropped == 0 && why != Some(STOPPED);
    let ends = [
        ("ended_ns", rows.last_ns().to_string()),
        ("complete", is_complete.to_string()),
    ];
    let why = why.map(|(key, text)| (key, text.to_owned()));
    for (key, value) in ends.into_iter().chain(why).chain(rows.remarks()) {
        let sql = "INSERT OR REPLACE INTO GPUPROBE_META VALUES (?, ?)";
        connection.execute(sql, [key, &value])?;
    }
    commit(connection, rows)?;
    Ok(calls)
}

fn write_batch(rows: &mut Rows<'_>, sequence: i64, batch: Batch) -> rusqlite::Result<u64> {
    let mut written = 1;
    rows.log(sequence, &batch.log)?;
    let mut changes = &batch.changes[..];
    for step in batch.steps {
        written += rows.step(step, &mut changes)?;
    }
    Ok(written)
}

/// Commits, with the figures that change all the time as they are now.
fn commit(connection: &Connection, rows: &mut Rows<'_>) -> rusqlite::Result<()> {
    rows.write_counts()?;
    rows.chains(false, MAX_ROWS)?;
    connection.execute_batch("COMMIT")
}
