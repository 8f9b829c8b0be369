//! Builds the report of a file.

use std::time::Duration;

use anyhow::Result;

use super::Filter;
use super::about::{About, AtPeak};
use super::launches;
use super::played::{LiveSums, Played};
use super::processes::{self, Spans};
use super::range::TimeRange;
use super::work;
use crate::{Options, Report, ReportSources, View};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::NoSymbols;
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
        let played = self.played(question)?;
        let start = self.session.wall(0).map(|start| WallClock::at(start, 0));
        if question == Analysis::Summary {
            about.session = Some(self.session.clone());
            let at_peak = played.as_ref().map(|played| self.at_peak(played));
            about.watermark = at_peak.transpose()?.map(Box::new);
        }
        let now_ns = self.now_ns(question, played.as_ref());
        let options = self.options_at(question, &state, now_ns);
        let sources = ReportSources {
            lost_by_user: &self.session.lost_by_user,
            ..ReportSources::of_file(start.as_ref(), &NoSymbols)
        };
        let lost = Lost::from_names(&self.session.lost);
        let mut report = crate::build(&state, lost, &options, sources);
        report.time = start.map(|clock| clock.wall(now_ns));
        let is_peak = question == Analysis::Watermark;
        let mut spans = Spans::default();
        if let Some(played) = &played {
            about.set_memory(question, played);
            let then = match is_peak {
                true => Some(played.read_peak(self.database, self.session)?),
                false => None,
            };
            report.memleak = Some(then.as_ref().unwrap_or(played).memory(&options));
            if matches!(
                question,
                Analysis::Summary | Analysis::Explain | Analysis::Page
            ) {
                (report.incidents, report.refused) = played.incidents(&options);
            }
            spans.memory(&played.spans);
        }
        if is_peak && about.time_ns.is_none() {
            report.time = None;
        }
        if question.is_about_everything() {
            spans.activities(&state.activity);
            about.run_ns = spans.run_ns();
            let ledger = played.as_ref().map(Played::ledger);
            about.processes = Some(processes::rows(&report, ledger, &spans, self.session));
        }
        // A list of processes shows no more of memory.
        report.memleak = report.memleak.filter(|_| question != Analysis::Processes);
        report.about = Some(about);
        Ok(report)
    }

    /// The memory of the file, as far as `question` is about it.
    fn played(&self, question: Analysis) -> Result<Option<Played>> {
        let wants_memory = question.is_about_memory()
            || question.is_about_everything() && self.database.has_table(MEMORY);
        let read = || Played::read(self.database, self.session, self.filter, &mut |_| Ok(()));
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

    /// The time that is reported, nanoseconds of the session.
    fn now_ns(&self, question: Analysis, played: Option<&Played>) -> u64 {
        let end_ns = || {
            let first_ns = played.and_then(Played::first_ns).unwrap_or(0);
            let last_ns = played.and_then(Played::last_ns);
            let to = self.filter.to_ns.map(|to| first_ns.saturating_add(to));
            let end_ns = self.session.stop_ns.max(last_ns).unwrap_or(0);
            to.map_or(end_ns, |to| to.min(end_ns))
        };
        let peak_ns = played.and_then(Played::peak_ns);
        let now_ns = match question {
            Analysis::Watermark => peak_ns.unwrap_or_else(end_ns),
            _ => end_ns(),
        };
        u64::try_from(now_ns).unwrap_or(0)
    }

    fn at_peak(&self, played: &Played) -> Result<AtPeak> {
        let now_ns = self.now_ns(Analysis::Watermark, Some(played));
        let options = self.options(Modes::default(), now_ns);
        let LiveSums { gpu, host } = played.at_peak;
        let first_ns = played.first_ns().unwrap_or(0);
        let peak_ns = played.peak_ns();
        let then = played.read_peak(self.database, self.session)?;
        Ok(AtPeak {
            time_ns: peak_ns.map(|peak| peak.saturating_sub(first_ns)),
            time: peak_ns.and_then(|peak| played.wall(peak)),
            totals: gpu,
            host,
            memleak: then.memory(&options),
        })
    }
}
