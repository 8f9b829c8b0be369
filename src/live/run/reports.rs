//! The reports of a session.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use super::Run;
use crate::host::nvml::Nvml;
use crate::host::process;
use crate::live::Target;
use crate::live::output::OutputReader;
use crate::live::recorder::mark_of;
use crate::live::stacks::StackState;
use gpuprobe_engine::HostInfo;
use gpuprobe_model::clock;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::stack::{NoSymbols, Symbolize};
use gpuprobe_model::{GpuUsage, Untraced, UserLoss, by_user};
use gpuprobe_os::progress::Pass;
use gpuprobe_os::say;
use gpuprobe_recording::frames::FrameWitness;
use gpuprobe_recording::log::LogNote;
use gpuprobe_report as report;
use gpuprobe_report::gate;
use gpuprobe_report::profile;
use gpuprobe_views::text;

/// How long to wait for symbols at the end, and for any other report: frames missing there are in the
/// next one.
pub(super) const FIND_FOR: Duration = Duration::from_secs(30);
const FIND_FOR_ONE: Duration = Duration::from_millis(700);
/// Interval of reads of the rings during that.
const FIND_PAUSE: Duration = Duration::from_millis(20);

impl Run<'_> {
    /// Reads the rings and writes a report.
    pub(super) fn report(&mut self, is_final: bool) -> Result<OutputReader> {
        let begun = Instant::now();
        let reader = match is_final {
            true => self.read_all()?,
            false => self.read_for_report()?,
        };
        if reader == OutputReader::Gone {
            return Ok(OutputReader::Gone);
        }
        if self.config.modes.cudatrace {
            self.count_launches()?;
        }
        if self.served.is_some() {
            self.refresh_served()?;
            return Ok(OutputReader::Reading);
        }
        let records = self.config.record.as_ref();
        let is_for_the_end = records.is_some_and(|record| record.only);
        if !is_final && (is_for_the_end || self.config.explains.is_some()) {
            return Ok(OutputReader::Reading);
        }
        let modes = self.config.modes;
        if modes.bandwidth_util || modes.activity {
            self.link = faster(self.link, PcieLink::current());
        }
        if self.lost != self.lost_said && !self.output.shows_losses() {
            self.lost_said = self.lost;
            let lost = gpuprobe_report::words::describe_lost(&self.lost);
            let losers = text::describe_losers(&self.lost_by_user()).join("; ");
            let colon = if losers.is_empty() { "" } else { ": " };
            say(format_args!("lost events: {lost}{colon}{losers}"));
        }
        let options = self.options(is_final);
        self.find_names(&options, if is_final { FIND_FOR } else { FIND_FOR_ONE })?;
        self.reported = Instant::now();
        let usage = self.usage();
        let report = self.make(&options, usage.as_ref());
        let explained = report.explain.as_ref();
        self.leaks = explained.is_some_and(report::explain::Explain::has_growth);
        let ledger = &self.sink.state.ledger;
        self.history.note(ledger, &report, options.now_ns);
        self.sink.state.mark_reported();
        self.sink
            .input_recorder
            .note(LogNote::Report(mark_of(&report, &options, usage.as_ref())));
        self.sink.input_recorder.pause();
        let reader = self.output.write(&report);
        self.show(report, &options);
        tracing::debug!(us = begun.elapsed().as_micros(), "report");
        reader
    }

    /// Waits for the names of functions that a report with `options` shows, for at most `at_most`.
    pub(in crate::live) fn find_names(
        &mut self,
        options: &report::Options,
        at_most: Duration,
    ) -> Result<()> {
        if let Some(stacks) = &mut self.sink.stacks {
            let needed = report::needed_locations(&self.sink.state, options, &stacks.frames, None);
            stacks.want(needed.into_iter());
            stacks.sweep(process::is_alive);
            self.wait_for_frames(at_most)?;
        }
        Ok(())
    }

    /// Makes the report of the current state; the frames in it are recorded.
    pub(in crate::live) fn make(
        &mut self,
        options: &report::Options,
        usage: Option<&GpuUsage>,
    ) -> report::Report {
        let lost_by_user = match self.lost.any() {
            true => self.lost_by_user(),
            false => Vec::new(),
        };
        let state = &self.sink.state;
        let known = self.sink.stacks.as_ref().map(StackState::symbols);
        let symbols = known
            .as_ref()
            .map_or(&NoSymbols as &dyn Symbolize, |known| known);
        let symbols = FrameWitness::new(symbols, &mut self.recorded_frames);
        let mut report = report::build(
            state,
            self.lost,
            options,
            report::ReportSources {
                usage,
                lost_by_user: &lost_by_user,
                history: Some(&self.history),
                ..report::ReportSources::of_file(Some(&self.clock), &symbols)
            },
        );
        report.recording_stopped = self.sink.input_recorder.stopped().map(str::to_owned);
        if self.sink.input_recorder.is_recording() {
            let notes = symbols.into_notes();
            notes
                .into_iter()
                .for_each(|note| self.sink.input_recorder.note(note));
        }
        report
    }

    /// Runs the leak check, if there is one. Returns whether it fails the session.
    pub(super) fn judge(&mut self) -> Result<bool> {
        let Some(gate) = self.gate.take() else {
            return Ok(false);
        };
        if self.lost.any() {
            say(
                "warning: the leak check is unreliable: events were lost; leaks may be missed or wrong",
            );
        }
        let options = gate::options(self.options(true));
        if let Some(stacks) = &mut self.sink.stacks {
            let needed = report::needed_locations(&self.sink.state, &options, &stacks.frames, None);
            stacks.want(needed.into_iter());
            self.wait_for_frames(FIND_FOR)?;
        }
        let known = self.sink.stacks.as_ref().map(StackState::symbols);
        let symbols = known
            .as_ref()
            .map_or(&NoSymbols as &dyn Symbolize, |known| known);
        let sources = report::ReportSources::of_file(Some(&self.clock), symbols);
        let report = report::build(&self.sink.state, self.lost, &options, sources);
        report.memleak.map_or(Ok(false), |memleak| {
            gpuprobe_views::gate::write(&gate.judge(&memleak, false))
        })
    }

    /// Losses by process, as far as known.
    pub(super) fn lost_by_user(&self) -> Vec<UserLoss> {
        let left_out = self.sink.state.ledger.left_out_by_process();
        by_user(
            self.tracer
                .probe
                .lost_by_process()
                .into_iter()
                .chain(left_out),
        )
    }

    pub(in crate::live) fn options(&self, is_final: bool) -> report::Options {
        report::Options {
            modes: self.config.modes,
            top: self.config.top,
            view: self.config.view,
            stacks: self.config.stacks.is_on(),
            host_wide: self.config.target == Target::Everything,
            allocations: self.lists_allocations(),
            explains: self.config.explains.is_some(),
            now_ns: clock::monotonic_ns(),
            is_final,
            since_last: self.reported.elapsed(),
            since_start: self.started.elapsed(),
            link: self.link,
            detail: self.top.as_ref().and_then(|top| top.detail),
            only_detail: self.lists_only_detail(),
        }
    }

    /// Whether reports are for the screens only, which show the call sites of one process at a time.
    fn lists_only_detail(&self) -> bool {
        self.top.is_some() && self.config.output.is_none()
    }

    /// Whether single allocations are listed: not of every process on the screens.
    fn lists_allocations(&self) -> bool {
        self.config.screens.is_none()
    }

    /// Writes the profiles of live memory by call stack.
    pub(super) fn write_profiles(&mut self) -> Result<()> {
        let Some(profiles) = self.profiles.take() else {
            return Ok(());
        };
        let scope = self.config.profiles.scope;
        if let Some(stacks) = &mut self.sink.stacks {
            let needed = profile::needed_locations(&self.sink.state.ledger, scope);
            stacks.want(needed.into_iter());
            self.wait_for_frames(FIND_FOR)?;
        }
        let ledger = &self.sink.state.ledger;
        let now = self.clock.wall(clock::monotonic_ns());
        let stacks = self.sink.stacks.as_ref();
        let symbols = stacks.map_or(&NoSymbols as &dyn Symbolize, |stacks| &stacks.frames);
        let time = match ledger.peak_ns {
            Some(peak_ns) if scope.weight == profile::Weight::Peak => self.clock.wall(peak_ns),
            _ => now,
        };
        let time_ns = time.timestamp_nanos_opt();
        let mut made = profile::of_ledger(ledger, symbols, scope, time_ns);
        made.run = Some(self.describe_run());
        profiles.write(&made)
    }

    /// Description of the session, like `python3 train.py, NVIDIA H200, 2026-11-20 20:34`: command,
    /// GPUs and date.
    fn describe_run(&self) -> String {
        let command = match &self.config.target {
            Target::Command(words) => Some(words.join(OsStr::new(" "))),
            Target::Everything | Target::Processes(_) => None,
        };
        let command = command.map(|words| words.to_string_lossy().into_owned());
        let nvml = self.sink.host_info.nvml.as_ref();
        let gpus = nvml.map(Nvml::usage).unwrap_or_default().gpus;
        let models = gpus.into_iter().map(|gpu| gpu.name);
        let now = self.clock.wall(clock::monotonic_ns());
        gpuprobe_analysis::describe_run(command, models, Some(now)).unwrap_or_default()
    }

    /// NVML's memory usage by GPU and process; `None` if memory is not traced.
    pub(in crate::live) fn usage(&mut self) -> Option<GpuUsage> {
        if !self.config.modes.memleak {
            return None;
        }
        let nvml = self.sink.host_info.nvml.as_ref();
        let mut usage = nvml.map(Nvml::usage).unwrap_or_default();
        gpuprobe_report::estimate_contexts(&mut usage, &self.sink.state, &mut self.contexts);
        usage.host = host_name();
        usage.untraced = self.untraced(&usage);
        usage.late_ms.clone_from(&self.tracer.late_ms);
        Some(usage)
    }

    /// Target processes that use a GPU or have CUDA loaded, and of which no event was traced.
    fn untraced(&mut self, usage: &GpuUsage) -> HashMap<u32, Untraced> {
        let mut pids: HashSet<u32> = self.tracer.cuda_users().collect();
        if self.config.target == Target::Everything {
            pids.extend(usage.processes.keys());
        }
        // NVML may load libcuda into gpuprobe itself.
        pids.remove(&std::process::id());
        pids.retain(|pid| self.sink.state.ledger.process_of(*pid).is_none());
        self.untraced.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            if let Entry::Vacant(unknown) = self.untraced.entry(pid)
                && let Ok(task) = process::task_of(pid)
            {
                let identity = self.sink.host_info.identity(&task);
                let accepts = self.config.filter.accepts(&task, || identity.clone());
                unknown.insert(accepts.then_some(Untraced {
                    uid: task.uid,
                    comm: task.comm,
                    identity,
                }));
            }
        }
        let accepted = self.untraced.iter();
        let accepted = accepted.filter_map(|(pid, process)| Some((*pid, process.clone()?)));
        accepted.collect()
    }

    /// Number of requested frames that have not been found yet.
    fn missing_frames(&self) -> u64 {
        let stacks = self.sink.stacks.as_ref();
        stacks.map_or(0, |stacks| stacks.missing() as u64)
    }

    /// Reads the rings until the requested frames are found, `at_most` that long.
    pub(in crate::live) fn wait_for_frames(&mut self, at_most: Duration) -> Result<()> {
        let end = Instant::now() + at_most;
        let end = self.names_until.map_or(end, |until| until.min(end));
        let mut missing = self.missing_frames();
        let config = self.config;
        // Other reports wait less than a second, and single lines are written during the wait.
        let is_shown = at_most > FIND_FOR_ONE && !config.per_call && !config.single_records;
        let pass = is_shown.then(|| Pass::begin(&*config.progress, "names of functions", missing));
        while self
            .sink
            .stacks
            .as_mut()
            .is_some_and(|stacks| stacks.is_waiting(FIND_PAUSE))
        {
            if Instant::now() > end {
                tracing::debug!("symbols are late: giving up after {at_most:?}");
                break;
            }
            // Held processes must not wait for symbols.
            self.follow()?;
            self.read()?;
            let before = std::mem::replace(&mut missing, self.missing_frames());
            if let Some(pass) = &pass {
                pass.advance(before.saturating_sub(missing));
                config.progress.tick();
            }
        }
        self.sink.find_frames(&mut self.recorded_frames);
        Ok(())
    }
}

fn faster(a: Option<PcieLink>, b: Option<PcieLink>) -> Option<PcieLink> {
    match (a, b) {
        (Some(a), Some(b)) if a.bytes_per_second() >= b.bytes_per_second() => Some(a),
        (a, b) => b.or(a),
    }
}

/// Host name, from `/proc/sys/kernel/hostname`.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
