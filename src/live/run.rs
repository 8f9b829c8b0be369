//! The event loop of a run.

use std::collections::HashMap;
use std::future;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::process::Child;
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep};

use super::announce::Announced;
use super::collector::Collector;
use super::filter::Sieve;
use super::follow::{Follower, With, resume};
use super::guard::Guard;
use super::output::{Output, Reader};
use super::recorder::mark_of;
use super::samples::Samples;
use super::signals::{Ends, pass_on};
use super::sink::{Sink, Teaching};
use super::stacks::Stacks;
use super::{Config, Target, Tracer, command, descriptors, limits, recorder};
use crate::host::process;
use crate::host::process::Handle;
use crate::host::world::Live;
use crate::probe::StackMode;
use crate::probe::{Rings, types};
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::clock;
use gpuprobe_model::clock::Clock;
use gpuprobe_model::event;
use gpuprobe_model::link::Link;
use gpuprobe_model::stack::{NoSymbols, Symbols};
use gpuprobe_model::{Lost, Usage};
use gpuprobe_os::privileges;
use gpuprobe_os::privileges::{BPF, LOOK, PERF_EVENTS, SIGNAL};
use gpuprobe_os::say;
use gpuprobe_recording::frames::{FrameWitness, Told};
use gpuprobe_recording::log::Note;
use gpuprobe_report as report;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::profile;
use gpuprobe_report::records;

/// Between two readings of the launch counts for the sake of ended processes.
const MAKE_ROOM_EVERY: Duration = Duration::from_secs(1);

/// How long device queries are probed after a late attach.
const LEARN_FOR: Duration = Duration::from_secs(1);

/// How long the frames of call stacks are waited for at the end, and for any other report: what is
/// missing there is in the next.
const FIND_FOR: Duration = Duration::from_secs(30);
const FIND_FOR_ONE: Duration = Duration::from_secs(1);
/// How often the rings are read meanwhile.
const FIND_PAUSE: Duration = Duration::from_millis(20);

/// How long processes are looked at before the rings are read again: a program that makes a
/// hundred thousand calls a second fills a tenth of the memory ring in ten times that.
const LOOK_FOR: Duration = Duration::from_millis(20);

/// How often the memory ring is looked at when it fills too slowly to wake us.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs until the end that `config` asks for.
///
/// # Errors
/// Nothing could be traced, or a report could not be written.
pub fn run(config: &Config) -> Result<ExitCode> {
    descriptors::remember();
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

struct Run<'a> {
    config: &'a Config,
    output: Output,
    /// Written at the end.
    profiles: Option<profile::Outputs>,
    tracer: Tracer,
    rings: Rings,
    follower: Follower,
    sink: Sink,
    clock: Clock,
    process: Option<Handle>,
    started: Instant,
    reported: Instant,
    /// When the kernel side's counts were read.
    counted: Instant,
    /// The fastest link between host and GPUs that was seen.
    link: Option<Link>,
    /// About what a context takes, by GPU.
    contexts: HashMap<u32, u64>,
    lost: Lost,
    /// The frames that the recording knows.
    told: Told,
    guard: Option<Guard>,
    /// Outlives the command.
    collector: Option<Collector>,
    samples: Option<Samples>,
    announced: Announced,
    /// The losses that the user has been told on standard error.
    lost_said: Lost,
}

impl<'a> Run<'a> {
    fn start(config: &'a Config) -> Result<Self> {
        let output = Output::open(config)?;
        let profiles = profile::Outputs::open(&config.profiles, None)?;
        let process = match config.target {
            Target::Process(pid) => Some(
                Handle::of(pid).with_context(|| format!("there is no process with id {pid}"))?,
            ),
            _ => None,
        };
        let clock = Clock::now();
        let sample_every = config
            .record
            .as_ref()
            .and_then(|record| record.sample_every);
        let samples = sample_every.map(Samples::start).transpose()?;
        let mut tap = recorder::open(config, clock)?;
        let started = Tracer::start(config, process).and_then(|mut tracer| {
            let collect = config.collect.as_ref();
            let collector = collect.map(|collect| Collector::start(collect, &mut tracer.probe));
            let rings = tracer.probe.rings()?;
            Ok((tracer, collector.transpose()?, rings))
        });
        let (tracer, collector, rings) = started.inspect_err(|_| tap.discard())?;
        let mut state = State {
            ledger: Ledger::counting(config.kinds),
            ..State::default()
        };
        state.watch(tap.is_recording());
        Ok(Self {
            config,
            output,
            profiles: Some(profiles).filter(profile::Outputs::any),
            tracer,
            rings,
            follower: Follower::default(),
            sink: Sink {
                modes: config.modes,
                state,
                sieve: Sieve::new(config.filter.clone()),
                world: Live::open(),
                decoder: event::Decoder::default(),
                undecodable: 0,
                copies: config.per_call.then(Vec::new),
                records: config.single_records.then(Vec::new),
                stacks: (config.stacks != StackMode::Off)
                    .then(|| Stacks::new(tap.is_recording()))
                    .transpose()?,
                tap,
            },
            started: Instant::now(),
            reported: Instant::now(),
            counted: Instant::now(),
            link: None,
            contexts: HashMap::new(),
            clock,
            process,
            guard: None,
            collector,
            samples,
            announced: Announced::default(),
            lost: Lost::default(),
            told: Told::default(),
            lost_said: Lost::default(),
        })
    }

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
        self.give_up_rights();
        let known = self.process.as_ref().map(|process| process.pid);
        if let (Some(stacks), Some(pid)) = (&mut self.sink.stacks, known) {
            stacks.prepare_for(pid);
            stacks.teach(&self.tracer.probe);
        }
        let mut reader = Reader::Reading;
        let memory = self.rings.watch_memory()?;
        let activity = self.rings.watch_activity()?;
        let control = self.rings.watch_control()?;
        let stacks = self.rings.watch_stacks()?;
        let batches = self.rings.watch_batches()?;
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut report = interval_at(Instant::now() + self.config.interval, self.config.interval);
        report.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let deadline = async {
            match self.config.duration {
                Some(duration) => sleep(duration).await,
                None => future::pending().await,
            }
        };
        let learnt = sleep(LEARN_FOR);
        tokio::pin!(deadline, learnt);
        let mut learning = true;
        let mut status = None;
        loop {
            tokio::select! {
                biased;
                guard = control.readable() => {
                    guard?.clear_ready();
                    reader = self.follow_notices()?;
                }
                guard = memory.readable() => {
                    guard?.clear_ready();
                    reader = self.read()?;
                }
                guard = activity.readable() => {
                    guard?.clear_ready();
                    reader = self.read()?;
                }
                guard = readable(batches.as_ref()) => {
                    guard?.clear_ready();
                    reader = self.read()?;
                }
                guard = readable(stacks.as_ref()) => {
                    guard?.clear_ready();
                    reader = self.read()?;
                }
                ended = wait(&mut child) => {
                    status = Some(ended?);
                    break;
                }
                end = ends.next() => {
                    // The command gets the signal too; its end is ours.
                    let Some(child) = &child else { break };
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
                    reader = self.read()?;
                    self.make_room()?;
                    // Libraries that are loaded one right after the other are one line.
                    self.announced.go_on(&self.tracer);
                    if self.all_ended() {
                        break;
                    }
                    self.follower.ask_again();
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
        // Nothing of what the probes saw until now may be missed.
        self.follow_all(FIND_FOR_ONE)?;
        self.announced.go_on(&self.tracer);
        if reader == Reader::Reading {
            self.report(true)?;
        }
        self.warn_of_silence();
        let written = self.write_profiles();
        let status = self.finish(child, status).await?;
        written.map(|()| status)
    }

    /// Whether nothing is left to trace, if it was a process.
    fn all_ended(&self) -> bool {
        self.process.is_some_and(|p| !p.is_alive())
            && !(self.config.children && self.tracer.probe.has_targets())
    }

    /// Says why nothing may have come of what the GPU did, if nothing has.
    fn warn_of_silence(&self) {
        let told = self.sink.state.activity.processes().next().is_some();
        if self.config.modes.activity && !told {
            say(
                "nothing came from CUPTI: the command has not used CUDA, or has not loaded \
                 libcupti; `gpuprobe doctor` says where one is",
            );
        }
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

    /// Applies everything that is in the rings, and writes single copies.
    fn read(&mut self) -> Result<Reader> {
        self.tracer.probe.about_to_read();
        let (sink, probe) = (&mut self.sink, &self.tracer.probe);
        self.rings.read(&mut Teaching::new(sink, probe))?;
        if let Some(stacks) = &mut self.sink.stacks {
            stacks.end_round();
            stacks.teach(&self.tracer.probe);
        }
        self.sink.find_frames(&mut self.told);
        let mut lost = self.tracer.probe.lost();
        let missed = self.sink.decoder.activity.losses();
        lost.undecodable = self.sink.undecodable + missed.undecodable;
        lost.activity = lost.activity.saturating_add(missed.missing);
        lost.cupti_dropped = missed.dropped;
        lost.cupti_unknown = missed.unknown;
        lost.cupti_malformed = missed.malformed;
        lost.names += self.sink.state.launches.names_left_out;
        lost.memory += self.sink.state.ledger.left_out();
        lost.stacks += self.sink.stacks.as_ref().map_or(0, |stacks| stacks.unknown);
        if lost.tasks > self.lost.tasks {
            self.end_vanished();
        }
        if lost != self.lost {
            self.sink.tap.note(Note::Lost(lost.by_name()));
        }
        self.lost = lost;
        for note in self.samples.iter().flat_map(Samples::taken) {
            self.sink.tap.note(note);
        }
        self.sink.tap.pause();
        if self.write_records()? == Reader::Gone {
            return Ok(Reader::Gone);
        }
        let Some(copies) = self.sink.copies.as_mut().map(std::mem::take) else {
            return Ok(Reader::Reading);
        };
        let copies: Vec<_> = copies
            .iter()
            .map(|transfer| CopyReport::of(transfer, &self.clock))
            .collect();
        self.output.write_copies(&copies)
    }

    /// Writes the single records that have come.
    fn write_records(&mut self) -> Result<Reader> {
        let Some(batches) = self.sink.records.as_mut().filter(|new| !new.is_empty()) else {
            return Ok(Reader::Reading);
        };
        let new = records::in_order(std::mem::take(batches));
        let began_ns = self.clock.monotonic_ns();
        let activities = &self.sink.state.activity;
        let lines = new
            .iter()
            .map(|one| records::line(one, activities, began_ns));
        self.output.write_records(lines)
    }

    /// Reads on until the frames that were asked for are found.
    fn wait_for_frames(&mut self, at_most: Duration) -> Result<()> {
        let end = Instant::now() + at_most;
        while self
            .sink
            .stacks
            .as_mut()
            .is_some_and(|stacks| stacks.is_waiting(FIND_PAUSE))
        {
            if Instant::now() > end {
                tracing::debug!("symbols take too long");
                break;
            }
            // Whatever is held meanwhile waits for us.
            self.follow_notices()?;
            self.read()?;
        }
        self.sink.find_frames(&mut self.told);
        Ok(())
    }

    /// Reads the counts of ended processes, so that the kernel side can forget them.
    fn make_room(&mut self) -> Result<()> {
        if self.counted.elapsed() > MAKE_ROOM_EVERY && self.sink.state.launches.take_ends() {
            self.count_launches()?;
        }
        Ok(())
    }

    /// Enters what the kernel side has counted, and lets it forget ended processes.
    fn count_launches(&mut self) -> Result<()> {
        let (launches, tap) = (&mut self.sink.state.launches, &mut self.sink.tap);
        let sieve = &self.sink.sieve;
        self.counted = Instant::now();
        self.tracer.probe.launches(|key, runs, captured| {
            let count = || {
                tap.count(&key, runs, captured);
                launches.set_counts(key, runs, captured)
            };
            sieve.keeps_launches(key.process).unwrap_or_else(count)
        })?;
        tap.counted(launches);
        self.sink.sieve.counts_were_read();
        Ok(())
    }

    /// Ends the processes whose end was lost.
    fn end_vanished(&mut self) {
        let ledger = &mut self.sink.state.ledger;
        let vanished: Vec<_> = ledger
            .living()
            .map(|p| p.pid)
            .filter(|&pid| !process::is_alive(pid))
            .collect();
        for pid in vanished {
            self.sink.tap.note(Note::Vanished(pid));
            ledger.end_unseen(pid);
        }
    }

    fn report(&mut self, is_final: bool) -> Result<Reader> {
        let begun = Instant::now();
        if self.read()? == Reader::Gone {
            return Ok(Reader::Gone);
        }
        if self.config.modes.cudatrace {
            self.count_launches()?;
        }
        if !is_final
            && self
                .config
                .record
                .as_ref()
                .is_some_and(|record| record.only)
        {
            return Ok(Reader::Reading);
        }
        if self.config.modes.bandwidth_util {
            self.link = faster(self.link, Link::current());
        }
        if self.lost != self.lost_said && !self.output.shows_losses() {
            self.lost_said = self.lost;
            let lost = report::describe_lost(&self.lost);
            say(format_args!("lost events: {lost}"));
        }
        let options = report::Options {
            modes: self.config.modes,
            top: self.config.top,
            view: self.config.view,
            stacks: self.config.stacks.is_on(),
            allocations: true,
            now_ns: clock::monotonic_ns(),
            is_final,
            since_last: self.reported.elapsed(),
            since_start: self.started.elapsed(),
            link: self.link,
        };
        if let Some(stacks) = &mut self.sink.stacks {
            stacks.want(report::needed_locations(&self.sink.state, &options).into_iter());
            stacks.sweep(process::is_alive);
            self.wait_for_frames(if is_final { FIND_FOR } else { FIND_FOR_ONE })?;
        }
        self.reported = Instant::now();
        let usage = self.usage();
        let state = &self.sink.state;
        let stacks = self.sink.stacks.as_ref();
        let symbols = stacks.map_or(&NoSymbols as &dyn Symbols, |stacks| &stacks.frames);
        let symbols = FrameWitness::new(symbols, &mut self.told);
        let report = report::build(
            state,
            self.lost,
            Some(&self.clock),
            &options,
            usage.as_ref(),
            &symbols,
        );
        if self.sink.tap.is_recording() {
            let notes = symbols.into_notes();
            notes.into_iter().for_each(|note| self.sink.tap.note(note));
        }
        self.sink.state.mark_reported();
        self.sink
            .tap
            .note(Note::Report(mark_of(&report, &options, usage.as_ref())));
        self.sink.tap.pause();
        let reader = self.output.write(&report);
        tracing::debug!(us = begun.elapsed().as_micros(), "report");
        reader
    }

    /// Writes what is live, by call stack, into the files that were asked for.
    fn write_profiles(&mut self) -> Result<()> {
        let Some(profiles) = self.profiles.take() else {
            return Ok(());
        };
        if let Some(stacks) = &mut self.sink.stacks {
            let needed = profile::needed_locations(&self.sink.state.ledger);
            stacks.want(needed.into_iter());
            self.wait_for_frames(FIND_FOR)?;
        }
        let ledger = &self.sink.state.ledger;
        let now = self.clock.wall(clock::monotonic_ns());
        let stacks = self.sink.stacks.as_ref();
        let symbols = stacks.map_or(&NoSymbols as &dyn Symbols, |stacks| &stacks.frames);
        let weight = self.config.profiles.weight;
        let time = match ledger.peak_ns() {
            Some(peak_ns) if weight == profile::Weight::Peak => self.clock.wall(peak_ns),
            _ => now,
        };
        let time_ns = time.timestamp_nanos_opt();
        let which = profile::Which {
            weight,
            host: false,
            full_stacks: self.config.view.full_stacks,
        };
        let made = profile::of_ledger(ledger, symbols, which, time_ns);
        profiles.write(&made)
    }

    /// What NVML says that processes use, if it is there and that matters.
    fn usage(&mut self) -> Option<Usage> {
        let nvml = self.sink.world.nvml.as_ref()?;
        if !self.config.modes.memleak {
            return None;
        }
        let mut usage = nvml.usage();
        gpuprobe_report::learn_contexts(&mut usage, &self.sink.state, &mut self.contexts);
        Some(usage)
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
        status: Option<std::process::ExitStatus>,
    ) -> Result<ExitCode> {
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
        let status = match (status, &mut child) {
            (None, Some(child)) => Some(child.wait().await?),
            (status, _) => status,
        };
        Ok(status.map_or(ExitCode::SUCCESS, command::exit_code))
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

fn faster(a: Option<Link>, b: Option<Link>) -> Option<Link> {
    match (a, b) {
        (Some(a), Some(b)) if a.bytes_per_second() >= b.bytes_per_second() => Some(a),
        (a, b) => b.or(a),
    }
}

/// When there are call stacks to be read; never, if none are taken.
async fn readable(
    ring: Option<&AsyncFd<OwnedFd>>,
) -> std::io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
    match ring {
        Some(ring) => ring.readable().await,
        None => future::pending().await,
    }
}

/// The end of the command; never, if there is none.
async fn wait(child: &mut Option<Child>) -> Result<std::process::ExitStatus> {
    match child {
        Some(child) => child.wait().await.context("cannot wait for the command"),
        None => future::pending().await,
    }
}
