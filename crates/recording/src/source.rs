//! A file as a stream of items, whatever it is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::memory_rows::RowFilter;
use gpuprobe_cuda::{KindSet, Modes};
use gpuprobe_model::abi::{RawBatch, RawLaunchKey};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::Event;
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Location, ModuleId};
use gpuprobe_model::{GpuUsage, GpuUse, UserLoss};

/// Input of the state that is not an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LogNote {
    /// Identity of a process: an answer to the next event.
    Identity(u32, Identity),
    /// Name of the kernel behind a host function: an answer to the next event.
    KernelAt(u32, u64, Option<String>),
    /// Size of a device variable: an answer to the next event.
    VariableSize(u32, String, Option<u64>),
    /// Whether an address is device memory: an answer to the next event.
    OnDevice(u32, u64, Option<bool>),
    /// A process that no longer exists; its exit event was lost.
    Vanished(u32),
    /// Losses so far, by name.
    Lost(BTreeMap<String, u64>),
    /// Number of records missing from the recording so far.
    Dropped(u64),
    /// A report was printed.
    Report(Mark),
    /// A call stack of a process with its stack id; it precedes the calls with that id.
    Stack(u32, u64, CallStack),
    /// Frames of a location of a process; `true` for the innermost location of a stack.
    Frames(u32, Location, bool, Vec<Frame>),
    /// Path of a module.
    Module(ModuleId, String),
    /// Used memory of a GPU: `CLOCK_MONOTONIC` nanoseconds, GPU index, bytes.
    Used(u64, u32, u64),
    /// GPU use at the incident with this number.
    Incident(u64, GpuUse),
    /// Name of a function with this number beyond the function table.
    Function(u16, String),
    /// Bytes that processes use on all GPUs according to NVML, at a `CLOCK_MONOTONIC` time.
    ProcessesUsed(u64, Vec<(u32, u64)>),
}

impl LogNote {
    /// Whether it names frames, modules or functions; such notes may follow long after the events.
    pub fn is_name(&self) -> bool {
        matches!(
            self,
            Self::Frames(..) | Self::Module(..) | Self::Function(..)
        )
    }

    /// Whether it is an answer to a query of the next event.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(
            self,
            Self::Identity(..) | Self::KernelAt(..) | Self::VariableSize(..) | Self::OnDevice(..)
        )
    }
}

/// Content of a report that is not derived from the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Wall-clock time, RFC 3339.
    pub time: String,
    /// It is the last report.
    pub is_final: bool,
    /// Time since the previous report, nanoseconds.
    pub since_last_ns: u64,
    /// Time since tracing started, nanoseconds.
    pub since_start_ns: u64,
    /// Link between host and GPUs: gigatransfers per second and lanes.
    pub link: Option<(f64, u32)>,
    /// Call stacks were traced.
    #[serde(default)]
    pub stacks: bool,
    /// Tracing was host-wide, without a process filter.
    #[serde(default)]
    pub host_wide: bool,
    /// Time of the report, `CLOCK_MONOTONIC` nanoseconds.
    #[serde(default)]
    pub now_ns: Option<u64>,
    /// GPU use according to NVML.
    pub usage: Option<GpuUsage>,
    /// Losses so far, by user and process.
    #[serde(default)]
    pub lost_by_user: Vec<UserLoss>,
}

/// An input of the state: an entry of the log.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
pub enum Item<'a> {
    /// An event that is no batch.
    Event(Event),
    /// A batch of a collector.
    Batch(RawBatch, &'a [u8]),
    /// Launch counters of a kernel: executed launches, captured launches.
    Count(RawLaunchKey, u64, u64),
    /// Any other input of the state.
    Note(LogNote),
}

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

    /// Modes of the run that it has the memory or the copies of.
    fn modes(&self) -> Modes;

    /// Whether it was recorded by gpuprobe: each call is an event, and names may follow the last one.
    fn is_log(&self) -> bool;

    /// Passes the items to `take`; `counted` selects the calls of [`Counts`].
    ///
    /// # Errors
    /// The file cannot be read or has no memory events, or `take` fails.
    fn play(&self, counted: RowFilter, take: &mut Take<'_>) -> Result<Counts>;
}
