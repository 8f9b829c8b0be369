//! Reports: plain values, built from the accounts of a run or of a file.
//!
//! For: whoever shows them; formats are in `views`.
//! May use: all lower crates: `engine`, `recording`, `stacks`, `os`, `model`, `cuda`.
//! Gives: [`build`]; [`analysis`] of files; [`chart`], [`page`], [`metrics`], [`profile`], [`snapshot`], [`trace_rows`]
//! for formats of their own; [`playback`].

pub mod about;
pub mod activity;
pub mod bandwidth;
pub mod compare;
pub mod copy_sites;
pub mod cudatrace;
pub mod explain;
pub mod fold;
pub mod gate;
mod history;
pub mod incidents;
pub mod label;
pub mod lists;
pub mod memleak;
pub mod metrics;
pub mod names;
mod options;
pub mod owners;
pub mod profile;
mod public;
pub mod records;
pub mod site_key;
pub mod verdict;
pub mod words;
pub mod work;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::{self, Write};

use chrono::{DateTime, FixedOffset, Local};
use indexmap::IndexSet;
use serde::{Serialize, Serializer};

use gpuprobe_cuda::Modes;
use gpuprobe_engine::{CallSite, Ledger, Process, State};
use gpuprobe_model::clock;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::{Frame, Location, Symbolize};
use gpuprobe_model::{GpuUsage, Lost, TracingCost, UserLoss};
use gpuprobe_os::terminal::Layout;

use about::About;
use activity::ActivitySummary;
use bandwidth::{BandwidthUtil, CopyReport};
use cudatrace::Cudatrace;
use explain::Explain;
use gate::GateReport;
use incidents::{IncidentReport, RefusedRequests};
use memleak::Memleak;
use options::ScrapeScope;
use records::PerRecordLine;

pub use history::History;
pub use options::{GroupBy, Options, ProcessDetail, SiteNumber, SortBy, View};
pub use verdict::WorstVerdicts;

/// Version of all JSON output: 3. `docs/report.schema.json` describes it.
pub const SCHEMA: u32 = 3;

/// One report, of a live run or of a file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Version of the JSON form: [`SCHEMA`].
    pub schema: u32,
    /// When the report was made; for a file, the time that is reported, if the file has times of
    /// day.
    #[serde(serialize_with = "seconds")]
    pub time: Option<DateTime<FixedOffset>>,
    /// For a file: the analysis, and fields that only files have.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub about: Option<About>,
    /// Whether it is the last report of the run.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Events and data that were lost.
    pub lost: Lost,
    /// Losses by user and process, as far as known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost_by_user: Vec<UserLoss>,
    /// What gpuprobe costs each process, of a live run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tracing_costs: Vec<TracingCost>,
    /// Why recording stopped before the run, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording_stopped: Option<String>,
    /// Live memory, in memleak mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memleak: Option<Memleak>,
    /// Explanation of the memory held, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
    /// What `--fail-on` has found, in the last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateReport>,
    /// Out-of-memory incidents that are new or updated; in the last report, all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<IncidentReport>,
    /// Number of failed requests so far, if there were any.
    #[serde(rename = "out_of_memory", skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedRequests>,
    /// Launches by kernel, in cudatrace mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cudatrace: Option<Cudatrace>,
    /// Copies, in bandwidth mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_util: Option<BandwidthUtil>,
    /// GPU activity, in activity mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<ActivitySummary>,
}

/// Inputs of a report besides the state.
#[derive(Clone, Copy)]
pub struct ReportSources<'a> {
    /// Converts event times to times of day, if there is a clock.
    pub clock: Option<&'a WallClock>,
    /// Memory use of GPUs and processes from NVML, if it was queried.
    pub usage: Option<&'a GpuUsage>,
    /// Losses by user and process, as far as known.
    pub lost_by_user: &'a [UserLoss],
    /// What gpuprobe costs each process.
    pub costs: &'a [TracingCost],
    /// Figures of earlier reports.
    pub history: Option<&'a History>,
    /// Resolves the frames of the locations that [`needed_locations`] returns, and no others; and
    /// the binaries of all live memory.
    pub symbols: &'a dyn Symbolize,
    /// How much is known of the calls of a site, in a file.
    pub trace: Option<&'a dyn Fn(&CallSite) -> &'static str>,
    /// For a scrape: outside of it are sums only.
    pub scope: Option<&'a ScrapeScope>,
}

impl<'a> ReportSources<'a> {
    /// The sources of a file, which has symbols and perhaps a clock.
    pub fn of_file(clock: Option<&'a WallClock>, symbols: &'a dyn Symbolize) -> Self {
        Self {
            clock,
            usage: None,
            lost_by_user: &[],
            costs: &[],
            history: None,
            symbols,
            trace: None,
            scope: None,
        }
    }
}

/// Estimates the memory of a CUDA context on each GPU from processes traced from their start: their
/// use beyond the memory that the ledger knows. The minimum is kept.
pub fn estimate_contexts(usage: &mut GpuUsage, state: &State, learnt: &mut HashMap<u32, u64>) {
    // While a context is being created, for some tenths of a second, NVML reports a part of it. A
    // process that has been given memory has a complete one.
    let complete = |p: &&Process| p.from_birth && p.peak_bytes > 0;
    for process in state.ledger.live_processes().filter(complete) {
        // Only with one GPU is the location of the memory certain.
        let Some([(gpu, used)]) = usage.processes.get(&process.pid).map(Vec::as_slice) else {
            continue;
        };
        // NVML is queried a little later than the ledger.
        let Some(rest) = used.checked_sub(process.tracked_bytes()) else {
            continue;
        };
        let least = learnt.entry(*gpu).or_insert(rest);
        *least = rest.min(*least);
    }
    usage.contexts.clone_from(learnt);
}

/// Makes a report of the current `state`.
pub fn build(state: &State, lost: Lost, options: &Options, sources: ReportSources<'_>) -> Report {
    let top = sources.scope.map(|scope| scope.limits.sites);
    let options = &Options {
        top: top.or(options.top),
        ..*options
    };
    let modes = options.modes;
    let (incidents, refused) = incidents::build(&state.ledger, options, sources);
    let mut report = Report {
        schema: SCHEMA,
        time: Some(Local::now().fixed_offset()),
        is_final: options.is_final,
        lost,
        lost_by_user: sources.lost_by_user.to_vec(),
        tracing_costs: sources.costs.to_vec(),
        memleak: modes
            .memleak
            .then(|| memleak::build(&state.ledger, options, sources)),
        incidents,
        refused,
        cudatrace: modes
            .cudatrace
            .then(|| cudatrace::build(&state.launches, options, sources.scope)),
        bandwidth_util: modes
            .bandwidth_util
            .then(|| bandwidth::build(&state.transfers, &state.activity, options, sources)),
        activity: modes
            .activity
            .then(|| activity::build(&state.activity, options)),
        ..Report::default()
    };
    name_processes(&mut report, &state.ledger);
    if options.explains {
        report.explain = Explain::of(&report);
    }
    report
}

/// Adds identities, which only the ledger knows, to launches, copies and activity.
fn name_processes(report: &mut Report, ledger: &Ledger) {
    let ended: HashMap<u32, &Process> = ledger.ended(true).map(|p| (p.pid, p)).collect();
    let launches = report.cudatrace.iter_mut();
    let launches = launches.flat_map(|trace| &mut trace.processes);
    let active = report.activity.iter_mut();
    let active = active.flat_map(|activity| &mut activity.processes);
    let copies = report.bandwidth_util.iter_mut();
    let copies = copies.flat_map(|copies| &mut copies.directions);
    let all = launches.map(|one| &mut one.who);
    let all = all.chain(active.map(|one| &mut one.who));
    for who in all.chain(copies.map(|one| &mut one.who)) {
        let ended = || ended.get(&who.pid).copied();
        if let Some(process) = ledger.process_of(who.pid).or_else(ended) {
            who.user.clone_from(&process.identity.user);
            who.command.clone_from(&process.identity.command);
        }
    }
}

/// The locations that a report with `options` shows, each once: process, location, and whether it
/// is the first of its stack. As symbolisation may take long, it can be done before the report is
/// made. Python lines that `symbols` knows by now decide which call sites are one, and so which are
/// shown.
pub fn needed_locations(
    state: &State,
    options: &Options,
    symbols: &dyn Symbolize,
    scope: Option<&ScrapeScope>,
) -> Vec<(u32, Location, bool)> {
    let modes = Modes {
        memleak: options.modes.memleak,
        bandwidth_util: options.modes.bandwidth_util,
        ..Modes::default()
    };
    let options = Options {
        modes,
        explains: false,
        allocations: false,
        ..*options
    };
    requested(symbols, |symbols| {
        let sources = ReportSources {
            scope,
            ..ReportSources::of_file(None, symbols)
        };
        build(state, Lost::default(), &options, sources);
    })
}

/// Symbols that note which locations are looked up.
struct RequestedLocations<'a> {
    symbols: &'a dyn Symbolize,
    locations: RefCell<IndexSet<(u32, Location, bool)>>,
}

impl Symbolize for RequestedLocations<'_> {
    fn frames(&self, pid: u32, location: &Location, is_innermost: bool) -> Vec<Frame> {
        let mut locations = self.locations.borrow_mut();
        locations.insert((pid, *location, is_innermost));
        self.symbols.frames(pid, location, is_innermost)
    }

    fn module(&self, location: &Location) -> Option<String> {
        self.symbols.module(location)
    }
}

/// The locations that `read` looks up, each once.
pub(crate) fn requested(
    symbols: &dyn Symbolize,
    read: impl FnOnce(&dyn Symbolize),
) -> Vec<(u32, Location, bool)> {
    let locations = RefCell::default();
    let requested = RequestedLocations { symbols, locations };
    read(&requested);
    requested.locations.into_inner().into_iter().collect()
}

fn seconds<S: Serializer>(
    t: &Option<DateTime<FixedOffset>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let time = t.as_ref().map(clock::rfc3339_seconds);
    time.serialize(serializer)
}

/// Serialises the time of an event, which a file may not have.
pub fn clock_micros<S: Serializer>(
    t: &Option<DateTime<FixedOffset>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let time = t.as_ref().map(clock::rfc3339_micros);
    time.serialize(serializer)
}

/// The same as text; empty if unknown.
pub fn micros(time: Option<&DateTime<FixedOffset>>) -> String {
    time.map(clock::rfc3339_micros).unwrap_or_default()
}

/// Name of the function of `row`, as the user called it.
pub fn function_name(row: u16, symbols: &dyn Symbolize) -> Cow<'static, str> {
    match gpuprobe_cuda::function(row) {
        Some(function) => function.name().into(),
        None => symbols.function(row).unwrap_or_default().to_owned().into(),
    }
}

/// Serialises what people read.
fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn as_map<S: Serializer>(calls: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(calls.iter().copied())
}

/// Writes reports in one format.
pub trait ReportWriter {
    /// Writes one report to `out`.
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()>;

    /// Sets the width of lines and whether there are colours, in text; by default, lines have any
    /// length and no colours.
    fn lay_out(&mut self, _: Layout) {}

    /// Writes one copy to `out`.
    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()>;

    /// Writes one activity record to `out`.
    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()>;
}
