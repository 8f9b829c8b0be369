//! Recordings: SQLite files with the tables and columns of an Nsight Systems export.
//!
//! For: analysis of a run later and elsewhere; `nsys stats` and gpuprobe's reports read the same file.
//! May use: `cuda`, `model`, `os`, `stacks`, `engine`.
//! Gives: a writer ([`Recorder`], [`log`]), a reader of these and of exports ([`Database`], [`gpu_rows`]), [`player`].

mod batch;
pub mod chains;
pub mod database;
pub mod export;
pub mod frames;
pub mod gpu_rows;
pub mod ids;
pub mod log;
pub mod memory_rows;
mod opening;
pub mod player;
mod recorder;
pub mod row;
pub mod session;
pub mod source;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod writer;

pub use chains::{Resolver, module_of};
pub use database::Database;
pub use gpuprobe_cuda::kinds;
pub use memory_rows::{MemoryRow, OriginatingCall, Trace};
pub use player::Player;
pub use recorder::Recorder;
pub use session::Session;
pub use source::Source;
pub use writer::Facts;

use export::ExportReader;
use gpuprobe_os::say;
use log::LogReader;

/// The memory of a file, and its copies, if it has both: its log, or else its rows.
///
/// # Errors
/// The file cannot be read.
pub fn memory_of<'a>(
    database: &'a Database,
    session: &'a Session,
) -> anyhow::Result<Box<dyn Source + 'a>> {
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
