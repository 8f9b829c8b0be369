//! What a session reads: the rings, what discovery finds, and the state made of both.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::windows::Windows;
use crate::host::host_info::ProcFs;
use crate::host::nvml::Nvml;
use crate::host::process;
use crate::live::announce::Announced;
use crate::live::discovery::{Found, Tracer};
use crate::live::incidents::Incidents;
use crate::live::samples::Samples;
use crate::live::sink::Sink;
use crate::live::{ProcessFilter, Target, TensorMode, TraceConfig};
use crate::probe::Rings;
use gpuprobe_cuda::Framework;
use gpuprobe_engine::{HostInfo, State};
use gpuprobe_model::abi::PROCESS_PID_SHIFT;
use gpuprobe_model::blocks::FoundBlocks;
use gpuprobe_model::clock::{self, WallClock};
use gpuprobe_model::event::{Event, Task, Tensor};
use gpuprobe_model::stack::{KnownFrames, Location, NoSymbols, Symbolize};
use gpuprobe_model::{Lost, Untraced};
use gpuprobe_os::progress::Pass;
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_recording::log::LogNote;
use gpuprobe_report::profile::{self, Profile, ProfileScope, Weight};
use gpuprobe_stacks::blocks::{self, Unread};

/// Interval of reads of the launch counts to free the entries of ended processes.
const MAKE_ROOM_EVERY: Duration = Duration::from_secs(1);
/// Maximum time of a read before other due work is done, and of a read for a report.
const READ_FOR: Duration = Duration::from_millis(100);
const READ_FOR_REPORT: Duration = Duration::from_millis(500);
/// How long blocks of processes are tried again before a report, and how often those of one that uses its allocator.
const BLOCKS_WITHIN: Duration = Duration::from_millis(100);
const BLOCKS_TRIES: u32 = 5;
/// Interval of reads of the rings while names are waited for.
const NAMES_PAUSE: Duration = Duration::from_millis(20);
/// Waits that are longer show how many functions are named.
const SHOWN_WAIT: Duration = Duration::from_secs(1);

/// The rings, the tracer, and the state made of what they give.
pub(in crate::live) struct Reading<'a> {
    pub(in crate::live) config: &'a TraceConfig,
    pub(in crate::live) tracer: Tracer,
    pub(in crate::live) rings: Rings,
    pub(in crate::live) sink: Sink,
    pub(in crate::live) clock: WallClock,
    pub(in crate::live) incidents: Incidents,
    /// Losses when they were last counted.
    pub(in crate::live) lost: Lost,
    /// The frames written to the recording.
    pub(in crate::live) recorded_frames: RecordedFrames,
    /// Names of functions are not waited for any longer than this.
    pub(in crate::live) names_until: Option<Instant>,
    pub(super) samples: Vec<Samples>,
    pub(super) announced: Announced,
    /// When the launch counts were last read.
    pub(super) counted: Instant,
    /// When the hooks of allocators are probed, in a census.
    pub(super) windows: Windows,
}

impl Reading<'_> {
    /// Applies records that have arrived, for at most [`READ_FOR`].
    pub(super) fn read(&mut self) -> Result<()> {
        self.read_until(Some(Instant::now() + READ_FOR), false)
    }

    /// Reads what programs have done until now, as far as that takes no longer than [`READ_FOR`].
    pub(super) fn catch_up(&mut self) -> Result<()> {
        self.rings.flush()?;
        self.read_until(Some(Instant::now() + READ_FOR), true)
    }

    /// Reads the losses, what is in the rings now, all of it with `is_final`, and the launch counts.
    pub(super) fn read_for_report(&mut self, is_final: bool) -> Result<()> {
        self.count_losses();
        let vanished = self.vanished();
        self.rings.flush()?;
        self.read_until((!is_final).then(|| Instant::now() + READ_FOR_REPORT), true)?;
        if self.config.modes.cudatrace {
            self.count_launches()?;
        }
        // What has not been read may be theirs.
        for pid in vanished
            .into_iter()
            .filter(|_| is_final || !self.rings.is_behind())
        {
            self.sink.input_recorder.note(LogNote::Vanished(pid));
            self.sink.state.ledger.end_at(pid, None);
        }
        self.find_blocks()
    }

    /// Looks for the blocks of frameworks in the memory of processes: those from before the tracing, and what PyTorch does
    /// not tell with its events. In a census, that ends a window, and tells what came and went without events.
    pub(super) fn find_blocks(&mut self) -> Result<()> {
        let config = self.config;
        if !config.modes.memleak || config.tensors == TensorMode::Off {
            return Ok(());
        }
        let is_census = config.tensors == TensorMode::Census;
        if !self.close_window()? {
            return Ok(());
        }
        let ledger = &self.sink.state.ledger;
        let mut wanted = Vec::new();
        for framework in blocks::FRAMEWORKS {
            let Some(row) = gpuprobe_cuda::row_of_blocks(framework) else {
                continue;
            };
            let is_torch = framework == Framework::PyTorch;
            let known = ledger.live_processes().filter(|process| match is_torch {
                true => !is_census && process.tensors.iter().any(|one| one.row == row),
                false => process.tensors.last_events(row).next().is_some(),
            });
            wanted.extend(known.map(|process| (process.pid, framework, row)));
            let idle = self
                .tracer
                .cuda_users()
                .filter(|pid| is_torch && (is_census || ledger.process_of(*pid).is_none()));
            wanted.extend(idle.map(|pid| (pid, framework, row)));
        }
        let until = Instant::now() + BLOCKS_WITHIN;
        for (pid, framework, row) in wanted {
            let mut tries = 0..BLOCKS_TRIES;
            let found = loop {
                let found = self.find_blocks_of(pid, framework, row)?;
                let may_change = matches!(found, Err(Unread::Changed | Unread::Unlike(_)));
                if !may_change || Instant::now() > until || tries.next().is_none() {
                    break found;
                }
            };
            if is_census && found.is_err() {
                // What was seen last may be gone; a process that has ended has nothing.
                let _ = self.take_blocks(FoundBlocks {
                    pid,
                    row,
                    time_ns: clock::monotonic_ns(),
                    census: Some(false),
                    devices: Vec::new(),
                });
            }
        }
        Ok(())
    }

    fn find_blocks_of(
        &mut self,
        pid: u32,
        framework: Framework,
        row: u16,
    ) -> Result<Result<(), Unread>> {
        let is_census = self.config.tensors == TensorMode::Census;
        let process = self.sink.state.ledger.process_of(pid);
        let events = process
            .into_iter()
            .flat_map(|process| process.tensors.last_events(row));
        let events: Vec<Tensor> = events.copied().collect();
        let is_known =
            process.is_some_and(|process| process.tensors.iter().any(|one| one.row == row));
        let time_ns = clock::monotonic_ns();
        let found = (self.sink.host_info.blocks.borrow_mut()).read(pid, framework, &events);
        let devices = match found {
            Ok(devices) => devices,
            // All are gone.
            Err(Unread::Empty) if is_census && is_known => Vec::new(),
            Err(error) => {
                tracing::debug!("blocks of {} in process {pid}: {error}", framework.name());
                return Ok(Err(error));
            }
        };
        // What the program has done until then.
        self.catch_up()?;
        if self.rings.is_behind() {
            return Ok(Err(Unread::Changed));
        }
        if self.sink.state.ledger.process_of(pid).is_none() {
            let Ok(task) = process::task_of(pid) else {
                return Ok(Err(Unread::Unreadable));
            };
            self.sink.take_own(Event::Process(Task {
                process: pid << PROCESS_PID_SHIFT,
                time_ns,
                ..task
            }));
        }
        Ok(self.take_blocks(FoundBlocks {
            pid,
            row,
            time_ns,
            census: is_census.then_some(true),
            devices,
        }))
    }

    /// Applies what is new in this, with the call stacks that PyTorch itself has noted.
    fn take_blocks(&mut self, found: FoundBlocks) -> Result<(), Unread> {
        let pid = found.pid;
        let process = self.sink.state.ledger.process_of(pid);
        let news = process.ok_or(Unread::Unreadable)?.news_of(found);
        let mut news = news.ok_or_else(|| {
            tracing::debug!("blocks of process {pid} do not agree with its events");
            Unread::Changed
        })?;
        if news.devices.is_empty() {
            return Ok(());
        }
        if let Some(stacks) = &self.sink.stacks {
            let blocks = self.sink.host_info.blocks.borrow();
            blocks.find_stacks(pid, &mut news.devices);
            stacks.add_found(pid, &mut news.devices);
        }
        self.sink.take_own(Event::Blocks(news));
        Ok(())
    }

    pub(super) fn read_until(&mut self, until: Option<Instant>, waits: bool) -> Result<()> {
        self.rings.read(&mut self.sink, until, waits)?;
        if let (Some(stacks), false) = (&mut self.sink.stacks, self.rings.is_behind()) {
            stacks.tidy();
        }
        self.incidents.note(&mut self.sink);
        self.sink
            .find_frames(&mut self.recorded_frames, Duration::ZERO);
        for samples in &mut self.samples {
            let ledger = &mut self.sink.state.ledger;
            samples.note(ledger, &mut self.sink.input_recorder);
        }
        self.sink.input_recorder.pause();
        Ok(())
    }

    /// Has the processes of new notices looked at.
    pub(super) fn pass_notices(&mut self) -> Result<()> {
        for notice in self.rings.read_notices()? {
            if let (Some(_), Some(stacks)) = (notice.image, &self.sink.stacks) {
                // The kernel side has dropped the layout of its interpreter.
                stacks.calls.lock().entered.remove(&notice.pid);
            }
            self.tracer.look(notice);
        }
        Ok(())
    }

    /// Notes what the discovery thread has found.
    pub(super) fn note(&mut self, found: Found) {
        if let Found::Late { pid, after_ms } = found
            && let Some(process) = look_up(&self.sink.host_info, &self.config.filter, pid)
        {
            self.announced.announce_late(pid, &process.comm, after_ms);
        }
        self.tracer.note(found);
    }

    /// Passes on new notices, and notes all that was found.
    pub(super) fn follow(&mut self) -> Result<()> {
        self.pass_notices()?;
        while let Some(found) = self.tracer.try_next() {
            self.note(found);
        }
        Ok(())
    }

    /// Does the periodic work.
    pub(super) fn keep_up(&mut self) -> Result<()> {
        self.tracer.resume_overdue();
        // The kernel side frees the launch counts of ended processes once they are read.
        if self.counted.elapsed() > MAKE_ROOM_EVERY && self.sink.state.launches.take_ends() {
            self.count_launches()?;
        }
        self.tell_incidents(false);
        self.step_windows()?;
        // Libraries loaded in quick succession share a line.
        self.announced.announce_new(&self.tracer);
        Ok(())
    }

    /// Prints the incidents that are settled or have waited long enough; all with `is_end`.
    pub(super) fn tell_incidents(&mut self, is_end: bool) {
        let (view, clock) = (&self.config.view, &self.clock);
        self.incidents.tell(&self.sink, view, clock, is_end);
    }

    /// Reads the launch counts; the kernel side frees those of ended processes.
    fn count_launches(&mut self) -> Result<()> {
        let (launches, recorder) = (&mut self.sink.state.launches, &mut self.sink.input_recorder);
        let filter = &self.sink.filter;
        self.counted = Instant::now();
        self.tracer.probe.launches(|key, runs, captured| {
            let count = || {
                recorder.count(&key, runs, captured);
                launches.set_counts(key, runs, captured)
            };
            filter.keeps_launches(key.process).unwrap_or_else(count)
        })?;
        recorder.counted(launches);
        self.sink.filter.counts_were_read();
        Ok(())
    }

    /// Reads the loss counters.
    pub(super) fn count_losses(&mut self) {
        let sink = &mut self.sink;
        let mut lost = self.tracer.probe.lost();
        let missed = sink.decoder.activity.losses();
        lost.notices += self.tracer.skipped;
        lost.undecodable = sink.undecodable + missed.undecodable;
        lost.activity = lost.activity.saturating_add(missed.missing);
        lost.cupti_dropped = missed.dropped;
        lost.cupti_unknown = missed.unknown;
        lost.cupti_malformed = missed.malformed;
        sink.state.add_left_out(&mut lost);
        if let Some(stacks) = &sink.stacks {
            let calls = stacks.calls.lock();
            lost.python += calls.lost_python;
            lost.undecodable += calls.undecodable;
            lost.stacks += stacks.unknown;
        }
        if lost != self.lost {
            sink.input_recorder.note(LogNote::Lost(lost.by_name()));
        }
        self.lost = lost;
    }

    /// Processes that have ended unseen, if exits may be among the losses.
    fn vanished(&self) -> Vec<u32> {
        if self.lost.tasks == 0 {
            return Vec::new();
        }
        let live = self.sink.state.ledger.live_processes();
        let live = live.map(|process| process.pid);
        live.filter(|&pid| !process::is_alive(pid)).collect()
    }

    /// Has the locations named that `needed` lists, and reads the rings on until they are, at most for `wait`.
    pub(in crate::live) fn find_names(
        &mut self,
        needed: impl FnOnce(&State, &KnownFrames) -> Vec<(u32, Location, bool)>,
        wait: Duration,
    ) -> Result<()> {
        let Some(stacks) = &mut self.sink.stacks else {
            return Ok(());
        };
        let needed = needed(&self.sink.state, &stacks.frames);
        stacks.want(needed.into_iter());
        self.wait_for_names(wait)
    }

    /// Reads the rings until the functions that were asked for are named, at most for `wait`.
    pub(super) fn wait_for_names(&mut self, wait: Duration) -> Result<()> {
        let config = self.config;
        let progress = config.progress.as_deref().unwrap_or(&());
        let missing = |sink: &Sink| sink.stacks.as_ref().map_or(0, |it| it.missing as u64);
        let end = Instant::now() + wait;
        let end = self.names_until.map_or(end, |until| until.min(end));
        let mut left = missing(&self.sink);
        // Single lines would be among those of the progress.
        let is_shown = wait > SHOWN_WAIT && !config.per_call && !config.single_records;
        let pass = is_shown.then(|| Pass::begin(progress, "names of functions", left));
        while left > 0 && Instant::now() < end {
            self.sink
                .find_frames(&mut self.recorded_frames, NAMES_PAUSE);
            // Held processes must not wait for symbols.
            self.follow()?;
            self.read()?;
            let before = std::mem::replace(&mut left, missing(&self.sink));
            if let Some(pass) = &pass {
                pass.advance(before.saturating_sub(left));
                progress.tick();
            }
        }
        Ok(())
    }

    /// Memory by call stack, once its functions are named or `wait` is over.
    pub(in crate::live) fn profile(
        &mut self,
        scope: ProfileScope,
        wait: Duration,
    ) -> Result<Profile> {
        let needed = |state: &State, _: &_| profile::needed_locations(&state.ledger, scope);
        self.find_names(needed, wait)?;
        let ledger = &self.sink.state.ledger;
        let peak_ns = ledger.peak_ns.filter(|_| scope.weight == Weight::Peak);
        let time = self.clock.wall(peak_ns.unwrap_or_else(clock::monotonic_ns));
        let time_ns = time.timestamp_nanos_opt();
        Ok(profile::of_ledger(
            ledger,
            symbols(&self.sink),
            scope,
            time_ns,
        ))
    }

    /// Description of the session, like `python3 train.py, NVIDIA H200, 2026-11-20 20:34`: command,
    /// GPUs and date.
    pub(in crate::live) fn describe_run(&self) -> Option<String> {
        let command = match &self.config.target {
            Target::Command(words) => Some(words.join(OsStr::new(" "))),
            Target::Everything | Target::Processes(_) => None,
        };
        let command = command.map(|words| words.to_string_lossy().into_owned());
        let nvml = self.sink.host_info.nvml.as_ref();
        let gpus = nvml.map(Nvml::usage).unwrap_or_default().gpus;
        let models = gpus.into_iter().map(|gpu| gpu.name);
        let now = self.clock.wall(clock::monotonic_ns());
        gpuprobe_analysis::describe_run(command, models, Some(now))
    }

    /// Stops holding processes and resumes those that are held.
    pub(super) fn resume_held(&mut self) {
        self.tracer.probe.stop_holding();
        if let Err(error) = self.pass_notices() {
            tracing::warn!("held processes may stay stopped: {error:#}");
        }
        self.tracer.resume_held();
    }
}

impl Drop for Reading<'_> {
    /// After an error too, no process may stay stopped.
    fn drop(&mut self) {
        self.resume_held();
        self.tracer.detach();
        self.resume_held();
    }
}

/// The functions named so far.
pub(in crate::live) fn symbols(sink: &Sink) -> &dyn Symbolize {
    match &sink.stacks {
        Some(stacks) => stacks,
        None => &NoSymbols,
    }
}

/// Name, user and identity of a process on this host that `filter` accepts.
pub(in crate::live) fn look_up(
    host_info: &ProcFs,
    filter: &ProcessFilter,
    pid: u32,
) -> Option<Untraced> {
    let task = process::task_of(pid).ok()?;
    let identity = host_info.identity(&task);
    let is_accepted = filter.accepts(&task, || identity.clone());
    is_accepted.then_some(Untraced {
        uid: task.uid,
        comm: task.comm,
        identity,
    })
}
