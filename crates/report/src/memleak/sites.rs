//! Live allocations by call site.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use super::{LeftOut, Live, SiteReport};
use crate::label::{labels, via};
use crate::{Options, Sort, Sources, function_name};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::totals::Sums;
use gpuprobe_engine::{Allocation, Ledger, Process, Site};
use gpuprobe_model::stack::{Frame, Location, NoSymbols, Symbols};
use gpuprobe_stacks::cuda;

/// A call site at which something is live that is to be listed.
struct Listed<'a> {
    id: u32,
    site: &'a Site,
    /// What of it is to be listed.
    live: Sums,
    /// What was ever allocated there, and what of it is no longer live.
    allocated: Sums,
    freed: Sums,
    peak_bytes: u64,
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

    /// Another number of the same site.
    fn merge(&mut self, other: Self) {
        self.live.merge(other.live);
        self.allocated.merge(other.allocated);
        self.freed.merge(other.freed);
        // These need not have been at the same time: it is no less.
        self.peak_bytes = self.peak_bytes.saturating_add(other.peak_bytes);
        self.oldest_ns = self.oldest_ns.min(other.oldest_ns);
        self.newest_ns = self.newest_ns.max(other.newest_ns);
        self.kinds.extend(other.kinds);
        self.kinds.sort_unstable();
        self.kinds.dedup();
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

fn select<'a>(process: &'a Process, options: &Options, symbols: &dyn Symbols) -> Selected<'a> {
    let mut filtered = LeftOut::default();
    let found = if options.view.includes_all() {
        all_live(process)
    } else {
        included(process, options, &mut filtered)
    };
    let mut found = put_together(found, symbols);
    let key = |site: &Listed<'_>| site.key(options.view.sort);
    let mut omitted = LeftOut::default();
    let top = options.top.filter(|_| options.view.site.is_none());
    if let Some(top) = top.filter(|&top| top < found.len()) {
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

/// The number of a site in reports: the files that we read may have several for one.
pub(super) fn site_id(process: &Process, number: u32, symbols: &dyn Symbols) -> u32 {
    let caller = process.sites.get(number).and_then(|site| site.caller);
    caller.map_or(number, |caller| symbols.caller_id(caller))
}

/// The same sites, those together that are one.
fn put_together<'a>(found: Vec<Listed<'a>>, symbols: &dyn Symbols) -> Vec<Listed<'a>> {
    if found.iter().all(|site| site.site.caller.is_none()) {
        return found;
    }
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut together: Vec<Listed<'a>> = Vec::new();
    for mut site in found {
        if let Some(caller) = site.site.caller {
            site.id = symbols.caller_id(caller);
        }
        match places.entry(site.id) {
            Entry::Occupied(place) => together[*place.get()].merge(site),
            Entry::Vacant(place) => {
                place.insert(together.len());
                together.push(site);
            }
        }
    }
    together
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
            allocated: site.allocated,
            freed: site.freed,
            peak_bytes: site.peak_bytes,
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
            allocated: site.allocated,
            freed: site.freed,
            peak_bytes: site.peak_bytes,
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
    let left_out = |site: &&Listed<'_>| site.live.is_empty() && !site.site.live.is_empty();
    filtered.sites = found.iter().filter(left_out).count() as u64;
    found.retain(|site| !site.live.is_empty());
    found
}

/// The call sites of a process, and what is left out by their number and by filters.
pub(super) fn site_reports(
    process: &Process,
    options: &Options,
    sources: Sources<'_>,
) -> (Vec<SiteReport>, LeftOut, LeftOut) {
    let Sources {
        clock,
        history,
        symbols,
        ..
    } = sources;
    let selected = select(process, options, symbols);
    let stacks: Vec<_> = selected
        .listed
        .iter()
        .map(|site| stack_of(process.pid, site.site, symbols))
        .collect();
    let apis: Vec<_> = selected
        .listed
        .iter()
        .map(|site| function_name(site.site.row, symbols))
        .collect();
    let named = stacks.iter().zip(&apis);
    let named: Vec<_> = named
        .map(|((frames, _), api)| (frames.as_slice(), api.as_ref()))
        .collect();
    let mut labels = labels(&named).into_iter();
    let mut vias: VecDeque<_> = named.iter().map(|(frames, api)| via(frames, api)).collect();
    drop(named);
    type Named<'a> = ((&'a Listed<'a>, (Vec<Frame>, bool)), Cow<'static, str>);
    let report = |((site, (mut frames, complete)), api): Named<'_>| {
        let change = history.and_then(|history| history.change_of_site(process, site.id));
        if !options.view.full_stacks {
            let is_own = |f: &Frame| cuda::is_cuda(&f.function, &f.module, f.file.as_deref());
            frames.drain(..cuda::own_frames(&frames, is_own));
        }
        let depth = options.view.depth.unwrap_or(usize::MAX);
        let omitted_frames = frames.len().saturating_sub(depth);
        frames.truncate(depth);
        let (allocated, freed) = (site.allocated.all(), site.freed.all());
        let age = |time_ns| options.now_ns.saturating_sub(time_ns);
        SiteReport {
            id: site.id,
            label: labels.next().unwrap_or_default(),
            via: vias.pop_front().unwrap_or_default(),
            api,
            kinds: site.kinds.clone(),
            live: Live::from(site.live),
            change_bytes: change.map(|(bytes, _)| bytes),
            change_allocations: change.map(|(_, allocations)| allocations),
            peak_bytes: site.peak_bytes,
            alloc_bytes: allocated.bytes,
            alloc_calls: allocated.allocations,
            freed_bytes: freed.bytes,
            free_calls: freed.allocations,
            oldest: clock.map(|clock| clock.wall(site.oldest_ns)),
            newest: clock.map(|clock| clock.wall(site.newest_ns)),
            ages_ns: (age(site.oldest_ns), age(site.newest_ns)),
            trace: site
                .site
                .caller
                .and_then(|caller| symbols.caller_trace(caller)),
            complete,
            omitted_frames: omitted_frames as u64,
            stack: frames,
        }
    };
    let listed = selected.listed.iter().zip(stacks).zip(apis);
    let sites = listed.map(report).collect();
    (sites, selected.omitted, selected.filtered)
}

/// The frames of a site of process `pid`, innermost first, and whether they are all.
pub(crate) fn stack_of(pid: u32, site: &Site, symbols: &dyn Symbols) -> (Vec<Frame>, bool) {
    match (&site.stack, site.caller) {
        (Some(stack), _) => (stack.frames(pid, symbols), stack.is_complete),
        (None, Some(caller)) => symbols.caller(caller),
        (None, None) => (Vec::new(), false),
    }
}

/// The locations of the stacks that a report shows.
pub(crate) fn needed_locations(ledger: &Ledger, options: &Options) -> Vec<(u32, Location, bool)> {
    let mut needed = Vec::new();
    let mut known = HashSet::new();
    for process in ledger.living().chain(ledger.ended(options.is_final)) {
        for site in select(process, options, &NoSymbols).listed {
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
