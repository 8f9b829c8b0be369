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
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::analysis::{
    AllocationAt, Filter, MemoryChange, NoMatch, Played, first_ns, validate_filter,
};
use crate::function_name;
use crate::label;
use crate::memleak::{self, SiteGroups};
use crate::run::run_of;
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::totals::MemorySums;
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
    if config.by == PlotBy::TensorSite {
        return tensors_of_recording(file, &database, &session, config);
    }
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
        host: config.filter.host,
    };
    let played = Played::read(&database, &session, &config.filter, &mut |change| {
        collect.change(change);
        Ok(())
    })?;
    let Some(first) = played.first_ns().filter(|_| played.findings.events > 0) else {
        return Err(no_event(file));
    };
    let mut chart = Chart::of(&collect.steps, &labels);
    chart.title = run_of(&session);
    if let Some(peak_ns) = played.peak_ns().filter(|_| !config.filter.host) {
        let at = peak_ns.saturating_sub(first);
        let bytes = played.at_peak.gpu.total.bytes as f64;
        chart.peak = Some((at as f64 / 1e9, bytes));
    }
    let leaked = played.never_freed().gpu.total.bytes as f64;
    chart.leaked = Some(leaked).filter(|&bytes| bytes > 0.0);
    chart.lines = smi_lines(file, &database, &session, config, first)?;
    if !chart.lines.is_empty() && !chart.overlaps_lines() {
        say("warning: the samples of nvidia-smi are of another time than the recording");
    }
    Ok(chart)
}

fn no_event(file: &Path) -> anyhow::Error {
    let why = format!(
        "{} has no memory event in what was selected",
        file.display()
    );
    NoMatch(why).into()
}

fn tensors_of_recording(
    file: &Path,
    database: &Database,
    session: &Session,
    config: &PlotConfig,
) -> Result<Chart> {
    let first = first_ns(database)?.ok_or_else(|| no_event(file))?;
    let mut chart = tensors::chart(database, config, first)?;
    chart.title = run_of(session);
    let smi = smi_lines(file, database, session, config, first)?;
    chart.lines.extend(smi);
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
    pid: u32,
    /// The numbers that the engine knows it by.
    numbers: Vec<u32>,
    /// What reports call it, with its number.
    label: String,
}

/// The call sites that held most at the peak.
fn top_sites(database: &Database, session: &Session, config: &PlotConfig) -> Result<Vec<SiteArea>> {
    let played = Played::read(database, session, &config.filter, &mut |_| Ok(()))?;
    let (ledger, symbols) = (played.ledger(), played.symbols());
    let mut areas: Vec<(u64, SiteArea)> = Vec::new();
    for process in ledger.live_processes().chain(ledger.ended(true)) {
        let groups = SiteGroups::of(process, true, symbols);
        let mut held: BTreeMap<u32, (MemorySums, Vec<u32>)> = BTreeMap::new();
        for (number, site) in (0..).zip(process.sites.iter()) {
            let (sum, numbers) = held.entry(groups.id(number)).or_default();
            sum.merge(ledger.at_peak(process, site));
            numbers.push(number);
        }
        // Labels are those of a report of that time, with all of these sites.
        held.retain(|_, (sum, _)| !sum.is_empty());
        let called = |&id: &u32| {
            let site = process.sites.get(id)?;
            let frames = memleak::stack_of(process.pid, site, symbols).0;
            Some((frames, function_name(site.row, symbols)))
        };
        let called: Vec<_> = held
            .keys()
            .map(|id| called(id).unwrap_or_default())
            .collect();
        let stacks: Vec<_> = called
            .iter()
            .map(|(frames, called)| (frames.as_slice(), called.as_ref()))
            .collect();
        let labels = label::labels(&stacks);
        for ((id, (sum, numbers)), label) in held.into_iter().zip(labels) {
            let host = if config.filter.host {
                sum.host.bytes
            } else {
                0
            };
            let area = SiteArea {
                pid: process.pid,
                numbers,
                label: format!("#{id} {label}"),
            };
            areas.push((sum.gpu.bytes.saturating_add(host), area));
        }
    }
    areas.retain(|(bytes, _)| *bytes > 0);
    areas.sort_by_key(|(bytes, area)| (Reverse(*bytes), area.pid));
    areas.truncate(config.top);
    Ok(areas.into_iter().map(|(_, area)| area).collect())
}

/// Collects the steps of every area.
struct SiteSteps {
    steps: Steps,
    by: PlotBy,
    sites: Vec<SiteArea>,
    host: bool,
}

impl SiteSteps {
    fn band(&self, part: AllocationAt<'_>) -> usize {
        match self.by {
            PlotBy::Kind | PlotBy::TensorSite => part.allocation.kind() as usize,
            PlotBy::Site => {
                let (pid, number) = (part.process.pid, part.allocation.site);
                let is_of = |area: &SiteArea| area.pid == pid && area.numbers.contains(&number);
                let known = self.sites.iter().position(is_of);
                known.unwrap_or(self.sites.len())
            }
        }
    }

    fn change(&mut self, change: &MemoryChange<'_>) {
        let host = self.host;
        let is_shown = |part: &AllocationAt<'_>| host || !part.is_host();
        if !change.parts().any(|part| is_shown(&part)) {
            return;
        }
        for part in change
            .freed
            .iter()
            .map(|one| change.at(one))
            .filter(is_shown)
        {
            let band = self.band(part);
            self.steps.subtract(band, part.allocation.size_bytes);
        }
        for part in change
            .allocated
            .iter()
            .map(|one| change.at(one))
            .filter(is_shown)
        {
            let band = self.band(part);
            self.steps.add(band, part.allocation.size_bytes);
        }
        self.steps.mark(change.time_ns);
    }
}
