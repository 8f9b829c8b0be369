//! Builds the report of a file.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::Selection;
use super::accounts::{Accounts, LiveSums};
use super::processes::{self, ProcessRow, Spans};
use super::tensors::TensorState;
use super::totals::{AnalysisTotals, Anomalies};
use super::work::{self, GpuTime};
use crate::memleak::{AllocationReport, Memleak};
use crate::{Options, Report, ReportSources, View, clock_micros, memleak};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::{NoSymbols, Symbolize};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session, gpu_rows};

/// Fields that only reports of a file have.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The analysis: `watermark`, `leakage`, `kernels`, `copies`, `calls`, `waits`, `nvtx`,
    /// `processes` or `summary`.
    pub analysis: &'static str,
    /// Start of the selected time, seconds from the first memory event; `None` if there is no such
    /// event.
    pub from: Option<f64>,
    /// End of the selected time, seconds from the first memory event.
    pub to: Option<f64>,
    /// The time that is reported, nanoseconds from the first memory event; `None` for memory that
    /// was never freed.
    pub time_ns: Option<i64>,
    /// Live GPU memory, by how much is known of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<AnalysisTotals>,
    /// Live host memory, by how much is known of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<AnalysisTotals>,
    /// Inconsistencies found in the memory events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Anomalies>,
    /// Utilisation of the GPUs, by all processes together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuTime>,
    /// Time from the first record of any kind to the end of the last, nanoseconds; in a summary,
    /// and in a list of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// Figures by process; in a summary, and in a list of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<ProcessRow>>,
    /// Memory at the peak, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<Box<AtPeak>>,
    /// Metadata of the file, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// Time of the first memory event, on the clock of events.
    #[serde(skip)]
    pub first_ns: i64,
    /// Time of the last memory event, nanoseconds from the first.
    #[serde(skip)]
    pub last_ns: Option<i64>,
    /// The time that is reported, as time of day.
    #[serde(skip)]
    pub time: Option<DateTime<FixedOffset>>,
}

/// Memory that was live at the peak.
#[derive(Clone, Debug, Serialize)]
pub struct AtPeak {
    /// Time of the peak, nanoseconds from the first memory event.
    pub time_ns: Option<i64>,
    /// Time of the peak as time of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// GPU memory, by how much is known of the calls.
    pub totals: AnalysisTotals,
    /// Host memory, by how much is known of the calls.
    pub host: AnalysisTotals,
    /// Live memory, as in a live report at that time.
    #[serde(flatten)]
    pub memleak: Memleak,
}

/// An analysis with a report as its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileQuestion {
    /// Memory that was live at the peak.
    Watermark,
    /// Memory that was never freed.
    Leakage,
    /// Explanation of the memory that was never freed.
    Explain,
    /// Launches by kernel name.
    Kernels,
    /// Copies by direction and mode.
    Copies,
    /// Calls by driver or runtime function.
    Calls,
    /// Waits for the GPU.
    Waits,
    /// NVTX marks and ranges.
    Nvtx,
    /// Figures of each process.
    Processes,
    /// All of these together.
    Summary,
}

impl FileQuestion {
    const fn name(self) -> &'static str {
        match self {
            Self::Watermark => "watermark",
            Self::Leakage => "leakage",
            Self::Explain => "explain",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::Calls => "calls",
            Self::Waits => "waits",
            Self::Nvtx => "nvtx",
            Self::Processes => "processes",
            Self::Summary => "summary",
        }
    }

    /// Whether it is about memory only.
    pub(super) fn is_about_memory(self) -> bool {
        matches!(self, Self::Watermark | Self::Leakage | Self::Explain)
    }

    /// Whether it covers all activity of a process.
    fn is_about_everything(self) -> bool {
        matches!(self, Self::Summary | Self::Processes)
    }
}

/// A file, and the options of its report.
#[derive(Clone, Copy)]
pub(super) struct AnalysedFile<'a> {
    pub(super) database: &'a Database,
    pub(super) session: &'a Session,
    pub(super) selection: &'a Selection,
    pub(super) view: View,
    /// Limit on the rows of each list.
    pub(super) top: Option<usize>,
    /// Whether single allocations are listed.
    pub(super) allocations: bool,
}

impl AnalysedFile<'_> {
    /// Builds the report that answers `question`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if memory events are needed and it has none.
    pub(super) fn report(&self, question: FileQuestion) -> Result<Report> {
        let mut state = State::default();
        let mut about = About::new(question);
        if !question.is_about_memory() {
            about.gpus = work::read(self.database, self.session, self.selection, &mut state)?;
        }
        let wants_memory = match question {
            _ if question.is_about_memory() => true,
            _ => question.is_about_everything() && self.database.has_table(MEMORY),
        };
        let mut spans = Spans::default();
        let accounts = if wants_memory {
            Some(Accounts::read(
                self.database,
                self.session,
                self.selection,
                &mut spans,
            )?)
        } else {
            None
        };
        let clock = self.session.wall(0).map(|start| WallClock::at(start, 0));
        if question == FileQuestion::Summary {
            about.session = Some(self.session.clone());
            about.watermark = accounts
                .as_ref()
                .map(|accounts| Box::new(self.at_peak(accounts, clock.as_ref())));
        }
        let now_ns = self.now_ns(question, accounts.as_ref());
        let ran_ns = state
            .activity
            .processes()
            .map(|(_, process)| process.last_ns);
        let ran_ns = ran_ns.max().unwrap_or(0).saturating_sub(gpu_rows::ZERO_NS);
        let last_ns = ran_ns.max(now_ns);
        let options = Options {
            now_ns,
            explains: question == FileQuestion::Explain,
            ..self.options(self.modes(question, &state), last_ns)
        };
        let mut symbols: &dyn Symbolize = &NoSymbols;
        if let Some(accounts) = &accounts {
            about.set_memory(question, accounts, clock.as_ref());
            symbols = &accounts.callers;
        }
        let is_peak = question == FileQuestion::Watermark;
        let ledger = accounts.as_ref().map(|accounts| &accounts.ledger);
        let then = ledger.filter(|_| is_peak).map(Ledger::at_peak_of_rows);
        let (lost, clock) = (lost(self.session), clock.as_ref());
        let sources = ReportSources {
            lost_by_user: &self.session.lost_by_user,
            ..ReportSources::of_file(clock, symbols)
        };
        let mut report = crate::build(&state, lost, &options, sources);
        let ledger = then.as_ref().or(ledger);
        report.memleak = ledger.map(|ledger| memleak::build(ledger, &options, sources));
        report.time = clock.map(|clock| clock.wall(now_ns));
        if is_peak && about.time_ns.is_none() {
            report.time = None;
        }
        if question.is_about_everything() {
            spans.activities(&state.activity);
            about.run_ns = spans.run_ns();
            about.processes = Some(processes::rows(&report, ledger, &spans, self.session));
        }
        // A list of processes shows no more of memory.
        report.memleak = report
            .memleak
            .filter(|_| question != FileQuestion::Processes);
        let until_ns = accounts.as_ref().and_then(|accounts| match is_peak {
            true => accounts.peak_ns(),
            false => self.end_ns(accounts),
        });
        self.add_replayed(&mut report, question, until_ns, &options)?;
        report.about = Some(about);
        Ok(report)
    }

    /// The modes with something to show, besides memory.
    fn modes(&self, question: FileQuestion, state: &State) -> Modes {
        let asks_for = |one| question.is_about_everything() || question == one;
        Modes {
            memleak: false,
            cudatrace: asks_for(FileQuestion::Kernels)
                && self.database.has_table("GPUPROBE_LAUNCH_COUNTS"),
            bandwidth_util: asks_for(FileQuestion::Copies)
                && self.database.has_table("GPUPROBE_COPIES"),
            activity: state.activity.processes().next().is_some(),
        }
    }

    /// Options of the report; `end_ns` is the time of the last event.
    fn options(&self, modes: Modes, end_ns: u64) -> Options {
        let stop_ns = self.session.stop_ns.and_then(|ns| u64::try_from(ns).ok());
        let whole = Duration::from_nanos(stop_ns.unwrap_or(0).max(end_ns));
        Options {
            modes,
            top: self.top,
            view: self.view,
            stacks: true,
            host_wide: false,
            allocations: self.allocations,
            explains: false,
            now_ns: end_ns,
            is_final: true,
            since_last: whole,
            since_start: whole,
            link: None,
            detail: None,
            only_detail: false,
        }
    }

    /// The time that is reported, on the clock of events.
    fn now_ns(&self, question: FileQuestion, accounts: Option<&Accounts<'_>>) -> u64 {
        let end_ns = || {
            let first_ns = accounts.and_then(Accounts::first_ns).unwrap_or(0);
            let last_ns = accounts.and_then(Accounts::last_ns);
            let to = self.selection.to_ns.map(|to| first_ns.saturating_add(to));
            let end_ns = self.session.stop_ns.max(last_ns).unwrap_or(0);
            to.map_or(end_ns, |to| to.min(end_ns))
        };
        let peak_ns = accounts.and_then(Accounts::peak_ns);
        let now_ns = match question {
            FileQuestion::Watermark => peak_ns.unwrap_or_else(end_ns),
            _ => end_ns(),
        };
        u64::try_from(now_ns).unwrap_or(0)
    }

    /// End of the selection, nanoseconds of the session; `None` if it is the end of the file.
    fn end_ns(&self, accounts: &Accounts<'_>) -> Option<i64> {
        let first_ns = accounts.first_ns()?;
        Some(first_ns.saturating_add(self.selection.to_ns?))
    }

    /// Adds the tensors of frameworks at `until_ns` of the session, or at its end, and, in a
    /// summary, the out-of-memory incidents until then. Both come from a replay of the log.
    fn add_replayed(
        &self,
        report: &mut Report,
        question: FileQuestion,
        until_ns: Option<i64>,
        options: &Options,
    ) -> Result<()> {
        let played = match (question, &report.memleak) {
            (FileQuestion::Summary | FileQuestion::Explain, _) => {
                TensorState::read_with_incidents(self.database, until_ns)?
            }
            (_, Some(_)) => TensorState::read(self.database, until_ns)?,
            (_, None) => None,
        };
        let Some(played) = played else {
            return Ok(());
        };
        let processes = report
            .memleak
            .iter_mut()
            .flat_map(|memleak| &mut memleak.processes);
        for process in processes {
            process.learn_tensors(played.reports(process.pid, options));
        }
        if matches!(question, FileQuestion::Summary | FileQuestion::Explain) {
            (report.incidents, report.refused) = played.incidents(options);
            let is_meant = |pid: u32| self.selection.pid.is_none_or(|meant| meant == pid);
            report.incidents.retain(|incident| is_meant(incident.pid));
        }
        Ok(())
    }

    fn at_peak(&self, accounts: &Accounts<'_>, clock: Option<&WallClock>) -> AtPeak {
        let now_ns = self.now_ns(FileQuestion::Watermark, Some(accounts));
        let options = self.options(Modes::default(), now_ns);
        let ledger = accounts.ledger.at_peak_of_rows();
        let LiveSums { gpu, host } = accounts.at_peak;
        let first_ns = accounts.first_ns().unwrap_or(0);
        let peak_ns = accounts.peak_ns();
        AtPeak {
            time_ns: peak_ns.map(|peak| peak.saturating_sub(first_ns)),
            time: clock.filter(|_| peak_ns.is_some()).map(|c| c.wall(now_ns)),
            totals: gpu,
            host,
            memleak: memleak::build(
                &ledger,
                &options,
                ReportSources::of_file(clock, &accounts.callers),
            ),
        }
    }
}

impl About {
    fn new(question: FileQuestion) -> Self {
        Self {
            analysis: question.name(),
            from: None,
            to: None,
            time_ns: None,
            totals: None,
            host: None,
            findings: None,
            gpus: Vec::new(),
            run_ns: None,
            processes: None,
            watermark: None,
            session: None,
            first_ns: 0,
            last_ns: None,
            time: None,
        }
    }

    /// When `allocation` was made, nanoseconds from the first memory event.
    pub(super) fn since_first(&self, allocation: &AllocationReport) -> i64 {
        let time_ns = i64::try_from(allocation.time_ns).unwrap_or(i64::MAX);
        time_ns.saturating_sub(self.first_ns)
    }

    /// Adds times and totals of the memory in `accounts`.
    fn set_memory(
        &mut self,
        question: FileQuestion,
        accounts: &Accounts<'_>,
        clock: Option<&WallClock>,
    ) {
        let first_ns = accounts.first_ns();
        self.first_ns = first_ns.unwrap_or(0);
        let since_first = |ns: i64| ns.saturating_sub(self.first_ns);
        self.last_ns = accounts.last_ns().map(since_first);
        (self.from, self.to) = accounts.range();
        self.findings = Some(accounts.findings);
        let live = match question {
            FileQuestion::Watermark => {
                let peak_ns = accounts.peak_ns();
                self.time_ns = peak_ns.map(since_first);
                self.time = peak_ns
                    .and_then(|peak| u64::try_from(peak).ok())
                    .and_then(|peak| Some(clock?.wall(peak)));
                accounts.at_peak
            }
            _ => accounts.never_freed(),
        };
        self.totals = Some(live.gpu);
        self.host = Some(live.host);
    }
}

/// Losses of the recording, as far as their names are known.
fn lost(session: &Session) -> Lost {
    let lost = serde_json::to_value(&session.lost);
    lost.and_then(serde_json::from_value).unwrap_or_default()
}
