//! The event loop of a run.

mod documents;
mod end;
mod messages;
mod reading;
mod reports;
mod start;

use end::names_until;
use std::collections::HashMap;
use std::future;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::Child;
use tokio::task::yield_now;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::announce::Announced;
use super::collector::Collector;
use super::guard::Guard;
use super::incidents;
use super::output::{Output, OutputReader};
use super::samples::Samples;
use super::signals::{StopSignals, pass_on};
use super::sink::Sink;
use super::top::TopSession;
use super::{Target, TraceConfig, Tracer, command, descriptors, limits};
use crate::host::exit::AwaitedProcess;
use crate::host::process;
use crate::live::discovery::{Found, resume};
use crate::probe::Rings;
use crate::serve::{DocumentRequest, Serving};
use documents::DocumentState;
use gpuprobe_engine::HostInfo;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::{Lost, Untraced};
use gpuprobe_os::mounts;
use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{AS_OTHERS, BPF, LOOK, SIGNAL};
use gpuprobe_os::say;
use gpuprobe_recording::frames::RecordedFrames;
use gpuprobe_report as report;
use gpuprobe_report::gate::Gate;
use gpuprobe_views::profile::Outputs;

/// How long names are waited for after SIGTERM: within two seconds everything has to end, and the report in the
/// making may have waited for its names, for [`reports::FIND_FOR_ONE`], before the signal is handled.
const TERMINATED_FOR: Duration = Duration::from_millis(600);

/// Runs a session until the end that `config` sets.
///
/// # Errors
/// Returns an error if nothing could be traced, or a report could not be written.
pub fn run(config: &TraceConfig) -> Result<ExitCode> {
    descriptors::remember();
    if config.advanced.untrusted_mounts {
        mounts::trust_all();
    }
    limits::raise();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(Run::start(config)?.until_end())
}

/// State of a running session.
pub(super) struct Run<'a> {
    pub(super) config: &'a TraceConfig,
    output: Output,
    /// The leak check at the end.
    gate: Option<Gate>,
    /// Profiles to write at the end.
    profiles: Option<Outputs>,
    tracer: Tracer,
    rings: Rings,
    pub(super) sink: Sink,
    pub(super) clock: WallClock,
    /// The target processes given by id.
    processes: Vec<AwaitedProcess>,
    started: Instant,
    reported: Instant,
    /// When the launch counts were last read.
    counted: Instant,
    /// The fastest link (PCI Express) between host and GPUs seen so far.
    link: Option<PcieLink>,
    /// Approximate size of a CUDA context by GPU, in bytes.
    contexts: HashMap<u32, u64>,
    /// Values of earlier reports.
    history: report::History,
    /// Processes without a traced event so far; `None` for those that the filter rejects.
    untraced: HashMap<u32, Option<Untraced>>,
    lost: Lost,
    /// The frames written to the recording.
    recorded_frames: RecordedFrames,
    guard: Option<Guard>,
    /// Dropped after the command has ended.
    collector: Option<Collector>,
    samples: Option<Samples>,
    announced: Announced,
    /// State of the messages about incidents.
    pub(super) reported_incidents: incidents::AnnouncedIncidents,
    /// The losses printed on standard error.
    lost_said: Lost,
    /// The last explanation found a leak.
    leaks: bool,
    /// Exits of processes were lost since the last search for ended processes, at `searched`.
    lacks_ends: bool,
    searched: Instant,
    /// The HTTP thread, and what it is answered with.
    serving: Option<Serving>,
    served: Option<DocumentState>,
    /// Names of functions are not waited for any longer than this.
    pub(super) names_until: Option<Instant>,
    /// The screens of `gpuprobe top`.
    pub(super) top: Option<TopSession>,
}

impl Run<'_> {
    async fn until_end(mut self) -> Result<ExitCode> {
        let mut ends = StopSignals::install()?;
        self.announced = Announced::begin(self.config, &self.tracer);
        self.announce_served();
        let mut child = match self.start_command() {
            Ok(child) => child,
            Err(error) => {
                say(format_args!("error: {error:#}"));
                self.sink.input_recorder.discard();
                return Ok(command::not_started(&error));
            }
        };
        self.name_recording(child.as_ref());
        self.drop_capabilities();
        let (reader, status) = self.trace(&mut ends, &mut child).await?;
        self.end(reader, child, status).await
    }

    /// Traces until the session ends. Returns the command's status if its end was the reason.
    async fn trace(
        &mut self,
        ends: &mut StopSignals,
        child: &mut Option<Child>,
    ) -> Result<(OutputReader, Option<ExitStatus>)> {
        let (mut reader, mut status) = (OutputReader::Reading, None);
        let notices = self.rings.watch_control()?;
        let mut report = reports_every(self.config.interval);
        let deadline = after(self.config.duration);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                biased;
                // Timers and signals first: programs can keep the rings below non-empty forever.
                ended = wait(child) => {
                    status = Some(ended?);
                    break;
                }
                end = ends.next() => {
                    // The command gets the signal too; its end is ours.
                    let Some(child) = &*child else {
                        self.names_until = names_until(end);
                        break;
                    };
                    pass_on(end, child);
                }
                () = &mut deadline => break,
                _ = report.tick() => reader = self.report(false)?,
                Some(request) = request(&mut self.serving) => self.serve(request)?,
                arrived = notices.readable() => {
                    arrived?.clear_ready();
                    self.pass_notices()?;
                }
                found = self.tracer.next() => self.note(found?),
                arrived = self.rings.arrived() => arrived?,
                () = yield_now(), if self.rings.is_behind() => {}
            }
            if reader == OutputReader::Reading {
                reader = self.read()?;
            }
            if self.rings.has_ticked() {
                self.keep_up()?;
                if self.all_ended() || self.is_quit() || self.has_stopped_recording() {
                    break;
                }
            }
            if reader == OutputReader::Gone {
                say("output closed; stopping");
                break;
            }
        }
        Ok((reader, status))
    }

    /// Has the processes of new notices looked at.
    fn pass_notices(&mut self) -> Result<()> {
        for notice in self.rings.read_notices()? {
            if let (Some(_), Some(stacks)) = (notice.image, &mut self.sink.stacks) {
                stacks.note_exec(notice.pid);
            }
            self.tracer.look(notice);
        }
        Ok(())
    }

    /// Notes what the discovery thread has found.
    fn note(&mut self, found: Found) {
        match (found, &mut self.sink.stacks) {
            (Found::User(pid), Some(stacks)) => {
                stacks.read_mappings(pid);
                stacks.send_updates(&self.tracer.probe);
            }
            (Found::Destructor(id), Some(stacks)) => stacks.probed(id, &self.tracer.probe),
            (Found::Late { pid, after_ms }, _) => {
                if let Ok(task) = process::task_of(pid) {
                    let identity = || self.sink.host_info.identity(&task);
                    if self.config.filter.accepts(&task, identity) {
                        self.announced.announce_late(&task, after_ms);
                    }
                }
            }
            _ => {}
        }
        self.tracer.note(found);
    }

    /// Passes on new notices, and notes all that was found.
    fn follow(&mut self) -> Result<()> {
        self.pass_notices()?;
        while let Some(found) = self.tracer.try_next() {
            self.note(found);
        }
        Ok(())
    }

    /// Does the periodic work.
    fn keep_up(&mut self) -> Result<()> {
        self.tracer.resume_overdue();
        self.sink.host_info.close_unused();
        self.make_room()?;
        self.tell_incidents(false);
        // Libraries loaded in quick succession share a line.
        self.announced.announce_new(&self.tracer);
        self.serve_screen()
    }

    /// Whether the user has quit the screens.
    fn is_quit(&self) -> bool {
        self.top.as_ref().is_some_and(|top| top.is_quit)
    }

    /// Whether the recording has stopped, and nothing else is wanted.
    fn has_stopped_recording(&self) -> bool {
        let is_only = self
            .config
            .record
            .as_ref()
            .is_some_and(|record| record.only);
        is_only && self.sink.input_recorder.stopped().is_some()
    }

    /// Whether somebody has looked on, who knows if nothing was traced.
    fn is_watched(&self) -> bool {
        self.config.screens.is_some()
    }

    /// Whether all target processes given by id have ended.
    fn all_ended(&self) -> bool {
        let children = || self.config.children && self.tracer.probe.has_targets();
        let have_exited = || self.processes.iter().all(AwaitedProcess::has_exited);
        !self.processes.is_empty() && have_exited() && !children()
    }

    /// Starts the command, if there is one. Gpuprobe is a target itself until then, so that the child is
    /// one from its fork.
    fn start_command(&mut self) -> Result<Option<Child>> {
        let Target::Command(arguments) = &self.config.target else {
            return Ok(None);
        };
        // The session works without a guard.
        match Guard::start(self.tracer.probe.targets_map()) {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => tracing::debug!("no guard: {error:#}"),
        }
        let own_pid = std::process::id();
        self.tracer.probe.add_target(own_pid)?;
        let environment = self.collector.iter().flat_map(Collector::environment);
        let child = command::spawn(arguments, environment, self.config.advanced.as_root);
        self.tracer.probe.remove_target(own_pid);
        child.map(Some)
    }

    /// Drops the capabilities needed only at the start.
    fn drop_capabilities(&self) {
        let command = matches!(self.config.target, Target::Command(_));
        // The last for another reader.
        let mut kept = vec![BPF, LOOK, AS_OTHERS];
        kept.extend(command.then_some(SIGNAL));
        privileges::keep_only_here(&kept);
    }

    /// Stops holding processes and resumes those that are held.
    fn resume_held(&mut self) {
        self.tracer.probe.stop_holding();
        self.tracer.resume_held();
        match self.rings.read_notices() {
            Ok(notices) => notices.into_iter().for_each(resume),
            Err(error) => tracing::warn!("held processes may stay stopped: {error:#}"),
        }
    }
}

impl Drop for Run<'_> {
    /// After an error too, no process may stay stopped; the guard is dropped only after that.
    fn drop(&mut self) {
        self.resume_held();
        self.tracer.detach();
        self.resume_held();
    }
}

/// Ticks at the end of each interval; those that are missed are left out.
fn reports_every(interval: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Completes after `duration`; never, if there is none.
async fn after(duration: Option<Duration>) {
    match duration {
        Some(duration) => sleep(duration).await,
        None => future::pending().await,
    }
}

/// The next request of the HTTP thread; never, if nothing is served.
async fn request(serving: &mut Option<Serving>) -> Option<DocumentRequest> {
    match serving {
        Some(serving) => serving.next().await,
        None => future::pending().await,
    }
}

/// Completes at the end of the command; never, if there is none.
async fn wait(child: &mut Option<Child>) -> Result<ExitStatus> {
    match child {
        Some(child) => child.wait().await.context("cannot wait for the command"),
        None => future::pending().await,
    }
}
