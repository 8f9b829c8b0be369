//! Builds the report of an incident: names are found, sites of one line are put together, and what the engine
//! and NVML know of other processes is put side by side.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{
    GpuState, IncidentReport, IncidentSite, OtherReport, PytorchHoldings, RefusedRequests,
};
use crate::label::{label, labels};
use crate::memleak::{LiveByKind, LiveMemory, Omitted, shown, side};
use crate::owners::{self, OwnerReport, Owners, UNKNOWN};
use crate::site_key::{SiteKey, place};
use crate::{Options, ReportSources, View, function_name, requested};
use gpuprobe_engine::Ledger;
use gpuprobe_engine::incidents::{HeldByProcess, HeldSite, Incident};
use gpuprobe_engine::totals::Total;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::identity::Identity;
use gpuprobe_model::stack::{CallStack, Frame, Location, NoSymbols, Symbolize};

/// Call sites that are listed, and those of which lines are looked up for that: several may be of one.
const SITES: usize = 10;
const LOOKED_UP: usize = 64;

/// The incidents that a report lists, and how many there were.
pub(crate) fn build(
    ledger: &Ledger,
    options: &Options,
    sources: ReportSources<'_>,
) -> (Vec<IncidentReport>, Option<RefusedRequests>) {
    let all = &ledger.incidents;
    let listed = all.listed(options.is_final);
    let reports = listed.map(|one| report(one, &options.view, sources.clock, sources.symbols));
    let refused = (all.count() > 0).then_some(RefusedRequests {
        calls: all.refused_calls,
        incidents: all.count(),
    });
    (reports.collect(), refused)
}

/// The locations whose frames the report of `incident` shows: process, location, and whether it is the
/// first of its stack.
pub fn locations_of(incident: &Incident) -> Vec<(u32, Location, bool)> {
    requested(&NoSymbols, |symbols| {
        report(incident, &View::default(), None, symbols);
    })
}

/// Builds the report of an incident.
pub fn report(
    incident: &Incident,
    view: &View,
    clock: Option<&WallClock>,
    symbols: &dyn Symbolize,
) -> IncidentReport {
    let reader = NameReader {
        pid: incident.pid,
        view,
        symbols,
    };
    let (asked, held) = (&incident.asked, &incident.held);
    let (frames, complete) = reader.frames(stack_of(incident));
    let device = incident.device();
    let identity = &incident.identity;
    let known = device.map_or_else(Default::default, |device| identity.device(device));
    let (sites, omitted) = reader.sites(&held.sites, held.other_sites);
    let api = function_name(asked.row, symbols);
    let seconds = |ns: u64| ns.saturating_sub(incident.time_ns) as f64 / 1e9;
    let gpu = incident.gpu.as_deref();
    let mut holders = gpu.into_iter().flat_map(|gpu| &gpu.holders);
    let used = holders.find(|holder| holder.pid == incident.pid);
    IncidentReport {
        id: incident.id,
        time: clock.map(|clock| clock.wall(incident.time_ns)),
        pid: incident.pid,
        tid: incident.tid,
        uid: incident.uid,
        user: identity.user.clone(),
        comm: incident.comm.clone(),
        command: identity.command.clone(),
        container: identity.container.clone(),
        result: asked.result,
        kind: asked.kind.name(),
        asked_bytes: asked.bytes,
        attempts: incident.attempts,
        repeats: incident.repeats,
        outcome: incident.outcome.name(),
        outcome_seconds: incident.outcome_ns.map(seconds),
        host_memory: asked.at_host,
        device,
        physical_index: known.physical_index,
        uuid: known.uuid,
        label: label(&frames).unwrap_or_else(|| api.clone().into_owned()),
        api,
        stack: shown(frames, view).0,
        complete,
        gpu: gpu.and_then(|gpu| gpu.gpu.clone()).map(|memory| GpuState {
            free_bytes: (memory.total_bytes.zip(memory.used_bytes))
                .map(|(total, used)| total.saturating_sub(used)),
            memory,
        }),
        used_bytes: used.map(|used| used.bytes),
        live: LiveMemory::from(held.sums),
        device_bytes: held.on_device.map(|total| total.bytes),
        kinds: LiveByKind(held.kinds.clone()),
        owners: owners_of(held, symbols),
        sites,
        omitted,
        pytorch: pytorch(incident, &reader),
        others: others(incident),
    }
}

/// The call stack of the request. PyTorch's own says more than that of the segment that it asked for.
fn stack_of(incident: &Incident) -> Option<&CallStack> {
    let given_up = incident.given_up.as_ref();
    let given_up = given_up.and_then(|one| one.stack.as_deref());
    incident.asked.stack.as_deref().or(given_up)
}

/// Whose it is: what is at the call sites that are kept, and the rest.
fn owners_of(held: &HeldByProcess, symbols: &dyn Symbolize) -> Vec<OwnerReport> {
    let mut owners = Owners::new(symbols);
    let sites = held.sites.iter().map(|site| {
        let stack = site.stack.as_deref();
        let path = stack
            .map(|stack| owners.of_stack(stack))
            .unwrap_or_default();
        OwnerReport::new(path.owner(), site.live)
    });
    let mut known: Vec<_> = sites.collect();
    known.push(OwnerReport::new(UNKNOWN, held.other_sites.1));
    known.retain(|owner| owner.allocations > 0);
    owners::merge_by_owner(known.iter())
}

/// PyTorch's own message, and the memory that its allocator had handed out.
fn pytorch(incident: &Incident, reader: &NameReader<'_>) -> Option<PytorchHoldings> {
    let given_up = incident.given_up.as_ref();
    let known = incident.held.pytorch.as_ref();
    let device = given_up.map(|given_up| given_up.device);
    let device = device.or(known.map(|known| known.device))?;
    let known = known.filter(|known| known.device == device);
    let (sites, omitted) = known.map_or_else(Default::default, |known| {
        reader.sites(&known.sites, known.other_sites)
    });
    let said = given_up.map(|one| (one.allocated_bytes, one.reserved_bytes));
    let seen = known.map(|one| (one.allocated_bytes, one.reserved_bytes));
    let (allocated_bytes, reserved_bytes) = said.or(seen)?;
    Some(PytorchHoldings {
        device,
        gave_up_on_bytes: given_up.map(|told| told.bytes),
        allocated_bytes,
        reserved_bytes,
        segments: known.map_or(0, |known| known.segments),
        segment_bytes: known.map_or(0, |known| known.segment_bytes),
        largest_free_bytes: known.map(|known| known.largest_free_bytes),
        largest_fit_bytes: known.map(|known| known.largest_fit_bytes),
        empty_cache_bytes: known.map(|known| known.empty_cache_bytes),
        pinned_by_small_bytes: known.map(|known| known.pinned.0),
        sites,
        omitted,
    })
}

/// The other processes on the GPU: as they were traced, and as NVML has them.
fn others(incident: &Incident) -> Vec<OtherReport> {
    let known = |pid, identity: &Identity| OtherReport {
        pid,
        user: identity.user.clone(),
        command: identity.command.clone(),
        container: identity.container.clone(),
        ..OtherReport::default()
    };
    let traced = incident.others.iter().map(|other| OtherReport {
        uid: other.uid,
        comm: other.comm.clone(),
        live_bytes: Some(other.live.bytes),
        ..known(other.pid, &other.identity)
    });
    let mut others: Vec<_> = traced.collect();
    let holders = incident.gpu.iter().flat_map(|gpu| &gpu.holders);
    for holder in holders.filter(|holder| holder.pid != incident.pid) {
        let used_bytes = Some(holder.bytes);
        if let Some(other) = others.iter_mut().find(|other| other.pid == holder.pid) {
            other.used_bytes = used_bytes;
            continue;
        }
        let who = holder.who.as_ref();
        let identity = who.map(|who| who.identity.clone()).unwrap_or_default();
        others.push(OtherReport {
            uid: who.map(|who| who.uid),
            comm: who.map(|who| who.comm.clone()),
            used_bytes,
            ..known(holder.pid, &identity)
        });
    }
    others.sort_by_key(|other| (Reverse(other.bytes()), other.pid));
    others
}

/// Finds the names of what a process has called.
struct NameReader<'a> {
    pid: u32,
    view: &'a View,
    symbols: &'a dyn Symbolize,
}

impl NameReader<'_> {
    fn frames(&self, stack: Option<&CallStack>) -> (Vec<Frame>, bool) {
        let found = stack.map(|stack| (stack.frames(self.pid, self.symbols), stack.is_complete));
        found.unwrap_or_default()
    }

    /// The first of `held`, most first, those of one line of Python together; and what all the others hold.
    fn sites(
        &self,
        held: &[HeldSite],
        (others, rest): (u64, Total),
    ) -> (Vec<IncidentSite>, Option<Omitted>) {
        let mut owners = Owners::new(self.symbols);
        let mut known: HashMap<SiteKey, usize> = HashMap::new();
        let mut sites: Vec<IncidentSite> = Vec::new();
        for site in held.iter().take(LOOKED_UP) {
            let stack = site.stack.as_deref();
            let (frames, _) = self.frames(stack);
            let places: Vec<_> = frames.iter().map(place).collect();
            let is_pooled = stack.is_some_and(|stack| owners.of_stack(stack).is_pooled());
            let key = SiteKey::of_lines(side(site.row), is_pooled, &places);
            let key = key.filter(|_| self.view.groups_by_lines());
            let next = sites.len();
            let index = key.map_or(next, |key| *known.entry(key).or_insert(next));
            match sites.get_mut(index) {
                Some(known) => known.live.merge(site.live),
                None => sites.push(IncidentSite {
                    id: site.number,
                    label: String::new(),
                    api: function_name(site.row, self.symbols),
                    live: site.live,
                    stack: frames,
                }),
            }
        }
        sites.sort_by_key(|site| (Reverse(site.live.bytes), site.id));
        let mut omitted = Omitted {
            sites: others,
            allocations: rest.allocations,
            bytes: rest.bytes,
        };
        let beyond = sites.drain(SITES.min(sites.len())..).map(|site| site.live);
        let further = held.iter().skip(LOOKED_UP).map(|site| site.live);
        beyond
            .chain(further)
            .for_each(|live| omitted.add_site(live));
        let labels = labels(sites.iter().map(|site| (&*site.stack, &*site.api)));
        for (site, label) in sites.iter_mut().zip(labels) {
            site.label = label;
            site.stack = shown(std::mem::take(&mut site.stack), self.view).0;
        }
        (sites, omitted.if_any())
    }
}
