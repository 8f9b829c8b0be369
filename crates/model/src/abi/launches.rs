//! Launches and kernels.

use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct gp_launch_key`: key of the launch counters, a kernel or graph of a process.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Serialize,
    Deserialize,
)]
#[repr(C)]
pub struct RawLaunchKey {
    /// Kernel or graph handle that was passed to the launch.
    pub handle: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// Row of the function table.
    pub row: u16,
    /// Epoch of the handle: it changes where handles may have been reused for other kernels.
    pub epoch: u16,
}

/// `struct gp_launch_count`: the launch counters of one CPU.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLaunchCount {
    /// Launches that were executed.
    pub runs: u64,
    /// Launches that were captured into a graph.
    pub captured: u32,
    /// Padding.
    pub reserved: u32,
}

/// `struct gp_kernel` without the name, which follows in the record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawKernel {
    /// Record type, always [`record::KERNEL`].
    pub record_type: u16,
    /// Non-zero if the program passed the name; zero if it was found through the handle.
    pub given: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Key of the launch counters.
    pub key: RawLaunchKey,
    /// Grid size of the first launch, blocks.
    pub grid: [u32; 3],
    /// Block size of the first launch, threads.
    pub block: [u32; 3],
    /// Length of the name with its terminating zero; 0 if there is none.
    pub name_bytes: u32,
    /// Padding; always written as zero.
    pub reserved: u32,
}

/// `struct gp_launch`: a single launch call, sent at its return.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunch {
    /// Record type, always [`record::LAUNCH`].
    pub record_type: u16,
    /// Non-zero if the launch was captured into a graph.
    pub captured: u16,
    /// Return value of the function: 0 or a CUDA error code.
    pub result: i32,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Key of the launch counters.
    pub key: RawLaunchKey,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Stream handle that was passed to the launch.
    pub stream: u64,
    /// Grid size, blocks; zeroes for a graph.
    pub grid: [u32; 3],
    /// Block size, threads; zeroes for a graph.
    pub block: [u32; 3],
    /// Stack id, see [`RawCall::stack`].
    pub stack: u64,
}
