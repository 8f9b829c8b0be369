//! The wire format between the collector inside a traced program and gpuprobe outside of it.
//!
//! For: [`Settings`] on the way in, and batches of GPU activity ([`Writer`], [`Batch`]) on the way out.
//! May use: `zerocopy`, and nothing of gpuprobe; it is linked into other people's programs.
//! Gives: layouts, a writer, and a reader that checks every length and believes nothing.
//! Both ends come from one build, so there are no other versions to read.

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

/// The environment variable that holds [`Settings`] for the collector.
pub const SETTINGS_VARIABLE: &str = "GPUPROBE_COLLECTOR";

/// The function of the collector that gpuprobe probes: `void gpuprobe_activity_batch(const void
/// *batch, size_t bytes)`. It does nothing.
pub const BATCH_FUNCTION: &str = "gpuprobe_activity_batch";
