//! Live memory by call site.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::groups::SiteGroups;
use super::site::Peak;
use super::{Omitted, SiteReport};
use crate::fold::Folded;
use crate::label::{labels, via};
use crate::owners::Owners;
use crate::{Options, ReportSources, SortBy, View, function_name};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_engine::verdict::{self, Judgement};
use gpuprobe_engine::{Allocation, Allocator, CallSite, Process};
use gpuprobe_model::stack::{Frame, Language, Symbolize};
use gpuprobe_stacks::cuda;

/// Live memory within the filters.
#[derive(Clone, Default)]
struct Included {
    live: MemorySums,
    /// Times of the oldest and of the newest allocation.
    times_ns: Option<(u64, u64)>,
    kinds: BTreeSet<MemoryKind>,
}

impl Included {
    fn add(&mut self, allocation: &Allocation) {
        self.live.add(allocation);
        self.add_time(allocation.end_ns);
        self.kinds.insert(allocation.kind());
    }

    fn add_time(&mut self, time_ns: u64) {
        let (oldest_ns, newest_ns) = self.times_ns.unwrap_or((time_ns, time_ns));
        self.times_ns = Some((oldest_ns.min(time_ns), newest_ns.max(time_ns)));
    }

    fn merge(&mut self, other: &Self) {
        self.live.merge(other.live);
        self.kinds.extend(&other.kinds);
        if let Some((oldest_ns, newest_ns)) = other.times_ns {
            self.add_time(oldest_ns);
            self.add_time(newest_ns);
        }
    }
}

/// A call site, or several that are grouped.
#[derive(Default)]
struct Group<'a> {
    /// Id in reports.
    id: u32,
    /// Numbers of the sites in the engine.
    members: Vec<u32>,
    /// The most included bytes of a site, and that site; `None` if none has included memory.
    most: Option<(u64, &'a CallSite)>,
    /// Rows of the allocating functions of the sites with included memory.
    rows: Vec<u16>,
    /// Number of these sites.
    variants: u64,
    included: Included,
    /// Memory ever allocated at the sites, and the part that was freed.
    allocated: MemorySums,
    freed: MemorySums,
    live_bytes: u64,
    peak: Peak,
}

impl<'a> Group<'a> {
    fn add(&mut self, number: u32, site: &'a CallSite, included: &Included) {
        self.members.push(number);
        self.allocated.merge(site.allocated);
        self.freed.merge(site.freed);
        self.live_bytes = self.live_bytes.saturating_add(site.live.all().bytes);
        let Peak { least, most } = &mut self.peak;
        *least = site.peak_bytes.max(*least).max(self.live_bytes);
        *most = most.saturating_add(site.peak_bytes).max(*least);
        if included.live.is_empty() {
            return;
        }
        let bytes = included.live.all().bytes;
        if self.most.is_none_or(|(most, _)| bytes > most) {
            self.most = Some((bytes, site));
        }
        self.variants += 1;
        if !self.rows.contains(&site.row) {
            self.rows.push(site.row);
        }
        self.included.merge(included);
    }

    fn sort_key(&self, sort: SortBy) -> impl Ord + use<> {
        let live = self.included.live;
        let oldest_ns = self.included.times_ns.map_or(u64::MAX, |times| times.0);
        let first = sort.first(live.all().allocations, oldest_ns);
        let (gpu, all) = (Reverse(live.gpu.bytes), Reverse(live.all().bytes));
        (first, gpu, all, oldest_ns, self.id)
    }

    /// The report of the group, without its label and with the whole stack.
    fn report(
        &self,
        holder: Holder<'_>,
        owners: &mut Owners<'_>,
        options: &Options,
        sources: ReportSources<'_>,
    ) -> Option<SiteReport> {
        let (_, site) = self.most?;
        let symbols = sources.symbols;
        let api = |row| function_name(row, symbols);
        let (stack, complete) = stack_of(holder.process.pid, site, symbols);
        let owner = owners.of_site(site);
        let kinds: Vec<_> = self.included.kinds.iter().copied().collect();
        let mut others = self.rows.clone();
        others.retain(|&row| row != site.row);
        others.sort_unstable();
        let judgement = holder.judge(&self.members, options.now_ns);
        let (allocated, freed) = (self.allocated.all(), self.freed.all());
        let (oldest_ns, newest_ns) = self.included.times_ns.unwrap_or_default();
        let age = |time_ns| options.now_ns.saturating_sub(time_ns);
        let wall = |time_ns| sources.clock.map(|clock| clock.wall(time_ns));
        Some(SiteReport {
            id: self.id,
            label: String::new(),
            via: via(&stack, &api(site.row)),
            api: api(site.row),
            other_apis: others.into_iter().map(api).collect(),
            is_kept: owner.keeps(&kinds),
            kinds,
            live: self.included.live.into(),
            change: sources
                .history
                .and_then(|history| history.change_of_sites(holder, &self.members)),
            owner: owner.owner().to_owned(),
            is_pooled: owner.is_pooled(),
            is_library: owner.is_library,
            judgement,
            peak: self.peak,
            alloc_bytes: allocated.bytes,
            alloc_calls: allocated.allocations,
            freed_bytes: freed.bytes,
            free_calls: freed.allocations,
            oldest: wall(oldest_ns),
            newest: wall(newest_ns),
            ages_ns: (age(oldest_ns), age(newest_ns)),
            trace: sources.trace.map(|trace| trace(site)),
            complete,
            variants: self.variants,
            own_ids: self.members.clone(),
            omitted_frames: 0,
            folded: Folded::of(&stack),
            stack,
        })
    }
}

/// The listed sites of a process, in order; those beyond the limit; and allocations excluded by the
/// filters.
fn select<'a>(
    process: &'a Process,
    options: &Options,
    groups: &SiteGroups,
) -> (Vec<Group<'a>>, Omitted, Omitted) {
    let (mut omitted, mut filtered) = (Omitted::default(), Omitted::default());
    let mut included = vec![Included::default(); process.sites.iter().len()];
    for allocation in process.allocations() {
        if !options.view.includes(allocation, options.now_ns) {
            filtered.add(allocation.size_bytes);
        } else if let Some(site) = included.get_mut(allocation.site as usize) {
            site.add(allocation);
        }
    }
    let mut places: HashMap<u32, usize> = HashMap::new();
    let mut found: Vec<Group<'a>> = Vec::new();
    for (number, (site, included)) in (0..).zip(process.sites.iter().zip(&included)) {
        let id = groups.id(number);
        let place = *places.entry(id).or_insert(found.len());
        if place == found.len() {
            found.push(Group {
                id,
                ..Group::default()
            });
        }
        found[place].add(number, site, included);
    }
    let is_live = |number: &u32| {
        let site = process.sites.get(*number);
        site.is_some_and(|site| !site.live.is_empty())
    };
    found.retain(|group| {
        let is_included = group.most.is_some();
        filtered.sites += u64::from(!is_included && group.members.iter().any(is_live));
        is_included
    });
    let key = |group: &Group<'_>| group.sort_key(options.view.sort);
    let top = options.top.filter(|_| !options.view.is_of_one_site());
    if let Some(top) = top.filter(|&top| top < found.len()) {
        // There can be many more sites than are listed: the rest need not be sorted.
        found.select_nth_unstable_by_key(top, key);
        for group in found.drain(top..) {
            omitted.add_site(group.included.live.all());
        }
    }
    found.sort_unstable_by_key(key);
    (found, omitted, filtered)
}

/// A process with its memory from CUDA, or an allocator within it with its tensors.
#[derive(Clone, Copy)]
pub(crate) struct Holder<'a> {
    pub(crate) process: &'a Process,
    pub(crate) allocator: Option<&'a Allocator>,
}

impl<'a> Holder<'a> {
    /// A process with its memory from CUDA.
    pub(crate) fn own(process: &'a Process) -> Self {
        let allocator = None;
        Self { process, allocator }
    }

    /// The process, and each of its allocators.
    pub(crate) fn all(process: &'a Process) -> impl Iterator<Item = Self> {
        let allocators = process.tensors.iter().map(Some);
        let allocators = allocators.map(move |allocator| Self { process, allocator });
        std::iter::once(Self::own(process)).chain(allocators)
    }

    /// The process with the sites.
    pub(crate) fn sites(self) -> &'a Process {
        self.allocator.map_or(self.process, |one| &one.blocks)
    }

    /// Verdict on these sites at `now_ns`, or at the end of the process.
    pub(crate) fn judge(self, sites: &[u32], now_ns: u64) -> Option<Judgement> {
        let now_ns = self.process.ended_ns.unwrap_or(now_ns);
        verdict::judge(&self.sites().sites.shape(sites, now_ns))
    }
}

/// The call sites of a process or an allocator, and what the limit and the filters exclude.
pub(super) fn site_reports(
    holder: Holder<'_>,
    groups: &SiteGroups,
    options: &Options,
    sources: ReportSources<'_>,
) -> (Vec<SiteReport>, Option<Omitted>, Option<Omitted>) {
    let (listed, omitted, filtered) = select(holder.sites(), options, groups);
    let mut owners = Owners::new(sources.symbols);
    let reports = listed
        .iter()
        .filter_map(|group| group.report(holder, &mut owners, options, sources));
    let mut sites: Vec<_> = reports.collect();
    let labels = labels(sites.iter().map(|site| (&*site.stack, &*site.api)));
    for (site, label) in sites.iter_mut().zip(labels) {
        site.label = label;
        (site.stack, site.omitted_frames) = shown(std::mem::take(&mut site.stack), &options.view);
    }
    (sites, omitted.if_any(), filtered.if_any())
}

/// Verdicts on the call sites of a process or an allocator that a report with `options` lists.
pub(crate) fn judge_largest(
    holder: Holder<'_>,
    options: &Options,
    symbols: &dyn Symbolize,
) -> Vec<Judgement> {
    let groups = SiteGroups::of(holder.sites(), options.view.groups_by_lines(), symbols);
    let (listed, ..) = select(holder.sites(), options, &groups);
    let judge = |group: &Group<'_>| holder.judge(&group.members, options.now_ns);
    listed.iter().filter_map(judge).collect()
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
    let stack = site.stack.as_ref();
    let found = stack.map(|stack| (stack.frames(pid, symbols), stack.is_complete));
    found.unwrap_or_default()
}
