//! Recordings: SQLite files with the tables and columns of an Nsight Systems export.
//!
//! For: looking at a run later and elsewhere; `nsys stats` and our own reports read the same file.
//! May use: `cuda`, `model`, `os`, `stacks`, `engine`.
//! Gives: a writer on a thread of its own ([`Recorder`]) of the events of a run and what
//! they changed in the session's state, and of its [`log`], which a replay plays; a reader
//! ([`Database`]) of ours and of `nsys`'s files, which never changes one; rows as the engine's
//! records ([`gpu_rows`]), and a log played again ([`player`]).

mod batch;
pub mod chains;
pub mod database;
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
pub mod tap;
mod writer;

pub use chains::{Frame, Resolver};
pub use database::Database;
pub use gpuprobe_cuda::kinds;
pub use memory_rows::{MemoryRow, Origin, Trace};
pub use player::Player;
pub use recorder::{Limits, Recorder};
pub use session::Session;
pub use tap::Tap;
pub use writer::Facts;
