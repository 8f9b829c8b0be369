//! Wire format between the collector inside a traced program and gpuprobe outside of it.
//!
//! For: [`WireSettings`] to the collector and batches of GPU activity from it; both ends come from one build.
//! May use: `zerocopy`, and no other crate of gpuprobe: it is linked into other programs.
//! Gives: layouts, a writer ([`BatchWriter`]), a parser that checks every length ([`Batch`]).

mod batch;
mod header;
mod records;
pub mod settings;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
mod writer;

pub use batch::{Batch, BatchItem, Malformed};
pub use header::{BATCH_MAX, BatchHeader, MAGIC, RecordHeader, TEXT_MAX, flags};
pub use records::*;
pub use settings::{ActivityKinds, TracerId, WireSettings};
pub use writer::{BatchWriter, cut};

/// Environment variable with the [`WireSettings`] of the collector.
pub const SETTINGS_VARIABLE: &str = "GPUPROBE_COLLECTOR";

/// Function of the collector that gpuprobe attaches to: `void gpuprobe_activity_batch(const void
/// *batch, size_t bytes)`. Its body is empty.
pub const BATCH_FUNCTION: &str = "gpuprobe_activity_batch";
