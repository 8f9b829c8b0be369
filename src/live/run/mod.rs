//! The event loop of a session.

mod costs;
mod documents;
mod reading;
mod snapshot;
mod start;
mod watch;
mod windows;

use std::future;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

use super::announce::Announced;
use super::collector::Collector;
use super::guard::Guard;
use super::output::Output;
use super::recorder::mark_of;
use super::samples::Samples;
use super::signals::{StopSignals, pass_on};
use super::top::{NAMES_WITHIN, TopSession};
use super::{Target, TraceConfig, command, descriptors, empty_run, limits};
use crate::host::exit::AwaitedProcess;
use documents::Served;
use gpuprobe_os::privileges::{self, AS_OTHERS, BPF, LOOK, SIGNAL};
use gpuprobe_os::{mounts, say};
use gpuprobe_recording::log::LogNote;
use gpuprobe_report::gate::{Gate, GateResult, LEAKED, RunSource};
use gpuprobe_views::profile::Outputs;

pub(super) use reading::{Reading, look_up, symbols};
pub(super) use snapshot::Snapshots;
use watch::Watch;

/// A command that has not ended so long after Ctrl-C is waited for aloud.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long names are waited for at the end, and for any other report: those missing there are in the next one.
const NAMES_FOR_LAST: Duration = Duration::from_secs(30);
const NAMES_FOR_ONE: Duration = Duration::from_millis(700);
/// The same after SIGTERM, whose sender may soon send what cannot be handled: within two seconds everything has to end,
/// and the report in the making may have waited for its names, for [`NAMES_FOR_ONE`], before the signal is handled.
const NAMES_FOR_TERMINATED: Duration = Duration::from_millis(600);

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

/// A running session.
struct Run<'a> {
    config: &'a TraceConfig,
    reading: Reading<'a>,
    snapshots: Snapshots,
    output: Output,
    /// The leak check at the end, and its result.
    gate: Option<Gate>,
    judged: Option<GateResult>,
    /// What `explain` shows meanwhile.
    watch: Option<Watch>,
    /// Profiles to write at the end.
    profiles: Option<Outputs>,
    served: Option<Served>,
    top: Option<TopSession>,
    /// The target processes given by id.
    processes: Vec<AwaitedProcess>,
    /// Resumes held processes if gpuprobe is killed; dropped after [`Reading`], which resumes them, too.
    guard: Option<Guard>,
    /// Dropped after the command has ended.
    collector: Option<Collector>,
}

impl Run<'_> {
    async fn until_end(mut self) -> Result<ExitCode> {
        let mut signals = StopSignals::install()?;
        self.reading.announced = Announced::begin(self.config, &self.reading.tracer);
        if let Some(served) = &self.served {
            say(format_args!("serving on {}", served.serving.url()));
        }
        let mut child = match self.start_command() {
            Ok(child) => child,
            Err(error) => {
                say(format_args!("error: {error:#}"));
                self.reading.sink.input_recorder.discard();
                return Ok(command::not_started(&error));
            }
        };
        if let Some(record) = self.config.record.as_ref().filter(|record| record.only) {
            say(format_args!("recording into {}", record.path.display()));
        }
        self.drop_capabilities();
        let status = self.trace(&mut signals, &mut child).await?;
        self.end(child, status).await
    }

    /// Traces until the session ends. Returns the command's status if its end was the reason.
    async fn trace(
        &mut self,
        signals: &mut StopSignals,
        child: &mut Option<Child>,
    ) -> Result<Option<ExitStatus>> {
        let notices = self.reading.rings.watch_control()?;
        let mut report = reports_every(self.config.interval);
        let deadline = or_never(self.config.duration.map(sleep));
        tokio::pin!(deadline);
        // A command may take its time to end, or ignore the signal.
        let (patience, mut interrupts) = (sleep(PATIENCE), 0_u32);
        tokio::pin!(patience);
        loop {
            tokio::select! {
                biased;
                // Timers and signals first: programs can keep the rings below non-empty forever.
                ended = or_never(child.as_mut().map(Child::wait)) => {
                    return ended.map(Some).context("cannot wait for the command");
                }
                signal = signals.next() => match &*child {
                    // The command gets the signal too; its end is ours.
                    Some(_) if signal == Signal::SIGINT && interrupts > 0 => {
                        *child = None;
                        return Ok(None);
                    }
                    Some(child) => {
                        pass_on(signal, child);
                        if signal == Signal::SIGINT {
                            interrupts += 1;
                            patience.as_mut().reset(Instant::now() + PATIENCE);
                        }
                    }
                    None => {
                        if signal == Signal::SIGTERM {
                            self.limit_names(NAMES_FOR_TERMINATED);
                        }
                        return Ok(None);
                    }
                },
                () = &mut deadline => return Ok(None),
                () = &mut patience, if interrupts == 1 => {
                    say("waiting for the command to end; Ctrl-C again leaves it running");
                    interrupts += 1;
                }
                _ = report.tick() => self.report(false)?,
                () = or_never(self.watch.as_ref().map(Watch::tick)) => {
                    if self.look()? && self.config.until_settled {
                        return Ok(None);
                    }
                }
                Some(request) = or_never(self.served.as_mut().map(|it| it.serving.next())) => {
                    if let Some(served) = &mut self.served {
                        served.answer(request, &mut self.reading, &mut self.snapshots)?;
                    }
                }
                arrived = notices.readable() => {
                    arrived?.clear_ready();
                    self.reading.pass_notices()?;
                }
                found = self.reading.tracer.next() => self.reading.note(found?),
                arrived = self.reading.rings.arrived() => {
                    arrived?;
                    self.reading.read()?;
                    self.write_lines()?;
                }
            }
            if self.reading.rings.has_ticked() {
                self.reading.keep_up()?;
                if let Some(top) = &mut self.top {
                    top.serve(&mut self.reading, &mut self.snapshots)?;
                }
                if self.is_over() {
                    return Ok(None);
                }
            }
            if self.output.is_closed {
                say("output closed; stopping");
                return Ok(None);
            }
        }
    }

    /// Shows what `explain` sees so far. Returns whether it has its answer.
    fn look(&mut self) -> Result<bool> {
        self.reading.read_for_report(false)?;
        self.write_lines()?;
        let begun = Instant::now();
        let options = self.snapshots.options(&self.reading, false);
        let (snapshots, reading) = (&mut self.snapshots, &mut self.reading);
        let report = snapshots.snapshot(reading, &options, NAMES_WITHIN, None)?;
        let (explain, watch) = (report.explain.as_ref(), self.watch.as_mut());
        let answer = explain
            .zip(watch)
            .map(|(explain, watch)| watch.show(explain, begun));
        Ok(answer.unwrap_or(false))
    }

    fn write_lines(&mut self) -> Result<()> {
        let reading = &mut self.reading;
        self.output.write_lines(&mut reading.sink, &reading.clock)
    }

    /// Call stacks and names of functions are not waited for any longer than `wait` from now on.
    fn limit_names(&mut self, wait: Duration) {
        let until = Some(std::time::Instant::now() + wait);
        self.reading.names_until = until;
        self.reading.rings.stacks_until = until;
    }

    /// Whether the target processes given by id have ended, the user has quit the screens, or the recording, if it is
    /// all that is wanted, has stopped.
    fn is_over(&self) -> bool {
        let children = || self.config.children && self.reading.tracer.probe.has_targets();
        let have_exited = || self.processes.iter().all(AwaitedProcess::has_exited);
        !self.processes.is_empty() && have_exited() && !children()
            || self.top.as_ref().is_some_and(|top| top.is_quit)
            || self.has_stopped_recording()
    }

    /// Whether the recording has stopped, and nothing else is wanted.
    fn has_stopped_recording(&self) -> bool {
        self.records_only() && self.reading.sink.input_recorder.stopped().is_some()
    }

    fn records_only(&self) -> bool {
        let record = self.config.record.as_ref();
        record.is_some_and(|record| record.only)
    }

    /// Reads the rings and writes a report.
    fn report(&mut self, is_final: bool) -> Result<()> {
        self.reading.read_for_report(is_final)?;
        self.write_lines()?;
        if let Some(served) = &mut self.served {
            return served.update_metrics(&mut self.reading, &mut self.snapshots);
        }
        if self.output.is_closed || !is_final && (self.records_only() || self.config.explains) {
            return Ok(());
        }
        if is_final {
            self.judge()?;
        }
        let options = self.snapshots.options(&self.reading, is_final);
        let wait = match is_final {
            true => NAMES_FOR_LAST,
            false => NAMES_FOR_ONE,
        };
        let (snapshots, reading) = (&mut self.snapshots, &mut self.reading);
        let mut report = snapshots.snapshot(reading, &options, wait, None)?;
        report.gate = self.judged.as_ref().map(|judged| judged.report.clone());
        if let Some(explain) = &mut report.explain {
            explain.watched_seconds = Some(options.since_start.as_secs_f64());
        }
        snapshots.mark(reading, &report, &options);
        let (recorder, usage) = (&mut reading.sink.input_recorder, snapshots.usage.as_ref());
        recorder.note(LogNote::Report(mark_of(&report, &options, usage)));
        recorder.pause();
        self.write_lines()?;
        self.output.write(&report)?;
        if let Some(top) = &mut self.top {
            top.show(&self.reading, report, &options);
        }
        Ok(())
    }

    /// Starts the command, if there is one. Gpuprobe is a target itself until then, so that the child is
    /// one from its fork.
    fn start_command(&mut self) -> Result<Option<Child>> {
        let Target::Command(arguments) = &self.config.target else {
            return Ok(None);
        };
        let probe = &self.reading.tracer.probe;
        // The session works without a guard.
        match Guard::start(probe.targets_map()) {
            Ok(guard) => self.guard = Some(guard),
            Err(error) => tracing::debug!("no guard: {error:#}"),
        }
        let own_pid = std::process::id();
        probe.add_target(own_pid)?;
        let environment = self.collector.iter().flat_map(Collector::environment);
        let child = command::spawn(arguments, environment, self.config.advanced.as_root);
        probe.remove_target(own_pid);
        child.map(Some)
    }

    /// Drops the capabilities needed only at the start.
    fn drop_capabilities(&self) {
        let command = matches!(self.config.target, Target::Command(_));
        // The last for another helper.
        let mut kept = vec![BPF, LOOK, AS_OTHERS];
        kept.extend(command.then_some(SIGNAL));
        privileges::keep_only_here(&kept);
    }

    /// Writes the last report and the other outputs of the end.
    async fn end(mut self, child: Option<Child>, status: Option<ExitStatus>) -> Result<ExitCode> {
        if let Some(top) = self.top.take() {
            self.limit_names(NAMES_WITHIN);
            top.end();
        }
        // Everything that the probes have seen until now counts.
        self.reading.follow()?;
        self.reading.announced.announce_new(&self.reading.tracer);
        let is_reported = !self.output.is_closed && self.served.is_none();
        self.watch = None;
        let reported = match is_reported {
            true => self.report(true),
            false => self.judge(),
        };
        // The last read may have settled an incident.
        self.reading.tell_incidents(true);
        reported?;
        // Whoever has looked at screens knows.
        let nothing = is_reported && self.config.screens.is_none() && self.say_why_nothing();
        self.reading.samples.iter().for_each(Samples::say_failures);
        let written = self.write_profiles();
        let judged = self.judged.take();
        let leaks = judged.map_or(Ok(false), |judged| gpuprobe_views::gate::write(&judged));
        let (status, is_recorded) = self.finish(child, status).await?;
        let leaks = leaks?;
        written?;
        Ok(ExitCode::from(match status.map_or(0, command::exit_code) {
            0 if nothing => empty_run::NOTHING,
            0 if leaks => LEAKED,
            0 if !is_recorded => 1,
            status => status,
        }))
    }

    /// Prints the reason if nothing was traced. Returns whether there was one.
    fn say_why_nothing(&self) -> bool {
        let reading = &self.reading;
        let why = empty_run::why(self.config, reading.tracer.loaded, &reading.sink.filter);
        if let Some(why) = &why {
            say(format_args!("nothing was traced: {why}"));
        } else if self.config.modes.activity
            && reading.sink.state.activity.processes().next().is_none()
        {
            say(
                "no GPU activity recorded: the command has not used CUDA or has not loaded libcupti; \
                 `gpuprobe doctor` looks for libcupti",
            );
        }
        why.is_some()
    }

    /// Writes the profiles of live memory by call stack.
    fn write_profiles(&mut self) -> Result<()> {
        let Some(profiles) = self.profiles.take() else {
            return Ok(());
        };
        let scope = self.config.profiles.scope;
        let mut profile = self.reading.profile(scope, NAMES_FOR_LAST)?;
        profile.run = self.reading.describe_run();
        profiles.write(&profile)
    }

    /// Runs the leak check, if there is one.
    fn judge(&mut self) -> Result<()> {
        let Some(gate) = self.gate.take() else {
            return Ok(());
        };
        let options = gate.options(self.snapshots.options(&self.reading, true));
        let reading = &mut self.reading;
        let report = self
            .snapshots
            .snapshot(reading, &options, NAMES_FOR_LAST, None)?;
        if report.lost.any() {
            say(
                "warning: the leak check is unreliable: events were lost; leaks may be missed or wrong",
            );
        }
        let found = report.memleak.zip(report.explain);
        self.judged =
            found.map(|(memleak, explain)| gate.judge(&memleak, &explain, RunSource::Live));
        Ok(())
    }

    /// Detaches, then waits for the command if it still runs. Returns its status, and whether `gpuprobe record` has
    /// recorded the whole run.
    async fn finish(
        mut self,
        mut child: Option<Child>,
        status: Option<ExitStatus>,
    ) -> Result<(Option<ExitStatus>, bool)> {
        self.reading.resume_held();
        self.reading.wait_for_names(NAMES_FOR_LAST)?;
        self.reading.sink.input_recorder.finish();
        // The rest may not have found room.
        let is_recorded = !self.has_stopped_recording();
        let hooks = self.reading.incidents.hooks.take();
        drop(self.reading);
        drop(self.guard);
        // Only the exit status is outstanding, so hooks may take their time.
        drop(hooks);
        let status = match (status, &mut child) {
            (None, Some(child)) => Some(child.wait().await?),
            (status, _) => status,
        };
        Ok((status, is_recorded))
    }
}

/// Ticks at the end of each interval; those that are missed are left out.
fn reports_every(interval: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Completes with `future`; never, if there is none.
async fn or_never<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => future::pending().await,
    }
}
