//! Call stacks of a session: kernel side, ledger, recording and reports.

mod python;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::process;
use crate::live::discovery::Orders;
use crate::probe::Probe;
use gpuprobe_engine::Ledger;
use gpuprobe_model::abi::RawPython;
use gpuprobe_model::event::Task;
use gpuprobe_model::stack::{
    Frame, FramesKey, JIT, KnownFrames, Language, Location, ModuleId, Symbolize, bare_frame,
};
use gpuprobe_os::say;
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_recording::log::LogNote;
use gpuprobe_stacks::helper::{FileReader, ProcessReader};
use gpuprobe_stacks::store::StackStore;
use gpuprobe_stacks::symbols::{ProcessFiles, ResolvedFrames, Service, SymbolRequest};

/// Maximum number of locations with cached frames, and of their bytes; beyond, the cache is cleared.
const MAX_FRAMES: usize = 1 << 18;
const MAX_BYTES: usize = 64 << 20;
/// Interval at which files without a mapping are closed.
const CLOSE_EVERY: Duration = Duration::from_secs(2);
/// Maximum number of processes with open files.
const MAX_KEPT: usize = 4096;

/// The state of call stacks.
pub(super) struct StackState {
    store: StackStore,
    service: Service,
    /// Root directories of processes that run Python, to read source lines after their end.
    files: HashMap<u32, Arc<ProcessFiles>>,
    /// Cache of symbolised frames.
    pub(super) frames: KnownFrames,
    /// Probes on the destructors of code objects.
    destructors: HashMap<ModuleId, Destructor>,
    /// Has them attached and detached.
    orders: Orders,
    /// Number of destructors so far.
    ordered: u32,
    /// The interpreter layouts given to the kernel side, with the time in ns, by process id.
    entered: HashMap<u32, (RawPython, u64)>,
    /// Answers received but not processed.
    arrived: Vec<ResolvedFrames>,
    asked: HashSet<FramesKey>,
    /// Processes for which locations outside of any file were requested (JIT-compiled code).
    jitted: HashSet<u32>,
    /// The cache was cleared: frames are written to the recording again.
    is_forgetful: bool,
    /// Processes and programs that ended since the last round of reading, and those of the round before:
    /// their last launches and copies are in another ring than their exits, and may be read up to a
    /// round later.
    ended: Vec<(u32, u32)>,
    ended_before: Vec<(u32, u32)>,
    /// When files were last closed.
    closed: Instant,
    /// Number of calls whose stack was captured but is not in the store.
    pub(super) unknown: u64,
    /// All frames are symbolised, not only those shown.
    is_recording: bool,
}

/// A probe on the destructor of an interpreter's code objects.
struct Destructor {
    /// Its number in orders to the discovery thread.
    id: u32,
    /// False until it is attached, and if it cannot be.
    is_probed: bool,
    /// Processes that run the interpreter.
    users: HashSet<u32>,
}

impl StackState {
    pub(super) fn new(
        is_recording: bool,
        with_python: bool,
        reader: FileReader,
        memory: ProcessReader,
        orders: Orders,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            service: Service::start(&reader, &memory)?,
            store: StackStore::new(with_python, reader, memory),
            files: HashMap::new(),
            entered: HashMap::new(),
            destructors: HashMap::new(),
            orders,
            ordered: 0,
            frames: KnownFrames::default(),
            arrived: Vec::new(),
            asked: HashSet::new(),
            jitted: HashSet::new(),
            is_forgetful: false,
            ended: Vec::new(),
            ended_before: Vec::new(),
            closed: Instant::now(),
            unknown: 0,
            is_recording,
        })
    }

    /// Processes a stack record of the kernel side. Returns false if it cannot be decoded.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        self.store.take(bytes)
    }

    /// Reads the mappings of `pid`, which may end soon, or is about to make its first traced call.
    pub(super) fn read_mappings(&mut self, pid: u32) {
        self.store.read_mappings(pid);
        self.service.keep_perf_map(pid);
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
        let named = self.store.of_call(pid, *of_call);
        self.unknown += u64::from(named.is_none());
        *of_call = named.as_ref().map_or(0, |named| named.id);
        let named = named?;
        let entered = self.entered.get(&pid);
        if entered.is_none_or(|(_, since_ns)| start_ns < *since_ns) {
            self.store.note_early_call(pid, named.id);
        }
        let stack = named.new?;
        let note = LogNote::Stack(pid, named.id, (*stack).clone());
        // JIT-compiled code can be symbolised only while its process is alive.
        let is_recording = self.is_recording;
        let locations = stack.locations.iter().enumerate();
        let wanted = locations.filter(|(_, location)| {
            is_recording || location.module.is_none() || location.python_line().is_some()
        });
        self.want(wanted.map(|(index, location)| (pid, *location, index == 0)));
        ledger.set_stack(pid, named.id, stack);
        Some(note)
    }

    /// Records the end of a process, or of a program by `exec`.
    pub(super) fn end(&mut self, task: &Task) {
        self.ended.push((task.pid, task.process));
    }

    /// Marks the end of a round: all rings were read once more.
    pub(super) fn end_round(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        for (pid, process) in std::mem::replace(&mut self.ended_before, ended) {
            self.store.forget(pid, process);
            if !self.store.runs_python(pid) {
                self.entered.remove(&pid);
                self.files.remove(&pid);
                self.release_destructors(pid);
            }
            self.close_perf_map(pid);
        }
        self.name_last_places();
    }

    /// Removes what is kept of processes whose end was not seen, from time to time. All records must have been read.
    pub(super) fn tidy(&mut self) {
        if self.closed.elapsed() > CLOSE_EVERY {
            self.closed = Instant::now();
            self.sweep(process::is_alive);
            self.service.close(self.store.spaces.close_unused());
        }
    }

    /// Asks for the functions of processes that have ended: their files may go with them.
    fn name_last_places(&mut self) {
        let last = self.store.take_last_places();
        self.want(last.into_iter());
    }

    /// Removes ended processes whose exit event was lost.
    pub(super) fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.store.sweep(is_alive);
        self.name_last_places();
        let taken = &self.store;
        self.files.retain(|pid, _| taken.runs_python(*pid));
    }

    /// Sends the updates to the kernel side.
    pub(super) fn send_updates(&mut self, probe: &Probe) {
        let updates = self.store.take_updates();
        // Before symbols of these processes are requested.
        for pid in updates.begun {
            self.begin(pid);
        }
        updates.refused.iter().for_each(say);
        for (pid, running) in updates.interpreters {
            self.keep_files(pid);
            let python = RawPython {
                generation: self.generation_of(pid, &running),
                ..running.raw
            };
            self.enter_python(pid, python, probe);
        }
        for pid in updates.new_code {
            match self.store.spaces.code(pid) {
                Some(code) => {
                    if let Err(error) = probe.enter_code(pid, &code) {
                        tracing::debug!("{error:#}");
                    }
                }
                None => probe.forget_code(pid),
            }
        }
        probe.forget_paths(updates.forgotten);
        if let Err(error) = probe.enter_paths(&updates.learnt) {
            tracing::debug!("{error:#}");
            self.store.clear_paths();
            return;
        }
        // Stacks that differ from a known path are no longer sent as copies.
        probe.forget_copies(updates.recognised);
    }

    /// Drops the JIT-compiled code of the process that had this id before. Its symbols stay in the cache, for
    /// reports of the memory that it left.
    fn begin(&mut self, pid: u32) {
        if self.jitted.remove(&pid) {
            self.service.forget(pid);
        }
        // While the process is alive: it may have ended when symbols are requested.
        self.service.keep_perf_map(pid);
    }

    /// Requests the frames at these locations, unless that was done.
    pub(super) fn want(&mut self, locations: impl Iterator<Item = (u32, Location, bool)>) {
        if self.asked.len() > MAX_FRAMES || self.frames.bytes() > MAX_BYTES {
            tracing::debug!("frame cache cleared: the limit is reached");
            self.asked.clear();
            self.frames = KnownFrames::default();
            self.is_forgetful = true;
        }
        let mut requests = Vec::new();
        for wanted in locations {
            let (pid, location, is_innermost) = wanted;
            if self
                .asked
                .insert(FramesKey::of(pid, &location, is_innermost))
            {
                let request = SymbolRequest {
                    pid,
                    location,
                    is_innermost,
                };
                if let Some(number) = location.python_line() {
                    if let Some(line) = self.store.lines().get(number).cloned() {
                        self.request_line(request, &line);
                    }
                    continue;
                }
                if location.module.is_none() {
                    self.jitted.insert(pid);
                }
                let module = location.module.and_then(|id| self.store.spaces.module(id));
                requests.push((request, module));
            }
        }
        self.service.request(requests);
    }

    /// Records an `exec` of process `pid`: the kernel side has dropped the layout of its interpreter.
    pub(super) fn note_exec(&mut self, pid: u32) {
        self.entered.remove(&pid);
    }

    /// Closes the perf map of process `pid`, which has ended: its symbols have been requested, and an open
    /// file keeps its file system busy.
    fn close_perf_map(&mut self, pid: u32) {
        self.jitted.remove(&pid);
        self.service.forget(pid);
        // The process may have called exec.
        self.service.keep_perf_map(pid);
    }

    /// Keeps what is needed to read the files of `pid` with the permissions of its user, who may have changed.
    fn keep_files(&mut self, pid: u32) {
        if self.files.len() < MAX_KEPT
            && let Ok(files) = ProcessFiles::of(pid)
        {
            self.files.insert(pid, Arc::new(files));
        }
    }

    /// Processes the frames found since the last call; returns notes for the recording.
    pub(super) fn found(&mut self, recorded_frames: &mut RecordedFrames) -> Vec<LogNote> {
        if std::mem::take(&mut self.is_forgetful) {
            *recorded_frames = RecordedFrames::default();
        }
        let mut notes = Vec::new();
        let arrived = std::mem::take(&mut self.arrived);
        for answer in arrived.into_iter().chain(self.service.poll()) {
            let ResolvedFrames {
                request,
                mut frames,
            } = answer;
            let SymbolRequest {
                pid,
                location,
                is_innermost,
            } = request;
            if self.store.runs_python(pid) {
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

    /// The symbols found so far, for a report.
    pub(super) fn symbols(&self) -> FrameCache<'_> {
        FrameCache(self)
    }

    /// Number of requested frames without an answer.
    pub(super) fn missing(&self) -> usize {
        self.service.outstanding()
    }

    /// Waits up to `at_most` for frames; whether requested ones are still missing.
    pub(super) fn is_waiting(&mut self, at_most: Duration) -> bool {
        self.arrived.extend(self.service.wait(at_most));
        self.service.outstanding() > 0
    }
}

/// The frame cache, with the paths of all modules.
pub(crate) struct FrameCache<'a>(&'a StackState);

impl Symbolize for FrameCache<'_> {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.0.frames.frames(pid, location, is_innermost)
    }

    fn module(&self, location: &Location) -> Option<String> {
        match self.0.store.spaces.module(location.module?) {
            Some(module) => Some(module.path.to_string_lossy().into_owned()),
            None => self.0.frames.module(location),
        }
    }
}

/// Drops the Python file of a frame of the `-X perf` trampoline: Python frames are walked separately.
fn without_language(frame: &mut Frame) {
    if frame.module == JIT {
        frame.language = Language::Native;
        frame.file = None;
    }
}
