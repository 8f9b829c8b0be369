//! `gpuprobe report --html`: a recording as one HTML file, with its data inside.
//!
//! The page is built from `web/` and kept in `web/dist/report.html`. Its data are the report, and changes by call
//! path, kernel and copy in at most 256 bins of time, which the page adds up for any range. The sums are the numbers
//! of `gpuprobe report --format json --from --to`.

mod bins;
mod document;
mod held;
mod page;
mod paths;
mod reading;
mod tensors;
mod work;

use std::path::PathBuf;

use anyhow::Result;

use crate::analysis::{File, Filter};
use crate::run::run_of;
use crate::words::plural;
use bins::FEWEST;
use document::{KernelData, LostData, PageData, RunData};
use gpuprobe_os::progress::SharedProgress;
use paths::{FrameTable, memory_document};
use reading::Reading;
use tensors::TensorsByBin;
use work::WorkByBin;

/// Limit on the changes of call paths, and on those of kernels and copies: with more, bins are merged.
const MOST_CHANGES: usize = 120_000;

/// Configuration of `gpuprobe report --html`.
#[derive(Clone, Debug)]
pub struct HtmlConfig {
    /// The recording or export.
    pub file: PathBuf,
    /// A later run to show beside it.
    pub after: Option<PathBuf>,
    /// The HTML file to write; `-` for standard output.
    pub output: PathBuf,
    /// Process and device to show; its times are not used.
    pub filter: Filter,
}

/// Writes the HTML file; `progress` shows how far reading is.
///
/// # Errors
///
/// Returns an error if a file cannot be read, has nothing of what is selected, or the output cannot be written.
pub fn run(config: &HtmlConfig, progress: &SharedProgress) -> Result<()> {
    let filter = Filter {
        host: true,
        from_ns: None,
        to_ns: None,
        ..config.filter
    };
    let before = File::open(&config.file, filter, progress)?;
    let mut runs = vec![read(&before)?];
    let mut compared = None;
    if let Some(after) = &config.after {
        let after = File::open(after, filter, progress)?;
        runs.push(read(&after)?);
        compared = Some(before.diff(&after, true, false)?);
    }
    page::write(&PageData::new(runs, compared), &config.output)
}

fn read(file: &File) -> Result<RunData> {
    let reading = Reading::begin(file)?;
    let mut memory = reading.memory()?;
    let mut tensors = TensorsByBin::read(&reading)?;
    let mut work = WorkByBin::new(&reading.bins);
    reading.work(&mut work)?;
    let mut bins = reading.bins.clone();
    while bins.count() > FEWEST {
        let held = memory.as_ref().map_or(0, |(held, _)| held.len());
        if (held + tensors.len()).max(work.len()) <= MOST_CHANGES {
            break;
        }
        bins.halve();
        tensors.halve();
        work.halve();
        if let Some((held, _)) = &mut memory {
            held.halve();
        }
    }
    let mut frames = FrameTable::default();
    let memory = memory
        .map(|(held, read)| memory_document(&reading, &held, &read, &mut frames))
        .transpose()?;
    let tensors = tensors.into_documents(&reading, &mut frames);
    let (gpus, copies) = (work.gpus(&reading.report), work.copies());
    let kernels = work.into_kernels(&reading.report);
    let start = reading.session.wall(reading.first_ns);
    let name = file.database.path().file_name().unwrap_or_default();
    let about = reading.report.about.as_ref();
    Ok(RunData {
        file: name.to_string_lossy().into_owned(),
        title: run_of(&reading.session),
        start: start.map(|start| start.to_rfc3339()),
        traced: traced(&reading, &kernels),
        lost: lost(&reading),
        edges_ns: bins.edges_ns().to_vec(),
        frames: frames.into_list(),
        processes: about
            .and_then(|about| about.processes.clone())
            .unwrap_or_default(),
        explain: reading.report.explain.clone(),
        memory,
        gpus,
        kernels,
        copies,
        tensors,
    })
}

fn traced(reading: &Reading<'_>, kernels: &[KernelData]) -> String {
    let about = reading.report.about.as_ref();
    let processes = about
        .and_then(|about| about.processes.as_ref())
        .map_or(0, Vec::len);
    let events = about
        .and_then(|about| about.findings)
        .map_or(0, |findings| findings.events);
    let launches = kernels
        .iter()
        .map(|kernel| kernel.launches)
        .fold(0, u64::saturating_add);
    let begin_ns = reading.bins.span(0).0;
    let seconds = reading.bins.end_ns().saturating_sub(begin_ns) as f64 / 1e9;
    let known = [(events, "memory event"), (launches, "kernel launch")];
    let parts = known.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<_> = parts.map(|(number, what)| plural(number, what)).collect();
    let what = match parts.is_empty() {
        true => String::new(),
        false => format!(": {}", parts.join(", ")),
    };
    format!(
        "{} for {seconds:.1} s{what}.",
        plural(processes as u64, "process")
    )
}

fn lost(reading: &Reading<'_>) -> LostData {
    let lost = &reading.report.lost;
    let (complete, sentence) = if lost.any() {
        let lost = crate::describe_lost(lost);
        (
            Some(false),
            format!("LOST EVENTS, the figures are incomplete: {lost}."),
        )
    } else if reading.database.is_ours() {
        (Some(true), "Nothing was lost.".to_owned())
    } else {
        let unknown = "Whether events were lost is unknown: exports of nsys do not tell.";
        (None, unknown.to_owned())
    };
    LostData { complete, sentence }
}
