//! Builds the report of an incident: names are found, sites of one line are put together, and what the engine
//! and NVML know of other processes is put side by side.

use std::cmp::Reverse;

use super::{
    GpuState, IncidentReport, IncidentSite, OtherReport, PytorchHoldings, RefusedRequests,
};
use crate::fold::{self, PythonLines};
use crate::label::{label, labels};
use crate::memleak::{LiveByKind, LiveMemory, Omitted, shown};
use crate::owners::{self, OwnerReport, Owners, UNKNOWN};
use crate::{Options, ReportSources, View, function_name};
use gpuprobe_engine::incidents::{self, Incident, Other};
use gpuprobe_engine::totals::Total;
use gpuprobe_engine::{Ledger, incidents::HeldByProcess};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::{CallStack, Frame, Location, Symbolize};
use gpuprobe_model::{GpuHolder, GpuMemory};

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
    let pytorch = incident.held.pytorch.iter();
    let pytorch = pytorch.flat_map(|one| one.sites.iter().take(LOOKED_UP));
    let sites = incident.held.sites.iter().take(LOOKED_UP).chain(pytorch);
    let given_up = incident
        .given_up
        .as_ref()
        .and_then(|one| one.stack.as_ref());
    let stacks = sites
        .filter_map(|site| site.stack.as_ref())
        .chain(incident.asked.stack.as_ref())
        .chain(given_up);
    let locations = stacks.flat_map(|stack| stack.locations.iter().enumerate());
    let needed = locations.map(|(index, location)| (incident.pid, *location, index == 0));
    needed.collect()
}

/// The same of all incidents that a report with `options` lists.
pub(crate) fn needed_locations(
    ledger: &Ledger,
    options: &Options,
) -> impl Iterator<Item = (u32, Location, bool)> {
    let listed = ledger.incidents.listed(options.is_final);
    listed.flat_map(locations_of)
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
        outcome_seconds: incident
            .outcome_ns
            .map(|ns| ns.saturating_sub(incident.time_ns) as f64 / 1e9),
        host_memory: asked.at_host,
        device,
        physical_index: known.physical_index,
        uuid: known.uuid,
        label: label(&frames).unwrap_or_else(|| api.clone().into_owned()),
        api,
        stack: reader.shown(frames),
        complete,
        gpu: incident
            .gpu
            .as_ref()
            .and_then(|gpu| gpu.gpu.clone())
            .map(GpuState::of),
        used_bytes: used_bytes(incident),
        live: LiveMemory::from(held.sums),
        device_bytes: held.on_device.map(|total| total.bytes),
        kinds: LiveByKind(held.kinds.clone()),
        owners: owners_of(held, symbols),
        sites,
        omitted,
        pytorch: pytorch(incident, held, &reader),
        others: others(incident),
    }
}

/// The call stack of the request. PyTorch's own says more than that of the segment that it asked for.
fn stack_of(incident: &Incident) -> Option<&CallStack> {
    let given_up = incident.given_up.as_ref();
    let given_up = given_up.and_then(|one| one.stack.as_ref());
    let stack = incident.asked.stack.as_ref().or(given_up);
    stack.map(|stack| &**stack)
}

/// Bytes of the GPU that the process used, by NVML.
fn used_bytes(incident: &Incident) -> Option<u64> {
    let mut holders = incident.gpu.iter().flat_map(|gpu| &gpu.holders);
    let holder = holders.find(|holder| holder.pid == incident.pid);
    holder.map(|holder| holder.bytes)
}

/// Whose it is: what is at the call sites that are kept, and the rest.
fn owners_of(held: &HeldByProcess, symbols: &dyn Symbolize) -> Vec<OwnerReport> {
    let mut owners = Owners::new(symbols);
    let mut report = |stack: Option<&CallStack>, live: Total| {
        let called = stack.map(|stack| owners.of_stack(stack).owner);
        OwnerReport {
            owner: called
                .map_or(UNKNOWN, |owner| owners.name(owner))
                .to_owned(),
            bytes: live.bytes,
            allocations: live.allocations,
        }
    };
    let sites = held.sites.iter();
    let sites = sites.map(|site| report(site.stack.as_deref(), site.live));
    let mut known: Vec<_> = sites.collect();
    let (_, rest) = held.other_sites;
    known.extend((rest.allocations > 0).then(|| report(None, rest)));
    owners::merge_by_owner(known.iter())
}

impl GpuState {
    fn of(memory: GpuMemory) -> Self {
        let free_bytes = memory.total_bytes.zip(memory.used_bytes);
        Self {
            free_bytes: free_bytes.map(|(total, used)| total.saturating_sub(used)),
            memory,
        }
    }
}

/// PyTorch's own message, and the memory that its allocator had handed out.
fn pytorch(
    incident: &Incident,
    held: &HeldByProcess,
    reader: &NameReader<'_>,
) -> Option<PytorchHoldings> {
    let given_up = incident.given_up.as_ref();
    let known = held.pytorch.as_ref();
    let device = given_up
        .map(|given_up| given_up.device)
        .or(known.map(|one| one.device))?;
    let known = known.filter(|known| known.device == device);
    let (sites, omitted) = known.map_or_else(Default::default, |known| {
        reader.sites(&known.sites, known.other_sites)
    });
    let sums = match (given_up, known) {
        (Some(given_up), _) => (given_up.allocated_bytes, given_up.reserved_bytes),
        (None, Some(known)) => (known.allocated_bytes, known.reserved_bytes),
        (None, None) => return None,
    };
    Some(PytorchHoldings {
        device,
        gave_up_on_bytes: given_up.map(|told| told.bytes),
        allocated_bytes: sums.0,
        reserved_bytes: sums.1,
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

/// The other processes on the GPU: as NVML has them, and as they were traced.
fn others(incident: &Incident) -> Vec<OtherReport> {
    let mut others: Vec<_> = incident.others.iter().map(from_ledger).collect();
    let holders = incident.gpu.iter().flat_map(|gpu| &gpu.holders);
    for holder in holders.filter(|holder| holder.pid != incident.pid) {
        match others.iter_mut().find(|other| other.pid == holder.pid) {
            Some(other) => other.used_bytes = Some(holder.bytes),
            None => others.push(from_nvml(holder)),
        }
    }
    others.sort_by_key(|other| (Reverse(other.bytes()), other.pid));
    others
}

fn from_ledger(other: &Other) -> OtherReport {
    OtherReport {
        pid: other.pid,
        uid: other.uid,
        user: other.identity.user.clone(),
        comm: other.comm.clone(),
        command: other.identity.command.clone(),
        container: other.identity.container.clone(),
        used_bytes: None,
        live_bytes: Some(other.live.bytes),
    }
}

fn from_nvml(holder: &GpuHolder) -> OtherReport {
    let identity = holder.who.as_ref().map(|who| &who.identity);
    OtherReport {
        pid: holder.pid,
        uid: holder.who.as_ref().map(|who| who.uid),
        user: identity.and_then(|identity| identity.user.clone()),
        comm: holder.who.as_ref().map(|who| who.comm.clone()),
        command: identity.and_then(|identity| identity.command.clone()),
        container: identity.and_then(|identity| identity.container.clone()),
        used_bytes: Some(holder.bytes),
        live_bytes: None,
    }
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

    fn shown(&self, frames: Vec<Frame>) -> Vec<Frame> {
        shown(frames, self.view).0
    }

    /// The first of `held`, those of one line of Python together, and what all the others hold.
    fn sites(
        &self,
        held: &[incidents::HeldSite],
        (others, rest): (u64, Total),
    ) -> (Vec<IncidentSite>, Option<Omitted>) {
        let mut found = self.put_together(held);
        let mut omitted = Omitted {
            sites: others,
            allocations: rest.allocations,
            bytes: rest.bytes,
        };
        let listed = found
            .drain(SITES.min(found.len())..)
            .map(|(_, live, _)| live);
        let further = held.iter().skip(LOOKED_UP).map(|site| site.live);
        for live in listed.chain(further) {
            omitted.sites += 1;
            omitted.allocations += live.allocations;
            omitted.bytes = omitted.bytes.saturating_add(live.bytes);
        }
        let apis = found
            .iter()
            .map(|(site, ..)| function_name(site.row, self.symbols));
        let apis: Vec<_> = apis.collect();
        let stacks = found.iter().zip(&apis);
        let stacks: Vec<_> = stacks
            .map(|((.., frames), api)| (&**frames, &**api))
            .collect();
        let labels = labels(&stacks);
        let sites = found.into_iter().zip(apis).zip(labels);
        let sites = sites.map(|(((site, live, frames), api), label)| IncidentSite {
            id: site.number,
            label,
            api,
            bytes: live.bytes,
            allocations: live.allocations,
            stack: self.shown(frames),
        });
        let sites = sites.collect();
        (sites, (omitted.allocations > 0).then_some(omitted))
    }

    /// Sites with what is live there and their frames, most first.
    fn put_together<'s>(
        &self,
        held: &'s [incidents::HeldSite],
    ) -> Vec<(&'s incidents::HeldSite, Total, Vec<Frame>)> {
        let by_lines = self.view.groups_by_lines();
        let mut lines = PythonLines::default();
        let mut owners = Owners::new(self.symbols);
        let mut keys = Vec::new();
        let mut found: Vec<(&incidents::HeldSite, Total, Vec<Frame>)> = Vec::new();
        for site in held.iter().take(LOOKED_UP) {
            let (frames, _) = self.frames(site.stack.as_deref());
            let numbered = frames.iter().filter_map(|frame| lines.number(frame));
            let numbered: Vec<_> = numbered.collect();
            let stack = site.stack.as_deref();
            let is_pooled = stack.is_some_and(|stack| owners.of_stack(stack).is_pooled);
            let key = fold::key(&numbered).filter(|_| by_lines);
            let key = key.map(|lines| (lines, is_pooled));
            let known = keys.iter().position(|known| key.is_some() && *known == key);
            match known {
                Some(place) => found[place].1.merge(site.live),
                None => {
                    keys.push(key);
                    found.push((site, site.live, frames));
                }
            }
        }
        found.sort_by_key(|(site, live, _)| (Reverse(live.bytes), site.number));
        found
    }
}
