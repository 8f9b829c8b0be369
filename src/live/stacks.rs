//! The call stacks of a run: from the kernel side to the ledger, the recording and the reports.

use std::collections::{HashMap, HashSet};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use crate::host::process;
use crate::probe::{Attached, Probe};
use gpuprobe_engine::Ledger;
use gpuprobe_model::abi::{RawCall, RawLaunch, RawPython, RawTensor};
use gpuprobe_model::clock;
use gpuprobe_model::event::Task;
use gpuprobe_model::stack::{
    Frame, FramesKey, JIT, KnownFrames, Language, Location, ModuleId, Symbols, bare_frame,
};
use gpuprobe_os::say;
use gpuprobe_recording::frames::Told;
use gpuprobe_recording::log::Note;
use gpuprobe_stacks::python::known::PythonLine;
use gpuprobe_stacks::python::process::Running;
use gpuprobe_stacks::reader::{Place, Reader};
use gpuprobe_stacks::symbols::{Answer, Files, Request, Service};
use gpuprobe_stacks::taken::Taken;

/// Locations whose frames are remembered, and bytes that these take; then all are looked up again.
const MAX_FRAMES: usize = 1 << 18;
const MAX_BYTES: usize = 64 << 20;
/// How often files are closed that no process has mapped any more.
const CLOSE_EVERY: Duration = Duration::from_secs(2);
/// Processes whose files are kept.
const MAX_KEPT: usize = 4096;

/// What is known of call stacks.
pub(super) struct Stacks {
    taken: Taken,
    service: Service,
    /// The files of processes that run Python. Their lines are wanted when they may have ended.
    files: HashMap<u32, Arc<Files>>,
    /// The frames that were found.
    pub(super) frames: KnownFrames,
    /// Where code objects are seen to go.
    destructors: HashMap<ModuleId, Destructor>,
    /// When the kernel side was told how to read the interpreters of processes, and how.
    entered: HashMap<u32, (RawPython, u64)>,
    /// Answers that were waited for and not looked at.
    arrived: Vec<Answer>,
    asked: HashSet<FramesKey>,
    /// Processes of which places were asked for that are in no file.
    jitted: HashSet<u32>,
    /// What was found has been forgotten: it will be told again.
    is_forgetful: bool,
    /// Processes and programs that have ended since the last round of reading, and before it:
    /// their last launches and copies are in another ring than their ends, and may be read up to a
    /// round later.
    ended: Vec<(u32, u32)>,
    ended_before: Vec<(u32, u32)>,
    /// When files were last closed.
    closed: Instant,
    /// Calls whose stack was taken, but is not known here.
    pub(super) unknown: u64,
    /// The frames of all stacks are wanted, not just of those that are shown.
    is_recording: bool,
}

/// Where the code objects of an interpreter are seen to go.
#[derive(Default)]
struct Destructor {
    /// None if it cannot be probed.
    attached: Option<Attached>,
    /// The processes that run the interpreter.
    users: HashSet<u32>,
}

impl Stacks {
    pub(super) fn new(
        is_recording: bool,
        with_python: bool,
        reader: Reader,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            taken: Taken::new(with_python, reader),
            service: Service::start(Place::Process)?,
            files: HashMap::new(),
            entered: HashMap::new(),
            destructors: HashMap::new(),
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

    /// Takes in a record of the kernel side that is a stack; false if it cannot be understood.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        let is_understood = self.taken.take(bytes);
        // Before anything is asked about it.
        for pid in self.taken.take_begun() {
            self.begin(pid);
        }
        is_understood
    }

    /// Looks at what `pid` has mapped: it may end soon.
    pub(super) fn look_at(&mut self, pid: u32) {
        self.taken.glance_at(pid);
        self.service.keep_perf_map(pid);
    }

    /// Looks at a process that will be traced, before it makes a call.
    pub(super) fn prepare_for(&mut self, pid: u32) {
        self.taken.look_at(pid);
        self.service.keep_perf_map(pid);
    }

    /// Gives the stack of a call the number that the ledger knows it by, and teaches the ledger
    /// those that are new. The note for the recording, if there is one.
    pub(super) fn name(
        &mut self,
        pid: u32,
        of_call: &mut u64,
        start_ns: u64,
        ledger: &mut Ledger,
    ) -> Option<Note> {
        let named = self.taken.of_call(pid, *of_call);
        self.unknown += u64::from(named.is_none());
        *of_call = named.as_ref().map_or(0, |named| named.id);
        let named = named?;
        let entered = self.entered.get(&pid);
        if entered.is_none_or(|(_, since_ns)| start_ns < *since_ns) {
            self.taken.came_early(pid, named.id);
        }
        let stack = named.new?;
        let note = Note::Stack(pid, named.id, (*stack).clone());
        // What is in no file only its process can name, which may end soon.
        let is_recording = self.is_recording;
        let locations = stack.locations.iter().enumerate();
        let wanted = locations.filter(|(_, location)| {
            is_recording || location.module.is_none() || location.python_line().is_some()
        });
        self.want(wanted.map(|(index, location)| (pid, *location, index == 0)));
        ledger.learn_stack(pid, named.id, stack);
        Some(note)
    }

    /// A process has ended, or one of its programs.
    pub(super) fn end(&mut self, task: &Task) {
        self.ended.push((task.pid, task.process));
    }

    /// All rings have been read once more.
    pub(super) fn end_round(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        for (pid, process) in std::mem::replace(&mut self.ended_before, ended) {
            self.taken.forget(pid, process);
            if !self.taken.runs_python(pid) {
                self.entered.remove(&pid);
                self.files.remove(&pid);
                self.release_destructors(pid);
            }
            self.give_up_perf_map(pid);
        }
        self.name_last_places();
        if self.closed.elapsed() > CLOSE_EVERY {
            self.closed = Instant::now();
            self.sweep(process::is_alive);
            self.service.close(self.taken.spaces.close_unused());
        }
    }

    /// Asks for the functions of processes that have ended: their files may go with them.
    fn name_last_places(&mut self) {
        let last = self.taken.take_last_places();
        self.want(last.into_iter());
    }

    /// Forgets processes of whose end nobody told.
    pub(super) fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.taken.sweep(is_alive);
        self.name_last_places();
        let taken = &self.taken;
        self.files.retain(|pid, _| taken.runs_python(*pid));
    }

    /// Whether there is anything to [`Self::teach`].
    pub(super) fn has_news(&self) -> bool {
        self.taken.has_news()
    }

    /// Tells the kernel side what was learnt.
    pub(super) fn teach(&mut self, probe: &Probe) {
        for (pid, why) in self.taken.take_refused() {
            say(format_args!("no call stacks of process {pid}: {why}"));
        }
        for (pid, why) in self.taken.take_refused_python() {
            say(format_args!("no Python frames of process {pid}: {why}"));
        }
        let news = self.taken.take_news();
        for (pid, running) in news.interpreters {
            self.keep_files(pid);
            let python = RawPython {
                generation: self.generation_of(pid, &running, probe),
                ..running.raw
            };
            if self.knows_interpreter(pid, &python) {
                continue;
            }
            match probe.enter_python(pid, &python) {
                Ok(()) => self.note_entered(pid, python),
                Err(error) => say(format_args!("no Python frames of process {pid}: {error:#}")),
            }
        }
        for pid in news.looked_at {
            match self.taken.spaces.code(pid) {
                Some(code) => {
                    if let Err(error) = probe.enter_code(pid, &code) {
                        tracing::debug!("{error:#}");
                    }
                }
                None => probe.forget_code(pid),
            }
        }
        probe.forget_paths(news.forgotten);
        if let Err(error) = probe.enter_paths(&news.learnt) {
            tracing::debug!("{error:#}");
            self.taken.start_afresh();
            return;
        }
        // From now on the paths are known; what only looks like one of them is not.
        probe.forget_copies(news.recognised);
    }

    /// What was made at run time by the process that had this id is not there any more. What it
    /// was called stays known, for reports of what that process left.
    fn begin(&mut self, pid: u32) {
        if self.jitted.remove(&pid) {
            self.service.forget(pid);
        }
        // While it is there: when names are asked for, it may have ended.
        self.service.keep_perf_map(pid);
    }

    /// Asks for the frames at these locations, if that has not been done.
    pub(super) fn want(&mut self, locations: impl Iterator<Item = (u32, Location, bool)>) {
        if self.asked.len() > MAX_FRAMES || self.frames.bytes() > MAX_BYTES {
            tracing::debug!("the names of all functions are looked up again: there are too many");
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
                let request = Request {
                    pid,
                    location,
                    is_innermost,
                };
                if let Some(number) = location.python_line() {
                    if let Some(line) = self.taken.lines().get(number).cloned() {
                        self.want_line(request, &line);
                    }
                    continue;
                }
                if location.module.is_none() {
                    self.jitted.insert(pid);
                }
                let module = location.module.and_then(|id| self.taken.spaces.module(id));
                requests.push((request, module));
            }
        }
        self.service.request(requests);
    }

    /// Process `pid` runs another program: the kernel side has dropped what it knew of it.
    pub(super) fn begins_program(&mut self, pid: u32) {
        self.entered.remove(&pid);
    }

    /// Whether the kernel side knows how to read the interpreter of `pid`: its count goes on.
    fn knows_interpreter(&self, pid: u32, python: &RawPython) -> bool {
        let same = |(known, _): &(RawPython, u64)| {
            let generation = known.generation;
            let is_counted = generation != 0 || python.generation == 0;
            let python = RawPython {
                generation,
                ..*python
            };
            is_counted && python == *known
        };
        self.entered.get(&pid).is_some_and(same)
    }

    /// The kernel side knows how to read the interpreter of `pid` from now on.
    fn note_entered(&mut self, pid: u32, python: RawPython) {
        let since = match self.entered.get(&pid) {
            // It is only known better.
            Some((known, since)) if known.runtime == python.runtime => *since,
            _ => clock::monotonic_ns(),
        };
        self.entered.insert(pid, (python, since));
    }

    /// The number from which the code objects of this interpreter are counted that go; 0 if nobody sees
    /// them go.
    fn generation_of(&mut self, pid: u32, running: &Running, probe: &Probe) -> u64 {
        let Some((module, offset)) = running.destructor() else {
            return 0;
        };
        let attach = || {
            let path = module.open_path()?;
            let attached = probe.attach_code_gone(path.to_str()?, offset);
            attached
                .inspect_err(|error| tracing::debug!("each code object is looked at: {error:#}"))
                .ok()
        };
        let destructor = self
            .destructors
            .entry(module.id)
            .or_insert_with(|| Destructor {
                attached: attach(),
                users: HashSet::new(),
            });
        destructor.users.insert(pid);
        let attached = destructor.attached.as_ref();
        attached.map_or(0, |_| clock::monotonic_ns() | 1)
    }

    /// Process `pid` runs no Python any more: an interpreter that nobody runs is not probed, or its file
    /// would stay for as long as we do.
    fn release_destructors(&mut self, pid: u32) {
        self.destructors.retain(|_, destructor| {
            let was_used = destructor.users.remove(&pid);
            let is_over = was_used && destructor.users.is_empty();
            if let (true, Some(attached)) = (is_over, destructor.attached.take()) {
                attached.remove();
            }
            !is_over
        });
    }

    /// What process `pid` made at run time has been asked for by now. Its file may be on a file system that
    /// is to go with it.
    fn give_up_perf_map(&mut self, pid: u32) {
        self.jitted.remove(&pid);
        self.service.forget(pid);
        // It may run another program.
        self.service.keep_perf_map(pid);
    }

    /// Keeps what is needed to read the files of `pid` as its user, who may have changed.
    fn keep_files(&mut self, pid: u32) {
        if self.files.len() < MAX_KEPT
            && let Ok(files) = Files::of(pid)
        {
            self.files.insert(pid, Arc::new(files));
        }
    }

    /// Asks for the text of a line of Python.
    fn want_line(&mut self, request: Request, line: &PythonLine) {
        let pid = request.pid;
        if self
            .files
            .get(&pid)
            .is_some_and(|files| !files.are_of_its_user(pid))
        {
            self.files.remove(&pid);
            self.keep_files(pid);
        }
        let files = self.files.get(&pid).cloned();
        self.service.request_line(request, line.frame(), files);
    }

    /// Python frames and code objects for which there was no room.
    pub(super) fn lost_python(&self) -> u64 {
        self.taken.lost_python()
    }

    /// What was found of what was asked for, as notes for the recording.
    pub(super) fn found(&mut self, told: &mut Told) -> Vec<Note> {
        if std::mem::take(&mut self.is_forgetful) {
            *told = Told::default();
        }
        let mut notes = Vec::new();
        let arrived = std::mem::take(&mut self.arrived);
        for answer in arrived.into_iter().chain(self.service.poll()) {
            let Answer {
                request,
                mut frames,
            } = answer;
            let Request {
                pid,
                location,
                is_innermost,
            } = request;
            if self.taken.runs_python(pid) {
                frames.iter_mut().for_each(without_language);
            }
            // It may be written down a little after it was made.
            if location.module.is_none() && frames == [bare_frame(&location)] {
                self.asked
                    .remove(&FramesKey::of(pid, &location, is_innermost));
            }
            if self.is_recording {
                notes.extend(told.note(pid, &location, is_innermost, &frames));
            }
            self.frames.insert(pid, location, is_innermost, frames);
        }
        notes
    }

    /// What is known of call stacks, for reports.
    pub(super) fn symbols(&self) -> Known<'_> {
        Known(self)
    }

    /// Whether something that was asked for has not been found yet, after waiting for it a little.
    pub(super) fn is_waiting(&mut self, at_most: Duration) -> bool {
        self.arrived.extend(self.service.wait(at_most));
        self.service.outstanding() > 0
    }
}

/// The frames that were found, and the files of all code.
pub(super) struct Known<'a>(&'a Stacks);

impl Symbols for Known<'_> {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        self.0.frames.frames(pid, location, is_innermost)
    }

    fn module(&self, location: &Location) -> Option<String> {
        match self.0.taken.spaces.module(location.module?) {
            Some(module) => Some(module.path.to_string_lossy().into_owned()),
            None => self.0.frames.module(location),
        }
    }
}

/// Of a process whose Python frames are walked, what `-X perf` calls them names them once more.
fn without_language(frame: &mut Frame) {
    if frame.module == JIT {
        frame.language = Language::Native;
        frame.file = None;
    }
}

/// Where the number of its stack stands in the record of a call.
pub(super) const OF_CALL: usize = offset_of!(RawCall, stack);
/// Likewise of a launch.
pub(super) const OF_LAUNCH: usize = offset_of!(RawLaunch, stack);
/// Likewise of a tensor.
pub(super) const OF_TENSOR: usize = offset_of!(RawTensor, stack);

/// The record whose stack has the number `stack`, which stands at `offset`.
pub(super) fn renamed(record: &[u8], offset: usize, stack: u64) -> Vec<u8> {
    let mut record = record.to_vec();
    if let Some(bytes) = record.get_mut(offset..offset + size_of::<u64>()) {
        bytes.copy_from_slice(stack.as_bytes());
    }
    record
}
