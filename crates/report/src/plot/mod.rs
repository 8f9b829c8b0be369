//! `gpuprobe plot`: memory over time, as a picture.

mod chart;
mod draw;
mod labels;
mod legend;
mod smi;
mod steps;
mod table;
mod tensors;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::analysis::{
    AllocationWithCaller, Filter, LedgerChange, NoMatch, RowLedger, Visitor, validate_filter,
};
use crate::label;
use crate::run::run_of;
use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::stack::Symbolize;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::regular::read_text;
use gpuprobe_os::say;
use gpuprobe_recording::{Database, Session};

pub use chart::{Band, Chart, ChartLine};
pub use draw::write;
pub(crate) use smi::recorded as recorded_smi;
pub use smi::{SmiSample, parse as parse_smi};
pub use steps::Steps;

/// Grouping of the stacked areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PlotBy {
    /// Kinds of memory.
    #[default]
    Kind,
    /// The places in the program that hold most at the peak.
    Site,
    /// Those at which PyTorch's allocator had handed out most at its peak, and what it held for that.
    TensorSite,
}

/// Configuration of `gpuprobe plot`.
#[derive(Clone, Debug)]
pub struct PlotConfig {
    /// The recording or export; none if a usage report is plotted alone.
    pub file: Option<PathBuf>,
    /// The picture; its extension says which format.
    pub output: PathBuf,
    /// Part of the file to plot.
    pub filter: Filter,
    /// Grouping of the stacked areas.
    pub by: PlotBy,
    /// Places that have an area of their own.
    pub top: usize,
    /// File with `nvidia-smi`'s samples; `None` if there is none.
    pub smi: Option<PathBuf>,
    /// A usage report that was made earlier.
    pub usage: Option<PathBuf>,
    /// Title above the chart; `None` for the run of the recording, if there is one.
    pub title: Option<String>,
    /// Width and height, pixels.
    pub size: (u32, u32),
}

/// Draws the picture; `progress` shows how far reading is.
pub fn run(config: &PlotConfig, progress: &SharedProgress) -> Result<()> {
    let mut chart = match (&config.file, &config.usage) {
        (_, Some(usage)) => table::chart(&read(usage)?, usage)?,
        (Some(file), None) => of_recording(file, config, progress)?,
        (None, None) => bail!("nothing to plot: give a recording, or --usage"),
    };
    if config.title.is_some() {
        chart.title.clone_from(&config.title);
    }
    write(&chart, &config.output, config.size)
}

/// Draws what is in any text, for fuzzing.
#[doc(hidden)]
pub fn try_texts(text: &str, picture: &Path) -> Result<()> {
    for (zero_ns, offset_s) in [(0, 0), (i64::MAX, 86_399), (i64::MIN, -86_399)] {
        let Ok(samples) = parse_smi(text) else { break };
        let chart = Chart {
            lines: smi::lines(&samples, zero_ns, offset_s),
            ..Chart::default()
        };
        write(&chart, picture, (200, 100))?;
    }
    match table::chart(text, picture) {
        Ok(chart) => write(&chart, picture, (200, 100)),
        Err(_) => Ok(()),
    }
}

fn read(path: &Path) -> Result<String> {
    read_text(path).with_context(|| format!("cannot read {}", path.display()))
}

fn of_recording(file: &Path, config: &PlotConfig, progress: &SharedProgress) -> Result<Chart> {
    let database = Database::open_with(file, progress)?;
    validate_filter::check(&database, &config.filter)?;
    let session = Session::read(&database)?;
    let sites = match config.by {
        PlotBy::Kind | PlotBy::TensorSite => Vec::new(),
        PlotBy::Site => top_sites(&database, &session, config)?,
    };
    let labels: Vec<String> = match config.by {
        PlotBy::Kind | PlotBy::TensorSite => MemoryKind::ALL
            .iter()
            .map(|kind| kind.name().to_owned())
            .collect(),
        PlotBy::Site => sites
            .iter()
            .map(|area| area.label.clone())
            .chain(["elsewhere".to_owned()])
            .collect(),
    };
    let mut collect = SiteSteps {
        steps: Steps::new(labels.len()),
        by: config.by,
        sites,
        areas: HashMap::new(),
        host: config.filter.host,
    };
    let row_ledger = RowLedger::read(&database, &session, &config.filter, &mut collect)?;
    let Some(first) = row_ledger
        .first_ns()
        .filter(|_| row_ledger.findings.events > 0)
    else {
        let why = format!(
            "{} has no memory event in what was selected",
            file.display()
        );
        return Err(NoMatch(why).into());
    };
    if config.by == PlotBy::TensorSite {
        let mut chart = tensors::chart(&database, config, first)?;
        chart.title = run_of(&session);
        let smi = smi_lines(file, &database, &session, config, first)?;
        chart.lines.extend(smi);
        return Ok(chart);
    }
    let mut chart = Chart::of(&collect.steps, &labels);
    chart.title = run_of(&session);
    if let Some(peak_ns) = row_ledger.peak_ns().filter(|_| !config.filter.host) {
        let at = peak_ns.saturating_sub(first);
        let bytes = row_ledger.at_peak.gpu.total.bytes as f64;
        chart.peak = Some((at as f64 / 1e9, bytes));
    }
    let leaked = row_ledger.never_freed().gpu.total.bytes as f64;
    chart.leaked = Some(leaked).filter(|&bytes| bytes > 0.0);
    chart.lines = smi_lines(file, &database, &session, config, first)?;
    if !chart.lines.is_empty() && !chart.overlaps_lines() {
        say("warning: the samples of nvidia-smi are of another time than the recording");
    }
    Ok(chart)
}

/// Lines of nvidia-smi's samples: those of the given file, or else the recorded ones.
fn smi_lines(
    file: &Path,
    database: &Database,
    session: &Session,
    config: &PlotConfig,
    first_ns: i64,
) -> Result<Vec<ChartLine>> {
    let Some(path) = &config.smi else {
        return smi::recorded(database, first_ns);
    };
    let start = session.start_epoch_ns;
    let Some(zero) = start.map(|start| start.saturating_add(first_ns)) else {
        bail!(
            "{} does not say when it began: --smi cannot be aligned",
            file.display()
        );
    };
    let offset = session.utc_offset_s.unwrap_or(0);
    let samples = parse_smi(&read(path)?).with_context(|| format!("{}", path.display()))?;
    Ok(smi::lines(&samples, zero, offset))
}

/// A call site that has an area of its own.
struct SiteArea {
    /// Its number, as in reports.
    id: u32,
    /// That and what reports call it.
    label: String,
}

/// The call sites that hold most at the peak.
fn top_sites(database: &Database, session: &Session, config: &PlotConfig) -> Result<Vec<SiteArea>> {
    let row_ledger = RowLedger::read(database, session, &config.filter, &mut ())?;
    let callers = &row_ledger.callers;
    let mut sums: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    for process in row_ledger.ledger.at_peak_of_rows().live_processes() {
        for allocation in process.allocations() {
            let part = AllocationWithCaller::of(process, allocation);
            if config.filter.host || !part.is_host() {
                let id = callers.folded_id(part.caller);
                let (sum, _) = sums.entry(id).or_insert((0, part.caller));
                *sum = sum.saturating_add(allocation.size_bytes);
            }
        }
    }
    let mut sites: Vec<_> = sums.into_iter().collect();
    sites.sort_by_key(|(id, (bytes, _))| (Reverse(*bytes), *id));
    sites.truncate(config.top);
    let called = |caller: u32| {
        let called = callers.called(caller);
        (callers.caller(caller).0, called.unwrap_or("?".into()))
    };
    let stacks: Vec<_> = sites
        .iter()
        .map(|(_, (_, caller))| called(*caller))
        .collect();
    let parts: Vec<_> = stacks
        .iter()
        .map(|(frames, called)| (frames.as_slice(), called.as_ref()))
        .collect();
    let labels = label::labels(&parts);
    let areas = sites.iter().zip(labels).map(|(&(id, _), label)| SiteArea {
        id,
        label: format!("#{id} {label}"),
    });
    Ok(areas.collect())
}

/// Collects the steps of every area.
struct SiteSteps {
    steps: Steps,
    by: PlotBy,
    sites: Vec<SiteArea>,
    /// The area of each number of a caller.
    areas: HashMap<u32, usize>,
    host: bool,
}

impl SiteSteps {
    fn band(&mut self, part: &AllocationWithCaller, row_ledger: &RowLedger<'_>) -> usize {
        match self.by {
            PlotBy::Kind | PlotBy::TensorSite => part.allocation.kind() as usize,
            PlotBy::Site => *self.areas.entry(part.caller).or_insert_with(|| {
                let id = row_ledger.callers.folded_id(part.caller);
                let known = self.sites.iter().position(|area| area.id == id);
                known.unwrap_or(self.sites.len())
            }),
        }
    }
}

impl Visitor for SiteSteps {
    fn change(&mut self, step: &LedgerChange<'_>, row_ledger: &RowLedger<'_>) -> Result<()> {
        let host = self.host;
        let is_shown = |part: &&AllocationWithCaller| host || !part.is_host();
        if !step.parts().any(|part| is_shown(&part)) {
            return Ok(());
        }
        for part in step.freed.iter().filter(is_shown) {
            let band = self.band(part, row_ledger);
            self.steps.subtract(band, part.allocation.size_bytes);
        }
        for part in step.allocated.iter().filter(is_shown) {
            let band = self.band(part, row_ledger);
            self.steps.add(band, part.allocation.size_bytes);
        }
        self.steps.mark(step.time_ns);
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<()> {
        self.steps = Steps::new(self.steps.bands());
        self.areas.clear();
        Ok(())
    }
}
