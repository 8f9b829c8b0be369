//! A file as a stream of items, whatever it is.

use std::ops::ControlFlow;

use anyhow::Result;

use crate::export::ExportReader;
use crate::log::{Item, LogReader};
use crate::memory_rows::CallFilter;
use crate::{Database, Session};
use gpuprobe_cuda::KindSet;
use gpuprobe_model::clock::WallClock;
use gpuprobe_os::say;

/// Receives items; returns [`ControlFlow::Break`] for no more events.
pub type Take<'a> = dyn FnMut(Item<'_>) -> Result<ControlFlow<()>> + 'a;

/// What a source has besides its items.
#[derive(Debug, Default)]
pub struct Counts {
    /// Calls by row of the function table: those that succeeded, and those that failed. A log has
    /// its calls as events.
    pub calls: Vec<(u16, [u64; 2])>,
    /// Rows that are invalid and were skipped.
    pub malformed: u64,
}

/// Events and notes of a file in their order.
pub trait Source {
    /// The clock of its events; the start is time 0 of the session. `None` if that is not known.
    fn clock(&self) -> Option<WallClock>;

    /// Kinds of memory that were recorded.
    fn kinds(&self) -> KindSet;

    /// Whether it was recorded by gpuprobe: each call is an event, and names may follow the last one.
    fn is_log(&self) -> bool;

    /// Passes the items to `take`; `counted` selects the calls of [`Counts`].
    ///
    /// # Errors
    /// The file cannot be read or has no memory events, or `take` fails.
    fn play(&self, counted: CallFilter, take: &mut Take<'_>) -> Result<Counts>;
}

/// The memory of a file: its log, or else its rows.
pub fn memory<'a>(database: &'a Database, session: &'a Session) -> Result<Box<dyn Source + 'a>> {
    if LogReader::has_memory(session) {
        return Ok(Box::new(LogReader::new(database, session)?));
    }
    if LogReader::is_unknown(session) {
        say(format_args!(
            "{} was recorded by another version: its tables are read, without what only its log has",
            database.path().display()
        ));
    }
    Ok(Box::new(ExportReader { database, session }))
}
