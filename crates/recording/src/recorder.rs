//! Tracing side of a recording: collects events, their changes and the log, and passes them to the
//! writer thread.
//!
//! Tracing never blocks on disk I/O. If the writer falls behind by more than [`MAX_QUEUED`],
//! further records are dropped from the recording, counted, and reported.

use std::cell::RefCell;
use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

use super::batch::{LOG_BYTES, LogBatch, LogStep, LoggedLaunch};
use super::log::{self, LogNote};
use super::writer::{Facts, RecordingWriter};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::launches::CountedLaunch;
use gpuprobe_engine::transfers::Transfer;
use gpuprobe_engine::{AddressKind, Change, HostInfo, Launches, State};
use gpuprobe_model::abi::{RawBatch, RawLaunchKey};
use gpuprobe_model::event::{Event, Task};
use gpuprobe_model::identity::Identity;
use gpuprobe_os::say;

/// Maximum size of the queue, bytes: 1.5 million calls.
const MAX_QUEUED: usize = 384 << 20;
/// State shared by both threads.
#[derive(Debug, Default)]
pub(super) struct RecorderState {
    /// Size of the queue, bytes.
    pub(super) queued: AtomicUsize,
    /// Why the recording has stopped before the run: after an error, or at its maximum size.
    stopped: OnceLock<String>,
    /// The file is to be removed.
    pub(super) discarded: AtomicBool,
    /// The end is not said.
    pub(super) is_quiet: AtomicBool,
}

impl RecorderState {
    /// Stops the recording and prints the reason.
    pub(super) fn stop(&self, why: impl Display) {
        let why = self.stopped.get_or_init(|| why.to_string());
        say(format_args!("recording has stopped: {why}"));
    }

    fn has_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }
}

/// Records the input of the state in a file; by default, in none.
#[derive(Debug, Default)]
pub struct Recorder {
    batch: LogBatch,
    /// `None` without a file, and after the end.
    sender: Option<Sender<LogBatch>>,
    writer: Option<JoinHandle<()>>,
    shared: Arc<RecorderState>,
    dropped: u64,
}

impl Recorder {
    /// Starts a recording in the new file `path`, which stops at `max_bytes`; that may be exceeded slightly if the
    /// disk is slower than the events.
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be written.
    pub fn start(path: &Path, facts: Facts, max_bytes: Option<u64>) -> Result<Self> {
        let writer = RecordingWriter::create(path, facts, max_bytes)?;
        let shared = Arc::new(RecorderState::default());
        // Bounded by `queued` in bytes, because batches differ in size.
        let (sender, receiver) = mpsc::channel();
        let of_writer = Arc::clone(&shared);
        let writer = thread::Builder::new()
            .name("gpuprobe-record".to_owned())
            .spawn(move || writer.run(&receiver, &of_writer))
            .context("cannot start the thread that writes the recording")?;
        Ok(Self {
            batch: LogBatch::default(),
            sender: Some(sender),
            writer: Some(writer),
            shared,
            dropped: 0,
        })
    }

    /// Sends the current batch, or drops it if the queue is full; at the end it is always sent.
    fn hand_over(&mut self, is_end: bool) {
        if self.shared.has_stopped() {
            self.batch = LogBatch::default();
        }
        if self.batch.is_empty() {
            return;
        }
        let next = LogBatch::after(&self.batch);
        let batch = std::mem::replace(&mut self.batch, next);
        let (records, bytes) = (batch.records, batch.bytes());
        let queued = self.shared.queued.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let sender = self.sender.as_ref();
        let sender = sender.filter(|_| queued <= MAX_QUEUED || is_end);
        let sent = sender.is_some_and(|sender| sender.send(batch).is_ok());
        if !sent {
            self.shared.queued.fetch_sub(bytes, Ordering::Relaxed);
            if self.dropped == 0 && !self.shared.has_stopped() {
                say("recording is incomplete: the disk is too slow; events are dropped");
            }
            self.dropped += records;
            self.append(LogNote::Dropped(self.dropped));
        }
    }

    fn append(&mut self, note: LogNote) {
        log::append_note(&mut self.batch.log, &note);
        self.batch.steps.push(LogStep::Note(Box::new(note)));
    }

    fn grown(&mut self) {
        if self.batch.log.len() >= LOG_BYTES {
            self.hand_over(false);
        }
    }

    /// Whether the input is recorded.
    pub fn is_recording(&self) -> bool {
        self.sender.is_some() && !self.shared.has_stopped()
    }

    /// Why recording has stopped before the run, if it has.
    pub fn stopped(&self) -> Option<&str> {
        self.shared.stopped.get().map(String::as_str)
    }

    /// Applies an event to `state` (see [`State::apply`]) and notes the answers from `host_info`. The caller then
    /// records the event and its changes.
    pub fn enter(
        &mut self,
        state: &mut State,
        event: &Event,
        modes: Modes,
        host_info: &impl HostInfo,
    ) -> Option<Transfer> {
        if !self.is_recording() {
            return state.apply(event, modes, host_info);
        }
        let witness = Witness {
            host_info,
            notes: RefCell::default(),
        };
        let transfer = state.apply(event, modes, &witness);
        let notes = witness.notes.into_inner();
        notes.into_iter().for_each(|note| self.note(note));
        transfer
    }

    /// An event, after the notes with the answers to its queries; the batch that it was decoded
    /// from, if it is one, and the changes by the event, which are drained.
    pub fn event(
        &mut self,
        event: Event,
        sent: Option<(&RawBatch, &[u8])>,
        changes: &mut Vec<Change>,
    ) {
        log::append_event(&mut self.batch.log, &event, sent);
        self.batch.event(event, changes);
        self.grown();
    }

    /// Launch counters of a kernel.
    pub fn count(&mut self, key: &RawLaunchKey, runs: u64, captured: u64) {
        if self.is_recording() {
            log::append_count(&mut self.batch.log, key, runs, captured);
            self.grown();
        }
    }

    /// All launch counters have been read; `launches` has the totals.
    pub fn counted(&mut self, launches: &Launches) {
        if !self.is_recording() {
            return;
        }
        let launched = |launch: CountedLaunch<'_>| LoggedLaunch {
            key: *launch.key,
            pid: launch.launcher.map_or(0, |l| l.pid),
            mangled: launch.mangled.cloned(),
            counted: launch.counted.clone(),
        };
        self.batch
            .counted(launches.counted().map(launched).collect());
        self.grown();
    }

    /// Any other input of the state.
    pub fn note(&mut self, note: LogNote) {
        if self.is_recording() {
            self.append(note);
            self.grown();
        }
    }

    /// Marks the end of the input available now.
    pub fn pause(&mut self) {
        self.hand_over(false);
    }

    /// Completes and closes the recording.
    pub fn finish(&mut self) {
        self.hand_over(true);
        // Closing the channel ends the recording.
        self.sender = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            say("error: the recording has failed");
        }
    }

    /// The same without a message.
    pub fn finish_quietly(&mut self) {
        self.shared.is_quiet.store(true, Ordering::Relaxed);
        self.finish();
    }

    /// Discards the recording because nothing was traced.
    pub fn discard(&mut self) {
        self.shared.discarded.store(true, Ordering::Relaxed);
        self.finish();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Forwards queries to a [`HostInfo`] and collects the answers.
struct Witness<'a, W> {
    host_info: &'a W,
    notes: RefCell<Vec<LogNote>>,
}

impl<W> Witness<'_, W> {
    fn note(&self, note: LogNote) {
        self.notes.borrow_mut().push(note);
    }
}

impl<W: HostInfo> HostInfo for Witness<'_, W> {
    fn identity(&self, task: &Task) -> Identity {
        let answer = self.host_info.identity(task);
        self.note(LogNote::Identity(task.pid, answer.clone()));
        answer
    }

    fn kernel_at(&self, pid: u32, address: u64) -> Option<String> {
        let answer = self.host_info.kernel_at(pid, address);
        self.note(LogNote::KernelAt(pid, address, answer.clone()));
        answer
    }

    fn variable_size(&self, pid: u32, name: &str) -> Option<u64> {
        let answer = self.host_info.variable_size(pid, name);
        self.note(LogNote::VariableSize(pid, name.to_owned(), answer));
        answer
    }

    fn place(&self, pid: u32, address: u64) -> Option<AddressKind> {
        let answer = self.host_info.place(pid, address);
        let on_device = answer.map(|place| matches!(place, AddressKind::Device(_)));
        self.note(LogNote::OnDevice(pid, address, on_device));
        answer
    }
}
