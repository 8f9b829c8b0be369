//! Plays a recording through the live reporters: the reports that its run wrote (`gpuprobe replay`), or those of any of
//! its moments, one after the other.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use chrono::DateTime;

use crate::{File, Filter, NEWEST};
use gpuprobe_cuda::Modes;
use gpuprobe_model::Lost;
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::event::Event;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::typed::parse_top;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::Source;
use gpuprobe_recording::log::{Item, LogNote, LogReader, Mark};
use gpuprobe_recording::memory_rows::RowFilter;
use gpuprobe_recording::player::{Played, Player};
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::explain::Explain;
use gpuprobe_report::verdict::Verdicts;
use gpuprobe_report::{
    GroupBy, History, Options, ProcessDetail, Report, ReportSources, ReportWriter, View,
    WorstVerdicts, records,
};

/// Call sites, and kernels, of a process without more detail.
const LISTED: usize = 20;

/// Who decides how a recording is played. It has been played to a time on the clock of its events; returns the time to
/// which it is played next, or that it is played no further.
pub type Viewer<'a> = dyn FnMut(&mut ReplayMoment, u64) -> ControlFlow<(), u64> + 'a;

/// The state of a recording at a moment.
pub struct ReplayMoment {
    player: Player,
    clock: WallClock,
    history: History,
    worst_verdicts: WorstVerdicts,
    mark: Option<Mark>,
    last_ns: u64,
    /// Begin and end of the recording, on the clock of its events, nanoseconds.
    pub span_ns: (u64, u64),
    now_ns: u64,
}

impl ReplayMoment {
    fn new(log: &LogReader<'_>) -> Self {
        let clock = log.wall_clock();
        let begin_ns = clock.monotonic_ns();
        Self {
            player: Player::new(log.modes(), log.kinds()),
            clock,
            history: History::default(),
            worst_verdicts: WorstVerdicts::default(),
            mark: None,
            last_ns: begin_ns,
            span_ns: (begin_ns, log.end_ns().unwrap_or(begin_ns)),
            now_ns: begin_ns,
        }
    }

    fn ask(&mut self, viewer: &mut Viewer<'_>, now_ns: u64) -> ControlFlow<(), u64> {
        self.now_ns = now_ns;
        viewer(self, now_ns)
    }

    /// The report of this moment, with `detail` of one process; of others, it has sums only with `only_detail`. The next
    /// one has changes since this one.
    pub fn report(&mut self, detail: Option<ProcessDetail>, only_detail: bool) -> Report {
        self.noted(&Options {
            detail,
            only_detail,
            top: Some(LISTED),
            ..self.options(self.player.modes)
        })
    }

    /// A report from which the next one has changes.
    fn noted(&mut self, options: &Options) -> Report {
        let report = self.make(options);
        let ledger = &self.player.state.ledger;
        self.history.note(ledger, &report, self.now_ns);
        self.player.state.mark_reported();
        self.last_ns = self.now_ns;
        report
    }

    /// The explanation of what processes hold.
    pub fn explain(&self) -> Option<Explain> {
        let options = Options {
            explains: true,
            ..self.options(Modes::MEMORY)
        };
        self.make(&options).explain
    }

    /// The worst verdicts on the call sites of processes, by process id.
    pub fn verdicts(&mut self) -> Verdicts {
        let options = self.options(self.player.modes);
        let (ledger, symbols) = (&self.player.state.ledger, &self.player.symbols);
        self.worst_verdicts.update(ledger, &options, symbols)
    }

    fn options(&self, modes: Modes) -> Options {
        let link = self.mark.as_ref().and_then(|mark| mark.link);
        let since = |then_ns: u64| Duration::from_nanos(self.now_ns.saturating_sub(then_ns));
        Options {
            modes,
            view: View {
                group: Some(GroupBy::Stack),
                ..View::default()
            },
            now_ns: self.now_ns,
            stacks: true,
            since_last: since(self.last_ns),
            since_start: since(self.span_ns.0),
            link: link.map(|(gigatransfers, lanes)| PcieLink {
                gigatransfers,
                lanes,
            }),
            ..Options::default()
        }
    }

    fn make(&self, options: &Options) -> Report {
        let lost = Lost::from_names(&self.player.lost);
        let mark = self.mark.as_ref();
        let sources = ReportSources {
            usage: mark.and_then(|mark| mark.usage.as_ref()),
            lost_by_user: mark.map_or(&[], |mark| &mark.lost_by_user),
            history: Some(&self.history),
            ..ReportSources::of_file(Some(&self.clock), &self.player.symbols)
        };
        let mut report = gpuprobe_report::build(&self.player.state, lost, options, sources);
        report.time = Some(self.clock.wall(self.now_ns));
        report
    }
}

/// Plays the recording `file` from its beginning, as `viewer` decides.
///
/// # Errors
/// Returns an error if the file cannot be read, or is no recording of a supported version.
pub fn play(file: &Path, viewer: &mut Viewer<'_>) -> Result<()> {
    let progress: SharedProgress = Arc::new(());
    let file = File::open(file, Filter::default(), &progress)?;
    let log = LogReader::new(&file.database, &file.session)?;
    let mut moment = ReplayMoment::new(&log);
    let begin_ns = moment.now_ns;
    let mut next = moment.ask(viewer, begin_ns);
    let mut now_ns = begin_ns;
    log.play(RowFilter::default(), &mut |item| {
        now_ns = now_ns.max(time_of(&item).unwrap_or(0));
        while let ControlFlow::Continue(next_ns) = next
            && next_ns < now_ns
        {
            next = moment.ask(viewer, next_ns);
        }
        Ok(match next {
            ControlFlow::Continue(_) => {
                if let Played::Report(mark) = moment.player.play(item) {
                    moment.mark = Some(mark);
                }
                ControlFlow::Continue(())
            }
            ControlFlow::Break(()) => ControlFlow::Break(()),
        })
    })?;
    let end_ns = moment.span_ns.1.max(now_ns);
    moment.span_ns.1 = end_ns;
    while let ControlFlow::Continue(next_ns) = next {
        next = moment.ask(viewer, next_ns.min(end_ns));
    }
    Ok(())
}

/// Time of an item on the clock of events, nanoseconds, if it has one.
fn time_of(item: &Item<'_>) -> Option<u64> {
    match item {
        Item::Event(event) => event.time_ns(),
        Item::Note(LogNote::Report(mark)) => mark.now_ns,
        _ => None,
    }
}

/// Options of `gpuprobe replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayConfig {
    /// A recording; by default, the newest gpuprobe-*.sqlite in the current folder.
    #[arg(value_name = "FILE", default_value = NEWEST, hide_default_value = true)]
    pub file: PathBuf,

    /// Write the last report only.
    #[arg(id = "last", long = "last")]
    pub only_last: bool,

    /// Write a line for every single copy and record of what the GPU did.
    #[arg(long)]
    pub per_call: bool,

    /// Grouping, filters and order of live memory.
    #[command(flatten)]
    pub view: View,

    /// Rows per list, or all.
    ///
    /// By default 10 in text, all in json and csv.
    #[arg(long, value_name = "N|all", value_parser = parse_top, help_heading = "Output")]
    pub top: Option<usize>,
}

/// Writes with `writer` the reports that the recorded run wrote, or would have written; `progress`
/// shows how far it is.
///
/// # Errors
///
/// Returns an error if the file cannot be read, if it is not a recording of a supported version, or
/// if `out` cannot be written.
pub fn replay(
    config: &ReplayConfig,
    writer: &mut dyn ReportWriter,
    out: &mut dyn Write,
    progress: &SharedProgress,
) -> Result<()> {
    let file = File::open(&config.file, Filter::default(), progress)?;
    let log = LogReader::new(&file.database, &file.session)?;
    let mut moment = ReplayMoment::new(&log);
    // Activity records since the last report, and that report, if only the last is to be written.
    let mut batches: Vec<ActivityBatch> = Vec::new();
    let mut last = None;
    let cannot = "cannot write the report";
    log.play(RowFilter::default(), &mut |item| {
        match moment.player.play(item) {
            Played::Event(_, Some(transfer)) if config.per_call => {
                let copy = CopyReport::of(&transfer, &moment.clock);
                writer.write_copy(&copy, out).context(cannot)?;
            }
            Played::Event(Event::Activity(batch), _) if config.per_call => batches.push(batch),
            Played::Report(mark) => {
                let activities = &moment.player.state.activity;
                for record in &records::in_order(std::mem::take(&mut batches)) {
                    let line = records::line(record, activities, moment.clock.monotonic_ns());
                    writer.write_activity(&line, out).context(cannot)?;
                }
                let report = moment.recorded(config, mark);
                match config.only_last {
                    true => last = Some(report),
                    false => writer.write(&report, out).context(cannot)?,
                }
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if let Some(report) = &last {
        writer.write(report, out).context(cannot)?;
    }
    out.flush().context(cannot)
}

impl ReplayMoment {
    /// The report that the run made at `mark`.
    fn recorded(&mut self, config: &ReplayConfig, mark: Mark) -> Report {
        let time = DateTime::parse_from_rfc3339(&mark.time).ok();
        // Recordings of earlier versions do not have the time on the clock of events.
        let since_start_ns = self.span_ns.0.saturating_add(mark.since_start_ns);
        self.now_ns = mark.now_ns.unwrap_or(since_start_ns);
        let since = [mark.since_last_ns, mark.since_start_ns].map(Duration::from_nanos);
        let (stacks, host_wide, is_final) = (mark.stacks, mark.host_wide, mark.is_final);
        self.mark = Some(mark);
        let options = Options {
            top: config.top,
            view: config.view,
            allocations: true,
            stacks,
            host_wide,
            is_final,
            since_last: since[0],
            since_start: since[1],
            ..self.options(self.player.modes)
        };
        let mut report = self.noted(&options);
        report.time = time.or(report.time);
        report
    }
}
