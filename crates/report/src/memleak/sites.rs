//! Live memory by call site.

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use std::borrow::Cow;

use super::groups::{SiteGroups, perhaps_python};
use super::listed::Listed;
use super::site::KernelStep;
use super::{LiveMemory, Omitted, SiteReport};
use crate::cudatrace;
use crate::fold::Folded;
use crate::label::{labels, via};
use crate::metrics::ScrapeScope;
use crate::owners::Owners;
use crate::{Options, ReportSources, View, function_name};
use gpuprobe_engine::verdict::{self, Judgement};
use gpuprobe_engine::{Allocator, CallSite, Launches, Ledger, Process};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::stack::{Frame, Language, Location, Symbolize};
use gpuprobe_stacks::cuda;

/// The listed sites of a process, in order.
struct Selected<'a> {
    listed: Vec<Listed<'a>>,
    /// Sites beyond the limit.
    omitted: Omitted,
    /// Allocations excluded by the filters.
    filtered: Omitted,
}

fn select<'a>(process: &'a Process, options: &Options, groups: &SiteGroups) -> Selected<'a> {
    let mut filtered = Omitted::default();
    let mut found = grouped(included(process, options, &mut filtered), groups);
    let left_out = |site: &&Listed<'_>| site.live.is_empty() && filtered_here(process, site);
    filtered.sites = found.iter().filter(left_out).count() as u64;
    found.retain(|site| !site.live.is_empty());
    let key = |site: &Listed<'_>| site.key(options.view.sort);
    let mut omitted = Omitted::default();
    let top = options.top.filter(|_| !options.view.is_of_one_site());
    if let Some(top) = top.filter(|&top| top < found.len()) {
        // There can be many more sites than are listed: the rest need not be sorted.
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

/// Whether one of the grouped sites has live memory.
fn filtered_here(process: &Process, site: &Listed<'_>) -> bool {
    let mut members = site
        .members
        .iter()
        .filter_map(|&number| process.sites.get(number));
    members.any(|site| !site.live.is_empty())
}

/// Merges the sites of each group.
fn grouped<'a>(found: Vec<Listed<'a>>, groups: &SiteGroups) -> Vec<Listed<'a>> {
    if groups.is_ungrouped() {
        return found;
    }
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut together: Vec<Listed<'a>> = Vec::new();
    for mut site in found {
        site.id = groups.id(site.id);
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

/// All sites, with their live memory within the age and size filters. Scans every allocation.
fn included<'a>(
    process: &'a Process,
    options: &Options,
    filtered: &mut Omitted,
) -> Vec<Listed<'a>> {
    let sites = (0..).zip(process.sites.iter());
    let mut found: Vec<_> = sites
        .map(|(number, site)| Listed::new(number, site))
        .collect();
    for allocation in process.allocations() {
        if !options.view.includes(allocation, options.now_ns) {
            filtered.add(allocation.size_bytes);
        } else if let Some(site) = found.get_mut(allocation.site as usize) {
            site.add(allocation);
        }
    }
    let held = found.iter_mut().filter(|site| !site.live.is_empty());
    held.for_each(Listed::count);
    found
}

/// Facts about a site that follow from its whole stack, even if only a part is shown.
struct SiteCaller {
    frames: Vec<Frame>,
    complete: bool,
    api: Cow<'static, str>,
    owner: String,
    is_pooled: bool,
}

/// Holder of memory at call sites.
#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    /// A process, with its memory from CUDA.
    Process(&'a Process),
    /// An allocator within a process, with its tensors.
    Allocator(&'a Process, &'a Allocator),
}

impl<'a> Holder<'a> {
    /// The process with the sites.
    fn sites(self) -> &'a Process {
        match self {
            Self::Process(process) => process,
            Self::Allocator(_, allocator) => &allocator.blocks,
        }
    }

    /// Verdict on these sites at `now_ns`, or at the end of the process.
    pub(crate) fn judge(self, sites: &[u32], now_ns: u64) -> Option<Judgement> {
        let (Self::Process(process) | Self::Allocator(process, _)) = self;
        let now_ns = process.ended_ns.unwrap_or(now_ns);
        verdict::judge(&self.sites().sites.shape(sites, now_ns))
    }

    /// The kernel of the process that these sites grow in step with, with the shortest step.
    fn step(self, sites: &[u32], now_ns: u64, launches: &Launches) -> Option<KernelStep> {
        let (Self::Process(process) | Self::Allocator(process, _)) = self;
        let now_ns = process.ended_ns.unwrap_or(now_ns);
        let shape = self.sites().sites.shape(sites, now_ns);
        let samples = launches.samples();
        let of_process = |key: &&RawLaunchKey| {
            let launcher = launches.launcher_of(key.process);
            launcher.is_some_and(|one| one.pid == process.pid && one.exited == process.exited)
        };
        let steps = samples.kernels().filter(of_process).filter_map(|key| {
            let launched = |time_ns| samples.at(key, time_ns);
            let growth = verdict::steps(&shape, samples.spacing_ns(), launched)?;
            Some((growth, cudatrace::kernel_name(launches, key)))
        });
        let (growth, kernel) = steps.min()?;
        Some(KernelStep { growth, kernel })
    }
}

/// The call sites of a process or an allocator, and what the limit and the filters exclude.
pub(super) fn site_reports(
    holder: Holder<'_>,
    groups: &SiteGroups,
    options: &Options,
    sources: ReportSources<'_>,
) -> (Vec<SiteReport>, Option<Omitted>, Option<Omitted>) {
    let process = holder.sites();
    let symbols = sources.symbols;
    let selected = select(process, options, groups);
    let mut owners = Owners::new(symbols);
    let called = |site: &Listed<'_>| {
        let (frames, complete) = stack_of(process.pid, site.site, symbols);
        let asked = owners.of_site(site.site);
        SiteCaller {
            frames,
            complete,
            api: function_name(site.site.row, symbols),
            owner: owners.name(asked.owner).to_owned(),
            is_pooled: asked.is_pooled,
        }
    };
    let called: Vec<_> = selected.listed.iter().map(called).collect();
    let stacks = called.iter().map(|called| (&*called.frames, &*called.api));
    let labels = labels(&stacks.collect::<Vec<_>>());
    let sites = selected.listed.into_iter().zip(called).zip(labels);
    let sites = sites.map(|((site, called), label)| {
        let judgement = holder.judge(&site.members, options.now_ns);
        // A site is compared with each kernel: only leaks are.
        let is_leak = judgement.as_ref().is_some_and(Judgement::is_leak);
        let launches = sources.launches.filter(|_| options.explains && is_leak);
        SiteReport {
            label,
            change: change(holder, &site, sources),
            judgement,
            step: launches
                .and_then(|launches| holder.step(&site.members, options.now_ns, launches)),
            own_ids: site.members.clone(),
            ..site_report(&site, called, options, sources)
        }
    });
    let what_there_is = |left: Omitted| (left.allocations > 0).then_some(left);
    let (omitted, filtered) = (selected.omitted, selected.filtered);
    (
        sites.collect(),
        what_there_is(omitted),
        what_there_is(filtered),
    )
}

/// Change of the live memory of a site since the last report.
fn change(holder: Holder<'_>, site: &Listed<'_>, sources: ReportSources<'_>) -> Option<(i64, i64)> {
    let history = sources.history?;
    let changes = site
        .members
        .iter()
        .map(|&number| history.change_of_site(holder, number));
    changes.reduce(|a, b| {
        let (a, b) = a.zip(b)?;
        Some((a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
    })?
}

fn site_report(
    site: &Listed<'_>,
    called: SiteCaller,
    options: &Options,
    sources: ReportSources<'_>,
) -> SiteReport {
    let SiteCaller {
        frames,
        complete,
        api,
        owner,
        is_pooled,
    } = called;
    let via = via(&frames, &api);
    let folded = Folded::of(&frames);
    let (stack, omitted_frames) = shown(frames, &options.view);
    let (allocated, freed) = (site.allocated.all(), site.freed.all());
    let age = |time_ns| options.now_ns.saturating_sub(time_ns);
    let wall = |time_ns| sources.clock.map(|clock| clock.wall(time_ns));
    SiteReport {
        id: site.id,
        label: String::new(),
        via,
        api,
        kinds: site.kinds.clone(),
        live: LiveMemory::from(site.live),
        change: None,
        owner,
        is_pooled,
        judgement: None,
        step: None,
        peak: site.peak,
        alloc_bytes: allocated.bytes,
        alloc_calls: allocated.allocations,
        freed_bytes: freed.bytes,
        free_calls: freed.allocations,
        oldest: wall(site.oldest_ns),
        newest: wall(site.newest_ns),
        ages_ns: (age(site.oldest_ns), age(site.newest_ns)),
        trace: sources.trace.map(|trace| trace(site.site)),
        complete,
        variants: site.variants,
        own_ids: Vec::new(),
        other_apis: other_apis(site, sources.symbols),
        omitted_frames,
        stack,
        folded,
    }
}

/// The functions called at a site besides the one in its stack.
fn other_apis(site: &Listed<'_>, symbols: &dyn Symbolize) -> Vec<Cow<'static, str>> {
    let others = site.rows.iter().filter(|&&row| row != site.site.row);
    others.map(|&row| function_name(row, symbols)).collect()
}

/// The frames of a stack that are shown, and the number of outer ones omitted.
pub(crate) fn shown(mut frames: Vec<Frame>, view: &View) -> (Vec<Frame>, u64) {
    if view.stacks_native {
        frames.retain(|frame| frame.language == Language::Native);
    }
    if !view.full_stacks {
        frames.drain(..cuda::own_frames(&frames, cuda::is_own));
    }
    let depth = view.depth.unwrap_or(usize::MAX);
    let omitted = frames.len().saturating_sub(depth);
    frames.truncate(depth);
    (frames, omitted as u64)
}

/// The frames of a site of process `pid`, innermost first, and whether the stack is complete.
pub(crate) fn stack_of(pid: u32, site: &CallSite, symbols: &dyn Symbolize) -> (Vec<Frame>, bool) {
    match &site.stack {
        Some(stack) => (stack.frames(pid, symbols), stack.is_complete),
        None => (Vec::new(), false),
    }
}

/// Locations of the stacks that a report shows, and of those by which sites are grouped.
pub(crate) fn needed_locations(
    ledger: &Ledger,
    options: &Options,
    symbols: &dyn Symbolize,
    scope: Option<&ScrapeScope>,
) -> Vec<(u32, Location, bool)> {
    let mut needed = Vec::new();
    let mut known = HashSet::new();
    let mut need = |pid: u32, location: &Location, is_innermost: bool| {
        let one = (pid, *location, is_innermost);
        if known.insert(one) {
            needed.push(one);
        }
    };
    let processes = ledger
        .live_processes()
        .chain(ledger.ended(options.is_final));
    let processes = processes.filter(|process| options.lists(process, scope));
    let holders = processes.flat_map(|process| {
        let allocators = process.tensors.iter().map(|allocator| &allocator.blocks);
        std::iter::once(process).chain(allocators)
    });
    for process in holders {
        let options = &options.of_process(process.pid);
        if options.view.groups_by_lines() {
            let sites = process.sites.iter();
            sites
                .flat_map(perhaps_python)
                .for_each(|location| need(process.pid, location, false));
        }
        let groups = SiteGroups::of(process, options.view.groups_by_lines(), symbols);
        for site in select(process, options, &groups).listed {
            let locations = site.site.stack.iter().flat_map(|stack| &stack.locations);
            for (index, location) in locations.enumerate() {
                need(process.pid, location, index == 0);
            }
        }
    }
    needed
}
