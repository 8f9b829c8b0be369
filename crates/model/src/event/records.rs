//! Decoding of the records of all rings.

use std::fmt;

use zerocopy::FromBytes;

use super::decode::text;
use super::{Call, Copy, Event, KernelName, Launch, OutOfMemory, Task, Tensor, TensorRequest};
use crate::abi::{
    RawBatch, RawCall, RawCopy, RawKernel, RawLaunch, RawNamed, RawRequest, RawTask, RawTensor,
    record,
};
use crate::activity;
use gpuprobe_cuda::Op;

/// Reason why a record could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The record is shorter than its type requires.
    Truncated {
        /// Length of the record, bytes.
        length: usize,
    },
    /// The record type is unknown to this version.
    UnknownType(u16),
    /// The row is not in the function table, or is not a memory function.
    UnknownRow(u16),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { length } => write!(f, "record of {length} bytes is too short"),
            Self::UnknownType(number) => write!(f, "unknown record type {number}"),
            Self::UnknownRow(row) => write!(f, "row {row} is not a memory function"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes the records of all rings, in the order in which they arrive.
#[derive(Debug, Default)]
pub struct RecordDecoder {
    /// State of the activity batches of all processes.
    pub activity: activity::BatchDecoder,
}

impl RecordDecoder {
    /// Decodes one record of any ring.
    ///
    /// # Errors
    /// Returns the errors of [`decode`]. A malformed batch is no error: it is decoded up to the
    /// malformed record.
    #[inline]
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Event, DecodeError> {
        let Some((raw, batch)) = batch(bytes) else {
            if let Some(process) = ended(bytes) {
                self.activity.end(process);
            }
            return decode(bytes);
        };
        Ok(Event::Activity(self.activity.decode(&raw, batch)))
    }
}

/// The process whose end a record tells.
fn ended(bytes: &[u8]) -> Option<u32> {
    let (record::EXIT | record::EXEC) = u16::from_ne_bytes(*bytes.first_chunk()?) else {
        return None;
    };
    let (raw, _) = RawTask::read_from_prefix(bytes).ok()?;
    Some(raw.process)
}

/// Splits an activity record into its header and the batch, which is never longer than the record.
pub fn batch(bytes: &[u8]) -> Option<(RawBatch, &[u8])> {
    // Few records are batches.
    if *bytes.first_chunk()? != record::BATCH.to_ne_bytes() {
        return None;
    }
    let (raw, batch) = RawBatch::read_from_prefix(bytes).ok()?;
    let length = batch.len().min(raw.bytes as usize);
    Some((raw, &batch[..length]))
}

/// Decodes one record of the ring of memory calls or the ring of launches and copies.
///
/// # Errors
/// Returns [`DecodeError::Truncated`] if the record is too short, [`DecodeError::UnknownType`] if
/// its type is unknown, or [`DecodeError::UnknownRow`] if its row is not a memory function.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let record_type = match bytes.first_chunk() {
        Some(number) => u16::from_ne_bytes(*number),
        None => return Err(truncated(bytes)),
    };
    Ok(match record_type {
        // Made where it is returned: it is large, and most records are calls.
        record::CALL => return Ok(Event::Call(Call::try_from(&read::<RawCall>(bytes)?.0)?)),
        record::DETAIL => Event::Call(Call::detailed(&read(bytes)?.0, None)?),
        record::NAMED => {
            let (raw, rest) = read::<RawNamed>(bytes)?;
            let name = rest.get(..raw.name_bytes as usize);
            let name = text(name.ok_or(truncated(bytes))?);
            Event::Call(Call::detailed(&raw.detail, Some(name))?)
        }
        record::TENSOR => {
            let (raw, _) = read::<RawTensor>(bytes)?;
            match gpuprobe_cuda::function(raw.row).map(|function| function.op) {
                Some(Op::OutOfMemory) => Event::OutOfMemory(OutOfMemory::from(&raw)),
                _ => Event::Tensor(Tensor::try_from(&raw)?),
            }
        }
        record::REQUEST => Event::Request(TensorRequest::from(&read::<RawRequest>(bytes)?.0)),
        record::PROCESS => Event::Process(task(bytes)?),
        record::THREAD => Event::Thread(task(bytes)?),
        record::THREAD_EXIT => Event::ThreadExit(task(bytes)?),
        record::EXIT => Event::Exit(task(bytes)?),
        record::EXEC => Event::Exec(task(bytes)?),
        record::KERNEL => {
            let (raw, rest) = read::<RawKernel>(bytes)?;
            let name = rest.get(..raw.name_bytes as usize);
            Event::Kernel(KernelName::new(&raw, name.ok_or(truncated(bytes))?)?)
        }
        record::COPY => Event::Copy(Copy::try_from(&read::<RawCopy>(bytes)?.0)?),
        record::LAUNCH => Event::Launch(Launch::try_from(&read::<RawLaunch>(bytes)?.0)?),
        other => return Err(DecodeError::UnknownType(other)),
    })
}

/// A record and the bytes after it.
#[inline]
fn read<T: FromBytes>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    T::read_from_prefix(bytes).map_err(|_| truncated(bytes))
}

fn task(bytes: &[u8]) -> Result<Task, DecodeError> {
    Ok(Task::from(&read::<RawTask>(bytes)?.0))
}

fn truncated(bytes: &[u8]) -> DecodeError {
    DecodeError::Truncated {
        length: bytes.len(),
    }
}
