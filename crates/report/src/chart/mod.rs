//! Memory over time, as `gpuprobe plot` draws it.

mod smi;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::analysis::{File, Filter, NoMatch, Played, first_ns};
use crate::memleak::{SiteGroups, stack_of};
use crate::run::run_of;
use crate::timeline::{
    Bins, Effect, MemoryTimelines, PathKey, TensorPlace, TensorTimeline, Timeline, allocator_at,
};
use crate::{function_name, label};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::Process;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_os::regular::read_text;
use gpuprobe_os::say;
use gpuprobe_recording::Database;
use gpuprobe_recording::memory_rows::MEMORY;

pub(crate) use smi::recorded as recorded_smi;
pub use smi::{lines as smi_lines, parse as parse_smi};

/// Bins of time; each has two points.
const BINS: usize = 1024;
const TENSORS: &str = "GPUPROBE_TENSORS";

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

/// What a chart shows.
#[derive(Clone, Debug)]
pub struct ChartConfig {
    /// The recording or export; none if a usage report is shown alone.
    pub file: Option<PathBuf>,
    /// Part of the file to show.
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
        bands.sort_by(|a, b| b.most.total_cmp(&a.most));
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
    let mut chart = match (&config.file, &config.usage) {
        (_, Some(path)) => of_usage(&text(path)?, path)?,
        (Some(file), None) => of_file(file, config, progress)?,
        (None, None) => bail!("nothing to plot: give a recording, or --usage"),
    };
    if config.title.is_some() {
        chart.title.clone_from(&config.title);
    }
    Ok(chart)
}

fn text(path: &Path) -> Result<String> {
    read_text(path).with_context(|| format!("cannot read {}", path.display()))
}

fn of_file(file: &Path, config: &ChartConfig, progress: &SharedProgress) -> Result<Chart> {
    let opened = File::open(file, config.filter, progress)?;
    let (database, session) = (&opened.database, &opened.session);
    let is_of_tensors = config.by == PlotBy::TensorSite;
    let no_match =
        |what: &str| anyhow::Error::from(NoMatch(format!("{} has {what}", file.display())));
    let no_event = || no_match("no memory event in what was selected");
    let first = first_ns(database)?;
    if is_of_tensors && first.is_none() {
        return Err(no_event());
    }
    let bins = bins(database, config, first.unwrap_or(0))?;
    let mut held = MemoryTimelines::new(bins, first.unwrap_or(0), config.filter.host, false);
    let played = opened.listen(&mut held)?;
    held.finish();
    let mut chart = if config.by == PlotBy::TensorSite {
        let tensors = held.tensors.values().next();
        let tensors = tensors.filter(|tensors| tensors.held.peak().1 > 0);
        let tensors = tensors.ok_or_else(|| no_match("no tensors"))?;
        of_tensors(tensors, played, config.top)
    } else {
        let events = played.findings.events;
        let first = played
            .first_ns()
            .filter(|_| events > 0)
            .ok_or_else(no_event)?;
        let leaked = played.never_freed().gpu.total.bytes as f64;
        let peak_ns = played.peak_ns().filter(|_| !config.filter.host);
        let peak_bytes = played.at_peak.gpu.total.bytes as f64;
        Chart {
            peak: peak_ns.map(|ns| (seconds(ns.saturating_sub(first)), peak_bytes)),
            leaked: Some(leaked).filter(|&bytes| bytes > 0.0),
            ..of_memory(&held.memory, played, config)
        }
    };
    chart.title = run_of(session);
    let first = played.first_ns().or(first).unwrap_or(0);
    chart.lines.extend(match &config.smi {
        None => recorded_smi(database, first)?,
        Some(path) => {
            let Some(start) = session.start_epoch_ns else {
                bail!(
                    "{} does not say when it began: --smi cannot be aligned",
                    file.display()
                );
            };
            let samples = parse_smi(&text(path)?).with_context(|| path.display().to_string())?;
            let offset_s = session.utc_offset_s.unwrap_or(0);
            smi_lines(&samples, start.saturating_add(first), offset_s)
        }
    });
    let (begin, end) = chart.span();
    let mut points = chart.lines.iter().flat_map(|line| &line.points).peekable();
    if points.peek().is_some() && !points.any(|(time, _)| (begin..=end).contains(time)) {
        say("warning: the samples of nvidia-smi are of another time than the recording");
    }
    Ok(chart)
}

/// The bins of the selected time.
fn bins(database: &Database, config: &ChartConfig, first_ns: i64) -> Result<Bins> {
    let mut begin = None;
    let mut last = [(MEMORY, "start"), ("GPUPROBE_ENDS", "t0")].to_vec();
    if config.by == PlotBy::TensorSite {
        begin = database.limit(TENSORS, "t0", "ASC")?;
        last.push((TENSORS, "t0"));
    }
    let mut end = first_ns;
    for (table, column) in last {
        end = end.max(database.limit(table, column, "DESC")?.unwrap_or(end));
    }
    let since_first = |ns: i64| ns.saturating_sub(first_ns);
    let begin = begin.map_or(0, |begin| since_first(begin).min(0));
    let end = since_first(end).min(config.filter.to_ns.unwrap_or(i64::MAX));
    Ok(Bins::between(
        config.filter.from_ns.unwrap_or(begin),
        end,
        BINS,
    ))
}

/// Memory from CUDA: its kinds, or the call sites that held most at the peak.
fn of_memory(timeline: &Timeline<PathKey>, played: &Played, config: &ChartConfig) -> Chart {
    let is_shown = |key: &PathKey| config.filter.host || !key.is_host;
    if config.by == PlotBy::Kind {
        let labels = MemoryKind::ALL.iter().map(|kind| kind.name().to_owned());
        let area_of = |key: PathKey| is_shown(&key).then_some(key.kind as usize);
        return Chart::of(timeline, labels.collect(), area_of);
    }
    let find = |key: PathKey| {
        let process = played.process(key.pid, key.incarnation)?;
        Some(((key.pid, key.incarnation), process, key.number))
    };
    let (mut labels, areas) = top_sites(timeline, find, is_shown, (played, config.top, '#'));
    labels.push("elsewhere".to_owned());
    Chart::of(timeline, labels, |key| is_shown(&key).then(|| areas(key)))
}

/// Memory that allocators of frameworks had handed out, by the call sites that held most of it at its peak; and what they
/// had reserved.
fn of_tensors(tensors: &TensorTimeline, played: &Played, top: usize) -> Chart {
    let find = |(place, number): (TensorPlace, Option<u32>)| {
        let (_, allocator) = allocator_at(played, place)?;
        Some(((place.0, u32::from(place.1)), &allocator.blocks, number?))
    };
    let (mut labels, areas) = top_sites(&tensors.held, find, |_| true, (played, top, 'T'));
    let before = labels.len() + 1;
    labels.extend(["elsewhere", "allocated before gpuprobe attached"].map(str::to_owned));
    let area_of = |key: (TensorPlace, Option<u32>)| match key.1 {
        Some(_) => Some(areas(key)),
        None => Some(before),
    };
    let (ns, bytes) = tensors.held.peak();
    let reserved = tensors.reserved.points(1, |_| Some(0)).into_iter();
    let reserved = reserved.map(|(ns, areas)| (seconds(ns), areas[0] as f64));
    Chart {
        lines: vec![ChartLine {
            label: "reserved by PyTorch".to_owned(),
            points: reserved.collect(),
        }],
        peak: Some((seconds(ns), bytes as f64)),
        ..Chart::of(&tensors.held, labels, area_of)
    }
}

/// Labels of the call sites with most bytes at the peak of `timeline`, and the area of each key; the one after them has
/// all others. `find` knows who holds the memory of a key, its call sites, and the number of its own.
fn top_sites<'a, K: Copy + Eq + Hash>(
    timeline: &Timeline<K>,
    find: impl Fn(K) -> Option<((u32, u32), &'a Process, u32)>,
    is_shown: impl Fn(&K) -> bool,
    (played, top, letter): (&Played, usize, char),
) -> (Vec<String>, impl Fn(K) -> usize) {
    let symbols = played.symbols();
    let mut holders = BTreeMap::new();
    for (key, bytes) in timeline.at_peak() {
        let Some((holder, process, number)) = find(key) else {
            continue;
        };
        let (_, groups, sites) = holders.entry(holder).or_insert_with(|| {
            let groups = SiteGroups::of(process, true, symbols);
            (process, groups, BTreeMap::<u32, (u64, bool, Vec<K>)>::new())
        });
        let (sum, is_held, keys) = sites.entry(groups.id(number)).or_default();
        *sum = sum.saturating_add(if is_shown(&key) { bytes } else { 0 });
        *is_held |= bytes > 0;
        keys.push(key);
    }
    let mut all = Vec::new();
    for (process, _, mut sites) in holders.into_values() {
        sites.retain(|_, (_, is_held, _)| *is_held);
        // Labels are those of a report of that time, with all of these sites.
        let called = |id: &u32| {
            let site = process.sites.get(*id)?;
            let frames = stack_of(process.pid, site, symbols).0;
            Some((frames, function_name(site.row, symbols)))
        };
        let called: Vec<_> = sites
            .keys()
            .map(|id| called(id).unwrap_or_default())
            .collect();
        let stacks: Vec<_> = called
            .iter()
            .map(|(frames, called)| (&frames[..], &**called))
            .collect();
        let labels = sites.keys().zip(label::labels(&stacks));
        let labels: Vec<_> = labels
            .map(|(id, label)| format!("{letter}{id} {label}"))
            .collect();
        all.extend(sites.into_values().zip(labels));
    }
    all.retain(|((bytes, ..), _)| *bytes > 0);
    all.sort_by_key(|((bytes, ..), _)| Reverse(*bytes));
    all.truncate(top);
    let mut areas = HashMap::new();
    let mut named = Vec::new();
    for (area, ((.., keys), label)) in all.into_iter().enumerate() {
        areas.extend(keys.into_iter().map(|key| (key, area)));
        named.push(label);
    }
    let others = named.len();
    (named, move |key| areas.get(&key).copied().unwrap_or(others))
}

/// The chart of a report by `gpuprobe report --analysis usage`, in any format.
///
/// # Errors
///
/// Returns an error if it is none.
pub fn of_usage(text: &str, path: &Path) -> Result<Chart> {
    let rows: Vec<_> = text.lines().filter_map(numbers).collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
        bail!(
            "{} is no report of `gpuprobe report --analysis usage`",
            path.display()
        );
    };
    let mut timeline = Timeline::new(&Bins::between(first[0], last[0], BINS));
    let mut peak = (first[0], first[1]);
    let mut before = [0; 3];
    for &[time, total, ref parts @ ..] in &rows {
        timeline.advance(time);
        for (part, (&bytes, before)) in parts.iter().zip(&mut before).enumerate() {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            timeline.set(part, *before, bytes, Effect::Freed);
            *before = bytes;
        }
        timeline.mark(time, true);
        if total > peak.1 {
            peak = (time, total);
        }
    }
    timeline.finish();
    let labels = ["with call stack", "without call stack", "driver"].map(str::to_owned);
    Ok(Chart {
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
        assert!(of_usage("nothing\n", Path::new("file")).is_err());
        let made = of_usage("time\n0,8,8,0,0\n1000000000,3,3,0,0\n", Path::new("file")).unwrap();
        assert_eq!((made.peak, made.leaked), (Some((0.0, 8.0)), Some(3.0)));
    }
}
