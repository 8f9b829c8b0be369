//! Bytes from the kernel side become typed events here, and only here.

mod launch;

use std::fmt;

use zerocopy::FromBytes;

use crate::abi::{
    CALL_CAPTURED, RawBatch, RawCall, RawCopy, RawDetail, RawKernel, RawLaunch, RawLaunchKey,
    RawNamed, RawTask, record,
};
use crate::activity;
use crate::activity::Batch;
use gpuprobe_cuda::{EXTRA, Function};

pub use crate::abi::CONTEXT_UNKNOWN;
pub use launch::Launch;

/// Something that happened in a traced process, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A memory call has returned.
    Call(Call),
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

impl TryFrom<&RawCall> for Call {
    type Error = DecodeError;

    fn try_from(raw: &RawCall) -> Result<Self, DecodeError> {
        let function = gpuprobe_cuda::function(raw.row)
            .filter(|f| f.op.is_memory() || f.op.is_told())
            .ok_or(DecodeError::UnknownRow(raw.row))?;
        Ok(Self {
            row: raw.row,
            function,
            result: raw.result,
            pid: raw.tgid,
            tid: raw.tid,
            start_ns: raw.start_ns,
            end_ns: raw.end_ns,
            address: raw.address,
            size_bytes: raw.size,
            device: u16::try_from(raw.device).ok().filter(|&d| d < MAX_DEVICES),
            context: raw.context,
            captured: raw.flags & CALL_CAPTURED != 0,
            stack: raw.stack,
            detail: None,
        })
    }
}

/// CUDA knows no more than a few dozen devices; anything beyond is no device index.
pub const MAX_DEVICES: u16 = 240;

impl Call {
    fn detailed(raw: &RawDetail, name: Option<String>) -> Result<Self, DecodeError> {
        let detail = Detail {
            out: raw.out,
            stream: raw.stream,
            values: raw.values,
            name: name.filter(|name| !name.is_empty()),
        };
        Ok(Self {
            detail: Some(Box::new(detail)),
            ..Self::try_from(&raw.call)?
        })
    }

    /// The further value `index`; 0 if there is none.
    pub fn value(&self, index: usize) -> u64 {
        let detail = self.detail.as_deref();
        detail.map_or(0, |d| d.values.get(index).copied().unwrap_or(0))
    }

    /// What the call wrote to [`Function::out`]; 0 if that was not sent.
    pub fn out(&self) -> u64 {
        self.detail.as_deref().map_or(0, |d| d.out)
    }

    /// [`Function::stream`]; 0 if that was not sent.
    pub fn stream(&self) -> u64 {
        self.detail.as_deref().map_or(0, |d| d.stream)
    }
}

impl Kernel {
    fn new(raw: &RawKernel, name: &[u8]) -> Result<Self, DecodeError> {
        gpuprobe_cuda::function(raw.key.row).ok_or(DecodeError::UnknownRow(raw.key.row))?;
        let name = text(name);
        Ok(Self {
            pid: raw.tgid,
            key: raw.key,
            given: raw.given != 0,
            name: (!name.is_empty()).then_some(name),
            grid: raw.grid,
            block: raw.block,
        })
    }
}

impl TryFrom<&RawCopy> for Copy {
    type Error = DecodeError;

    fn try_from(raw: &RawCopy) -> Result<Self, DecodeError> {
        let function = gpuprobe_cuda::function(raw.row)
            .filter(|f| f.op.is_copy())
            .ok_or(DecodeError::UnknownRow(raw.row))?;
        Ok(Self {
            row: raw.row,
            function,
            result: raw.result,
            pid: raw.tgid,
            tid: raw.tid,
            start_ns: raw.start_ns,
            end_ns: raw.end_ns,
            bytes: raw.bytes,
            destination: raw.destination,
            source: raw.source,
            kind: raw.kind,
            destination_type: raw.second,
            captured: raw.captured != 0,
        })
    }
}

/// The text before the first zero byte; invalid UTF-8 is replaced.
fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

impl From<&RawTask> for Task {
    fn from(raw: &RawTask) -> Self {
        Self {
            pid: raw.tgid,
            tid: raw.tid,
            uid: raw.uid,
            time_ns: raw.time_ns,
            process: raw.process,
            from_birth: raw.from_birth != 0,
            inner_pid: raw.inner_pid,
            cgroup: raw.cgroup,
            comm: text(&raw.comm),
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A call record, byte by byte: row 1 (`cudaMalloc`), process 7, thread 8.
    fn call_bytes() -> Vec<u8> {
        let mut bytes = vec![1, 0, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0];
        for number in [100u64, 200, 0x7d33_2000_0000, 8_388_608] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(0x5ac4_u64.to_le_bytes());
        bytes
    }

    fn task_bytes(record_type: u8, comm: &[u8]) -> Vec<u8> {
        let mut bytes = vec![record_type, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0xe8, 3, 0, 0];
        bytes.extend([9, 0, 0, 0, 1, 0, 0, 0]);
        bytes.extend(77u64.to_le_bytes());
        bytes.extend(5u64.to_le_bytes());
        bytes.extend(6u64.to_le_bytes());
        let mut name = [0; 16];
        name[..comm.len()].copy_from_slice(comm);
        bytes.extend(name);
        bytes
    }

    #[test]
    fn call_from_literal_bytes() {
        let Event::Call(call) = decode(&call_bytes()).unwrap() else {
            panic!("not a call");
        };
        assert_eq!(call.function.symbol, "cudaMalloc");
        assert_eq!((call.pid, call.tid, call.result), (7, 8, 0));
        assert_eq!((call.start_ns, call.end_ns), (100, 200));
        assert_eq!(
            (call.address, call.size_bytes),
            (0x7d33_2000_0000, 8_388_608)
        );
        assert_eq!((call.device, call.stack), (Some(1), 0x5ac4));
    }

    #[test]
    fn unknown_device_is_none() {
        let mut bytes = call_bytes();
        bytes[48..52].copy_from_slice(&(-1i32).to_le_bytes());
        let Event::Call(call) = decode(&bytes).unwrap() else {
            panic!("not a call");
        };
        assert_eq!(call.device, None);
    }

    #[test]
    fn tasks_from_literal_bytes() {
        let Event::Thread(task) = decode(&task_bytes(3, b"pt_autograd_0")).unwrap() else {
            panic!("not a thread");
        };
        assert_eq!(
            (task.pid, task.tid, task.uid, task.time_ns),
            (7, 8, 1000, 5)
        );
        assert_eq!(task.comm, "pt_autograd_0");
        assert_eq!((task.process, task.inner_pid, task.cgroup), (9, 1, 77));
        assert!(matches!(decode(&task_bytes(2, b"")), Ok(Event::Process(_))));
        assert!(matches!(decode(&task_bytes(4, b"x")), Ok(Event::Exit(_))));
        assert!(matches!(decode(&task_bytes(5, b"x")), Ok(Event::Exec(_))));
        assert!(matches!(
            decode(&task_bytes(6, b"x")),
            Ok(Event::ThreadExit(_))
        ));
    }

    #[test]
    fn details_and_names_from_literal_bytes() {
        let row = |symbol| {
            let position = gpuprobe_cuda::FUNCTIONS
                .iter()
                .position(|f| f.symbol == symbol);
            u16::try_from(position.unwrap()).unwrap().to_le_bytes()
        };
        let mut bytes = call_bytes();
        bytes[0] = 11;
        bytes[2..4].copy_from_slice(&row("cuMemMap"));
        bytes[52..56].copy_from_slice(&[3, 0, 1, 0]);
        for number in [0x77u64, 0x88, 1, 2, 3, 4, 5, 6, 7, 8] {
            bytes.extend(number.to_le_bytes());
        }
        let Event::Call(call) = decode(&bytes).unwrap() else {
            panic!("not a call");
        };
        assert_eq!((call.context, call.captured), (3, true));
        assert_eq!((call.out(), call.stream()), (0x77, 0x88));
        assert_eq!((call.value(0), call.value(7), call.value(8)), (1, 8, 0));
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());

        bytes[0] = 12;
        bytes[2..4].copy_from_slice(&row("cuModuleGetGlobal_v2"));
        bytes.extend([5, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"seed\0 and more");
        let Event::Call(call) = decode(&bytes).unwrap() else {
            panic!("not a call");
        };
        assert_eq!(call.detail.unwrap().name.as_deref(), Some("seed"));
        bytes[144] = 200;
        assert!(matches!(decode(&bytes), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn full_width_and_invalid_names() {
        let Event::Process(task) = decode(&task_bytes(2, &[0xff; 16])).unwrap() else {
            panic!("not a process");
        };
        assert_eq!(task.comm, "\u{fffd}".repeat(16));
    }

    #[test]
    fn short_and_unknown_records_are_refused() {
        assert_eq!(decode(&[]), Err(DecodeError::Truncated { length: 0 }));
        assert_eq!(decode(&[1]), Err(DecodeError::Truncated { length: 1 }));
        let call = call_bytes();
        for length in 2..call.len() {
            let expected = Err(DecodeError::Truncated { length });
            assert_eq!(decode(&call[..length]), expected);
        }
        let task = task_bytes(3, b"x");
        assert!(decode(&task[..task.len() - 1]).is_err());
        assert_eq!(decode(&[99, 0]), Err(DecodeError::UnknownType(99)));
        let mut bad_row = call;
        bad_row[2..4].copy_from_slice(&9999u16.to_le_bytes());
        assert_eq!(decode(&bad_row), Err(DecodeError::UnknownRow(9999)));
        bad_row[2..4].copy_from_slice(&0u16.to_le_bytes());
        assert_eq!(decode(&bad_row), Err(DecodeError::UnknownRow(0)));
    }

    #[test]
    fn kernels_from_literal_bytes() {
        let row = gpuprobe_cuda::FUNCTIONS
            .iter()
            .position(|f| f.symbol == "cuLaunchKernel")
            .unwrap();
        let row = u16::try_from(row).unwrap();
        let mut bytes = vec![9, 0, 1, 0, 7, 0, 0, 0];
        bytes.extend(0x5000u64.to_le_bytes());
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(row.to_le_bytes());
        bytes.extend(3u16.to_le_bytes());
        for number in [80u32, 1, 1, 128, 2, 1, 4, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(b"_Zk\0rest");
        let Event::Kernel(kernel) = decode(&bytes).unwrap() else {
            panic!("not a kernel");
        };
        assert_eq!((kernel.pid, kernel.given), (7, true));
        assert_eq!(
            (kernel.key.handle, kernel.key.process, kernel.key.epoch),
            (0x5000, 9, 3)
        );
        assert_eq!((kernel.grid, kernel.block), ([80, 1, 1], [128, 2, 1]));
        assert_eq!(kernel.name.as_deref(), Some("_Zk"));
        // A name that says to be longer than the record.
        bytes[48] = 200;
        assert!(matches!(decode(&bytes), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn copies_from_literal_bytes() {
        let row = gpuprobe_cuda::FUNCTIONS
            .iter()
            .position(|f| f.symbol == "cudaMemcpy")
            .unwrap();
        let mut bytes = vec![10, 0];
        bytes.extend(u16::try_from(row).unwrap().to_le_bytes());
        for number in [0u32, 7, 8] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [100u64, 200, 4096, 0xd000, 0x5000] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend([1, 0, 0, 0, 2, 0, 1, 0]);
        let Event::Copy(copy) = decode(&bytes).unwrap() else {
            panic!("not a copy");
        };
        assert_eq!((copy.pid, copy.tid, copy.bytes), (7, 8, 4096));
        assert_eq!((copy.start_ns, copy.end_ns), (100, 200));
        assert_eq!((copy.destination, copy.source), (0xd000, 0x5000));
        assert_eq!(
            (copy.kind, copy.destination_type, copy.captured),
            (1, 2, true)
        );
        assert!(decode(&bytes[..bytes.len() - 1]).is_err());
        bytes[2..4].copy_from_slice(&1u16.to_le_bytes());
        assert_eq!(decode(&bytes), Err(DecodeError::UnknownRow(1)));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(0u8.., 0..96)) {
            let _ = decode(&bytes);
        }
    }
}
