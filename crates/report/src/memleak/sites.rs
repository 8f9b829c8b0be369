//! Live memory by call site.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use chrono::{DateTime, FixedOffset};
use hashbrown::HashMap;
use indexmap::IndexMap;
use serde::{Serialize, Serializer};

use super::live;
use crate::fold::Folded;
use crate::label::{labels, via};
use crate::owners::Owners;
use crate::site_key::{Place, SiteKey, place};
use crate::{Options, ReportSources, SortBy, View, clock_micros, function_name, is_zero};
use gpuprobe_cuda::{Belongs, MemoryKind, is_found};
use gpuprobe_engine::totals::{MemorySums, Total};
use gpuprobe_engine::verdict::{self, Judgement};
use gpuprobe_engine::{Allocation, Allocator, CallSite, Process};
use gpuprobe_model::stack::{CallStack, Frame, Location, ModuleId, Symbolize};
use gpuprobe_stacks::cuda;

/// Sums of what is not listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Omitted {
    /// Number of call sites, if whole ones are omitted.
    #[serde(skip_serializing_if = "is_zero")]
    pub sites: u64,
    /// Number of allocations not listed.
    pub allocations: u64,
    /// Bytes, of all kinds of memory.
    pub bytes: u64,
}

impl Omitted {
    pub(super) fn add(&mut self, bytes: u64) {
        self.allocations += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Adds the memory of a whole site.
    pub(crate) fn add_site(&mut self, live: Total) {
        self.sites += 1;
        self.allocations += live.allocations;
        self.bytes = self.bytes.saturating_add(live.bytes);
    }

    /// The sums, unless nothing is omitted.
    pub(crate) fn if_any(self) -> Option<Self> {
        (self.allocations > 0).then_some(self)
    }
}

/// Bounds on the peak of a group of call sites: the peak of each site is known, but they need not
/// have been at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Lower bound: the largest peak of one site, or the current live bytes.
    pub least: u64,
    /// Upper bound: the sum of the peaks.
    pub most: u64,
}

impl Peak {
    /// The peak, if it is exact: for one site, or if all sites are at their peak now.
    pub fn exact(&self) -> Option<u64> {
        (self.least == self.most).then_some(self.least)
    }
}

/// One call site of a process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SiteReport {
    /// Its id within the process and the run.
    pub id: u32,
    /// Its label: the first frame that belongs neither to CUDA nor to an allocator, with callers if
    /// other sites have the same.
    pub label: String,
    /// The allocating function; of several, the one with the most live bytes.
    pub api: Cow<'static, str>,
    /// The other allocating functions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_apis: Vec<Cow<'static, str>>,
    /// Kinds of the live memory.
    #[serde(serialize_with = "kind_names")]
    pub kinds: Vec<MemoryKind>,
    /// Live memory within the age and size filters.
    #[serde(flatten, serialize_with = "live")]
    pub live: MemorySums,
    /// Change of live bytes and allocations since the last report; `None` in the first.
    #[serde(flatten, serialize_with = "changes")]
    pub change: Option<(i64, i64)>,
    /// Peak of live bytes, regardless of filters; in JSON, null if unknown.
    #[serde(rename = "peak_bytes", serialize_with = "exact")]
    pub peak: Peak,
    /// Bytes ever allocated here.
    pub alloc_bytes: u64,
    /// Number of allocations ever made here.
    pub alloc_calls: u64,
    /// Bytes of these allocations that were freed.
    pub freed_bytes: u64,
    /// Number of these allocations that were freed.
    pub free_calls: u64,
    /// Time of the oldest live allocation; `None` if a file has no times of day.
    #[serde(serialize_with = "clock_micros")]
    pub oldest: Option<DateTime<FixedOffset>>,
    /// Time of the newest live allocation.
    #[serde(serialize_with = "clock_micros")]
    pub newest: Option<DateTime<FixedOffset>>,
    /// Calls from the labelled frame down to the CUDA function.
    #[serde(skip)]
    pub via: String,
    /// Ages of the oldest and of the newest live allocation, nanoseconds.
    #[serde(skip)]
    pub ages_ns: (u64, u64),
    /// Owner of the memory: `libtorch`, or the program; `unknown` without a call stack.
    pub owner: String,
    /// Whether it was allocated for the pool of a framework whose tensors are traced.
    #[serde(skip)]
    pub is_pooled: bool,
    /// Whether an allocator or a framework keeps the memory and reuses it.
    #[serde(skip)]
    pub is_kept: bool,
    /// Whether all live allocations have sizes that are powers of two.
    #[serde(skip)]
    pub has_power_of_two_sizes: bool,
    /// Whether the owner is a library, not the program or an interpreter.
    #[serde(skip)]
    pub is_library: bool,
    /// Verdict on the site and its confidence; both null if no memory is live.
    #[serde(flatten, serialize_with = "judged")]
    pub judgement: Option<Judgement>,
    /// Quality of the call in a file: `valid` with a call stack, `driver` for a direct driver call,
    /// else `invalid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<&'static str>,
    /// Whether the stack reaches the start of the thread.
    pub complete: bool,
    /// Number of call stacks grouped here; this is the one with the most bytes.
    pub variants: u64,
    /// Ids of all sites in the group, as they are without grouping.
    #[serde(skip)]
    pub own_ids: Vec<u32>,
    /// Number of outer frames omitted by `--depth`.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_frames: u64,
    /// The call stack, innermost frame first; empty if unknown.
    pub stack: Vec<Frame>,
    /// The folded stack for text, if there are Python frames.
    #[serde(skip)]
    pub folded: Option<Folded>,
}

/// Part of the names of functions of PyTorch that keep pinned memory for reuse.
const PINNED_CACHE: &str = "CachingHostAllocator";

impl SiteReport {
    /// Whether it is of PyTorch's cache of pinned memory.
    pub(crate) fn is_pinned_cache(&self) -> bool {
        let mut frames = self.stack.iter();
        frames.any(|frame| frame.function.contains(PINNED_CACHE))
    }

    /// Whether `number` is the id of this site, or of one grouped here.
    pub fn has_id(&self, number: u32) -> bool {
        self.id == number || self.own_ids.contains(&number)
    }

    /// Change of live bytes since the last report.
    pub fn change_bytes(&self) -> Option<i64> {
        self.change.map(|(bytes, _)| bytes)
    }
}

pub(super) fn judged<S: Serializer>(
    judged: &Option<Judgement>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let judged = judged.as_ref();
    let verdict = judged.map(|judged| judged.shown().name().to_owned());
    let confidence = judged.map(|judged| judged.sureness().to_string());
    serializer.collect_map([("verdict", verdict), ("confidence", confidence)])
}

fn changes<S: Serializer>(change: &Option<(i64, i64)>, serializer: S) -> Result<S::Ok, S::Error> {
    let (bytes, allocations) = change.unzip();
    serializer.collect_map([("change_bytes", bytes), ("change_allocations", allocations)])
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn exact<S: Serializer>(peak: &Peak, serializer: S) -> Result<S::Ok, S::Error> {
    peak.exact().serialize(serializer)
}

fn kind_names<S: Serializer>(kinds: &[MemoryKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(kinds.iter().map(|kind| kind.name()))
}

/// The call sites of a process, by the representative of each group, which is its first site.
pub struct SiteGroups {
    /// Numbers of the representatives, which are ids in reports.
    ids: Vec<u32>,
}

impl SiteGroups {
    /// Groups the sites of `process`. With `by_lines`, sites with the same Python lines and memory
    /// of the same side are one.
    pub fn of(process: &Process, by_lines: bool, symbols: &dyn Symbolize) -> Self {
        let mut known: HashMap<_, Vec<Place>> = HashMap::new();
        let mut first: HashMap<SiteKey, u32> = HashMap::new();
        let mut owners = Owners::new(symbols);
        let mut places = Vec::new();
        let representative = |(number, site): (u32, &CallSite)| {
            if !by_lines {
                return number;
            }
            places.clear();
            for location in perhaps_python(site) {
                // A Python line, or an address.
                let at = match location.module {
                    Some(_) => (location.module, location.offset),
                    None => (None, location.address),
                };
                let frames = || symbols.frames(process.pid, location, false);
                let found = || frames().iter().map(place).collect();
                places.extend_from_slice(known.entry(at).or_insert_with(found));
            }
            let is_pooled = owners.of_stack(site.stack.as_deref()).is_pooled();
            let key = SiteKey::of_lines(side(site.row), is_pooled, &places);
            key.map_or(number, |key| *first.entry(key).or_insert(number))
        };
        let numbers = (0..).zip(process.sites.iter());
        Self {
            ids: numbers.map(representative).collect(),
        }
    }

    /// Id in reports of the site with `number` in the engine.
    pub fn id(&self, number: u32) -> u32 {
        self.ids.get(number as usize).copied().unwrap_or(number)
    }
}

/// The side (GPU or host) that the function of `row` allocates on.
pub fn side(row: u16) -> Belongs {
    let function = gpuprobe_cuda::function(row);
    function.map_or(Belongs::Gpu, |function| function.kind.belongs())
}

/// Locations of a site that may be Python frames: unwound Python lines, and code in no file, which
/// `python -X perf` generates. The innermost frame, if it is the called function, is skipped.
fn perhaps_python(site: &CallSite) -> impl Iterator<Item = &Location> {
    let stack = site.stack.iter();
    let locations = stack.flat_map(|stack| stack.locations.iter().enumerate());
    let is_one = |(index, location): &(usize, &Location)| match location.module {
        None => *index > 0,
        module => module == Some(ModuleId::PYTHON),
    };
    locations.filter(is_one).map(|(_, location)| location)
}

/// Live memory within the filters.
#[derive(Clone, Default)]
struct Included {
    live: MemorySums,
    /// Times of the oldest and of the newest allocation.
    times_ns: Option<(u64, u64)>,
    kinds: BTreeSet<MemoryKind>,
    /// The size of one is no power of two.
    has_odd_size: bool,
}

impl Included {
    fn add(&mut self, allocation: &Allocation) {
        self.live.add(allocation);
        self.has_odd_size |= !allocation.size_bytes.is_power_of_two();
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
        self.has_odd_size |= other.has_odd_size;
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

    /// The same without live memory, with the site that had most.
    fn freed(mut self, process: &'a Process) -> Self {
        let sites = self.members.iter();
        let sites = sites.filter_map(|&number| process.sites.get(number));
        let most = sites.max_by_key(|site| site.peak_bytes);
        let function = most.and_then(|site| gpuprobe_cuda::function(site.row));
        let kind = function.map(|function| function.kind);
        self.included.kinds.extend(kind);
        self.variants = self.members.len() as u64;
        self.most = most.map(|site| (0, site));
        self
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
        let stack = site.stack.as_deref();
        let owner = owners.of_stack(stack);
        let (stack, complete) = frames_of(holder.process.pid, stack, symbols);
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
            live: self.included.live,
            has_power_of_two_sizes: !self.included.has_odd_size,
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

/// The listed sites of a process, in order; those beyond the limit; allocations excluded by the filters; and sites
/// without live memory.
fn select<'a>(
    process: &'a Process,
    options: &Options,
    groups: &SiteGroups,
) -> (Vec<Group<'a>>, Omitted, Omitted, Vec<Group<'a>>) {
    let (mut omitted, mut filtered) = (Omitted::default(), Omitted::default());
    let mut included = vec![Included::default(); process.sites.iter().len()];
    for allocation in process.allocations() {
        if !options.view.includes(allocation, options.now_ns) {
            filtered.add(allocation.size_bytes);
        } else if let Some(site) = included.get_mut(allocation.site as usize) {
            site.add(allocation);
        }
    }
    let mut found: IndexMap<u32, Group<'a>> = IndexMap::default();
    for (number, (site, included)) in (0..).zip(process.sites.iter().zip(&included)) {
        let id = groups.id(number);
        let group = found.entry(id).or_default();
        group.id = id;
        group.add(number, site, included);
    }
    let all = found.into_values();
    let (mut found, rest): (Vec<_>, Vec<_>) = all.partition(|group| group.most.is_some());
    let is_live = |number: &u32| {
        let site = process.sites.get(*number);
        site.is_some_and(|site| !site.live.is_empty())
    };
    let (live, rest): (Vec<_>, _) =
        (rest.into_iter()).partition(|group| group.members.iter().any(is_live));
    filtered.sites = live.len() as u64;
    let key = |group: &Group<'_>| group.sort_key(options.view.sort);
    let top = options.top.filter(|_| options.view.site.is_none());
    if let Some(top) = top.filter(|&top| top < found.len()) {
        // There can be many more sites than are listed: the rest need not be sorted.
        found.select_nth_unstable_by_key(top, key);
        for group in found.drain(top..) {
            omitted.add_site(group.included.live.all());
        }
    }
    found.sort_unstable_by_key(key);
    (found, omitted, filtered, rest)
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
        let first = sites.first().and_then(|&site| self.sites().sites.get(site));
        if first.is_some_and(|site| is_found(site.row)) {
            // Nothing is known of how these came.
            return None;
        }
        let now_ns = self.process.ended_ns.unwrap_or(now_ns);
        let judged = verdict::judge(&self.sites().sites.shape(sites, now_ns));
        let judged = judged.map(|judged| Judgement {
            has_ended: self.process.exited,
            ..judged
        });
        if judged.as_ref().is_some_and(Judgement::is_leak) {
            return judged;
        }
        self.judge_teardown(sites).or(judged)
    }

    /// The same of what they held until the process freed it as it ended, if it is a leak.
    fn judge_teardown(self, sites: &[u32]) -> Option<Judgement> {
        let (ended_ns, births) = (self.process.ended_ns?, self.process.sites.births());
        let shape = self.sites().sites.shape_before_teardown(sites, births)?;
        verdict::judge_teardown(&shape, ended_ns)
    }
}

/// Call sites of a process, or of the tensors of an allocator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SiteLists {
    /// Those with live memory, largest first, if stacks are captured; `--top` limits their number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<SiteReport>>,
    /// The same in text, if no stacks are captured: one per function.
    #[serde(skip)]
    pub functions: Vec<SiteReport>,
    /// Those that leaked until the process freed their memory as it ended.
    #[serde(skip)]
    pub freed: Vec<SiteReport>,
    /// Those omitted by `--top`.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Omitted>,
    /// Live allocations excluded by the age and size filters.
    #[serde(rename = "filtered_out", skip_serializing_if = "Option::is_none")]
    pub filtered: Option<Omitted>,
}

/// The call sites of a process or an allocator.
pub(super) fn site_lists(
    holder: Holder<'_>,
    groups: &SiteGroups,
    options: &Options,
    sources: ReportSources<'_>,
) -> SiteLists {
    let (mut listed, omitted, filtered, rest) = select(holder.sites(), options, groups);
    let live = listed.len();
    if options.explains && options.view.includes_all() {
        let leaks = rest.into_iter();
        let leaks = leaks.filter(|group| holder.judge_teardown(&group.members).is_some());
        listed.extend(leaks.map(|group| group.freed(holder.sites())));
    }
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
    let freed = sites.split_off(live);
    let (sites, functions) = match options.lists_sites() {
        true => (Some(sites), Vec::new()),
        false => (None, sites),
    };
    SiteLists {
        sites,
        functions,
        freed,
        omitted: omitted.if_any(),
        filtered: filtered.if_any(),
    }
}

/// Verdicts on the call sites of a process or an allocator that a report with `options` lists, and a site of each.
pub(crate) fn judge_largest<'a>(
    holder: Holder<'a>,
    options: &Options,
    symbols: &dyn Symbolize,
) -> Vec<(Judgement, &'a CallSite)> {
    let groups = SiteGroups::of(holder.sites(), options.view.groups_by_lines(), symbols);
    let (listed, ..) = select(holder.sites(), options, &groups);
    let judge = |group: &Group<'a>| {
        let judgement = holder.judge(&group.members, options.now_ns)?;
        Some((judgement, group.most?.1))
    };
    listed.iter().filter_map(judge).collect()
}

/// The frames of a stack that are shown, and the number of outer ones omitted.
pub fn shown(mut frames: Vec<Frame>, view: &View) -> (Vec<Frame>, u64) {
    if !view.full_stacks {
        frames.drain(..cuda::own_frames(&frames, cuda::is_own));
    }
    let depth = view.depth.unwrap_or(usize::MAX);
    let omitted = frames.len().saturating_sub(depth);
    frames.truncate(depth);
    (frames, omitted as u64)
}

/// The frames of a stack of process `pid`, innermost first, and whether it is complete.
pub fn frames_of(
    pid: u32,
    stack: Option<&CallStack>,
    symbols: &dyn Symbolize,
) -> (Vec<Frame>, bool) {
    let found = stack.map(|stack| (stack.frames(pid, symbols), stack.is_complete));
    found.unwrap_or_default()
}
