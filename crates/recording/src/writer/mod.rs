//! The writing side of a recording, a thread of its own.
//!
//! It writes rows for the events of the run and for what these have changed, as it is told; it keeps
//! no accounts. If it cannot write any more, it says so once, leaves a valid file, and tracing goes
//! on.

mod activity;
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
use super::recorder::Shared;
use gpuprobe_os::privileges::WriteRights;
use gpuprobe_os::say;

pub use facts::Facts;

use file::RecordingFile;
use rows::Rows;

/// What is committed at once is at most this old.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// Rows of a transaction, about: it must fit into the room that is kept for the end.
const MAX_ROWS: usize = 20_000;

/// Writes a recording.
pub(super) struct Writer {
    file: RecordingFile,
    facts: Facts,
}

impl Writer {
    /// Makes the new file `path`, with everything in it that does not depend on events.
    pub(super) fn create(path: &Path, facts: Facts) -> Result<Self> {
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
        Ok(Self { file, facts })
    }

    /// The rights that this takes.
    pub(super) fn rights(&self) -> WriteRights {
        self.file.rights
    }

    /// Writes what comes until nothing more comes.
    pub(super) fn run(self, batches: &Receiver<Batch>, shared: &Shared) {
        let Self { mut file, facts } = self;
        let written = write_all(&file.connection, &facts, batches, shared);
        let path = file.path.display().to_string();
        match written {
            _ if shared.discarded.load(Ordering::Relaxed) => file.remove(),
            Ok(calls) => match file.close() {
                Ok(()) => {
                    let path = renamed(Path::new(&path), shared);
                    say(format_args!("recorded {calls} calls in {}", path.display()));
                }
                Err(error) => {
                    let why = file::explain(&error);
                    say(format_args!(
                        "warning: {path} needs {path}-wal beside it: {why}"
                    ));
                }
            },
            Err(error) => {
                shared.stopped.store(true, Ordering::Relaxed);
                let why = file::explain(&error);
                say(format_args!(
                    "recording has stopped: cannot write to {path}: {why}; what was recorded \
                     until now can be read, and tracing goes on"
                ));
                file.release_reserve();
                leave_valid(&file.connection, &why);
                if let Err(error) = file.close() {
                    tracing::debug!("{path}: {}", file::explain(&error));
                }
            }
        }
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

fn write_all(
    connection: &Connection,
    facts: &Facts,
    batches: &Receiver<Batch>,
    shared: &Shared,
) -> rusqlite::Result<i64> {
    let mut rows = Rows::new(connection, facts);
    let mut sequence = 0;
    let mut begun: Option<Instant> = None;
    let mut written = 0;
    let mut round = Instant::now();
    loop {
        let wait = begun.map_or(COMMIT_EVERY, |begun| {
            COMMIT_EVERY.saturating_sub(begun.elapsed())
        });
        let batch = match batches.recv_timeout(wait) {
            Ok(batch) => Some(batch),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        // Records that wait for others are written even if nothing more comes.
        if begun.is_none() && (batch.is_some() || rows.is_waiting()) {
            connection.execute_batch("BEGIN")?;
            begun = Some(Instant::now());
        }
        if let Some(batch) = batch {
            sequence += 1;
            let bytes = batch.bytes();
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
        }
    }
    if begun.is_none() {
        connection.execute_batch("BEGIN")?;
    }
    finish(connection, &mut rows)
}

/// Writes what waited, and how the run ended. Returns how many calls there are.
fn finish(connection: &Connection, rows: &mut Rows<'_>) -> rusqlite::Result<i64> {
    while rows.settle(true, MAX_ROWS)? {
        connection.execute_batch("COMMIT; BEGIN")?;
    }
    while rows.chains(true, MAX_ROWS)? {
        connection.execute_batch("COMMIT; BEGIN")?;
    }
    let calls = rows.calls();
    let ends = [
        ("ended_ns", rows.last_ns().to_string()),
        ("complete", (rows.dropped == 0).to_string()),
    ];
    for (key, value) in ends.into_iter().chain(rows.remarks()) {
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
