//! The report of a file.

use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::Selection;
use super::accounts::{Accounts, Live};
use super::processes::{self, ProcessRow, Spans};
use super::tensors::Tensors;
use super::totals::{Findings, Totals};
use super::work::{self, Gpu};
use crate::memleak::{AllocationReport, Memleak};
use crate::{Options, Report, Sources, View, clock_micros, memleak};
use gpuprobe_cuda::Modes;
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::Lost;
use gpuprobe_model::clock::Clock;
use gpuprobe_model::stack::{NoSymbols, Symbols};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session, gpu_rows};

/// What a report of a file has beyond one of a live run.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// What was asked: `watermark`, `leakage`, `kernels`, `copies`, `calls`, `waits`, `nvtx`,
    /// `processes` or `summary`.
    pub analysis: &'static str,
    /// Where what was looked at begins, seconds from the first memory event; none if there is no such
    /// event.
    pub from: Option<f64>,
    /// Where it ends.
    pub to: Option<f64>,
    /// When it was as is reported, nanoseconds from the first memory event; none for what was never
    /// freed.
    pub time_ns: Option<i64>,
    /// How much GPU memory is live, by what is known of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
    /// The same of memory of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Totals>,
    /// What was odd about the memory events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Findings>,
    /// How busy GPUs were, whoever used them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    /// From the first record of anything to the end of the last, nanoseconds; in a summary, and where
    /// processes are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// What each process did, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<ProcessRow>>,
    /// The highest point, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<Box<AtPeak>>,
    /// What the file says about itself, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// The first memory event, on the clock of events.
    #[serde(skip)]
    pub first_ns: i64,
    /// The last memory event, nanoseconds from the first.
    #[serde(skip)]
    pub last_ns: Option<i64>,
    /// When it was, for people.
    #[serde(skip)]
    pub time: Option<DateTime<FixedOffset>>,
}

/// What was live when most was.
#[derive(Clone, Debug, Serialize)]
pub struct AtPeak {
    /// When, nanoseconds from the first memory event.
    pub time_ns: Option<i64>,
    /// The same as time of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// GPU memory by what is known of the calls.
    pub totals: Totals,
    /// The same of memory of the host.
    pub host: Totals,
    /// As in a live report of that moment.
    #[serde(flatten)]
    pub memleak: Memleak,
}

/// A question about a file to which the answer is a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What was live when most was.
    Watermark,
    /// What was never freed.
    Leakage,
    /// What that means.
    Explain,
    /// What was launched.
    Kernels,
    /// What was copied.
    Copies,
    /// Which functions of the driver and the runtime were called.
    Calls,
    /// What waited for the GPU.
    Waits,
    /// What the program marked through NVTX.
    Nvtx,
    /// What each process did.
    Processes,
    /// All of it.
    Summary,
}

impl Question {
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

    /// Whether it is about memory and nothing else.
    pub(super) fn is_about_memory(self) -> bool {
        matches!(self, Self::Watermark | Self::Leakage | Self::Explain)
    }

    /// Whether it is about everything that a process did.
    fn is_about_everything(self) -> bool {
        matches!(self, Self::Summary | Self::Processes)
    }
}

/// A file, and what of it is to be shown.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    pub(super) database: &'a Database,
    pub(super) session: &'a Session,
    pub(super) selection: &'a Selection,
    pub(super) view: View,
    /// Rows of each list at most.
    pub(super) top: Option<usize>,
    /// Single allocations are listed.
    pub(super) allocations: bool,
}

impl File<'_> {
    /// Answers `question`.
    ///
    /// # Errors
    /// The file cannot be read, or has no memory events although these are asked for.
    pub(super) fn report(&self, question: Question) -> Result<Report> {
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
        let clock = self.session.wall(0).map(|start| Clock::at(start, 0));
        if question == Question::Summary {
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
            explains: question == Question::Explain,
            ..self.options(self.modes(question, &state), last_ns)
        };
        let mut symbols: &dyn Symbols = &NoSymbols;
        if let Some(accounts) = &accounts {
            about.tell(question, accounts, clock.as_ref());
            symbols = &accounts.callers;
        }
        let is_peak = question == Question::Watermark;
        let ledger = accounts.as_ref().map(|accounts| &accounts.ledger);
        let then = ledger.filter(|_| is_peak).map(Ledger::at_peak_of_rows);
        let (lost, clock) = (lost(self.session), clock.as_ref());
        let sources = Sources {
            lost_by_user: &self.session.lost_by_user,
            ..Sources::of_file(clock, symbols)
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
        // That is all that was asked for.
        report.memleak = report.memleak.filter(|_| question != Question::Processes);
        let until_ns = accounts.as_ref().and_then(|accounts| match is_peak {
            true => accounts.peak_ns(),
            false => self.end_ns(accounts),
        });
        self.add_played(&mut report, question, until_ns, &options)?;
        report.about = Some(about);
        Ok(report)
    }

    /// What there is to show, besides memory.
    fn modes(&self, question: Question, state: &State) -> Modes {
        let asks_for = |one| question.is_about_everything() || question == one;
        Modes {
            memleak: false,
            cudatrace: asks_for(Question::Kernels)
                && self.database.has_table("GPUPROBE_LAUNCH_COUNTS"),
            bandwidth_util: asks_for(Question::Copies)
                && self.database.has_table("GPUPROBE_COPIES"),
            activity: state.activity.processes().next().is_some(),
        }
    }

    /// `end_ns` is the last that is known of.
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
        }
    }

    /// When it was as is reported, on the clock of events.
    fn now_ns(&self, question: Question, accounts: Option<&Accounts<'_>>) -> u64 {
        let end_ns = || {
            let first_ns = accounts.and_then(Accounts::first_ns).unwrap_or(0);
            let last_ns = accounts.and_then(Accounts::last_ns);
            let to = self.selection.to_ns.map(|to| first_ns.saturating_add(to));
            let end_ns = self.session.stop_ns.max(last_ns).unwrap_or(0);
            to.map_or(end_ns, |to| to.min(end_ns))
        };
        let peak_ns = accounts.and_then(Accounts::peak_ns);
        let now_ns = match question {
            Question::Watermark => peak_ns.unwrap_or_else(end_ns),
            _ => end_ns(),
        };
        u64::try_from(now_ns).unwrap_or(0)
    }

    /// Where what was selected ends, nanoseconds of the session; none if it is the end.
    fn end_ns(&self, accounts: &Accounts<'_>) -> Option<i64> {
        let first_ns = accounts.first_ns()?;
        Some(first_ns.saturating_add(self.selection.to_ns?))
    }

    /// Adds what allocators of frameworks had handed out at `until_ns` of the session, or at its end, and, in
    /// a summary, what was refused until then: the log is played for that.
    fn add_played(
        &self,
        report: &mut Report,
        question: Question,
        until_ns: Option<i64>,
        options: &Options,
    ) -> Result<()> {
        let played = match (question, &report.memleak) {
            (Question::Summary | Question::Explain, _) => {
                Tensors::read_with_incidents(self.database, until_ns)?
            }
            (_, Some(_)) => Tensors::read(self.database, until_ns)?,
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
        if matches!(question, Question::Summary | Question::Explain) {
            (report.incidents, report.refused) = played.incidents(options);
            let is_meant = |pid: u32| self.selection.pid.is_none_or(|meant| meant == pid);
            report.incidents.retain(|incident| is_meant(incident.pid));
        }
        Ok(())
    }

    fn at_peak(&self, accounts: &Accounts<'_>, clock: Option<&Clock>) -> AtPeak {
        let now_ns = self.now_ns(Question::Watermark, Some(accounts));
        let options = self.options(Modes::default(), now_ns);
        let ledger = accounts.ledger.at_peak_of_rows();
        let Live { gpu, host } = accounts.at_peak;
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
                Sources::of_file(clock, &accounts.callers),
            ),
        }
    }
}

impl About {
    fn new(question: Question) -> Self {
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

    /// Tells of the memory that `accounts` are about.
    fn tell(&mut self, question: Question, accounts: &Accounts<'_>, clock: Option<&Clock>) {
        let first_ns = accounts.first_ns();
        self.first_ns = first_ns.unwrap_or(0);
        let since_first = |ns: i64| ns.saturating_sub(self.first_ns);
        self.last_ns = accounts.last_ns().map(since_first);
        (self.from, self.to) = accounts.range();
        self.findings = Some(accounts.findings);
        let live = match question {
            Question::Watermark => {
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

/// What the recording lost, as far as it is known by name here.
fn lost(session: &Session) -> Lost {
    let lost = serde_json::to_value(&session.lost);
    lost.and_then(serde_json::from_value).unwrap_or_default()
}
