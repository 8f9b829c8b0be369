//! `gpuprobe plot`: memory over time, as a picture.

mod chart;
mod draw;
mod smi;
mod steps;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::analysis::groups::Group;
use crate::analysis::listing::{Which, listing};
use crate::analysis::tracker::{Change, Part};
use crate::analysis::{Selection, Tracker, Visitor, pass};
use gpuprobe_os::say;
use gpuprobe_recording::{Database, Resolver, Session, kinds};

pub use chart::{Band, Chart, Line};
pub use draw::write;
pub use smi::{Sample, parse as parse_smi};
pub use steps::Steps;

/// What areas stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum By {
    /// Kinds of memory.
    #[default]
    Kind,
    /// The places in the program that hold most at the peak.
    Site,
}

/// What `gpuprobe plot` does.
#[derive(Clone, Debug)]
pub struct Config {
    /// The recording or export; none if a usage report is plotted alone.
    pub file: Option<PathBuf>,
    /// The picture; its extension says which format.
    pub output: PathBuf,
    /// What of the file is looked at.
    pub selection: Selection,
    /// What areas stand for.
    pub by: By,
    /// Places that have an area of their own.
    pub top: usize,
    /// What `nvidia-smi` said meanwhile.
    pub smi: Option<PathBuf>,
    /// A usage report that was made earlier.
    pub usage: Option<PathBuf>,
    /// Above the chart.
    pub title: Option<String>,
    /// Width and height.
    pub size: (u32, u32),
}

/// Draws the picture.
///
/// # Errors
/// Those of the files.
pub fn run(config: &Config) -> Result<()> {
    let mut chart = match (&config.file, &config.usage) {
        (_, Some(usage)) => table::chart(&read(usage)?, usage)?,
        (Some(file), None) => of_recording(file, config)?,
        (None, None) => bail!("nothing to plot: give a recording, or --usage"),
    };
    chart.title.clone_from(&config.title);
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
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn of_recording(file: &Path, config: &Config) -> Result<Chart> {
    let database = Database::open(file)?;
    let session = Session::read(&database)?;
    let resolver = Resolver::new(&database)?;
    let sites = match config.by {
        By::Kind => Vec::new(),
        By::Site => top_sites(&database, &session, config)?,
    };
    let labels: Vec<String> = match config.by {
        By::Kind => kinds::KINDS
            .iter()
            .map(|kind| kind.short.to_owned())
            .collect(),
        By::Site => sites
            .iter()
            .cloned()
            .chain(["elsewhere".to_owned()])
            .collect(),
    };
    let mut collect = Collect {
        steps: Steps::new(labels.len()),
        resolver: &resolver,
        by: config.by,
        sites,
        host: config.selection.host,
    };
    let tracker = pass(&database, &config.selection, &mut collect)?;
    let Some(first) = tracker.first_ns().filter(|_| tracker.findings.events > 0) else {
        bail!(
            "{} has no memory event in what was selected",
            file.display()
        );
    };
    let peak = tracker.peak();
    let leaked = listing(
        Which::Leakage,
        &database,
        &session,
        &tracker,
        &config.selection,
        true,
    )?;
    let mut chart = Chart::of(&collect.steps, &labels);
    if !config.selection.host {
        let at = peak.time_ns.saturating_sub(first);
        chart.peak = Some((at as f64 / 1e9, peak.totals.total.bytes as f64));
    }
    chart.leaked = Some(leaked.totals.total.bytes as f64).filter(|&bytes| bytes > 0.0);
    let zero = session
        .start_epoch_ns
        .map(|start| start.saturating_add(first));
    if let Some(path) = &config.smi {
        let Some(zero) = zero else {
            bail!(
                "{} does not say when it began: --smi cannot be aligned",
                file.display()
            );
        };
        let offset = session.utc_offset_s.unwrap_or(0);
        let samples = parse_smi(&read(path)?).with_context(|| format!("{}", path.display()))?;
        chart.lines = smi::lines(&samples, zero, offset);
    } else {
        chart.lines = smi::recorded(&database, first)?;
    }
    if !chart.lines.is_empty() && !chart.overlaps_lines() {
        say("warning: the samples of nvidia-smi are of another time than the recording");
    }
    Ok(chart)
}

fn top_sites(database: &Database, session: &Session, config: &Config) -> Result<Vec<String>> {
    let tracker = pass(database, &config.selection, &mut ())?;
    let found = listing(
        Which::Watermark,
        database,
        session,
        &tracker,
        &config.selection,
        true,
    )?;
    let mut sites: Vec<String> = Vec::new();
    for group in found.groups.unwrap_or_default() {
        let site = group.site();
        if sites.len() < config.top && !sites.contains(&site) {
            sites.push(site);
        }
    }
    Ok(sites)
}

/// Collects the steps of every area.
struct Collect<'a, 'db> {
    steps: Steps,
    resolver: &'a Resolver<'db>,
    by: By,
    sites: Vec<String>,
    host: bool,
}

impl Collect<'_, '_> {
    fn band(&self, kind: u8, part: &Part) -> usize {
        match self.by {
            By::Kind => usize::from(kinds::of_id(kind).id),
            By::Site => {
                let site = Group::site_of(self.resolver, kind, part.origin);
                self.sites
                    .iter()
                    .position(|known| *known == site)
                    .unwrap_or(self.sites.len())
            }
        }
    }
}

impl Visitor for Collect<'_, '_> {
    fn change(&mut self, change: &Change, _: &Tracker) -> Result<()> {
        if kinds::of_id(change.kind).is_host && !self.host {
            return Ok(());
        }
        if let Some(part) = &change.freed {
            self.steps
                .subtract(self.band(change.kind, part), part.bytes);
        }
        if let Some(part) = &change.allocated {
            self.steps.add(self.band(change.kind, part), part.bytes);
        }
        if change.is_last {
            self.steps.mark(change.time_ns);
        }
        Ok(())
    }

    fn can_restart(&self) -> bool {
        true
    }

    fn restart(&mut self) -> Result<()> {
        self.steps = Steps::new(self.steps.bands());
        Ok(())
    }
}
