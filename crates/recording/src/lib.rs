//! Recordings: SQLite files with the tables and columns of an Nsight Systems export.
//!
//! A recording of ours and an export of `nsys` are read by the same code ([`Database`]); what nsys
//! has no place for stands in tables named `GPUPROBE_*`. Reading never changes a file.
//!
//! A recording is written by a thread of its own ([`Recorder`]) from the events of a run and what
//! they changed in the session's state. Its [`log`] is what a replay plays, into a state of its own.

mod batch;
pub mod chains;
pub mod database;
pub mod frames;
pub mod gpu_rows;
pub mod ids;
pub mod kinds;
pub mod log;
mod opening;
pub mod player;
mod recorder;
pub mod row;
pub mod session;
pub mod tap;
mod writer;

pub use chains::{Frame, Resolver};
pub use database::Database;
pub use player::Player;
pub use recorder::Recorder;
pub use session::Session;
pub use tap::Tap;
pub use writer::Facts;
