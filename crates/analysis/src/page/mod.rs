//! What the HTML page shows: the report, and changes by call path, kernel and copy in bins of time, which the page adds
//! up for any range. The sums are the numbers of `gpuprobe report --format json --from --to`.
//!
//! Times are nanoseconds from the first memory event of a run; they are negative for work before it. `changes` are
//! flat lists of numbers, a few for each bin of time in which something changed.

mod memory;
mod tensors;
mod work;

use std::path::Path;

use anyhow::Result;
use chrono::SecondsFormat;
use serde::Serialize;

use crate::chart::{ChartLine, recorded_smi};
use crate::diff::Diff;
use crate::range::{first_ns, span};
use crate::run::run_of;
use crate::timeline::{Bins, MemoryTimelines};
use crate::work::CALLED_COPIES;
use crate::{Analysis, File, Filter};
use gpuprobe_cuda::Modes;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_recording::Session;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_report::about::ProcessRow;
use gpuprobe_report::copy_sites::CopySiteReport;
use gpuprobe_report::explain::Explain;
use gpuprobe_report::incidents::IncidentReport;
use gpuprobe_report::words::{describe_lost, plural};
use gpuprobe_report::{Options, Report};
use memory::{FrameData, FrameTable, HeldData};
use tensors::TensorsData;
use work::{CopyData, GpuData, KernelData, WorkByBin};

/// Version of the layout; the page shows no other.
const VERSION: u32 = 2;
/// Bins of a run.
const BINS: usize = 256;

/// One run, or two to compare.
#[derive(Debug, Serialize)]
pub struct Page {
    version: u32,
    gpuprobe: &'static str,
    runs: Vec<RunData>,
    diff: Option<Diff>,
}

#[derive(Debug, Serialize)]
struct RunData {
    /// Name of the file, without its folder.
    file: String,
    /// Command, GPU and date.
    title: Option<String>,
    /// Time of day of the first memory event.
    start: Option<String>,
    traced: String,
    lost: LostData,
    edges_ns: Vec<i64>,
    /// Frames, which call paths refer to by number.
    frames: Vec<FrameData>,
    processes: Vec<ProcessRow>,
    /// Verdicts on the memory.
    explain: Option<Explain>,
    /// Memory from CUDA; `None` if it was not recorded.
    memory: Option<MemoryData>,
    gpus: Vec<GpuData>,
    kernels: Vec<KernelData>,
    copies: Vec<CopyData>,
    /// Copies by call site, of the whole run.
    copy_sites: Vec<CopySiteReport>,
    /// Allocators of PyTorch and TensorFlow, by process and device.
    tensors: Vec<TensorsData>,
}

#[derive(Debug, Serialize)]
struct LostData {
    /// `None` if that is unknown.
    complete: Option<bool>,
    sentence: String,
}

/// Memory from CUDA.
#[derive(Debug, Serialize)]
struct MemoryData {
    #[serde(flatten)]
    held: HeldData,
    incidents: Vec<IncidentData>,
    /// Memory by nvidia-smi.
    overlay: Vec<ChartLine>,
}

/// A request that was refused.
#[derive(Debug, Serialize)]
struct IncidentData {
    time_ns: i64,
    text: String,
}

/// Reads the recording or export `file`, and a later run to show beside it; of `filter`, the times are not used.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or has nothing of what is selected.
pub fn read(
    file: &Path,
    after: Option<&Path>,
    filter: &Filter,
    progress: &SharedProgress,
) -> Result<Page> {
    let whole = Filter {
        host: true,
        from: None,
        to: None,
        ..*filter
    };
    let before = File::open(file, whole, progress)?;
    let mut runs = vec![run(&before)?];
    let mut compared = None;
    if let Some(after) = after {
        let after = File::open(after, whole, progress)?;
        runs.push(run(&after)?);
        compared = Some(before.diff(&after, true, false)?);
    }
    Ok(Page {
        version: VERSION,
        gpuprobe: env!("CARGO_PKG_VERSION"),
        runs,
        diff: compared,
    })
}

fn run(file: &File) -> Result<RunData> {
    let (database, session) = (&file.database, &file.session);
    let (begin, end) = span(database)?.unwrap_or_default();
    // A recording goes on without a row; an export ends with its last one.
    let stop_ns = session.stop_ns.filter(|_| database.is_ours());
    let end = stop_ns.map_or(end, |stop| stop.max(end));
    // The page counts from the first memory event.
    let first_ns = first_ns(database)?.unwrap_or(begin);
    let [begin, end] = [begin, end].map(|ns| ns.saturating_sub(first_ns));
    let bins = Bins::between(begin, end, BINS);
    let takes_copies = !database.has_rows(CALLED_COPIES)?;
    let mut work = WorkByBin::new(&bins, first_ns, takes_copies);
    let mut held = MemoryTimelines::new(bins, first_ns, false);
    let lists = Options::default();
    let report = file.observe(Analysis::Page, &lists, Some(&mut held), &mut work)?;
    let counted = report.cudatrace.as_ref().map_or(0, |trace| trace.launches);
    work.launches(file, counted)?;
    held.finish();
    let bins = held.bins;
    let mut frames = FrameTable::default();
    let played = file.has_memory()?.then(|| file.at_end()).transpose()?;
    let has_memory = database.has_rows(MEMORY)?;
    let memory = match played.filter(|_| has_memory) {
        None => None,
        Some(played) => {
            let processes = report.memleak.iter().flat_map(|memory| &memory.processes);
            let listed = processes.flat_map(|one| {
                let sites = one.lists.sites.iter().flatten();
                sites.map(|site| (one.who.pid, site))
            });
            Some(MemoryData {
                held: memory::held(&held.memory, played, listed, &mut frames).0,
                incidents: incidents(&report, session, first_ns),
                overlay: recorded_smi(database, first_ns)?,
            })
        }
    };
    let end_ns = first_ns.saturating_add(bins.end_ns());
    let tensors = held.tensors.iter().filter_map(|(place, timeline)| {
        tensors::data(*place, timeline, (played?, &report, end_ns), &mut frames)
    });
    let tensors = tensors.collect();
    let (gpus, copies) = (work.gpus(&report), work.copies());
    let kernels = work.into_kernels(&report);
    let start = session.wall(first_ns);
    let name = database.path().file_name().unwrap_or_default();
    Ok(RunData {
        file: name.to_string_lossy().into_owned(),
        title: run_of(session),
        start: start.map(|start| start.to_rfc3339_opts(SecondsFormat::Millis, false)),
        traced: traced(&report, &bins, &kernels),
        lost: lost(&report, database.is_ours()),
        edges_ns: bins.edges_ns,
        frames: frames.0.into_iter().collect(),
        processes: report
            .about
            .and_then(|about| about.processes)
            .unwrap_or_default(),
        explain: report.explain,
        memory,
        gpus,
        kernels,
        copies,
        copy_sites: report.bandwidth_util.map_or_else(Vec::new, |it| it.sites),
        tensors,
    })
}

/// The requests that were refused, as far as their time is known.
fn incidents(report: &Report, session: &Session, first_ns: i64) -> Vec<IncidentData> {
    let first = session.wall(first_ns);
    let data = |incident: &IncidentReport| {
        Some(IncidentData {
            time_ns: (incident.time? - first?).num_nanoseconds()?,
            text: incident.headline(),
        })
    };
    report.incidents.iter().filter_map(data).collect()
}

fn traced(report: &Report, bins: &Bins, kernels: &[KernelData]) -> String {
    let about = report.about.as_ref();
    let processes = about.and_then(|about| about.processes.as_ref());
    let processes = plural(processes.map_or(0, Vec::len) as u64, "process");
    let seconds = bins.end_ns().saturating_sub(bins.edges_ns[0]) as f64 / 1e9;
    let events = about.and_then(|about| about.findings);
    let events = events.map_or(0, |findings| findings.events);
    let launches = kernels.iter().map(|kernel| kernel.launches);
    let launches = launches.fold(0, u64::saturating_add);
    let known = |number: u64, what: &str| match number {
        0 => String::new(),
        number => format!(", {}", plural(number, what)),
    };
    let events = known(events, "memory event");
    let launches = known(launches, "kernel launch");
    let recorded = about.and_then(|about| about.recorded);
    let missing = recorded.map_or_else(Vec::new, |modes| {
        let Modes { activity, .. } = modes;
        let kinds = [
            (modes.memleak, "memory (--memleak)"),
            (modes.cudatrace || activity, "launches (--cudatrace)"),
            (
                modes.bandwidth_util || activity,
                "copies (--bandwidth-util)",
            ),
            (activity, "GPU times (--activity)"),
        ];
        let missing = kinds.iter().filter(|(has, _)| !has);
        missing.map(|(_, kind)| *kind).collect()
    });
    let missing = match missing.join(", ") {
        none if none.is_empty() => none,
        kinds => format!(" Not recorded: {kinds}."),
    };
    format!("{processes} for {seconds:.1} s{events}{launches}.{missing}")
}

fn lost(report: &Report, is_ours: bool) -> LostData {
    let unknown = "Lost events: unknown, as nsys does not say.";
    let (complete, sentence) = match (report.lost.any(), is_ours) {
        (true, _) => {
            let lost = describe_lost(&report.lost);
            let sentence = format!("LOST EVENTS, the figures are incomplete: {lost}.");
            (Some(false), sentence)
        }
        (_, true) => (Some(true), "Nothing was lost.".to_owned()),
        _ => (None, unknown.to_owned()),
    };
    LostData { complete, sentence }
}
