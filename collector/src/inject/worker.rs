//! The collector's thread: requests complete records from CUPTI, reads them, and sends batches.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use gpuprobe_wire::WireSettings;

use super::library::{CuptiFunctions, status};
use super::pool::Buffer;
use super::{CollectorState, SHARED, off, process};
use crate::cupti::{Address, CuptiVersion};
use crate::reduce::{Reducer, Surroundings};

/// Interval of the check that gpuprobe is still running.
const TRACER_PERIOD: Duration = Duration::from_secs(1);

/// A message to the thread.
pub(super) enum Message {
    /// A filled buffer. The pool bounds their number.
    Filled(Buffer),
    /// The process is exiting.
    End,
}

/// State of the thread.
pub(super) struct Worker {
    pub(super) functions: CuptiFunctions,
    pub(super) version: CuptiVersion,
    pub(super) monotonic: bool,
    pub(super) enabled: Vec<c_int>,
    pub(super) settings: WireSettings,
}

/// Starts the thread, which drops `ended` when it has finished. All signals are blocked in it, so that the
/// program's handlers never run there.
pub(super) fn spawn(worker: Worker, queue: Receiver<Message>, ended: Sender<()>) -> io::Result<()> {
    const STACK_BYTES: usize = 256 << 10;
    let builder = thread::Builder::new()
        .name("gpuprobe".to_owned())
        .stack_size(STACK_BYTES);
    process::with_blocked(&process::signals(None), || {
        builder.spawn(move || {
            let _ended = ended;
            let Some(shared) = SHARED.get() else {
                return;
            };
            if catch_unwind(AssertUnwindSafe(|| worker.run(shared, &queue))).is_err() {
                shared.switch_off();
                off("internal error");
            }
        })
    })?;
    Ok(())
}

impl Worker {
    fn run(&self, shared: &CollectorState, queue: &Receiver<Message>) {
        let mut reducer = Reducer::new(self.version, std::process::id(), self.monotonic);
        let mut around = WorkerHost(self);
        let period = Duration::from_millis(self.settings.flush_ms.into());
        let mut flush_at = Instant::now() + period;
        let mut look_at = Instant::now() + TRACER_PERIOD;
        loop {
            let left = flush_at
                .min(look_at)
                .saturating_duration_since(Instant::now());
            match queue.recv_timeout(left) {
                Ok(Message::Filled(buffer)) => {
                    self.read(&buffer, &mut reducer, &mut around);
                    shared.pool.recycle(buffer);
                }
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                    reducer.dropped(self.dropped());
                    return reducer.end(&mut around);
                }
                Err(RecvTimeoutError::Timeout) => {
                    reducer.dropped(self.dropped());
                    reducer.flush(&mut around);
                    // Not while buffers come: a flush would only add to a backlog.
                    if Instant::now() >= flush_at {
                        // SAFETY: takes a number; 0: complete buffers only.
                        unsafe { (self.functions.flush_all)(0) };
                        // From its end, so that slow flushes do not follow each other immediately.
                        flush_at = Instant::now() + period;
                    }
                }
            }
            let now = Instant::now();
            if now >= look_at {
                look_at = now + TRACER_PERIOD;
                if self.tracer_is_gone() {
                    return self.stop(shared);
                }
            }
        }
    }

    /// Sends the records of a buffer in the order of CUPTI.
    fn read(&self, buffer: &Buffer, reducer: &mut Reducer, around: &mut WorkerHost<'_>) {
        let bytes = buffer.bytes();
        let start = bytes.as_ptr() as usize;
        let mut record = ptr::null_mut();
        let mut next_at = 0;
        reducer.next_buffer();
        loop {
            // SAFETY: the length is that of the buffer, and `record` is null or CUPTI's previous
            // result. It writes to neither.
            let status = unsafe {
                (self.functions.next_record)(bytes.as_ptr().cast_mut(), bytes.len(), &mut record)
            };
            if status == status::MAX_LIMIT_REACHED {
                return;
            }
            // Records are aligned, lie within the buffer, and do not overlap.
            let offset = (record as usize).wrapping_sub(start);
            let found = bytes.get(offset..).filter(|found| !found.is_empty());
            let in_order = offset >= next_at && offset.is_multiple_of(RECORD_ALIGNMENT);
            match found {
                Some(found) if status == status::SUCCESS && in_order => {
                    reducer.record(found, around);
                    next_at = offset + RECORD_ALIGNMENT;
                }
                _ => return reducer.malformed(),
            }
        }
    }

    /// Number of records that CUPTI has dropped since the last call.
    fn dropped(&self) -> u64 {
        let mut dropped = 0;
        if let Some(ask) = self.functions.dropped {
            // SAFETY: `dropped` is valid; no context and stream 0 mean the global queue.
            unsafe { ask(ptr::null_mut(), 0, &mut dropped) };
        }
        dropped as u64
    }

    /// Whether gpuprobe is known to have exited.
    fn tracer_is_gone(&self) -> bool {
        let tracer = self.settings.tracer;
        tracer.is_some_and(|tracer| process::is_running(tracer) == Some(false))
    }

    /// Stops collecting after gpuprobe has exited, so that the program no longer bears the cost.
    fn stop(&self, shared: &CollectorState) {
        shared.switch_off();
        if let Some(disable) = self.functions.disable {
            for &kind in &self.enabled {
                // SAFETY: takes a number.
                unsafe { disable(kind) };
            }
        }
        off("gpuprobe has exited");
    }
}

/// Alignment of records in a buffer.
const RECORD_ALIGNMENT: usize = 8;

struct WorkerHost<'a>(&'a Worker);

impl Surroundings for WorkerHost<'_> {
    fn read_text(&mut self, address: Address, text: &mut Vec<u8>) -> bool {
        process::read_text(address, text)
    }

    fn callback_name(&mut self, domain: u32, cbid: u32, name: &mut Vec<u8>) -> bool {
        let Some(ask) = self.0.functions.callback_name else {
            return false;
        };
        let mut text = ptr::null();
        // SAFETY: `text` is valid.
        let status = unsafe { ask(domain.cast_signed(), cbid, &mut text) };
        if status != status::SUCCESS || text.is_null() {
            return false;
        }
        name.clear();
        // SAFETY: a constant text of CUPTI.
        name.extend_from_slice(unsafe { CStr::from_ptr(text) }.to_bytes());
        true
    }

    fn clocks(&mut self) -> (u64, u64) {
        if self.0.monotonic {
            let now = process::monotonic_ns();
            return (now, now);
        }
        paired(|| {
            let mut now = 0;
            // SAFETY: `now` is valid.
            let status = unsafe { self.0.functions.timestamp?(&mut now) };
            (status == status::SUCCESS).then_some(now)
        })
    }

    fn send(&mut self, batch: &[u8]) {
        super::batch::gpuprobe_activity_batch(batch.as_ptr(), batch.len());
    }
}

/// Reads the clock `read` and `CLOCK_MONOTONIC` at one moment; of several tries, the one with the
/// shortest distance is used. Zeros if there is no such clock.
fn paired(read: impl Fn() -> Option<u64>) -> (u64, u64) {
    const TRIES: usize = 3;
    let pairs = (0..TRIES).filter_map(|_| {
        let before = process::monotonic_ns();
        let other = read()?;
        let took = process::monotonic_ns() - before;
        Some((took, (other, before + took / 2)))
    });
    pairs.min().map_or((0, 0), |(_, pair)| pair)
}
