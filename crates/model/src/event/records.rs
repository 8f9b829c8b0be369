//! Decoding of the records of all rings.

use zerocopy::FromBytes;

use super::decode::text;
use super::{Call, Copy, Event, KernelName, Launch, OutOfMemory, Task, Tensor, TensorRequest};
use crate::abi::{RawBatch, RawKernel, RawNamed, RawRequest, RawTask, RawTensor, record};
use crate::activity;
use gpuprobe_cuda::Op;

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
    /// Returns an error where [`decode`] gives nothing. A malformed batch is no error: it is decoded up to the malformed
    /// record.
    #[inline]
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Event, String> {
        let Some((raw, batch)) = batch(bytes) else {
            if let Some(process) = ended(bytes) {
                self.activity.end(process);
            }
            let beginning = &bytes[..bytes.len().min(8)];
            let why = || format!("record of {} bytes: {beginning:x?}", bytes.len());
            return decode(bytes).ok_or_else(why);
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

/// Decodes one record of the ring of memory calls or the ring of launches and copies. `None` if it is shorter than
/// its type requires, the type is unknown, or its row is not of such a function.
#[inline]
pub fn decode(bytes: &[u8]) -> Option<Event> {
    Some(match u16::from_ne_bytes(*bytes.first_chunk()?) {
        // Made where it is returned: it is large, and most records are calls.
        record::CALL => return Some(Event::Call(Call::new(&read(bytes)?.0)?)),
        record::DETAIL => Event::Call(Call::detailed(&read(bytes)?.0, None)?),
        record::NAMED => {
            let (raw, rest) = read::<RawNamed>(bytes)?;
            let name = text(rest.get(..raw.name_bytes as usize)?);
            Event::Call(Call::detailed(&raw.detail, Some(name))?)
        }
        record::TENSOR => {
            let (raw, _) = read::<RawTensor>(bytes)?;
            match gpuprobe_cuda::function(raw.row)?.op {
                Op::OutOfMemory => Event::OutOfMemory(OutOfMemory::from(&raw)),
                _ => Event::Tensor(Tensor::new(&raw)?),
            }
        }
        record::REQUEST => Event::Request(TensorRequest::from(&read::<RawRequest>(bytes)?.0)),
        record::PROCESS => Event::Process(task(bytes)?),
        record::THREAD => Event::Thread(task(bytes)?),
        record::THREAD_EXIT => Event::ThreadExit(task(bytes)?),
        record::EXIT => Event::Exit(task(bytes)?),
        record::EXEC => Event::Exec(task(bytes)?),
        record::CHECKPOINT => Event::Checkpoint(task(bytes)?),
        record::RESTORE => Event::Restore(task(bytes)?),
        record::KERNEL => {
            let (raw, rest) = read::<RawKernel>(bytes)?;
            let name = rest.get(..raw.name_bytes as usize)?;
            Event::Kernel(KernelName::new(&raw, name)?)
        }
        record::COPY => Event::Copy(Copy::new(&read(bytes)?.0)?),
        record::LAUNCH => Event::Launch(Launch::new(&read(bytes)?.0)?),
        _ => return None,
    })
}

/// A record and the bytes after it.
#[inline]
fn read<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}

fn task(bytes: &[u8]) -> Option<Task> {
    Some(Task::from(&read::<RawTask>(bytes)?.0))
}
