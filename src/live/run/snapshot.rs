//! Snapshots: reports of the state as it is.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::costs::Costs;
use super::reading::{Reading, look_up, symbols};
use crate::host::nvml::Nvml;
use crate::live::Target;
use gpuprobe_model::clock;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::stack::Symbolize;
use gpuprobe_model::{GpuUsage, Untraced, UserLoss, by_user};
use gpuprobe_recording::frames::FrameWitness;
use gpuprobe_report::metrics::ScrapeScope;
use gpuprobe_report::{self as report, History, Options, ProcessDetail, Report, ReportSources};

/// Makes reports, and keeps what the next one needs of those before.
pub(in crate::live) struct Snapshots {
    history: History,
    /// The fastest link (PCI Express) between host and GPUs seen so far.
    link: Option<PcieLink>,
    /// Approximate size of a CUDA context by GPU, in bytes.
    contexts: HashMap<u32, u64>,
    /// NVML's usage in the last report.
    pub(super) usage: Option<GpuUsage>,
    costs: Costs,
    /// Processes without a traced event so far; `None` for those that the filter rejects.
    untraced: HashMap<u32, Option<Untraced>>,
    pub(super) started: Instant,
    reported: Instant,
    /// The process that is looked at on the screens.
    pub(in crate::live) detail: Option<ProcessDetail>,
}

impl Snapshots {
    pub(super) fn new() -> Self {
        Self {
            history: History::default(),
            link: None,
            contexts: HashMap::new(),
            usage: None,
            costs: Costs::default(),
            untraced: HashMap::new(),
            started: Instant::now(),
            reported: Instant::now(),
            detail: None,
        }
    }

    /// The options of the session's reports.
    pub(in crate::live) fn options(&mut self, reading: &Reading<'_>, is_final: bool) -> Options {
        let config = reading.config;
        let modes = config.modes;
        if modes.bandwidth_util || modes.activity {
            let links = self.link.into_iter().chain(PcieLink::current());
            self.link = links.max_by(|a, b| a.bytes_per_second().total_cmp(&b.bytes_per_second()));
        }
        Options {
            modes,
            top: config.top,
            view: config.view,
            stacks: config.stacks.is_on(),
            host_wide: config.target == Target::Everything,
            // Not of every process on the screens, which show one at a time.
            allocations: config.screens.is_none(),
            explains: config.explains,
            now_ns: clock::monotonic_ns(),
            is_final,
            since_last: self.reported.elapsed(),
            since_start: self.started.elapsed(),
            link: self.link,
            detail: self.detail,
            only_detail: config.screens.is_some() && config.output.is_none(),
        }
    }

    /// The report with `options` and within `scope` of the state as it is once the functions that it shows are named,
    /// or `wait` is over. Frames in it are recorded.
    pub(in crate::live) fn snapshot(
        &mut self,
        reading: &mut Reading<'_>,
        options: &Options,
        wait: Duration,
        scope: Option<&ScrapeScope>,
    ) -> Result<Report> {
        reading.find_names(
            |state, frames| report::needed_locations(state, options, frames, scope),
            wait,
        )?;
        let begun = Instant::now();
        reading.count_losses();
        self.usage = self.usage(reading);
        let lost_by_user = lost_by_user(reading);
        let costs = self.costs.read(reading, options.is_final);
        let (sink, frames) = (&mut reading.sink, &mut reading.recorded_frames);
        let known = symbols(sink);
        let witness = FrameWitness::new(known, frames);
        let is_recording = sink.input_recorder.is_recording();
        let symbols: &dyn Symbolize = if is_recording { &witness } else { known };
        let sources = ReportSources {
            usage: self.usage.as_ref(),
            lost_by_user: &lost_by_user,
            costs,
            history: Some(&self.history),
            scope,
            ..ReportSources::of_file(Some(&reading.clock), symbols)
        };
        let mut report = report::build(&sink.state, reading.lost, options, sources);
        report.recording_stopped = sink.input_recorder.stopped().map(str::to_owned);
        let notes = witness.into_notes();
        for note in notes {
            sink.input_recorder.note(note);
        }
        tracing::debug!(us = begun.elapsed().as_micros(), "report");
        Ok(report)
    }

    /// Notes that `report` has been shown: the next one goes on from it.
    pub(super) fn mark(&mut self, reading: &mut Reading<'_>, report: &Report, options: &Options) {
        let ledger = &reading.sink.state.ledger;
        self.history.note(ledger, report, options.now_ns);
        self.mark_scraped(reading);
    }

    /// The same of a report for a scrape, which lists some processes only.
    pub(super) fn mark_scraped(&mut self, reading: &mut Reading<'_>) {
        self.reported = Instant::now();
        reading.sink.state.mark_reported();
    }

    /// NVML's memory usage by GPU and process; `None` if memory is not traced.
    fn usage(&mut self, reading: &mut Reading<'_>) -> Option<GpuUsage> {
        if !reading.config.modes.memleak {
            return None;
        }
        let nvml = reading.sink.host_info.nvml.as_ref();
        let mut usage = nvml.map(Nvml::usage).unwrap_or_default();
        report::estimate_contexts(&mut usage, &reading.sink.state, &mut self.contexts);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        usage.host = host.ok().map(|name| name.trim().to_owned());
        usage.untraced = self.untraced(reading, &usage);
        usage.late_ms.clone_from(&reading.tracer.late_ms);
        Some(usage)
    }

    /// Target processes that use a GPU or have CUDA loaded, and of which no event was traced.
    fn untraced(&mut self, reading: &mut Reading<'_>, usage: &GpuUsage) -> HashMap<u32, Untraced> {
        let mut pids: HashSet<u32> = reading.tracer.cuda_users().collect();
        if reading.config.target == Target::Everything {
            pids.extend(usage.processes.keys());
        }
        // NVML may load libcuda into gpuprobe itself.
        pids.remove(&std::process::id());
        let (sink, filter) = (&reading.sink, &reading.config.filter);
        pids.retain(|pid| sink.state.ledger.process_of(*pid).is_none());
        self.untraced.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            let look_up = || look_up(&sink.host_info, filter, pid);
            self.untraced.entry(pid).or_insert_with(look_up);
        }
        let all = self.untraced.iter();
        all.filter_map(|(pid, process)| Some((*pid, process.clone()?)))
            .collect()
    }
}

/// Losses by process, as far as known.
fn lost_by_user(reading: &Reading<'_>) -> Vec<UserLoss> {
    if !reading.lost.any() {
        return Vec::new();
    }
    let left_out = reading.sink.state.ledger.left_out_by_process();
    let in_kernel = reading.tracer.probe.lost_by_process();
    by_user(in_kernel.into_iter().chain(left_out))
}
