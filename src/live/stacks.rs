//! Call stacks of a session: what the ledger, the recording and reports have of them. A thread finds them ([`thread`]).

mod python;
mod thread;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::live::discovery::Orders;
use crate::probe::Probe;
use gpuprobe_engine::Ledger;
use gpuprobe_model::blocks::DeviceBlocks;
use gpuprobe_model::event::Task;
use gpuprobe_model::stack::{
    Frame, FramesKey, JIT, KnownFrames, Language, Location, Symbolize, bare_frame,
};
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_recording::log::LogNote;
use gpuprobe_stacks::helper::{FileReader, ProcessReader};
use gpuprobe_stacks::store::{SharedStacks, StackStore};
use gpuprobe_stacks::symbols::{ResolvedFrames, Service, SymbolRequest};
use thread::StackThread;

pub(super) use thread::StackTasks;

/// Maximum number of locations with cached frames, and of their bytes; beyond, the cache is cleared.
const MAX_FRAMES: usize = 1 << 18;
const MAX_BYTES: usize = 64 << 20;
/// Interval at which files without a mapping are closed.
const TIDY_EVERY: Duration = Duration::from_secs(2);

/// The state of call stacks.
pub(super) struct StackState {
    /// The stacks that the thread has found.
    pub(super) calls: SharedStacks,
    pub(super) tasks: StackTasks,
    answers: Receiver<ResolvedFrames>,
    /// Number of requested frames without an answer.
    pub(super) missing: usize,
    /// Cache of symbolised frames.
    pub(super) frames: KnownFrames,
    asked: HashSet<FramesKey>,
    /// The cache was cleared: frames are written to the recording again.
    is_forgetful: bool,
    /// Processes and programs that ended since the last round of reading, and those of the round before:
    /// their last launches and copies are in another ring than their exits, and may be read up to a
    /// round later.
    ended: Vec<(u32, u32)>,
    ended_before: Vec<(u32, u32)>,
    /// When files were last closed.
    tidied: Instant,
    /// Held while that is to be done.
    tidying: Arc<()>,
    /// Number of calls whose stack was captured but was not found, or not in time.
    pub(super) unknown: u64,
    /// All frames are symbolised, not only those shown.
    is_recording: bool,
}

impl StackState {
    /// Starts the thread.
    pub(super) fn start(
        is_recording: bool,
        with_python: bool,
        (reader, memory): (FileReader, ProcessReader),
        probe: &Arc<Probe>,
        orders: Orders,
    ) -> Result<Self> {
        let (sender, answers) = mpsc::channel();
        let service = Service::start(&reader, &memory, sender)?;
        let store = StackStore::new(with_python, reader, memory);
        let calls = store.calls.clone();
        let thread = StackThread {
            store,
            service,
            probe: Arc::clone(probe),
            files: HashMap::new(),
            destructors: HashMap::new(),
            orders,
            ordered: 0,
            jitted: HashSet::new(),
            last_ns: Arc::default(),
        };
        Ok(Self {
            calls,
            tasks: StackTasks::start(thread).context("cannot start a thread")?,
            answers,
            missing: 0,
            frames: KnownFrames::default(),
            asked: HashSet::new(),
            is_forgetful: false,
            ended: Vec::new(),
            ended_before: Vec::new(),
            tidied: Instant::now(),
            tidying: Arc::default(),
            unknown: 0,
            is_recording,
        })
    }

    /// Adds the call stacks of blocks that were found, and waits for that.
    pub(super) fn add_found(&self, pid: u32, devices: &mut [DeviceBlocks]) {
        for device in devices {
            let stacks = std::mem::take(&mut device.stacks);
            self.tasks
                .ask(move |thread| thread.store.add_stacks(pid, stacks));
        }
    }

    /// Replaces the stack number of a call by that of the stack store, and adds a new stack to the ledger.
    /// Returns the note of a new stack for the recording.
    pub(super) fn name(
        &mut self,
        pid: u32,
        of_call: &mut u64,
        start_ns: u64,
        ledger: &mut Ledger,
    ) -> Option<LogNote> {
        let named = self.calls.lock().of_call(pid, *of_call, start_ns);
        self.unknown += u64::from(named.is_none());
        *of_call = named.as_ref().map_or(0, |named| named.id);
        let (id, stack) = (*of_call, named?.new?);
        // JIT-compiled code can be symbolised only while its process is alive.
        let is_recording = self.is_recording;
        let locations = stack.locations.iter().enumerate();
        let wanted = locations.filter(|(_, location)| {
            is_recording || location.module.is_none() || location.python_line().is_some()
        });
        self.want(wanted.map(|(index, location)| (pid, *location, index == 0)));
        ledger.set_stack(pid, id, Rc::new((*stack).clone()));
        Some(LogNote::Stack(pid, id, (*stack).clone()))
    }

    /// Records the end of a process, or of a program by `exec`.
    pub(super) fn end(&mut self, task: &Task) {
        self.ended.push((task.pid, task.process));
    }

    /// Marks the end of a round: all rings were read once more.
    pub(super) fn end_round(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        for (pid, process) in std::mem::replace(&mut self.ended_before, ended) {
            self.tasks.send(move |thread| thread.end(pid, process));
        }
        self.want_last_places();
    }

    /// Has it named where processes have called from that have ended: their files may go with them.
    fn want_last_places(&mut self) {
        let last = self.calls.lock().take_last_places();
        self.want(last.into_iter());
    }

    /// Has what is kept of processes whose end was not seen removed, from time to time. All records must have been
    /// read.
    pub(super) fn tidy(&mut self) {
        // One after the other: a file unused in both is closed, and what is wanted of it is asked for between them.
        let is_done = Arc::strong_count(&self.tidying) == 1;
        if is_done && self.tidied.elapsed() > TIDY_EVERY {
            self.tidied = Instant::now();
            self.want_last_places();
            let tidying = Arc::clone(&self.tidying);
            self.tasks.send(|thread| {
                thread.tidy();
                drop(tidying);
            });
        }
    }

    /// Requests the frames at these locations, unless that was done.
    pub(super) fn want(&mut self, locations: impl Iterator<Item = (u32, Location, bool)>) {
        if self.asked.len() > MAX_FRAMES || self.frames.bytes() > MAX_BYTES {
            tracing::debug!("frame cache cleared: the limit is reached");
            self.asked.clear();
            self.frames = KnownFrames::default();
            self.is_forgetful = true;
        }
        let request = |(pid, location, is_innermost)| {
            let is_new = self
                .asked
                .insert(FramesKey::of(pid, &location, is_innermost));
            is_new.then_some(SymbolRequest {
                pid,
                location,
                is_innermost,
            })
        };
        let requests: Vec<_> = locations.filter_map(request).collect();
        if !requests.is_empty() {
            self.missing += requests.len();
            self.tasks
                .send(|thread| requests.into_iter().for_each(|it| thread.name(it)));
        }
    }

    /// Waits up to `at_most` for requested frames, and processes those found since the last call; returns notes for the
    /// recording.
    pub(super) fn found(
        &mut self,
        recorded_frames: &mut RecordedFrames,
        at_most: Duration,
    ) -> Vec<LogNote> {
        if std::mem::take(&mut self.is_forgetful) {
            *recorded_frames = RecordedFrames::default();
        }
        let end = Instant::now() + at_most;
        let mut notes = Vec::new();
        while self.missing > 0 {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(answer) = self.answers.recv_timeout(left) else {
                break;
            };
            self.missing -= 1;
            let mut frames = answer.frames;
            let SymbolRequest {
                pid,
                location,
                is_innermost,
            } = answer.request;
            if self.calls.lock().entered.contains_key(&pid) {
                frames.iter_mut().for_each(without_language);
            }
            // The perf map may be written a little after the code was made.
            if location.module.is_none() && frames == [bare_frame(&location)] {
                self.asked
                    .remove(&FramesKey::of(pid, &location, is_innermost));
            }
            if self.is_recording {
                notes.extend(recorded_frames.note(pid, &location, is_innermost, &frames));
            }
            self.frames.insert(pid, location, is_innermost, frames);
        }
        notes
    }
}

/// The frame cache, with the paths of all modules.
impl Symbolize for StackState {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.frames.frames(pid, location, is_innermost)
    }

    fn module(&self, location: &Location) -> Option<String> {
        let path = self.calls.lock().path(location.module?);
        path.or_else(|| self.frames.module(location))
    }
}

/// Drops the Python file of a frame of the `-X perf` trampoline: Python frames are walked separately.
fn without_language(frame: &mut Frame) {
    if frame.module == JIT {
        frame.language = Language::Native;
        frame.file = None;
    }
}
