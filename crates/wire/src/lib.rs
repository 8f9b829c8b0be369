//! Wire format between the collector inside a traced program and gpuprobe outside of it.
//!
//! For: [`Settings`] to the collector, and batches of GPU activity ([`Writer`], [`Batch`]) from it.
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

pub use batch::{Batch, Item, Malformed, Records};
pub use header::{BATCH_MAX, BatchHeader, MAGIC, RecordHeader, TEXT_MAX, flags};
pub use records::*;
pub use settings::{Kinds, Settings, Tracer};
pub use writer::{Writer, cut};

/// Environment variable with the [`Settings`] of the collector.
pub const SETTINGS_VARIABLE: &str = "GPUPROBE_COLLECTOR";

/// Function of the collector that gpuprobe attaches to: `void gpuprobe_activity_batch(const void
/// *batch, size_t bytes)`. Its body is empty.
pub const BATCH_FUNCTION: &str = "gpuprobe_activity_batch";
