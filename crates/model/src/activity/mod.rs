//! What the GPU did and when, as CUPTI told a collector inside the traced process.

mod clock;
mod decoder;
mod names;

use std::sync::Arc;

use gpuprobe_wire as wire;

pub use decoder::{Decoder, Losses};

/// What one batch of a process said, in its order; times within it are in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Process id as gpuprobe sees it.
    pub pid: u32,
    /// Tells apart processes and programs that share a process id, as [`crate::event::Task::process`].
    pub process: u32,
    /// What `cuptiGetVersion` says there; 0 if that is not known.
    pub cupti_version: u32,
    /// The collector has ended as it should: nothing of this process follows.
    pub is_last: bool,
    /// Its records.
    pub activities: Vec<Activity>,
}

/// One record of a process, with its names found and its times in `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Process id as gpuprobe sees it; those within `record` are as the process sees them.
    pub pid: u32,
    /// What happened; its ids of texts mean nothing any more.
    pub record: Record,
    /// The kernel (mangled), function, device, variable or marker that it names.
    pub name: Option<Arc<str>>,
    /// The domain of a marker, or the library that allocated.
    pub qualifier: Option<Arc<str>>,
}

impl Activity {
    /// When it began, if it has a time.
    pub fn start_ns(&self) -> Option<u64> {
        let ns = match &self.record {
            Record::Api(r) => r.start_ns,
            Record::Kernel(r) => r.start_ns,
            Record::Memcpy(r) => r.start_ns,
            Record::Memset(r) => r.start_ns,
            Record::Memory(r) => r.time_ns,
            Record::MemoryPool(r) => r.time_ns,
            Record::Sync(r) => r.start_ns,
            Record::GraphTrace(r) => r.start_ns,
            Record::Overhead(r) => r.start_ns,
            Record::Marker(r) => r.time_ns,
            Record::Device(_)
            | Record::Context(_)
            | Record::Stream(_)
            | Record::Name(_)
            | Record::ExternalCorrelation(_) => 0,
        };
        (ns != 0).then_some(ns)
    }
}

/// A record, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is documented where it is laid out")]
pub enum Record {
    Device(wire::Device),
    Context(wire::Context),
    Stream(wire::Stream),
    Api(wire::Api),
    Kernel(wire::Kernel),
    Memcpy(wire::Memcpy),
    Memset(wire::Memset),
    Memory(wire::Memory),
    MemoryPool(wire::MemoryPool),
    Sync(wire::Sync),
    GraphTrace(wire::GraphTrace),
    Overhead(wire::Overhead),
    Name(wire::Name),
    Marker(wire::Marker),
    ExternalCorrelation(wire::ExternalCorrelation),
}
