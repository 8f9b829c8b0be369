//! Bytes from the kernel side become typed events here, and only here.

mod decode;
mod launch;

use std::fmt;

use zerocopy::FromBytes;

use crate::abi::{
    RawBatch, RawCall, RawCopy, RawDetail, RawKernel, RawLaunch, RawLaunchKey, RawNamed,
    RawRequest, RawTask, RawTensor, record,
};
use crate::activity;
use crate::activity::Batch;
use gpuprobe_cuda::{EXTRA, Function, Op};

pub use crate::abi::CONTEXT_UNKNOWN;
pub use decode::text;
pub use launch::Launch;

/// CUDA knows no more than a few dozen devices; anything beyond is no device index.
pub const MAX_DEVICES: u16 = 240;

/// Something that happened in a traced process, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A memory call has returned.
    Call(Call),
    /// A framework's allocator has handed out memory or taken it back.
    Tensor(Tensor),
    /// What was asked for, of a tensor that was handed out just before.
    Request(Request),
    /// A framework's allocator has given up on a request.
    OutOfMemory(OutOfMemory),
    /// A process is seen for the first time, or its name changed.
    Process(Task),
    /// A thread is seen for the first time, or its name changed.
    Thread(Task),
    /// A thread has ended.
    ThreadExit(Task),
    /// A process has ended.
    Exit(Task),
    /// A process runs a new program; the memory of the old one is gone.
    Exec(Task),
    /// What a kernel is called.
    Kernel(Kernel),
    /// A launch has returned; it has been counted already.
    Launch(Launch),
    /// A copy has returned.
    Copy(Copy),
    /// What the GPU did, as CUPTI has told: what one batch of a process said.
    Activity(Batch),
}

/// What a kernel is called: from its first launch, or because the program asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Process id.
    pub pid: u32,
    /// Which kernel.
    pub key: RawLaunchKey,
    /// The program gave the name; else it was found through the handle.
    pub given: bool,
    /// The name, if there is one; invalid UTF-8 is replaced.
    pub name: Option<String>,
    /// Blocks of the first launch.
    pub grid: [u32; 3],
    /// Threads per block of the first launch.
    pub block: [u32; 3],
}

/// A copy or a memory set that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Row of the function table.
    pub row: u16,
    /// That row.
    pub function: &'static Function,
    /// 0 or a CUDA error code.
    pub result: i32,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Bytes moved or set.
    pub bytes: u64,
    /// Address written to.
    pub destination: u64,
    /// Address read from.
    pub source: u64,
    /// `cudaMemcpyKind`, or the `CUmemorytype` of the source, as the function has it.
    pub kind: i32,
    /// The `CUmemorytype` of the destination, if the function has it.
    pub destination_type: u16,
    /// It went into a graph instead of to the GPU.
    pub captured: bool,
}

/// An outermost memory call that has returned, or another that the ledger must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Row of the function table.
    pub row: u16,
    /// That row.
    pub function: &'static Function,
    /// 0 or a CUDA error code.
    pub result: i32,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Address, handle or context that was handed out or in.
    pub address: u64,
    /// Bytes asked for; 0 for a free.
    pub size_bytes: u64,
    /// Device index as CUDA numbers it in that process, if known.
    pub device: Option<u16>,
    /// Number of the context that it was made in or is about: 0 for a primary context,
    /// [`CONTEXT_UNKNOWN`] if that is not known. Of what was captured, and of the end of a capture,
    /// the number of the capture.
    pub context: u16,
    /// It went into a graph: nothing was allocated or freed.
    pub captured: bool,
    /// Names its call stack within the process; 0 if that was not taken.
    pub stack: u64,
    /// What only few functions have.
    pub detail: Option<Box<Detail>>,
}

/// What only few functions have; the table says what it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// What the call wrote to [`Function::out`].
    pub out: u64,
    /// [`Function::stream`].
    pub stream: u64,
    /// [`Function::extra`], or the bytes at [`Function::out`].
    pub values: [u64; EXTRA],
    /// The name of a variable; invalid UTF-8 is replaced.
    pub name: Option<String>,
}

/// A block that a framework's allocator has handed out or taken back, within memory that it has from
/// CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Row of the function table.
    pub row: u16,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Where it is.
    pub address: u64,
    /// Bytes, as rounded up by the allocator.
    pub bytes: u64,
    /// It was taken back.
    pub is_free: bool,
    /// Bytes that are handed out on the device after that, as the allocator says.
    pub allocated_bytes: u64,
    /// Bytes that it has from CUDA for that, as it says.
    pub reserved_bytes: u64,
    /// Device index as CUDA numbers it in that process, if the allocator says; and with it, its sums.
    pub device: Option<u16>,
    /// Names its call stack within the process; 0 if that was not taken.
    pub stack: u64,
}

/// A request that a framework's allocator has given up on, after its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Row of the function table.
    pub row: u16,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Bytes that were asked for, as rounded up by the allocator.
    pub bytes: u64,
    /// Bytes that it has handed out on the device, as it says.
    pub allocated_bytes: u64,
    /// Bytes that it has from CUDA for that, as it says.
    pub reserved_bytes: u64,
    /// Device index as CUDA numbers it in that process.
    pub device: u16,
    /// Names its call stack within the process; 0 if that was not taken.
    pub stack: u64,
}

/// What was asked for, of a tensor that was handed out just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Process id.
    pub pid: u32,
    /// Where the tensor is.
    pub address: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// The stream that it is for: a handle, 0 for the default one.
    pub stream: u64,
}

/// A process or a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// User id of the process.
    pub uid: u32,
    /// Tells apart processes and programs that share a process id.
    pub process: u32,
    /// Of a process: nothing that it did was missed.
    pub from_birth: bool,
    /// Process id in the innermost PID namespace of the process.
    pub inner_pid: u32,
    /// Cgroup, by its id in the hierarchy of version 2.
    pub cgroup: u64,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Name; invalid UTF-8 is replaced.
    pub comm: String,
}

/// Why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Shorter than its type.
    Truncated {
        /// Bytes that the record has.
        length: usize,
    },
    /// A record type that this version does not know.
    UnknownType(u16),
    /// A row that the function table does not have, or one that is no memory call.
    UnknownRow(u16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { length } => write!(f, "record of {length} bytes is too short"),
            Self::UnknownType(number) => write!(f, "unknown record type {number}"),
            Self::UnknownRow(row) => write!(f, "row {row} is no memory function"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes the records of all rings, as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What the processes have said of themselves that later batches build on.
    pub activity: activity::Decoder,
}

impl Decoder {
    /// Decodes one record of whichever ring.
    ///
    /// # Errors
    /// As [`decode`]; a batch that is malformed is understood up to there.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Event, DecodeError> {
        let Some((raw, batch)) = batch(bytes) else {
            let event = decode(bytes);
            if let Ok(Event::Exit(task) | Event::Exec(task)) = &event {
                self.activity.end(task.process);
            }
            return event;
        };
        Ok(Event::Activity(self.activity.decode(&raw, batch)))
    }
}

/// The head of the record and the batch in it, if it has one; a batch is never longer than what is
/// there of it.
fn batch(bytes: &[u8]) -> Option<(RawBatch, &[u8])> {
    // Hardly any record is one.
    if *bytes.first_chunk()? != record::BATCH.to_ne_bytes() {
        return None;
    }
    let (raw, batch) = RawBatch::read_from_prefix(bytes).ok()?;
    let length = batch.len().min(raw.bytes as usize);
    Some((raw, &batch[..length]))
}

/// The record without what the kernel side has reserved and not used.
pub fn whole(bytes: &[u8]) -> &[u8] {
    match batch(bytes) {
        Some((_, batch)) => &bytes[..size_of::<RawBatch>() + batch.len()],
        None => bytes,
    }
}

/// What a memory call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AboutMemory {
    /// Process id.
    pub pid: u32,
    /// Row of the function table, which may not have it.
    pub row: u16,
    /// As [`Call::address`].
    pub address: u64,
}

/// What the record of a memory call is about, without a look at the rest of it.
pub fn about_memory(bytes: &[u8]) -> Option<AboutMemory> {
    let (raw, _) = RawCall::ref_from_prefix(bytes).ok()?;
    (raw.record_type == record::CALL).then_some(AboutMemory {
        pid: raw.tgid,
        row: raw.row,
        address: raw.address,
    })
}

/// Decodes one record of the rings of memory calls and of launches and copies.
///
/// # Errors
/// A record that is too short, of an unknown type, or that names no memory function.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let truncated = DecodeError::Truncated {
        length: bytes.len(),
    };
    let Some(&[low, high]) = bytes.first_chunk::<2>() else {
        return Err(truncated);
    };
    let task = || {
        let (raw, _) = RawTask::read_from_prefix(bytes).map_err(|_| truncated)?;
        Ok(Task::from(&raw))
    };
    match u16::from_ne_bytes([low, high]) {
        record::CALL => {
            let (raw, _) = RawCall::read_from_prefix(bytes).map_err(|_| truncated)?;
            Ok(Event::Call(Call::try_from(&raw)?))
        }
        record::DETAIL => {
            let (raw, _) = RawDetail::read_from_prefix(bytes).map_err(|_| truncated)?;
            Ok(Event::Call(Call::detailed(&raw, None)?))
        }
        record::NAMED => {
            let (raw, rest) = RawNamed::read_from_prefix(bytes).map_err(|_| truncated)?;
            let name = rest.get(..raw.name_bytes as usize).ok_or(truncated)?;
            Ok(Event::Call(Call::detailed(&raw.detail, Some(text(name)))?))
        }
        record::TENSOR => {
            let (raw, _) = RawTensor::read_from_prefix(bytes).map_err(|_| truncated)?;
            match gpuprobe_cuda::function(raw.row).map(|function| function.op) {
                Some(Op::OutOfMemory) => Ok(Event::OutOfMemory(OutOfMemory::from(&raw))),
                _ => Ok(Event::Tensor(Tensor::try_from(&raw)?)),
            }
        }
        record::REQUEST => {
            let (raw, _) = RawRequest::read_from_prefix(bytes).map_err(|_| truncated)?;
            Ok(Event::Request(Request::from(&raw)))
        }
        record::PROCESS => Ok(Event::Process(task()?)),
        record::THREAD => Ok(Event::Thread(task()?)),
        record::THREAD_EXIT => Ok(Event::ThreadExit(task()?)),
        record::EXIT => Ok(Event::Exit(task()?)),
        record::EXEC => Ok(Event::Exec(task()?)),
        record::KERNEL => {
            let (raw, rest) = RawKernel::read_from_prefix(bytes).map_err(|_| truncated)?;
            let name = rest.get(..raw.name_bytes as usize).ok_or(truncated)?;
            Ok(Event::Kernel(Kernel::new(&raw, name)?))
        }
        record::COPY => {
            let (raw, _) = RawCopy::read_from_prefix(bytes).map_err(|_| truncated)?;
            Ok(Event::Copy(Copy::try_from(&raw)?))
        }
        record::LAUNCH => {
            let (raw, _) = RawLaunch::read_from_prefix(bytes).map_err(|_| truncated)?;
            Ok(Event::Launch(Launch::try_from(&raw)?))
        }
        other => Err(DecodeError::UnknownType(other)),
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests;
