//! Memory over time, as `gpuprobe plot` draws it.

mod smi;

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::run::run_of;
use crate::timeline::{Bins, Effect, MemoryTimelines, PathKey, Timeline};
use crate::{File, Filter, NEWEST, NoMatch, Played, first_ns};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::regular::{open_input, read_text};
use gpuprobe_os::say;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_report::memleak::{SiteGroups, frames_of};
use gpuprobe_report::{function_name, label};

pub(crate) use smi::recorded as recorded_smi;
pub use smi::{SmiSample, lines as smi_lines, parse as parse_smi};

/// Bins of time; each has two points.
const BINS: usize = 1024;
/// The area of all call sites that have none of their own.
const REST: &str = "all others";

/// Grouping of the stacked areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PlotBy {
    /// Kinds of memory.
    Kind,
    /// The call sites that hold most at the peak.
    #[default]
    Site,
}

/// What a chart shows.
#[derive(Clone, Debug, clap::Args)]
pub struct ChartConfig {
    /// A recording, an Nsight Systems export, or what `gpuprobe report --analysis usage` wrote
    /// [default: the newest gpuprobe-*.sqlite here].
    #[arg(value_name = "FILE", default_value = NEWEST, hide_default_value = true)]
    pub file: PathBuf,

    /// Grouping of the stacked areas.
    #[arg(long, value_enum, default_value_t)]
    pub by: PlotBy,

    /// With --by site, call sites with an area of their own.
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub top: usize,

    /// Draw nvidia-smi's figures too, by wall-clock time.
    ///
    /// FILE is the output of `nvidia-smi --query-gpu=timestamp,memory.used
    /// --format=csv,noheader,nounits --loop-ms=10`.
    #[arg(long, value_name = "FILE")]
    pub smi: Option<PathBuf>,

    /// Part of the file to show.
    #[command(flatten)]
    pub filter: Filter,
}

/// An area of the stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Label in the legend.
    pub label: String,
    /// Its most bytes.
    pub most: f64,
    /// Bytes of it and of the areas below it, at each of [`Chart::times`].
    pub tops: Vec<f64>,
}

/// A line above the areas.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChartLine {
    /// Label in the legend.
    pub label: String,
    /// Points: seconds from the first memory event, and bytes, which hold until the next.
    pub points: Vec<(f64, f64)>,
}

/// A chart of memory over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Title above the chart; `None` for no title.
    pub title: Option<String>,
    /// Seconds from the first event.
    pub times: Vec<f64>,
    /// Stacked areas, the lowest first.
    pub bands: Vec<Band>,
    /// Lines of other origin.
    pub lines: Vec<ChartLine>,
    /// Seconds and bytes of the highest point.
    pub peak: Option<(f64, f64)>,
    /// Bytes that were never freed.
    pub leaked: Option<f64>,
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

impl Chart {
    /// The areas of `timeline`, without those in which nothing ever is.
    fn of<K: Copy + Eq + Hash>(
        timeline: &Timeline<K>,
        labels: Vec<String>,
        area_of: impl Fn(K) -> Option<usize>,
    ) -> Self {
        let points = timeline.points(labels.len(), area_of);
        let band = |(area, label)| {
            let tops: Vec<_> = points.iter().map(|(_, areas)| areas[area] as f64).collect();
            let most = tops.iter().copied().fold(0.0, f64::max);
            Band { label, most, tops }
        };
        let mut bands: Vec<_> = labels.into_iter().enumerate().map(band).collect();
        bands.retain(|band| band.most > 0.0);
        // What holds most lies at the bottom, where it is read best.
        let rank = |band: &Band| (band.label != REST, band.most);
        bands.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(Ordering::Equal));
        let mut below = vec![0.0; points.len()];
        for band in &mut bands {
            for (top, below) in band.tops.iter_mut().zip(&mut below) {
                *top += *below;
                *below = *top;
            }
        }
        Self {
            times: points.iter().map(|(ns, _)| seconds(*ns)).collect(),
            bands,
            ..Self::default()
        }
    }

    /// The first and last time of the areas.
    pub fn span(&self) -> (f64, f64) {
        let first = self.times.first().copied().unwrap_or(0.0);
        let last = self.times.last().copied().unwrap_or(1.0);
        // Marks of the axis need room between them, also for numbers as large as this.
        let least = (first.abs() * 1e-9).max(1e-6);
        (first, last.max(first + least))
    }
}

/// Reads what is to be shown; `progress` shows how far that is.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or has nothing of what is selected.
pub fn read(config: &ChartConfig, progress: &SharedProgress) -> Result<Chart> {
    let path = &config.file;
    let usage = (!is_database(path)).then(|| read_text(path).ok()).flatten();
    let usage = usage.and_then(|text| of_usage(&text));
    let is_whole = config.filter == Filter::default() && config.smi.is_none();
    match usage {
        None => of_file(path, config, progress),
        Some(chart) if is_whole => Ok(chart),
        Some(_) => bail!(
            "{} is a usage report, which is drawn as it is; plot the recording",
            path.display()
        ),
    }
}

fn is_database(path: &Path) -> bool {
    let mut begin = [0; 6];
    let read = open_input(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *b"SQLite"
}

fn of_file(path: &Path, config: &ChartConfig, progress: &SharedProgress) -> Result<Chart> {
    let file = File::open(path, config.filter, progress)?;
    let (database, session, filter) = (&file.database, &file.session, &file.filter);
    let first = first_ns(database)?.unwrap_or(0);
    let last = database.limit(MEMORY, "start", "DESC")?;
    let end = last.max(database.limit("GPUPROBE_ENDS", "t0", "DESC")?);
    let end = end.map_or(0, |end| end.saturating_sub(first).max(0));
    let from = filter.begin_ns().unwrap_or(0);
    let bins = Bins::between(from, filter.end_ns().unwrap_or(end).min(end), BINS);
    let mut held = MemoryTimelines::new(bins, first, filter.host);
    let played = file.listen(&mut held)?;
    held.finish();
    let Some(first) = played.first_ns.filter(|_| played.findings.events > 0) else {
        let shown = path.display();
        bail!(NoMatch(format!(
            "{shown} has no memory event in what was selected"
        )));
    };
    let leaked = played.never_freed().gpu.total.bytes as f64;
    let peak_ns = played.peak_ns().filter(|_| !filter.host);
    let peak_bytes = played.at_peak.gpu.total.bytes as f64;
    let mut chart = Chart {
        peak: peak_ns.map(|ns| (seconds(ns.saturating_sub(first)), peak_bytes)),
        leaked: Some(leaked).filter(|&bytes| bytes > 0.0),
        ..areas(&held.memory, played, config)
    };
    chart.title = run_of(session);
    chart.lines = match &config.smi {
        None => recorded_smi(database, first)?,
        Some(path) => {
            let Some(start) = session.start_epoch_ns else {
                let shown = database.path().display();
                bail!("{shown} does not say when it began: --smi cannot be aligned");
            };
            let text =
                read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
            let samples = parse_smi(&text).with_context(|| path.display().to_string())?;
            let offset_s = session.utc_offset_s.unwrap_or(0);
            smi_lines(&samples, start.saturating_add(first), offset_s)
        }
    };
    let (begin, end) = chart.span();
    let mut points = chart.lines.iter().flat_map(|line| &line.points).peekable();
    if points.peek().is_some() && !points.any(|(time, _)| (begin..=end).contains(time)) {
        say("warning: the samples of nvidia-smi are of another time than the recording");
    }
    Ok(chart)
}

/// The areas of `timeline`: kinds of memory, or the call sites that held most at the peak.
fn areas(timeline: &Timeline<PathKey>, played: &Played, config: &ChartConfig) -> Chart {
    let is_shown = |key: &PathKey| config.filter.host || !key.is_host;
    if config.by == PlotBy::Kind {
        let labels = MemoryKind::ALL.iter().map(|kind| kind.name().to_owned());
        let area_of = |key: PathKey| is_shown(&key).then_some(key.kind as usize);
        return Chart::of(timeline, labels.collect(), area_of);
    }
    let symbols = played.symbols();
    let mut holders = BTreeMap::new();
    for (key, bytes) in timeline.at_peak() {
        let (Some(holder), Some(number)) = (key.holder(played), key.number) else {
            continue;
        };
        let (_, groups, sites) = holders
            .entry((key.pid, key.incarnation))
            .or_insert_with(|| {
                let groups = SiteGroups::of(holder, true, symbols);
                (holder, groups, BTreeMap::<u32, HeldSite>::new())
            });
        let site = sites.entry(groups.id(number)).or_default();
        site.is_held |= bytes > 0;
        let shown = if is_shown(&key) { bytes } else { 0 };
        site.bytes = site.bytes.saturating_add(shown);
        site.keys.push(key);
    }
    let mut all = Vec::new();
    for (holder, _, mut sites) in holders.into_values() {
        // Labels are those of a report of that time, with all of these sites.
        sites.retain(|_, site| site.is_held);
        let called = sites.keys().map(|id| match holder.sites.get(*id) {
            Some(site) => (
                frames_of(holder.pid, site.stack.as_deref(), symbols).0,
                function_name(site.row, symbols),
            ),
            None => Default::default(),
        });
        let called: Vec<_> = called.collect();
        let labels = label::labels(called.iter().map(|(frames, api)| (&frames[..], &**api)));
        let labelled = sites.into_iter().zip(labels);
        all.extend(labelled.map(|((id, site), label)| (site, format!("#{id} {label}"))));
    }
    all.retain(|(site, _)| site.bytes > 0);
    all.sort_by_key(|(site, _)| Reverse(site.bytes));
    all.truncate(config.top);
    let mut areas = HashMap::new();
    let mut labels = Vec::new();
    for (area, (site, label)) in all.into_iter().enumerate() {
        areas.extend(site.keys.into_iter().map(|key| (key, area)));
        labels.push(label);
    }
    let rest = labels.len();
    labels.push(REST.to_owned());
    Chart::of(timeline, labels, |key| {
        is_shown(&key).then(|| areas.get(&key).copied().unwrap_or(rest))
    })
}

/// A call site at the peak.
#[derive(Default)]
struct HeldSite {
    /// Bytes of what is shown, and whether there is anything.
    bytes: u64,
    is_held: bool,
    keys: Vec<PathKey>,
}

/// The chart of a report by `gpuprobe report --analysis usage`, in any format; `None` if it is none.
pub fn of_usage(text: &str) -> Option<Chart> {
    let rows: Vec<_> = text.lines().filter_map(numbers).collect();
    let (first, last) = (rows.first()?, rows.last()?);
    let mut timeline = Timeline::new(&Bins::between(first[0], last[0], BINS));
    let mut peak = (first[0], first[1]);
    for &[time, total, ref parts @ ..] in &rows {
        timeline.advance(time);
        for (part, &bytes) in parts.iter().enumerate() {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            timeline.set(part, bytes, Effect::Freed);
        }
        timeline.mark(time, true);
        if total > peak.1 {
            peak = (time, total);
        }
    }
    timeline.finish();
    let labels = ["with call stack", "without call stack", "driver"].map(str::to_owned);
    Some(Chart {
        peak: Some((seconds(peak.0), peak.1 as f64)),
        leaked: Some(last[1] as f64).filter(|&bytes| bytes > 0.0),
        ..Chart::of(&timeline, labels.into(), Some)
    })
}

/// Time and bytes in a line of any format; none in what is no such line.
fn numbers(line: &str) -> Option<[i64; 5]> {
    let separator = |c: char| c.is_whitespace() || "[],".contains(c);
    let mut words = line.split(separator).filter(|word| !word.is_empty());
    let mut numbers = [0; 5];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_format_of_a_line() {
        let expected = Some([5, 4, 3, 2, 1]);
        for line in [
            "  5   4 3 2 1",
            "5\t4\t3\t2\t1",
            "5,4,3,2,1",
            ",[5,4,3,2,1]",
            "[5,4,3,2,1]",
        ] {
            assert_eq!(numbers(line), expected, "{line}");
        }
        for line in [
            "time,total,valid,invalid,driver",
            "",
            "1 2 3 4",
            "1 2 3 4 5 6",
            "]}",
        ] {
            assert_eq!(numbers(line), None, "{line}");
        }
        assert!(of_usage("nothing\n").is_none());
        let made = of_usage("time\n0,8,8,0,0\n1000000000,3,3,0,0\n").unwrap();
        assert_eq!((made.peak, made.leaked), (Some((0.0, 8.0)), Some(3.0)));
    }
}
