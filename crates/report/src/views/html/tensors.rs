//! Tensors of frameworks' allocators by call site and bin of time, and the map of their segments.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::bins::Bins;
use super::document::{HeldData, PathData, SegmentData, TensorsData};
use super::held::{Effect, HeldByBin, HeldSums};
use super::paths::{FrameTable, site_key};
use super::reading::Reading;
use crate::analysis::replayed::Replayed;
use crate::label::labels;
use crate::memleak::{PytorchReport, SiteGroups, stack_of};
use anyhow::Result;
use gpuprobe_engine::{Allocation, Allocator, Ledger, Process};
use gpuprobe_model::event::Event;
use gpuprobe_model::stack::Frame;

/// Memory that no call site is known of.
const BEFORE: &str = "allocated before gpuprobe attached";
/// Limit on the blocks of a map; the smallest are left out.
const BLOCKS: usize = 50_000;
/// In place of the path of a block.
const UNKNOWN: i64 = -1;
const FREE: i64 = -2;

/// Process, and device as the process numbers it.
type Place = (u32, u16);

/// The tensors of a file.
pub(super) struct TensorsByBin {
    bins: Bins,
    allocators: BTreeMap<Place, AllocatorByBin>,
    /// The live blocks of the processes: allocator, call site and bytes by address.
    blocks: HashMap<u32, HashMap<u64, (Place, u32, u64)>>,
    end: Option<Replayed>,
}

/// The tensors of an allocator.
struct AllocatorByBin {
    /// By number of the call site in the engine; `None` for memory from before.
    held: HeldByBin<Option<u32>>,
    before_bytes: u64,
    /// The most within each bin, and now.
    reserved: Vec<u64>,
    reserved_bytes: u64,
}

impl TensorsByBin {
    pub(super) fn read(reading: &Reading<'_>) -> Result<Self> {
        let mut all = Self {
            bins: reading.bins.clone(),
            allocators: BTreeMap::new(),
            blocks: HashMap::new(),
            end: None,
        };
        all.end = reading.tensors(|event, time_ns, ledger| all.see(event, time_ns, ledger))?;
        for allocator in all.allocators.values_mut() {
            allocator.reserve(all.bins.count() - 1, 0);
            allocator.held.finish();
        }
        Ok(all)
    }

    pub(super) fn len(&self) -> usize {
        self.allocators.values().map(|one| one.held.len()).sum()
    }

    /// Merges neighbouring bins.
    pub(super) fn halve(&mut self) {
        for allocator in self.allocators.values_mut() {
            allocator.held.halve();
            let pairs = allocator.reserved.chunks(2);
            allocator.reserved = pairs
                .filter_map(|pair| pair.iter().max().copied())
                .collect();
        }
    }

    /// Enters an event that changes tensors, or the segments that they are in.
    fn see(&mut self, event: &Event, time_ns: i64, ledger: &Ledger) {
        let pid = event.pid();
        let has_ended = matches!(event, Event::Exit(_) | Event::Exec(_));
        let process = ledger.process_of(pid);
        if let Event::Tensor(tensor) = event {
            let blocks = self.blocks.entry(pid).or_default();
            let gone = blocks.remove(&tensor.address);
            let at = process.and_then(|process| process.tensors.site_at(tensor.address));
            let at = at.filter(|_| !tensor.is_free);
            let made = at.map(|(device, site)| ((pid, device), site, tensor.bytes));
            blocks.extend(made.map(|block| (tensor.address, block)));
            gone.into_iter()
                .for_each(|block| self.change(time_ns, Effect::Freed, block));
            made.into_iter()
                .for_each(|block| self.change(time_ns, Effect::Allocated, block));
        } else if has_ended {
            for block in self.blocks.remove(&pid).into_iter().flatten() {
                self.change(time_ns, Effect::Held, block.1);
            }
        }
        let mut ended = ledger.ended(true).filter(|_| has_ended);
        let process = process.or_else(|| ended.find(|process| process.pid == pid));
        for allocator in process.iter().flat_map(|process| process.tensors.iter()) {
            self.at((pid, allocator.device))
                .mark(time_ns, allocator, has_ended);
        }
    }

    fn at(&mut self, place: Place) -> &mut AllocatorByBin {
        let bins = &self.bins;
        let allocator = self.allocators.entry(place);
        allocator.or_insert_with(|| AllocatorByBin::new(bins))
    }

    fn change(&mut self, time_ns: i64, effect: Effect, (place, site, bytes): (Place, u32, u64)) {
        let held = &mut self.at(place).held;
        held.advance(time_ns);
        held.change(Some(site), effect, [bytes, 1], true);
    }

    pub(super) fn into_documents(
        self,
        reading: &Reading<'_>,
        frames: &mut FrameTable,
    ) -> Vec<TensorsData> {
        let Some(end) = self.end else {
            return Vec::new();
        };
        let ledger = end.ledger();
        let wanted = self.allocators.into_iter();
        let wanted = wanted.filter(|((pid, _), _)| reading.includes(*pid));
        let documents = wanted.filter_map(|(place, by_bin)| {
            let mut processes = ledger.live_processes().chain(ledger.ended(true));
            let process = processes.find(|process| process.pid == place.0)?;
            let mut allocators = process.tensors.iter();
            let allocator = allocators.find(|allocator| allocator.device == place.1)?;
            let age = |block: &Allocation| {
                let since_first = end
                    .session_ns(block.end_ns)
                    .saturating_sub(reading.first_ns);
                reading.bins.end_ns().saturating_sub(since_first)
            };
            let reports = end.sites(place.0);
            let report = reports.into_iter().find(|one| one.device == place.1);
            let of_end = (&end, report.as_ref());
            let (held, places) = held_document(&by_bin.held, (process, allocator), of_end, frames);
            Some(TensorsData {
                pid: place.0,
                device: place.1,
                segments: segments(process, allocator, &places, age),
                report: report.map(|report| PytorchReport {
                    sites: None,
                    ..report
                }),
                held,
                reserved: by_bin.reserved,
            })
        });
        documents.collect()
    }
}

impl AllocatorByBin {
    fn new(bins: &Bins) -> Self {
        Self {
            held: HeldByBin::new(bins),
            before_bytes: 0,
            reserved: Vec::new(),
            reserved_bytes: 0,
        }
    }

    /// Notes the state of the allocator after an event.
    fn mark(&mut self, time_ns: i64, allocator: &Allocator, has_ended: bool) {
        self.held.advance(time_ns);
        let (before, reserved) = match has_ended {
            true => (0, 0),
            false => (allocator.bytes_from_before(), allocator.reserved_bytes),
        };
        let (effect, bytes) = match before.cmp(&self.before_bytes) {
            std::cmp::Ordering::Greater => (Effect::Allocated, before - self.before_bytes),
            _ if has_ended => (Effect::Held, self.before_bytes),
            _ => (Effect::Freed, self.before_bytes - before),
        };
        if bytes > 0 {
            self.held.change(None, effect, [bytes, 0], true);
        }
        self.before_bytes = before;
        self.held.mark(time_ns);
        self.reserve(self.held.bin(), reserved);
    }

    /// Notes what is reserved in a bin; it was what it is in the bins since the last time.
    fn reserve(&mut self, bin: usize, bytes: u64) {
        self.reserved
            .resize((bin + 1).max(self.reserved.len()), self.reserved_bytes);
        if let Some(most) = self.reserved.last_mut() {
            *most = bytes.max(*most);
        }
        self.reserved_bytes = bytes;
    }
}

/// The call paths of an allocator, one a call site, and the place of each by the number of the engine.
fn held_document(
    held: &HeldByBin<Option<u32>>,
    (process, allocator): (&Process, &Allocator),
    (end, report): (&Replayed, Option<&PytorchReport>),
    frames: &mut FrameTable,
) -> (HeldData, HashMap<u32, usize>) {
    let groups = SiteGroups::of(&allocator.blocks, true, end.symbols());
    let mut places = HashMap::new();
    let mut found: Vec<(u32, Vec<Frame>)> = Vec::new();
    for (number, site) in (0..).zip(allocator.blocks.sites.iter()) {
        // The number of the first site of the group.
        let id = groups.id(number);
        let known = places.get(&id).copied();
        places.insert(number, known.unwrap_or(found.len()));
        if known.is_none() {
            found.push((id, stack_of(process.pid, site, end.symbols()).0));
        }
    }
    let mut sums = vec![HeldSums::default(); found.len() + 1];
    for (number, own) in held.paths() {
        let place = number.and_then(|number| places.get(&number));
        sums[place.copied().unwrap_or(found.len())].merge(own);
    }
    let stacks: Vec<_> = found
        .iter()
        .map(|(_, frames)| (frames.as_slice(), ""))
        .collect();
    let mut sites: BTreeMap<_, _> = found
        .iter()
        .map(|(id, _)| site_key(process.pid, *id))
        .zip(labels(&stacks))
        .collect();
    // As in reports, of the call sites that they list.
    let listed = report.and_then(|report| report.sites.as_ref());
    sites.extend(
        listed
            .into_iter()
            .flatten()
            .map(|site| (site_key(process.pid, site.id), site.label.clone())),
    );
    let known = found.into_iter().map(|(id, stack)| PathData {
        site: Some(id),
        stack: frames.stack(stack, None),
        ..PathData::default()
    });
    let before = PathData {
        function: BEFORE.to_owned(),
        ..PathData::default()
    };
    let paths = known.chain([before]).zip(sums);
    let paths = paths.map(|(path, sums)| PathData {
        pid: process.pid,
        kind: "tensors",
        changes: sums.flat(),
        ..path
    });
    let document = HeldData {
        bins: held.highest(),
        paths: paths.collect(),
        sites,
    };
    (document, places)
}

/// The segments of an allocator with their blocks; `age_of` gives ages in nanoseconds.
fn segments(
    process: &Process,
    allocator: &Allocator,
    places: &HashMap<u32, usize>,
    age_of: impl Fn(&Allocation) -> i64,
) -> Vec<SegmentData> {
    let mut blocks: Vec<_> = allocator.blocks.allocations().collect();
    blocks.sort_unstable_by_key(|block| block.address);
    let mut sizes: Vec<_> = blocks
        .iter()
        .map(|block| Reverse(block.size_bytes))
        .collect();
    sizes.sort_unstable();
    let least = sizes.get(BLOCKS).map_or(0, |Reverse(bytes)| *bytes + 1);
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let segments = allocator.fragmentation(process).segments.into_iter();
    let segments = segments.map(|segment| {
        let end = segment.address.saturating_add(segment.bytes);
        let first = blocks.partition_point(|block| block.address < segment.address);
        let last = blocks.partition_point(|block| block.address < end);
        let mut flat = Vec::new();
        let mut next = segment.address;
        let mut push = |from: u64, to: u64, path: i64, age_ns: i64| {
            if to > from {
                flat.extend([
                    number(from - segment.address),
                    number(to - from),
                    path,
                    age_ns,
                ]);
            }
        };
        for block in &blocks[first..last] {
            let block_end = block.address.saturating_add(block.size_bytes);
            push(next, block.address, FREE, -1);
            next = next.max(block_end);
            if block.size_bytes >= least {
                let place = places.get(&block.site).copied();
                let path = place.and_then(|place| i64::try_from(place).ok());
                push(
                    block.address,
                    block_end,
                    path.unwrap_or(UNKNOWN),
                    age_of(block),
                );
            }
        }
        push(next, end, FREE, -1);
        SegmentData {
            address: format!("{:#x}", segment.address),
            bytes: segment.bytes,
            blocks: flat,
        }
    });
    segments.collect()
}
