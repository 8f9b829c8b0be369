//! Live allocations by call site.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::{LeftOut, Live, SiteReport};
use crate::{Options, Sort};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::totals::Sums;
use gpuprobe_engine::{Allocation, Ledger, Process, Site};
use gpuprobe_model::clock::Clock;
use gpuprobe_model::stack::{CallStack, Frame, Location, Symbols};
use gpuprobe_stacks::cuda;

/// A call site at which something is live that is to be listed.
struct Listed<'a> {
    id: u32,
    site: &'a Site,
    /// What of it is to be listed.
    live: Sums,
    oldest_ns: u64,
    newest_ns: u64,
    kinds: Vec<MemoryKind>,
}

impl Listed<'_> {
    fn add(&mut self, allocation: &Allocation) {
        self.live.add(allocation);
        self.oldest_ns = self.oldest_ns.min(allocation.end_ns);
        self.newest_ns = self.newest_ns.max(allocation.end_ns);
        if let Err(place) = self.kinds.binary_search(&allocation.kind()) {
            self.kinds.insert(place, allocation.kind());
        }
    }

    fn key(&self, sort: Sort) -> impl Ord + use<> {
        let (gpu, all) = (Reverse(self.live.gpu.bytes), Reverse(self.live.all().bytes));
        let first = match sort {
            Sort::Bytes => (0, Reverse(0)),
            Sort::Count => (0, Reverse(self.live.all().allocations)),
            Sort::Age => (self.oldest_ns, Reverse(0)),
        };
        (first, gpu, all, self.oldest_ns, self.id)
    }
}

/// The sites of a process that are listed, in order.
struct Selected<'a> {
    listed: Vec<Listed<'a>>,
    /// Beyond the number of sites that are listed.
    omitted: LeftOut,
    /// What the filters leave out.
    filtered: LeftOut,
}

fn select<'a>(process: &'a Process, options: &Options) -> Selected<'a> {
    let mut filtered = LeftOut::default();
    let mut found = if options.view.includes_all() {
        all_live(process)
    } else {
        included(process, options, &mut filtered)
    };
    let key = |site: &Listed<'_>| site.key(options.view.sort);
    let mut omitted = LeftOut::default();
    if let Some(top) = options.top.filter(|&top| top < found.len()) {
        // There can be many more sites than are listed: the others need no order.
        found.select_nth_unstable_by_key(top, key);
        for site in found.drain(top..) {
            let all = site.live.all();
            omitted.sites += 1;
            omitted.allocations += all.allocations;
            omitted.bytes = omitted.bytes.saturating_add(all.bytes);
        }
    }
    found.sort_unstable_by_key(key);
    Selected {
        listed: found,
        omitted,
        filtered,
    }
}

/// The sites at which something is live.
fn all_live(process: &Process) -> Vec<Listed<'_>> {
    let sites = (0..).zip(process.sites.iter());
    let sites = sites.zip(process.spans_by_site());
    let listed = sites.filter_map(|((id, site), span)| {
        let span = span?;
        Some(Listed {
            id,
            site,
            live: site.live,
            oldest_ns: span.oldest_ns,
            newest_ns: span.newest_ns,
            kinds: span.kinds,
        })
    });
    listed.collect()
}

/// The sites at which something is live of the age and size that are asked for. Every allocation is
/// looked at.
fn included<'a>(
    process: &'a Process,
    options: &Options,
    filtered: &mut LeftOut,
) -> Vec<Listed<'a>> {
    let mut found: Vec<_> = (0..)
        .zip(process.sites.iter())
        .map(|(id, site)| Listed {
            id,
            site,
            live: Sums::default(),
            oldest_ns: u64::MAX,
            newest_ns: 0,
            kinds: Vec::new(),
        })
        .collect();
    for allocation in process.allocations() {
        if !options.view.includes(allocation, options.now_ns) {
            filtered.add(allocation.size_bytes);
        } else if let Some(site) = found.get_mut(allocation.site as usize) {
            site.add(allocation);
        }
    }
    found.retain(|site| !site.live.is_empty());
    found
}

/// The call sites of a process, and what is left out by their number and by filters.
pub(super) fn site_reports(
    process: &Process,
    clock: &Clock,
    options: &Options,
    symbols: &dyn Symbols,
) -> (Vec<SiteReport>, LeftOut, LeftOut) {
    let selected = select(process, options);
    let report = |site: &Listed<'_>| {
        let stack = site.site.stack.as_deref();
        let mut frames = shown_frames(process.pid, stack, options.view.full_stacks, symbols);
        let depth = options.view.depth.unwrap_or(usize::MAX);
        let omitted_frames = frames.len().saturating_sub(depth);
        frames.truncate(depth);
        let (allocated, freed) = (site.site.allocated.all(), site.site.freed.all());
        let age = |time_ns| options.now_ns.saturating_sub(time_ns);
        SiteReport {
            id: site.id,
            api: gpuprobe_cuda::function(site.site.row).map_or("", |f| f.symbol),
            kinds: site.kinds.clone(),
            live: Live::from(site.live),
            alloc_bytes: allocated.bytes,
            alloc_calls: allocated.allocations,
            freed_bytes: freed.bytes,
            free_calls: freed.allocations,
            oldest: clock.wall(site.oldest_ns),
            newest: clock.wall(site.newest_ns),
            ages_ns: (age(site.oldest_ns), age(site.newest_ns)),
            complete: stack.is_some_and(|stack| stack.is_complete),
            omitted_frames: omitted_frames as u64,
            stack: frames,
        }
    };
    let sites = selected.listed.iter().map(report).collect();
    (sites, selected.omitted, selected.filtered)
}

/// The frames of a stack, innermost first; without CUDA's own unless `full`.
fn shown_frames(
    pid: u32,
    stack: Option<&CallStack>,
    full: bool,
    symbols: &dyn Symbols,
) -> Vec<Frame> {
    let mut frames = stack.map_or_else(Vec::new, |stack| stack.frames(pid, symbols));
    if !full {
        let is_own = |f: &Frame| cuda::is_cuda(&f.function, &f.module, f.file.as_deref());
        frames.drain(..cuda::own_frames(&frames, is_own));
    }
    frames
}

/// The locations of the stacks that a report shows.
pub(crate) fn needed_locations(ledger: &Ledger, options: &Options) -> Vec<(u32, Location, bool)> {
    let mut needed = Vec::new();
    let mut known = HashSet::new();
    for process in ledger.living().chain(ledger.ended(options.is_final)) {
        for site in select(process, options).listed {
            let locations = site.site.stack.iter().flat_map(|stack| &stack.locations);
            for (index, location) in locations.enumerate() {
                let one = (process.pid, *location, index == 0);
                if known.insert(one) {
                    needed.push(one);
                }
            }
        }
    }
    needed
}
