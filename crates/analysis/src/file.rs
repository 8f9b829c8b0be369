//! A file, opened once, and what can be asked of it.

use std::cell::OnceCell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::Filter;
use super::played::{Listener, MemoryChange, Played};
use super::processes::{self, Spans};
use super::range::TimeRange;
use super::work::{self, CalledCopy};
use crate::run::run_of;
use gpuprobe_cuda::{Belongs, Modes};
use gpuprobe_engine::State;
use gpuprobe_model::Lost;
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::NoSymbols;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::say;
use gpuprobe_recording::log::LogReader;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session, gpu_rows};
use gpuprobe_report::about::{About, AnalysisTotals, AtPeak};
use gpuprobe_report::copy_sites::CopySiteReport;
use gpuprobe_report::explain::Explain;
use gpuprobe_report::gate::RunSource;
use gpuprobe_report::profile::{self, Profile, ProfileScope, ProfiledMemory, Weight};
use gpuprobe_report::work::WorkList;
use gpuprobe_report::{Options, Report, ReportSources};

/// Typed for a file, or nothing typed: the newest recording in the current folder.
pub const NEWEST: &str = "gpuprobe-*.sqlite";

/// What is asked about a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Analysis {
    /// Everything on one page.
    #[default]
    Summary,
    /// The highest total of memory, when, and everything that was live then.
    Watermark,
    /// How much memory was live, at every change.
    Usage,
    /// Memory that was never freed.
    Leakage,
    /// Which kernels were launched.
    Kernels,
    /// What was copied, and how fast.
    Copies,
    /// Which functions of the driver and the runtime were called, and how long that took.
    Calls,
    /// What waited for the GPU, by kind of wait.
    Waits,
    /// The ranges that the program marked through NVTX, by name.
    Nvtx,
    /// What each process held, launched and copied, and for how long it ran.
    Processes,
    /// Explanation of the memory that was never freed.
    #[value(skip)]
    Explain,
    /// All of these together, explained, for the HTML page.
    #[value(skip)]
    Page,
}

impl Analysis {
    /// The list of work that it is about.
    pub fn list(self) -> Option<WorkList> {
        Some(match self {
            Self::Kernels => WorkList::Kernels,
            Self::Copies => WorkList::Copies,
            Self::Calls => WorkList::Calls,
            Self::Waits => WorkList::Waits,
            Self::Nvtx => WorkList::Ranges,
            _ => return None,
        })
    }

    /// Whether it is about memory only.
    pub fn is_about_memory(self) -> bool {
        matches!(self, Self::Watermark | Self::Leakage | Self::Explain)
    }

    /// Whether it covers all activity of a process.
    fn is_about_everything(self) -> bool {
        matches!(self, Self::Summary | Self::Processes | Self::Page)
    }
}

/// Sees the work of GPUs as it is read.
pub(crate) trait Observer {
    fn activity(&mut self, _: &ActivityBatch) {}
    fn copy(&mut self, _: &CalledCopy) {}
}

impl Observer for () {}

/// A recording or an export. Whatever is asked of it, its memory is played twice at most: to the end, and to the peak.
pub struct File {
    pub(crate) database: Database,
    pub(crate) session: Session,
    pub(crate) filter: Filter,
    at_end: OnceCell<Played>,
    at_peak: OnceCell<Played>,
}

impl File {
    /// Opens `path` for what `filter` selects; `progress` shows how far reading is. Warns of tables that are newer than
    /// those known.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has nothing that `filter` selects.
    pub fn open(path: &Path, filter: Filter, progress: &SharedProgress) -> Result<Self> {
        let mut file = Self::of(path, Filter::default(), progress)?;
        file.filter = filter.resolve(&file.database, &file.session)?;
        Ok(file)
    }

    /// Opens another run to compare with, which may have nothing of what is selected.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn other(&self, path: &Path) -> Result<Self> {
        Self::of(path, self.filter, &self.database.progress)
    }

    fn of(path: &Path, filter: Filter, progress: &SharedProgress) -> Result<Self> {
        let database = Database::open_with(path, progress)?;
        let session = Session::read(&database)?;
        if let Some(major) = session.schema_major().filter(|&major| major > 3) {
            say(format_args!(
                "warning: tables of version {major} are newer than those known (3)"
            ));
        }
        Ok(Self {
            database,
            session,
            filter,
            at_end: OnceCell::new(),
            at_peak: OnceCell::new(),
        })
    }

    /// Plays the memory to its end, with all that `listener` hears.
    ///
    /// # Errors
    ///
    /// The file cannot be read or has no memory events, or `listener` fails.
    pub(crate) fn listen(&self, listener: &mut dyn Listener) -> Result<&Played> {
        let played = Played::read(&self.database, &self.session, &self.filter, None, listener)?;
        Ok(self.at_end.get_or_init(|| played))
    }

    /// The copies by call site, and the number of further sites.
    fn copy_sites(&self, options: &Options) -> Result<(Vec<CopySiteReport>, u64)> {
        if LogReader::has_only_copies(&self.session) {
            let (database, session) = (&self.database, &self.session);
            let log = LogReader::new(database, session)?;
            let played = Played::play(&log, database, session, &self.filter, None, &mut ())?;
            return Ok(played.copy_sites(options));
        }
        Ok(self.at_end()?.copy_sites(options))
    }

    /// Whether there is memory in the file: events of it, or blocks that were found or are tensors.
    pub(crate) fn has_memory(&self) -> Result<bool> {
        let is_log = LogReader::has_memory(&self.session);
        Ok(self.database.has_table(MEMORY) || is_log && self.at_end()?.has_tensors())
    }

    /// The memory at the end.
    pub(crate) fn at_end(&self) -> Result<&Played> {
        match self.at_end.get() {
            Some(played) => Ok(played),
            None => self.listen(&mut ()),
        }
    }

    /// The memory at its peak.
    pub(crate) fn at_peak(&self) -> Result<&Played> {
        if let Some(played) = self.at_peak.get() {
            return Ok(played);
        }
        let then = self.at_end()?.read_peak(&self.database, &self.session)?;
        Ok(self.at_peak.get_or_init(|| then))
    }

    /// Whether `question` is about launches, and the file has no times of these, which a range could select.
    pub fn has_no_times_for(&self, question: Analysis) -> Result<bool> {
        let is_about_launches = question == Analysis::Kernels || question.is_about_everything();
        let is_counted = self.database.has_rows(work::COUNTS)?;
        Ok(is_about_launches && is_counted && !work::has_single_launches(&self.database)?)
    }

    /// Passes each total of live memory to `take`: nanoseconds from the first memory event; bytes in all, and by how
    /// much is known of the calls: valid, invalid, driver. Returns the selected time, seconds from that event.
    ///
    /// # Errors
    ///
    /// The file cannot be read or has no memory events, or `take` fails.
    pub fn usage(
        &self,
        mut take: impl FnMut(i64, [u64; 4]) -> Result<()>,
    ) -> Result<(Option<f64>, Option<f64>)> {
        let host = self.filter.host;
        let bytes = |side: &AnalysisTotals| {
            [side.total, side.valid, side.invalid, side.driver].map(|a| a.bytes)
        };
        let mut on_change = |change: &MemoryChange<'_>| {
            if !host && change.parts().all(|one| one.belongs() == Belongs::Host) {
                return Ok(());
            }
            let mut now = bytes(&change.live.gpu);
            if host {
                for (sum, host) in now.iter_mut().zip(bytes(&change.live.host)) {
                    *sum = sum.saturating_add(host);
                }
            }
            take(change.time_ns, now)
        };
        Ok(self.listen(&mut on_change)?.range())
    }

    /// Memory by call stack: live at the end or at the peak, and ever allocated.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has no such memory.
    pub fn profile(&self, scope: ProfileScope) -> Result<Profile> {
        let played = self.at_end()?;
        let time_ns = match scope.weight {
            Weight::Peak => played.peak_ns(),
            Weight::End | Weight::Total => played.last_ns(),
        };
        let time_ns = time_ns.and_then(|ns| ns.checked_add(self.session.start_epoch_ns?));
        let scope = ProfileScope {
            host: self.filter.host,
            ..scope
        };
        if scope.of == ProfiledMemory::Tensors && !played.has_tensors() {
            bail!("{} has no tensors", self.database.path().display());
        }
        Ok(Profile {
            run: run_of(&self.session),
            ..profile::of_ledger(played.ledger(), played.symbols(), scope, time_ns)
        })
    }

    /// Whether the file is a recording or an export.
    pub fn source(&self) -> RunSource {
        match self.database.has_table("GPUPROBE_LOG") {
            true => RunSource::Recording,
            false => RunSource::Export,
        }
    }

    /// Builds the report that answers `question`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if memory events are needed and it has none.
    pub fn report(&self, question: Analysis, lists: &Options) -> Result<Report> {
        self.observe(question, lists, None, &mut ())
    }

    /// The same; `listener` and `observer` see what is read.
    pub(crate) fn observe(
        &self,
        question: Analysis,
        lists: &Options,
        listener: Option<&mut dyn Listener>,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        let mut state = State::default();
        let seconds = |ns: i64| ns as f64 / 1e9;
        let mut about = About {
            analysis: format!("{question:?}").to_lowercase(),
            from: self.filter.begin_ns().map(seconds),
            to: self.filter.end_ns().map(seconds),
            ends_early: self.filter.end_ns().is_some(),
            recorded: LogReader::recorded(&self.session),
            ..About::default()
        };
        if !question.is_about_memory() {
            let range = TimeRange::of(&self.database, &self.filter)?;
            about.gpus = work::read(self, range, &mut state, observer)?;
        }
        let has_memory = question.is_about_everything() && self.has_memory()?;
        let wants_memory = question.is_about_memory() || has_memory;
        let asks_for = |one| question.is_about_everything() || question == one;
        let has_copies = asks_for(Analysis::Copies) && self.database.has_table(work::CALLED_COPIES);
        let played = match listener.filter(|_| wants_memory) {
            Some(listener) => Some(self.listen(listener)?),
            None => wants_memory.then(|| self.at_end()).transpose()?,
        };
        let start = self.session.wall(0).map(|start| WallClock::at(start, 0));
        let now_ns = self.now_ns(question, played);
        let active = state.activity.processes();
        let ran_ns = active.map(|(_, process)| process.last_ns).max();
        let ran_ns = ran_ns.unwrap_or(0).saturating_sub(gpu_rows::ZERO_NS);
        let mut options = Options {
            modes: Modes {
                memleak: false,
                cudatrace: asks_for(Analysis::Kernels) && self.database.has_table(work::COUNTS),
                bandwidth_util: has_copies,
                activity: state.activity.processes().next().is_some(),
            },
            now_ns,
            ..self.options(lists, ran_ns.max(now_ns))
        };
        let sources = ReportSources {
            lost_by_user: &self.session.lost_by_user,
            ..ReportSources::of_file(start.as_ref(), &NoSymbols)
        };
        let lost = Lost::from_names(&self.session.lost);
        let mut report = gpuprobe_report::build(&state, lost, &options, sources);
        report.time = start.map(|clock| clock.wall(now_ns));
        if let Some(copies) = &mut report.bandwidth_util {
            (copies.sites, copies.omitted_sites) = self.copy_sites(&options)?;
        }
        // There is nothing to explain before the memory is in the report.
        options.explains = matches!(question, Analysis::Explain | Analysis::Page);
        let mut spans = Spans::default();
        if let Some(played) = played {
            set_memory(&mut about, question, played);
            let is_peak = question == Analysis::Watermark;
            let then = if is_peak { self.at_peak()? } else { played };
            report.memleak = Some(then.memory(&options));
            report.time = report.time.filter(|_| !is_peak || about.time_ns.is_some());
            if matches!(
                question,
                Analysis::Summary | Analysis::Explain | Analysis::Page
            ) {
                (report.incidents, report.refused) = played.incidents(&options);
            }
            spans = played.spans.clone();
        }
        if options.explains {
            report.explain = Explain::of(&report);
        }
        if question == Analysis::Summary {
            about.session = Some(self.session.clone());
            let watermark = played.map(|played| self.watermark(played, lists));
            about.watermark = watermark.transpose()?.map(Box::new);
        }
        if question.is_about_everything() {
            spans.activities(&state.activity);
            about.run_ns = spans.run_ns();
            let (ledger, recorded) = (played.map(Played::ledger), about.recorded);
            let rows = processes::rows(&report, ledger, &spans, &self.session, recorded);
            about.processes = Some(rows);
        }
        // A list of processes shows no more of memory.
        report.memleak = report.memleak.filter(|_| question != Analysis::Processes);
        report.about = Some(about);
        Ok(report)
    }

    /// Options of a report with `lists`; `end_ns` is the time of the last event.
    fn options(&self, lists: &Options, end_ns: u64) -> Options {
        let stop_ns = self.session.stop_ns.and_then(|ns| u64::try_from(ns).ok());
        let whole = Duration::from_nanos(stop_ns.unwrap_or(0).max(end_ns));
        Options {
            stacks: true,
            now_ns: end_ns,
            is_final: true,
            since_last: whole,
            since_start: whole,
            ..*lists
        }
    }

    /// The time that is reported, nanoseconds of the session.
    fn now_ns(&self, question: Analysis, played: Option<&Played>) -> u64 {
        let end_ns = || {
            let first_ns = played.and_then(|played| played.first_ns).unwrap_or(0);
            let last_ns = played.and_then(Played::last_ns);
            let to = self.filter.end_ns().map(|to| first_ns.saturating_add(to));
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

    fn watermark(&self, played: &Played, lists: &Options) -> Result<AtPeak> {
        let now_ns = self.now_ns(Analysis::Watermark, Some(played));
        let mut peak = About::default();
        set_memory(&mut peak, Analysis::Watermark, played);
        Ok(AtPeak {
            time_ns: peak.time_ns,
            time: peak.time,
            totals: played.at_peak.gpu,
            host: played.at_peak.host,
            memleak: self.at_peak()?.memory(&self.options(lists, now_ns)),
        })
    }
}

/// Adds times and totals of the memory that was played.
fn set_memory(about: &mut About, question: Analysis, played: &Played) {
    let first_ns = played.first_ns.unwrap_or(0);
    about.first_ns = played.event_ns(first_ns);
    let since_first = |ns: i64| ns.saturating_sub(first_ns);
    about.last_ns = played.last_ns().map(since_first);
    (about.from, about.to) = played.range();
    about.findings = Some(played.findings);
    let live = match question {
        Analysis::Watermark => {
            let peak_ns = played.peak_ns();
            about.time_ns = peak_ns.map(since_first);
            about.time = peak_ns.and_then(|peak| played.wall(peak));
            played.at_peak
        }
        _ => played.never_freed(),
    };
    about.totals = Some(live.gpu);
    about.host = Some(live.host);
}
