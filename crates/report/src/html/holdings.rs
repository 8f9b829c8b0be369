//! The memory of a run, in the document.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::callers::{CallerNames, stack_documents};
use super::document::{MemoryData, Overlay, PeakData, SiteData};
use super::facts::incidents;
use super::frames::FrameTable;
use super::memory::{MemoryByBin, StackChanges};
use super::timelines::{Areas, MemoryOverTime};
use crate::analysis::{Filter, RowLedger};
use crate::plot;
use gpuprobe_recording::{Database, Session};

/// Call sites and owners with an area of their own.
const AREAS: usize = 11;

/// The document of the memory in `by_bin`; `labels` are those of reports, by call site.
pub(super) fn memory_document(
    database: &Database,
    session: &Session,
    filter: &Filter,
    (mut by_bin, row_ledger): (MemoryByBin, &RowLedger<'_>),
    (frames, labels): (&mut FrameTable, HashMap<u32, String>),
) -> Result<MemoryData> {
    let first_ns = row_ledger.first_ns().unwrap_or(0);
    let mut names = CallerNames::new(row_ledger);
    let stacks = std::mem::take(&mut by_bin.stacks);
    let numbers = stacks.iter().filter_map(|stack| names.site(&stack.key));
    let mut sites = names.sites(numbers.collect());
    for site in &mut sites {
        if let Some(label) = labels.get(&site.id) {
            site.label.clone_from(label);
        }
    }
    let highest = by_bin.highest();
    let peak_bin = highest.map_or(0, |(bin, _)| bin);
    let (site_areas, owner_areas) = areas(&stacks, &sites, &mut names, peak_bin);
    let mut over_time = MemoryOverTime::new(site_areas, owner_areas);
    RowLedger::read(database, session, filter, &mut over_time)?;
    let (documents, places) = stack_documents(&stacks, &mut names, frames);
    Ok(MemoryData {
        peak: highest.map(|(_, (time_ns, bytes))| PeakData { time_ns, bytes }),
        incidents: incidents(database, filter, first_ns)?,
        timelines: over_time.into_document(),
        overlay: plot::recorded_smi(database, first_ns)?
            .into_iter()
            .map(|line| Overlay {
                label: line.label,
                points: line.points,
            })
            .collect(),
        bins: by_bin.peaks,
        sites,
        stacks: documents,
        allocations: by_bin.largest.into_document(&places),
    })
}

/// Areas of the call sites and owners that hold most at the peak.
fn areas(
    stacks: &[StackChanges],
    sites: &[SiteData],
    names: &mut CallerNames<'_, '_>,
    peak_bin: usize,
) -> (Areas, Areas) {
    let labels: HashMap<u32, &str> = sites
        .iter()
        .map(|site| (site.id, site.label.as_str()))
        .collect();
    let mut by_site = BTreeMap::new();
    let mut by_owner = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| !stack.key.is_host) {
        let caller = stack.key.caller;
        let bytes = stack.at_peak_of(peak_bin).bytes;
        let site = names.site(&stack.key).map(|id| {
            let label = labels.get(&id).copied().unwrap_or("?");
            format!("#{id} {label}")
        });
        for (sums, name) in [
            (&mut by_site, site),
            (&mut by_owner, Some(names.owner(caller))),
        ] {
            if let Some(name) = name {
                let (sum, callers): &mut (i64, Vec<u32>) = sums.entry(name).or_default();
                *sum = sum.saturating_add(bytes);
                callers.push(caller);
            }
        }
    }
    (most(by_site), most(by_owner))
}

/// The largest of named sums, and an area for the rest.
fn most(sums: BTreeMap<String, (i64, Vec<u32>)>) -> Areas {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (bytes, _))| Reverse(*bytes));
    sums.truncate(AREAS);
    let mut areas = Areas::default();
    for (area, (name, (_, callers))) in sums.into_iter().enumerate() {
        areas.labels.push(name);
        areas
            .by_caller
            .extend(callers.into_iter().map(|caller| (caller, area)));
    }
    areas.labels.push("elsewhere".to_owned());
    areas
}
