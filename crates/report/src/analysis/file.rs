//! Builds the report of a file.

use std::time::Duration;

use anyhow::Result;

use super::Filter;
use super::about::{About, AtPeak};
use super::launches;
use super::processes::{self, Spans};
use super::range::TimeRange;
use super::replayed::Replayed;
use super::row_ledger::{LiveSums, RowLedger};
use super::work;
use crate::{Options, Report, ReportSources, View, memleak};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::{NoSymbols, Symbolize};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session, gpu_rows};

/// An analysis with a report as its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Analysis {
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
    /// All of these together, explained, for the HTML page.
    Page,
}

impl Analysis {
    pub(super) const fn name(self) -> &'static str {
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
            Self::Page => "page",
        }
    }

    /// Whether it is about memory only.
    pub(super) fn is_about_memory(self) -> bool {
        matches!(self, Self::Watermark | Self::Leakage | Self::Explain)
    }

    /// Whether it covers all activity of a process.
    fn is_about_everything(self) -> bool {
        matches!(self, Self::Summary | Self::Processes | Self::Page)
    }
}

/// A file, and the options of its report.
#[derive(Clone, Copy)]
pub(super) struct AnalysedFile<'a> {
    pub(super) database: &'a Database,
    pub(super) session: &'a Session,
    pub(super) filter: &'a Filter,
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
    pub(super) fn report(&self, question: Analysis) -> Result<Report> {
        let mut state = State::default();
        let mut about = About::new(question, self.filter);
        let range = TimeRange::of(self.database, self.filter)?;
        if !question.is_about_memory() {
            let selected = (self.filter, range);
            about.gpus = work::read(self.database, self.session, selected, &mut state)?;
        }
        let mut spans = Spans::within(range);
        let row_ledger = self.row_ledger(question, &mut spans)?;
        let clock = self.session.wall(0).map(|start| WallClock::at(start, 0));
        let clock = clock.as_ref();
        if question == Analysis::Summary {
            about.session = Some(self.session.clone());
            let at_peak = |row_ledger| Box::new(self.at_peak(row_ledger, clock));
            about.watermark = row_ledger.as_ref().map(at_peak);
        }
        let now_ns = self.now_ns(question, row_ledger.as_ref());
        let options = self.options_at(question, &state, now_ns);
        let mut symbols: &dyn Symbolize = &NoSymbols;
        if let Some(row_ledger) = &row_ledger {
            about.set_memory(question, row_ledger, clock);
            symbols = &row_ledger.callers;
        }
        let is_peak = question == Analysis::Watermark;
        let ledger = row_ledger.as_ref().map(|row_ledger| &row_ledger.ledger);
        let then = ledger.filter(|_| is_peak).map(Ledger::at_peak_of_rows);
        let sources = ReportSources {
            lost_by_user: &self.session.lost_by_user,
            ..ReportSources::of_file(clock, symbols)
        };
        let lost = Lost::from_names(&self.session.lost);
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
        report.memleak = report.memleak.filter(|_| question != Analysis::Processes);
        let until_ns = row_ledger.as_ref().and_then(|row_ledger| match is_peak {
            true => row_ledger.peak_ns(),
            false => self.end_ns(row_ledger),
        });
        self.add_replayed(&mut report, question, until_ns, &options)?;
        report.about = Some(about);
        Ok(report)
    }

    /// The memory of the file, as far as `question` is about it.
    fn row_ledger(&self, question: Analysis, spans: &mut Spans) -> Result<Option<RowLedger<'_>>> {
        let wants_memory = match question {
            _ if question.is_about_memory() => true,
            _ => question.is_about_everything() && self.database.has_table(MEMORY),
        };
        let read = || RowLedger::read(self.database, self.session, self.filter, spans);
        wants_memory.then(read).transpose()
    }

    /// Options of a report of `state` at `now_ns`.
    fn options_at(&self, question: Analysis, state: &State, now_ns: u64) -> Options {
        let processes = state.activity.processes();
        let ran_ns = processes.map(|(_, process)| process.last_ns).max();
        let ran_ns = ran_ns.unwrap_or(0).saturating_sub(gpu_rows::ZERO_NS);
        Options {
            now_ns,
            explains: matches!(question, Analysis::Explain | Analysis::Page),
            ..self.options(self.modes(question, state), ran_ns.max(now_ns))
        }
    }

    /// The modes with something to show, besides memory.
    fn modes(&self, question: Analysis, state: &State) -> Modes {
        let asks_for = |one| question.is_about_everything() || question == one;
        Modes {
            memleak: false,
            cudatrace: asks_for(Analysis::Kernels) && self.database.has_table(launches::COUNTS),
            bandwidth_util: asks_for(Analysis::Copies)
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
    fn now_ns(&self, question: Analysis, row_ledger: Option<&RowLedger<'_>>) -> u64 {
        let end_ns = || {
            let first_ns = row_ledger.and_then(RowLedger::first_ns).unwrap_or(0);
            let last_ns = row_ledger.and_then(RowLedger::last_ns);
            let to = self.filter.to_ns.map(|to| first_ns.saturating_add(to));
            let end_ns = self.session.stop_ns.max(last_ns).unwrap_or(0);
            to.map_or(end_ns, |to| to.min(end_ns))
        };
        let peak_ns = row_ledger.and_then(RowLedger::peak_ns);
        let now_ns = match question {
            Analysis::Watermark => peak_ns.unwrap_or_else(end_ns),
            _ => end_ns(),
        };
        u64::try_from(now_ns).unwrap_or(0)
    }

    /// End of the selected time, nanoseconds of the session; `None` if it is the end of the file.
    fn end_ns(&self, row_ledger: &RowLedger<'_>) -> Option<i64> {
        let first_ns = row_ledger.first_ns()?;
        Some(first_ns.saturating_add(self.filter.to_ns?))
    }

    /// Adds what only the log of a recording has, at `until_ns` of the session or at its end: memory
    /// beyond that of its tables, tensors of frameworks and, in a summary, the out-of-memory
    /// incidents.
    fn add_replayed(
        &self,
        report: &mut Report,
        question: Analysis,
        until_ns: Option<i64>,
        options: &Options,
    ) -> Result<()> {
        let (database, filter) = (self.database, self.filter);
        let has_incidents = matches!(
            question,
            Analysis::Summary | Analysis::Explain | Analysis::Page
        );
        let mut whole = None;
        if report.memleak.is_some() && question != Analysis::Watermark {
            whole = Replayed::read_memory((database, self.session), filter, until_ns)?;
        }
        let is_whole = whole.is_some();
        let played = match whole {
            Some(whole) => Some(whole),
            None if has_incidents => Replayed::read_with_incidents(database, until_ns)?,
            None if report.memleak.is_some() => Replayed::read(database, until_ns)?,
            None => None,
        };
        let Some(played) = played else {
            return Ok(());
        };
        report.memleak = report.memleak.take().map(|tables| match is_whole {
            true => played.memory(options).with_lists_of(tables),
            false => played.add_tensors(tables, options),
        });
        if has_incidents {
            (report.incidents, report.refused) = played.incidents(options);
            let is_meant = |pid: u32| filter.pid.is_none_or(|meant| meant == pid);
            report.incidents.retain(|incident| is_meant(incident.pid));
        }
        Ok(())
    }

    fn at_peak(&self, row_ledger: &RowLedger<'_>, clock: Option<&WallClock>) -> AtPeak {
        let now_ns = self.now_ns(Analysis::Watermark, Some(row_ledger));
        let options = self.options(Modes::default(), now_ns);
        let ledger = row_ledger.ledger.at_peak_of_rows();
        let LiveSums { gpu, host } = row_ledger.at_peak;
        let first_ns = row_ledger.first_ns().unwrap_or(0);
        let peak_ns = row_ledger.peak_ns();
        AtPeak {
            time_ns: peak_ns.map(|peak| peak.saturating_sub(first_ns)),
            time: clock.filter(|_| peak_ns.is_some()).map(|c| c.wall(now_ns)),
            totals: gpu,
            host,
            memleak: memleak::build(
                &ledger,
                &options,
                ReportSources::of_file(clock, &row_ledger.callers),
            ),
        }
    }
}
