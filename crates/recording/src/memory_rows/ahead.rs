//! Reading ahead: a thread reads and decodes rows while the sink works on earlier ones.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{mem, panic, thread};

use anyhow::{Context, Result, anyhow};

use super::{CallFilter, Counts, MemoryItem, RowSink, in_order};
use crate::Database;

/// Items that are handed over together, and how many such batches may wait.
const BATCH: usize = 1024;
const WAITING: usize = 4;

/// Passes all items of `database` to `sink`.
pub(super) fn each(
    database: &Database,
    counted: CallFilter,
    sink: &mut dyn RowSink,
) -> Result<Counts> {
    let (sender, batches) = sync_channel(WAITING);
    let enough = AtomicBool::new(false);
    let mut ahead = Ahead {
        batch: Vec::with_capacity(BATCH),
        sender,
        enough: &enough,
    };
    let (path, progress) = (database.path(), database.progress());
    thread::scope(|scope| {
        let read = move || {
            // Of its own, as a connection serves one thread.
            let database = Database::open_with(path, progress)?;
            let counts = in_order(&database, counted, &mut ahead)?;
            ahead.hand_over()?;
            Ok(counts)
        };
        let reader = thread::Builder::new().spawn_scoped(scope, read);
        let reader = reader.context("cannot start a thread")?;
        let taken = take(batches, &enough, sink);
        let read = reader.join();
        let read = read.unwrap_or_else(|panicked| panic::resume_unwind(panicked));
        taken.and(read)
    })
}

/// Passes on what is read until all is. The receiver is gone then, which ends the reader after an error.
fn take(
    batches: Receiver<Vec<MemoryItem>>,
    enough: &AtomicBool,
    sink: &mut dyn RowSink,
) -> Result<()> {
    let mut has_enough = false;
    for item in batches.into_iter().flatten() {
        match item {
            MemoryItem::Row(..) | MemoryItem::Malformed if has_enough => continue,
            MemoryItem::Row(..) | MemoryItem::Malformed | MemoryItem::End(..) => {}
        }
        if sink.take(item)?.is_break() {
            has_enough = true;
            enough.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The reader's side.
struct Ahead<'a> {
    batch: Vec<MemoryItem>,
    sender: SyncSender<Vec<MemoryItem>>,
    /// The sink wants no more rows.
    enough: &'a AtomicBool,
}

impl Ahead<'_> {
    fn hand_over(&mut self) -> Result<()> {
        let batch = mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        let sent = self.sender.send(batch);
        sent.map_err(|_| anyhow!("nobody takes what is read"))
    }
}

impl RowSink for Ahead<'_> {
    fn take(&mut self, item: MemoryItem) -> Result<ControlFlow<()>> {
        self.batch.push(item);
        if self.batch.len() < BATCH {
            return Ok(ControlFlow::Continue(()));
        }
        self.hand_over()?;
        Ok(match self.enough.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }
}
