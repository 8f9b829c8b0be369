//! The event loop of a run.

mod reading;
mod reports;
mod said;
mod start;
mod watched;

use std::collections::HashMap;
use std::future;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::task::yield_now;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::announce::Announced;
use super::collector::Collector;
use super::follow::{Follower, With, resume};
use super::guard::Guard;
use super::incidents;
use super::output::{Output, Reader};
use super::release::Release;
use super::samples::Samples;
use super::signals::{Ends, pass_on};
use super::sink::Sink;
use super::{Config, Target, Tracer, command, descriptors, limits, nothing};
use crate::host::process::Handle;
use crate::probe::{Rings, types};
use gpuprobe_model::clock::Clock;
use gpuprobe_model::link::Link;
use gpuprobe_model::{Lost, Untraced};
use gpuprobe_os::mounts;
use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{BPF, LOOK, PERF_EVENTS, SIGNAL};
use gpuprobe_os::say;
use gpuprobe_recording::frames::Told;
use gpuprobe_report as report;
use gpuprobe_report::gate::{Gate, LEAKED};
use gpuprobe_report::profile;
use reports::{FIND_FOR, FIND_FOR_ONE};
use watched::Watched;

/// How long device queries are probed after a late attach.
const LEARN_FOR: Duration = Duration::from_secs(1);

/// How long processes are looked at before the rings are read again: a program that makes a
/// hundred thousand calls a second fills a tenth of the memory ring in ten times that.
const LOOK_FOR: Duration = Duration::from_millis(20);

/// How long names are waited for after SIGTERM.
const TERMINATED_FOR: Duration = Duration::from_secs(1);

/// How often the memory ring is looked at when it fills too slowly to wake us.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs until the end that `config` asks for.
///
/// # Errors
/// Nothing could be traced, or a report could not be written.
pub fn run(config: &Config) -> Result<ExitCode> {
    descriptors::remember();
    if config.untrusted_mounts {
        mounts::trust_all();
    }
    limits::raise();
    let adapted;
    let config = if types::kernel_has_types() {
        config
    } else {
        tracing::warn!(
            "this kernel has no type information ({}): {}",
            types::KERNEL_BTF,
            types::MISSED_WITHOUT
        );
        adapted = config.clone().without_types();
        &adapted
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the event loop")?;
    runtime.block_on(Run::start(config)?.until_end())
}

pub(super) struct Run<'a> {
    pub(super) config: &'a Config,
    output: Output,
    /// What was never freed is judged at the end.
    gate: Option<Gate>,
    /// Written at the end.
    profiles: Option<profile::Outputs>,
    tracer: Tracer,
    rings: Rings,
    follower: Follower,
    release: Release,
    pub(super) sink: Sink,
    pub(super) clock: Clock,
    /// The processes that were asked for, if any.
    processes: Vec<Handle>,
    started: Instant,
    reported: Instant,
    /// When the kernel side's counts were read.
    counted: Instant,
    /// The fastest link between host and GPUs that was seen.
    link: Option<Link>,
    /// About what a context takes, by GPU.
    contexts: HashMap<u32, u64>,
    /// What the reports so far have said.
    history: report::History,
    /// Processes of which nothing was traced so far, those that are asked for.
    untraced: HashMap<u32, Option<Untraced>>,
    lost: Lost,
    /// The frames that the recording knows.
    told: Told,
    guard: Option<Guard>,
    /// Outlives the command.
    collector: Option<Collector>,
    samples: Option<Samples>,
    announced: Announced,
    /// What the user knows of incidents.
    pub(super) told_incidents: incidents::Told,
    /// The losses that the user has been told on standard error.
    lost_said: Lost,
    /// The last report explains, and calls something a leak.
    leaks: bool,
    /// There was no time for all that was in the rings.
    is_behind: bool,
    /// Ends of processes were lost, and have not been searched for since; when that was last done.
    lacks_ends: bool,
    searched: Instant,
    /// Names of functions are not waited for any longer than this.
    names_until: Option<Instant>,
}

impl Run<'_> {
    async fn until_end(mut self) -> Result<ExitCode> {
        let mut ends = Ends::install()?;
        self.announced = Announced::begin(self.config, &self.tracer);
        let mut child = match self.start_command() {
            Ok(child) => child,
            Err(error) => {
                say(format_args!("error: {error:#}"));
                self.sink.tap.discard();
                return Ok(command::not_started(&error));
            }
        };
        self.name_recording(child.as_ref());
        self.give_up_rights();
        let (reader, status) = self.trace(&mut ends, &mut child).await?;
        self.end(reader, child, status).await
    }

    /// Traces until something ends it; if that is the end of the command, with its status.
    async fn trace(
        &mut self,
        ends: &mut Ends,
        child: &mut Option<Child>,
    ) -> Result<(Reader, Option<ExitStatus>)> {
        let mut reader = Reader::Reading;
        let control = self.rings.watch_control()?;
        let watched = Watched::of(&self.rings)?;
        let mut look = ticks(Duration::ZERO, LOOK_EVERY, MissedTickBehavior::Delay);
        let every = self.config.interval;
        let mut report = ticks(every, every, MissedTickBehavior::Skip);
        let deadline = after(self.config.duration);
        let learnt = sleep(LEARN_FOR);
        tokio::pin!(deadline, learnt);
        let (mut learning, mut status) = (true, None);
        loop {
            tokio::select! {
                biased;
                // First what is due: programs can make all that comes below have no end.
                ended = wait(child) => {
                    status = Some(ended?);
                    break;
                }
                end = ends.next() => {
                    // The command gets the signal too; its end is ours.
                    let Some(child) = &*child else {
                        // Whoever sends this may soon send what cannot be handled.
                        let is_urgent = end == Signal::SIGTERM;
                        self.names_until = is_urgent.then(|| Instant::now() + TERMINATED_FOR);
                        break;
                    };
                    pass_on(end, child);
                }
                () = &mut deadline => break,
                () = &mut learnt, if learning => {
                    learning = false;
                    self.tracer.stop_learning();
                }
                _ = report.tick() => {
                    reader = self.report(false)?;
                }
                _ = look.tick() => {
                    reader = self.look()?;
                    if self.all_ended() {
                        break;
                    }
                    self.follower.ask_again();
                }
                guard = control.readable() => {
                    guard?.clear_ready();
                    reader = self.follow_notices()?;
                }
                arrived = watched.arrived() => {
                    arrived?;
                    reader = self.read()?;
                }
                () = yield_now(), if self.is_behind => {
                    reader = self.read()?;
                }
                () = yield_now(), if self.follower.is_busy() => {
                    reader = self.follow_notices()?;
                }
            }
            if reader == Reader::Gone {
                say("nobody reads the reports any more; tracing ends");
                break;
            }
        }
        Ok((reader, status))
    }

    /// Reads the rings although nothing woke us, and catches up with what can wait until then.
    fn look(&mut self) -> Result<Reader> {
        let reader = self.read()?;
        if self.config.target == Target::Everything {
            self.release.step(&mut self.tracer);
        }
        self.sink.world.close_unused();
        self.make_room()?;
        self.tell_incidents(false);
        // Libraries that are loaded one right after the other are one line.
        self.announced.go_on(&self.tracer);
        Ok(reader)
    }

    /// Writes the last report, and all that is written at the end.
    async fn end(
        mut self,
        reader: Reader,
        child: Option<Child>,
        status: Option<ExitStatus>,
    ) -> Result<ExitCode> {
        // Nothing of what the probes saw until now may be missed.
        self.follow_all(FIND_FOR_ONE)?;
        self.announced.go_on(&self.tracer);
        let reported = match reader {
            Reader::Reading => self.report(true).map(|_| ()),
            Reader::Gone => Ok(()),
        };
        // What became of an incident may have been read just now.
        self.tell_incidents(true);
        reported?;
        let nothing = reader == Reader::Reading && self.say_why_nothing();
        if !nothing {
            self.warn_of_silence();
        }
        self.samples.iter().for_each(Samples::say_failures);
        let written = self.write_profiles();
        let fails = self.fails();
        let judged = self.judge();
        let status = self.finish(child, status).await?;
        let status = match status.map(command::exit_code) {
            None | Some(0) if nothing => nothing::NOTHING,
            None | Some(0) if fails || matches!(judged, Ok(true)) => LEAKED,
            status => status.unwrap_or(0),
        };
        judged?;
        written.map(|()| ExitCode::from(status))
    }

    /// Whether a leak was found, and whoever asked wants the status to tell.
    fn fails(&self) -> bool {
        self.leaks && self.config.explains.is_some_and(|explains| explains.fails)
    }

    /// Whether nothing is left to trace, if it was processes.
    fn all_ended(&self) -> bool {
        let children = || self.config.children && self.tracer.probe.has_targets();
        let lives = || self.processes.iter().any(Handle::is_alive) || children();
        !self.processes.is_empty() && !lives()
    }

    /// Starts the command, if there is one. While it is being started we are a target ourselves,
    /// so that the child is one from birth.
    fn start_command(&mut self) -> Result<Option<Child>> {
        let Target::Command(arguments) = &self.config.target else {
            return Ok(None);
        };
        // Tracing works without.
        match Guard::start(self.tracer.probe.targets_map()) {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => tracing::debug!("no guard: {error:#}"),
        }
        let own_pid = std::process::id();
        self.tracer.probe.add_target(own_pid)?;
        // Without types, the kernel side does not know whose child it is: it says so itself.
        let first = (!types::kernel_has_types())
            .then(|| self.tracer.probe.becomes_target())
            .transpose()?;
        let first = first.map(|first| Box::new(first) as _);
        let environment = self.collector.iter().flat_map(Collector::environment);
        let child = command::spawn(arguments, environment, self.config.as_root, first);
        self.tracer.probe.remove_target(own_pid);
        child.map(Some)
    }

    /// Gives up the rights that only beginning took.
    fn give_up_rights(&self) {
        let perf = self.tracer.probe.kind.is_one_by_one();
        let command = matches!(self.config.target, Target::Command(_));
        let mut kept = vec![BPF, LOOK];
        kept.extend(perf.then_some(PERF_EVENTS));
        kept.extend(command.then_some(SIGNAL));
        privileges::keep_only_here(&kept);
    }

    /// Attaches to what the kernel side has noticed, and lets held processes go on; what that leaves
    /// undone after [`LOOK_FOR`] comes after what is in the rings by then.
    fn follow_notices(&mut self) -> Result<Reader> {
        let until = (Instant::now() + LOOK_FOR).into_std();
        let with = With {
            rings: &mut self.rings,
            tracer: &mut self.tracer,
            stacks: self.sink.stacks.as_mut(),
        };
        if self.follower.follow(with, until)? {
            Ok(Reader::Reading)
        } else {
            self.read()
        }
    }

    /// The same, until nothing is left undone.
    fn follow_all(&mut self, at_most: Duration) -> Result<()> {
        let end = Instant::now() + at_most;
        self.follow_notices()?;
        while self.follower.is_busy() && Instant::now() < end {
            self.follow_notices()?;
        }
        Ok(())
    }

    /// Stops no process any more, and lets those go on that were held until a moment ago.
    fn let_go(&mut self) {
        self.tracer.probe.stop_holding();
        self.follower.let_go();
        match self.rings.read_notices() {
            Ok(notices) => notices.into_iter().for_each(resume),
            Err(error) => tracing::warn!("held processes may stay stopped: {error:#}"),
        }
    }

    /// Detaches; then the command, if it still runs, is waited for.
    async fn finish(
        mut self,
        mut child: Option<Child>,
        status: Option<ExitStatus>,
    ) -> Result<Option<ExitStatus>> {
        self.let_go();
        self.wait_for_frames(FIND_FOR)?;
        self.sink.tap.finish();
        if status.is_none() && child.is_some() {
            self.tracer.probe.detach();
        } else {
            self.tracer.probe.detach_at_exit();
        }
        // What was on its way to stop something then has arrived now.
        self.let_go();
        drop(self.guard.take());
        // Nobody waits for us by now but who reads our exit status.
        drop(self.told_incidents.hooks.take());
        Ok(match (status, &mut child) {
            (None, Some(child)) => Some(child.wait().await?),
            (status, _) => status,
        })
    }
}

impl Drop for Run<'_> {
    /// Also after an error, nothing may stay stopped; only then may the guard believe that.
    fn drop(&mut self) {
        self.let_go();
        self.tracer.probe.detach();
        self.let_go();
    }
}

/// The end of the time; never, if there is none.
/// Ticks every `period`, for the first time after `first`.
fn ticks(first: Duration, period: Duration, missed: MissedTickBehavior) -> Interval {
    let mut ticks = interval_at(Instant::now() + first, period);
    ticks.set_missed_tick_behavior(missed);
    ticks
}

async fn after(duration: Option<Duration>) {
    match duration {
        Some(duration) => sleep(duration).await,
        None => future::pending().await,
    }
}

/// The end of the command; never, if there is none.
async fn wait(child: &mut Option<Child>) -> Result<ExitStatus> {
    match child {
        Some(child) => child.wait().await.context("cannot wait for the command"),
        None => future::pending().await,
    }
}
