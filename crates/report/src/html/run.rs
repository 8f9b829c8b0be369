//! Reads a run.

use std::collections::HashMap;

use anyhow::Result;

use super::bins::{Bins, FEWEST};
use super::document::{CopyData, KernelData, RunData};
use super::facts::{counted_kernels, gpus, lost, processes, traced};
use super::frames::FrameTable;
use super::holdings::memory_document;
use super::memory::MemoryByBin;
use super::span::span;
use super::tensors;
use super::work::GpuWork;
use crate::analysis::report::{Analysis, of_all_sites};
use crate::analysis::{Filter, RowLedger, validate_filter};
use crate::explain::Explain;
use crate::run::run_of;
use crate::{Report, View};
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session};

/// Limit on the changes of call stacks, and on those of kernels and copies: with more, bins are merged.
const MOST_CHANGES: usize = 120_000;

/// Reads a file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or has nothing of what is selected.
pub(super) fn read(database: &Database, filter: &Filter) -> Result<RunData> {
    let filter = Filter {
        host: true,
        from_ns: None,
        to_ns: None,
        ..*filter
    };
    validate_filter::check(database, &filter)?;
    let session = Session::read(database)?;
    let report = ask(database, &filter, Analysis::Processes)?;
    let (mut bins, first_ns) = span(database, &session)?;
    let mut memory = None;
    if database.has_rows(MEMORY)? {
        let mut by_bin = MemoryByBin::new(bins.clone());
        let row_ledger = RowLedger::read(database, &session, &filter, &mut by_bin)?;
        by_bin.finish();
        memory = Some((by_bin, row_ledger));
    }
    let row_ledger = memory.as_ref().map(|(_, row_ledger)| row_ledger);
    let first_ns = row_ledger.and_then(RowLedger::first_ns).unwrap_or(first_ns);
    let events = row_ledger.map_or(0, |row_ledger| row_ledger.findings.events);
    let mut work = GpuWork::read(database, &filter, &bins, first_ns)?;
    let by_bin = memory.as_mut().map(|(by_bin, _)| by_bin);
    limit_changes(&mut bins, by_bin, &mut work);
    let mut frames = FrameTable::default();
    let mut explain = None;
    let memory = match memory {
        Some((by_bin, row_ledger)) => {
            let report = ask(database, &filter, Analysis::Explain)?;
            explain = Explain::of(&report);
            let labels = (&mut frames, labels_of(&report));
            let read = (by_bin, &row_ledger);
            Some(memory_document(database, &session, &filter, read, labels)?)
        }
        None => None,
    };
    let pytorch = tensors::read(database, &filter, (&bins, first_ns), &mut frames)?;
    let gpus = gpus(&report, &work);
    let (kernels, copies) = kernels_and_copies(database, &filter, work)?;
    let name = database.path().file_name().unwrap_or_default();
    Ok(RunData {
        file: name.to_string_lossy().into_owned(),
        title: run_of(&session),
        start: session.wall(first_ns).map(|start| start.to_rfc3339()),
        traced: vec![traced(&report, events, &kernels, &bins)],
        lost: lost(database, &report),
        frames: frames.into_list(),
        processes: processes(&report),
        explain,
        memory,
        gpus,
        kernels,
        copies,
        pytorch,
        edges_ns: bins.into_edges(),
    })
}

/// A report of the file, with all call sites.
fn ask(database: &Database, filter: &Filter, question: Analysis) -> Result<Report> {
    of_all_sites(database, filter, View::default(), question)
}

/// Merges neighbouring bins until there are few enough changes.
fn limit_changes(bins: &mut Bins, mut memory: Option<&mut MemoryByBin>, work: &mut GpuWork) {
    let count = |memory: &Option<&mut MemoryByBin>| memory.as_ref().map_or(0, |m| m.len());
    while bins.count() > FEWEST && count(&memory).max(work.len()) > MOST_CHANGES {
        bins.halve();
        work.halve();
        if let Some(memory) = &mut memory {
            memory.halve();
        }
    }
}

/// Runs of kernels, or else the number of their launches, and copies.
fn kernels_and_copies(
    database: &Database,
    filter: &Filter,
    work: GpuWork,
) -> Result<(Vec<KernelData>, Vec<CopyData>)> {
    let has_runs = work.has_runs();
    let (runs, copies) = work.into_documents();
    let kernels = match has_runs {
        true => runs,
        false => counted_kernels(&ask(database, filter, Analysis::Kernels)?),
    };
    Ok((kernels, copies))
}

/// Labels of the call sites with memory that was never freed.
fn labels_of(report: &Report) -> HashMap<u32, String> {
    let processes = report.memleak.iter().flat_map(|memleak| &memleak.processes);
    let sites = processes
        .filter_map(|process| process.sites.as_ref())
        .flatten();
    sites.map(|site| (site.id, site.label.clone())).collect()
}
