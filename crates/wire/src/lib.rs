//! Wire format between the collector inside a traced program and gpuprobe outside of it.
//!
//! For: [`WireSettings`] to the collector, and batches of GPU activity ([`BatchWriter`], [`Batch`]) from it.
//! Depends on: `zerocopy`, and no other crate of gpuprobe, because it is linked into other
//! programs. Provides: layouts, a writer, and a parser that checks every length. Both ends come
//! from one build, so there is only one version of the format.

mod batch;
mod header;
mod records;
pub mod settings;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
mod writer;

pub use batch::{Batch, BatchItem, Malformed, Records};
pub use header::{BATCH_MAX, BatchHeader, MAGIC, RecordHeader, TEXT_MAX, flags};
pub use records::*;
pub use settings::{ActivityKinds, TracerId, WireSettings};
pub use writer::{BatchWriter, cut};

/// Environment variable with the [`WireSettings`] of the collector.
pub const SETTINGS_VARIABLE: &str = "GPUPROBE_COLLECTOR";

/// Function of the collector that gpuprobe attaches to: `void gpuprobe_activity_batch(const void
/// *batch, size_t bytes)`. Its body is empty.
pub const BATCH_FUNCTION: &str = "gpuprobe_activity_batch";
