//! Typed events, decoded from the records of the BPF side here and nowhere else.

mod decode;
mod launch;
mod records;

use serde::{Deserialize, Serialize};

use crate::abi::RawLaunchKey;
use crate::activity::ActivityBatch;
use crate::blocks::FoundBlocks;
use gpuprobe_cuda::{AddressSpace, EXTRA, FUNCTIONS, Function, MemoryKind, Op};

pub use crate::abi::CONTEXT_UNKNOWN;
pub use decode::text;
pub use launch::Launch;
pub use records::{RecordDecoder, batch, decode};

/// Upper limit of a valid device index; CUDA supports at most a few dozen devices.
pub const MAX_DEVICES: u16 = 240;

/// An event of a traced process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A memory call, at its return.
    Call(Call),
    /// An allocation or free by a framework's caching allocator.
    Tensor(Tensor),
    /// The requested size and stream of a tensor that was allocated just before.
    Request(TensorRequest),
    /// An out-of-memory error of a framework's caching allocator.
    OutOfMemory(OutOfMemory),
    /// A process is first seen, or was renamed.
    Process(Task),
    /// A thread is first seen, or was renamed.
    Thread(Task),
    /// A thread has exited.
    ThreadExit(Task),
    /// A process has exited.
    Exit(Task),
    /// A process has executed a new program, which frees the memory of the old one.
    Exec(Task),
    /// The name of a kernel.
    Kernel(KernelName),
    /// A single launch, at its return; the launch counters include it.
    Launch(Launch),
    /// A copy or memset, at its return.
    Copy(Copy),
    /// The GPU memory of a process has been moved to the host, by whichever process.
    Checkpoint(Task),
    /// It has been moved back, to the same addresses.
    Restore(Task),
    /// Blocks of a framework's allocator that were found in the memory of the process: those that are not known yet, and
    /// those that wait for a stream.
    Blocks(FoundBlocks),
    /// One batch of GPU activity from CUPTI.
    #[serde(skip)]
    Activity(ActivityBatch),
    /// An allocation or free as an export of Nsight Systems has it.
    #[serde(skip)]
    Memory(MemoryEvent),
}

impl Event {
    /// Id of the process of the event, in the initial PID namespace.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Call(call) => call.pid,
            Self::Tensor(tensor) => tensor.pid,
            Self::Request(request) => request.pid,
            Self::OutOfMemory(told) => told.pid,
            Self::Process(task)
            | Self::Thread(task)
            | Self::ThreadExit(task)
            | Self::Exit(task)
            | Self::Exec(task)
            | Self::Checkpoint(task)
            | Self::Restore(task) => task.pid,
            Self::Kernel(kernel) => kernel.pid,
            Self::Launch(launch) => launch.pid,
            Self::Copy(copy) => copy.pid,
            Self::Blocks(found) => found.pid,
            Self::Activity(batch) => batch.pid,
            Self::Memory(memory) => memory.pid,
        }
    }

    /// Time of an event about memory, `CLOCK_MONOTONIC` nanoseconds.
    pub fn memory_ns(&self) -> Option<u64> {
        match self {
            Self::Call(call) => Some(call.end_ns),
            Self::Tensor(tensor) => Some(tensor.time_ns),
            Self::OutOfMemory(refused) => Some(refused.time_ns),
            Self::Blocks(found) => Some(found.time_ns),
            Self::Memory(memory) => Some(memory.time_ns),
            _ => None,
        }
    }

    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds, if it has one.
    pub fn time_ns(&self) -> Option<u64> {
        match self {
            Self::Copy(copy) => Some(copy.end_ns),
            Self::Launch(launch) => Some(launch.start_ns),
            Self::Process(task)
            | Self::Exit(task)
            | Self::Exec(task)
            | Self::Checkpoint(task)
            | Self::Restore(task) => Some(task.time_ns),
            _ => self.memory_ns(),
        }
    }

    /// The event with rows of the current function table, where `rows` gives these for the rows that it has. `None`
    /// if there is none, or not for such an event.
    pub fn with_rows(mut self, rows: impl Fn(u16) -> Option<u16>) -> Option<Self> {
        let current = |row: &mut u16, fits: fn(Op) -> bool| {
            *row = rows(*row)?;
            gpuprobe_cuda::function(*row).filter(|function| fits(function.op))
        };
        match &mut self {
            Self::Call(call) => {
                let fits = |op: Op| op.is_memory() || op.is_ledger_event();
                call.function = current(&mut call.row, fits)?;
                call.device = call.device.filter(|&device| device < MAX_DEVICES);
            }
            Self::Copy(copy) => copy.function = current(&mut copy.row, Op::is_copy)?,
            Self::Launch(launch) => {
                launch.function = current(&mut launch.key.row, Op::is_launch)?;
            }
            Self::Kernel(kernel) => drop(current(&mut kernel.key.row, |_| true)?),
            Self::Tensor(tensor) => drop(current(&mut tensor.row, |op| op == Op::Tensor)?),
            Self::Blocks(found) => drop(current(&mut found.row, |op| op == Op::Tensor)?),
            Self::OutOfMemory(refused) => {
                current(&mut refused.row, |op| op == Op::OutOfMemory)?;
            }
            _ => {}
        }
        Some(self)
    }
}

/// Stands for the function of an event until [`Event::with_rows`] sets it.
fn unresolved() -> &'static Function {
    &FUNCTIONS[0]
}

/// The name of a kernel, taken at its first launch or when the program looked it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelName {
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Key of the launch counters.
    pub key: RawLaunchKey,
    /// The program passed the name; otherwise it was found through the handle.
    pub given: bool,
    /// Name of the kernel, if known; invalid UTF-8 is replaced.
    pub name: Option<String>,
    /// Grid size of the first launch, blocks.
    pub grid: [u32; 3],
    /// Block size of the first launch, threads.
    pub block: [u32; 3],
}

/// A copy or memset call, at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Row of the function table.
    pub row: u16,
    /// The function in that row.
    #[serde(skip, default = "unresolved")]
    pub function: &'static Function,
    /// 0 or a CUDA error code.
    pub result: i32,
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Bytes copied or set.
    pub bytes: u64,
    /// Address that is written to.
    pub destination: u64,
    /// Source address; 0 for a memset.
    pub source: u64,
    /// `cudaMemcpyKind`, the `CUmemorytype` of the source, or of a prefetch the device or the
    /// `CUmemLocationType`, depending on the function.
    pub kind: i32,
    /// `CUmemorytype` of the destination, if the function has one; of a copy in a batch, its number.
    pub destination_type: u16,
    /// The copy was captured into a graph.
    pub captured: bool,
    /// Number of its call stack within the process; 0 if none.
    pub stack: u64,
}

impl Copy {
    /// Whether it is all that its call copies, or the first copy of a batch: calls are counted by these.
    pub fn begins_call(&self) -> bool {
        self.function.op != Op::CopyBatch || self.destination_type == 0
    }
}

/// An outermost memory call at its return, or a nested one that the ledger needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Row of the function table.
    pub row: u16,
    /// The function in that row.
    #[serde(skip, default = "unresolved")]
    pub function: &'static Function,
    /// 0 or a CUDA error code.
    pub result: i32,
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Address, handle or context that the call returned or was passed.
    pub address: u64,
    /// Requested bytes; 0 for a free.
    pub size_bytes: u64,
    /// Device index as numbered by CUDA in the process, if known.
    pub device: Option<u16>,
    /// Number of the context that the call ran in or is about: 0 for a primary context,
    /// [`CONTEXT_UNKNOWN`] if unknown. For captured calls and the end of a capture, the number of
    /// the capture.
    pub context: u16,
    /// The call was captured into a graph: nothing was allocated or freed.
    pub captured: bool,
    /// Stack id within the process; 0 if no stack was taken.
    pub stack: u64,
    /// Values that only a few functions have.
    pub detail: Option<Box<Detail>>,
}

/// Values of a call that only a few functions have; the function table gives their meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// Value that the call wrote to the location of [`Function::out`].
    pub out: u64,
    /// Stream handle, see [`Function::stream`].
    pub stream: u64,
    /// Arguments listed in [`Function::extra`], or further bytes at the location of
    /// [`Function::out`].
    pub values: [u64; EXTRA],
    /// Name of a variable; invalid UTF-8 is replaced.
    pub name: Option<String>,
}

/// An allocation or free of a block by a framework's caching allocator, within memory that it has
/// reserved from CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// Row of the function table.
    pub row: u16,
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Device address of the block.
    pub address: u64,
    /// Size of the block, bytes, as rounded up by the allocator.
    pub bytes: u64,
    /// The event is a free.
    pub is_free: bool,
    /// Bytes allocated on the device after the event, as the allocator reports. Without a device, the address of the
    /// allocator; 0 if it is unknown.
    pub allocated_bytes: u64,
    /// Bytes reserved from CUDA, as the allocator reports. Without a device, the bytes that were asked for; 0 if that is
    /// unknown.
    pub reserved_bytes: u64,
    /// Device index as numbered by CUDA in the process; `None` if the allocator does not report it.
    pub device: Option<u16>,
    /// Stack id within the process; 0 if no stack was taken.
    pub stack: u64,
}

/// An allocation or free in an export, which has neither calls nor contexts for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Process id in the export.
    pub pid: u32,
    /// Thread id in the export; 0 if unknown.
    pub tid: u32,
    /// Time of the event on the clock of the export, nanoseconds.
    pub time_ns: u64,
    /// Device or host address.
    pub address: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Kind of the memory.
    pub kind: MemoryKind,
    /// Address space of `address`.
    pub space: AddressSpace,
    /// Device index, if known.
    pub device: Option<u16>,
    /// Row of the function table, or a number beyond it.
    pub row: u16,
    /// Stack id within the process; 0 if there is none.
    pub stack: u64,
    /// The event is a free.
    pub is_free: bool,
    /// Name of the device variable, if it is one.
    pub variable: Option<Box<str>>,
}

/// A request for which a framework's allocator has raised an out-of-memory error, after its
/// retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Row of the function table.
    pub row: u16,
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Requested bytes, as rounded up by the allocator.
    pub bytes: u64,
    /// Bytes allocated on the device, as the allocator reports.
    pub allocated_bytes: u64,
    /// Bytes reserved from CUDA, as the allocator reports.
    pub reserved_bytes: u64,
    /// Device index as numbered by CUDA in the process, if the allocator reports it and the sums.
    pub device: Option<u16>,
    /// Stack id within the process; 0 if no stack was taken.
    pub stack: u64,
}

/// The requested size and stream of a tensor that was allocated just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorRequest {
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Device address of the tensor.
    pub address: u64,
    /// Size that the program requested, bytes.
    pub bytes: u64,
    /// Handle of the stream that the tensor is for; 0 for the default stream.
    pub stream: u64,
}

/// A process or thread, as one of its events reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// User id of the process.
    pub uid: u32,
    /// Distinguishes processes, and programs of one process, that have the same process id.
    pub process: u32,
    /// Of a process: it was traced from its start.
    pub from_birth: bool,
    /// Process id in the innermost PID namespace of the process.
    pub inner_pid: u32,
    /// Cgroup id (cgroup v2).
    pub cgroup: u64,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Thread name; invalid UTF-8 is replaced.
    pub comm: String,
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests;
