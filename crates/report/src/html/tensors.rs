//! Tensors of frameworks' allocators by call site and bin of time, and the map of their segments.

use std::cmp::Reverse;
use std::collections::HashMap;

use anyhow::Result;
use serde_json::Value;

use super::bins::{Bins, SumsByBin};
use super::document::{MemoryMap, TensorSiteData, TensorsData, Timeline};
use super::frames::FrameTable;
use super::map::map_of;
use super::tensor_changes::{PeakBySite, Place, TensorLedger};
use super::timelines::timeline;
use crate::analysis::Filter;
use crate::analysis::replayed::Replayed;
use crate::label::labels;
use crate::memleak::{PytorchReport, SiteGroups, stack_of};
use crate::plot::Steps;
use gpuprobe_engine::{Allocation, Allocator, Process};
use gpuprobe_model::stack::Frame;
use gpuprobe_recording::Database;

/// Call sites with an area of their own in the timeline.
const AREAS: usize = 11;
/// Areas of other memory.
const ELSEWHERE: &str = "elsewhere";
const BEFORE: &str = "allocated before gpuprobe attached";

/// Reads the tensors of a file, whose first memory event was at `first_ns` of the session.
pub(super) fn read(
    database: &Database,
    filter: &Filter,
    (bins, first_ns): (&Bins, i64),
    frames: &mut FrameTable,
) -> Result<Vec<TensorsData>> {
    let mut most = PeakBySite::default();
    let Some(end) = Replayed::play(database, None, |event, player| {
        most.see(event, &player.state.ledger);
    })?
    else {
        return Ok(Vec::new());
    };
    let ledger = end.ledger();
    let processes = ledger.live_processes().chain(ledger.ended(true));
    let wanted = processes.filter(|p| filter.pid.is_none_or(|pid| pid == p.pid));
    let mut allocators = HashMap::new();
    for process in wanted {
        for allocator in process.tensors.iter() {
            let place = (process.pid, allocator.device);
            allocators
                .entry(place)
                .or_insert_with(|| AllocatorByBin::new((process, allocator), &end, &most, bins));
        }
    }
    let mut live = TensorLedger::default();
    Replayed::play(database, None, |event, player| {
        let Some(change) = live.see(event, &player.state.ledger) else {
            return;
        };
        let time = end.session_ns(change.time_ns).saturating_sub(first_ns);
        for (place, site, bytes, frees) in change.moved {
            if let Some(allocator) = allocators.get_mut(&place) {
                allocator.moved(site, bytes, frees, bins.of(time));
            }
        }
        for allocator in change
            .process
            .iter()
            .flat_map(|process| process.tensors.iter())
        {
            if let Some(by_bin) = allocators.get_mut(&(change.pid, allocator.device)) {
                by_bin.mark(time, bins, allocator, change.has_ended);
            }
        }
    })?;
    Ok(documents(&end, allocators, first_ns, bins, frames))
}

/// The documents of the allocators, by process and device.
fn documents(
    end: &Replayed,
    allocators: HashMap<(u32, u16), AllocatorByBin>,
    first_ns: i64,
    bins: &Bins,
    frames: &mut FrameTable,
) -> Vec<TensorsData> {
    let ledger = end.ledger();
    let mut documents = Vec::new();
    let mut places: Vec<_> = allocators.into_iter().collect();
    places.sort_by_key(|(place, _)| *place);
    let end_ns = bins.span(bins.count() - 1).1;
    let now = |allocation: &Allocation| {
        let since_first = end.session_ns(allocation.end_ns).saturating_sub(first_ns);
        end_ns.saturating_sub(since_first)
    };
    for (place, by_bin) in places {
        let mut processes = ledger.live_processes().chain(ledger.ended(true));
        let Some(process) = processes.find(|process| process.pid == place.0) else {
            continue;
        };
        let mut all = process.tensors.iter();
        let Some(allocator) = all.find(|allocator| allocator.device == place.1) else {
            continue;
        };
        let map = map_of(process, allocator, &by_bin.places, now);
        documents.push(by_bin.into_document(place, map, frames));
    }
    documents
}

/// A call site in the document.
struct TensorSite {
    id: u32,
    label: String,
    frames: Vec<Frame>,
    sums: SumsByBin<4>,
}

/// The changes of an allocator.
struct AllocatorByBin {
    report: Value,
    sites: Vec<TensorSite>,
    /// Index in [`Self::sites`] by the number of the engine.
    places: HashMap<u32, usize>,
    /// Areas by the index of the site, and their labels.
    areas: HashMap<usize, usize>,
    labels: Vec<String>,
    steps: Steps,
    reserved: Steps,
    /// At the end of each bin, if anything changed in it.
    before: Vec<Option<u64>>,
    /// Bytes in the area of memory from before.
    before_now: u64,
}

impl AllocatorByBin {
    fn new(
        (process, allocator): (&Process, &Allocator),
        end: &Replayed,
        most: &PeakBySite,
        bins: &Bins,
    ) -> Self {
        let reports = end.sites(process.pid);
        let report = reports
            .iter()
            .find(|report| report.device == allocator.device);
        let (sites, places) = sites_of(process, allocator, end, report);
        let mut sums: HashMap<usize, u64> = HashMap::new();
        for (&(place, number), &(_, bytes)) in &most.bytes {
            if place == (process.pid, allocator.device)
                && let Some(&site) = places.get(&number)
            {
                *sums.entry(site).or_default() += bytes;
            }
        }
        let mut largest: Vec<_> = sums.into_iter().collect();
        largest.sort_by_key(|&(site, bytes)| (Reverse(bytes), site));
        largest.truncate(AREAS);
        let named = largest.iter().filter_map(|(site, _)| sites.get(*site));
        let labels: Vec<_> = named
            .map(|site| format!("T{} {}", site.id, site.label))
            .chain([ELSEWHERE.to_owned(), BEFORE.to_owned()])
            .collect();
        let areas = largest.iter().enumerate();
        Self {
            report: report.map_or(Value::Null, without_sites),
            sites,
            places,
            areas: areas.map(|(area, (site, _))| (*site, area)).collect(),
            steps: Steps::new(labels.len()),
            labels,
            reserved: Steps::new(1),
            before: vec![None; bins.count()],
            before_now: 0,
        }
    }

    fn moved(&mut self, number: u32, bytes: u64, frees: bool, bin: usize) {
        let site = self.places.get(&number).copied();
        let elsewhere = self.labels.len() - 2;
        let area = site
            .and_then(|site| self.areas.get(&site).copied())
            .unwrap_or(elsewhere);
        match frees {
            true => self.steps.subtract(area, bytes),
            false => self.steps.add(area, bytes),
        }
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if let Some(site) = site.and_then(|site| self.sites.get_mut(site)) {
            let numbers = match frees {
                true => [0, 0, bytes, 1],
                false => [bytes, 1, 0, 0],
            };
            site.sums.add(bin, 0, numbers);
        }
    }

    /// Notes the state of the allocator at a time.
    fn mark(&mut self, time: i64, bins: &Bins, allocator: &Allocator, has_ended: bool) {
        let (before, reserved) = match has_ended {
            true => (0, 0),
            false => (allocator.bytes_from_before(), allocator.reserved_bytes),
        };
        if has_ended {
            self.steps.set(&vec![0; self.labels.len()]);
        } else {
            let area = self.labels.len() - 1;
            self.steps.subtract(area, self.before_now);
            self.steps.add(area, before);
        }
        self.before_now = before;
        if let Some(of_bin) = self.before.get_mut(bins.of(time)) {
            *of_bin = Some(before);
        }
        self.steps.mark(time);
        self.reserved.set(&[reserved]);
        self.reserved.mark(time);
    }

    fn into_document(
        self,
        (pid, device): Place,
        map: MemoryMap,
        frames: &mut FrameTable,
    ) -> TensorsData {
        let reserved = self.reserved.points().map(|point| point.values[0]);
        let mut now = 0;
        let before_bytes = self.before.iter().map(|of_bin| {
            now = of_bin.unwrap_or(now);
            now
        });
        let sites = self.sites.into_iter().map(|site| TensorSiteData {
            id: site.id,
            label: site.label,
            stack: frames.stack(site.frames, None),
            changes: site.sums.flat(),
        });
        TensorsData {
            pid,
            device,
            report: self.report,
            before_bytes: before_bytes.collect(),
            timeline: with_reserved(
                timeline(&self.steps, &self.labels),
                self.reserved
                    .points()
                    .map(|point| point.time_ns)
                    .zip(reserved),
            ),
            sites: sites.collect(),
            map,
        }
    }
}

/// Adds the reserved bytes at the times of the timeline.
fn with_reserved(mut timeline: Timeline, reserved: impl Iterator<Item = (i64, u64)>) -> Timeline {
    let points: Vec<_> = reserved.collect();
    let at = |time: &i64| {
        let after = points.partition_point(|(point, _)| point <= time);
        let last = after.checked_sub(1).and_then(|index| points.get(index));
        last.map_or(0, |(_, bytes)| *bytes)
    };
    timeline.reserved = Some(timeline.times_ns.iter().map(at).collect());
    timeline
}

fn without_sites(report: &PytorchReport) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.remove("sites");
    }
    value
}

/// All call sites of an allocator, and where each number of the engine is in the list.
fn sites_of(
    process: &Process,
    allocator: &Allocator,
    end: &Replayed,
    report: Option<&PytorchReport>,
) -> (Vec<TensorSite>, HashMap<u32, usize>) {
    let groups = SiteGroups::of(&allocator.blocks, true, end.symbols());
    let mut places = HashMap::new();
    let mut by_id: HashMap<u32, usize> = HashMap::new();
    let mut found: Vec<(u32, Vec<Frame>)> = Vec::new();
    for (number, site) in (0..).zip(allocator.blocks.sites.iter()) {
        let id = groups.id(number);
        let place = *by_id.entry(id).or_insert_with(|| {
            found.push((id, stack_of(process.pid, site, end.symbols()).0));
            found.len() - 1
        });
        places.insert(number, place);
    }
    let stacks: Vec<_> = found
        .iter()
        .map(|(_, frames)| (frames.as_slice(), ""))
        .collect();
    let mut labels = labels(&stacks);
    for site in report
        .iter()
        .filter_map(|report| report.sites.as_ref())
        .flatten()
    {
        let label = by_id.get(&site.id).and_then(|&place| labels.get_mut(place));
        if let Some(label) = label {
            label.clone_from(&site.label);
        }
    }
    let sites = found
        .into_iter()
        .zip(labels)
        .map(|((id, frames), label)| TensorSite {
            id,
            label,
            frames,
            sums: SumsByBin::default(),
        });
    (sites.collect(), places)
}
