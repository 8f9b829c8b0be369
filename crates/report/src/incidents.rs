//! Out of memory: from the engine's incidents to a report.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, FixedOffset};
use serde::{Serialize, Serializer};

use gpuprobe_cuda::Framework;
use gpuprobe_engine::Ledger;
use gpuprobe_engine::incidents::{HeldByProcess, HeldSite, Incident};
use gpuprobe_engine::tensors::Fragmentation;
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::{Frame, Location, NoSymbols, Symbolize};
use gpuprobe_model::text::{printable, size};
use gpuprobe_model::{GpuMemory, Total};

use crate::label::{label, labels};
use crate::memleak::{LiveByKind, Omitted, frames_of, live, shown, side};
use crate::owners::{self, OwnerReport, Owners, UNKNOWN};
use crate::public::hide_in_site;
use crate::site_key::{SiteKey, place};
use crate::words::{Who, short_age};
use crate::{Options, ReportSources, View, clock_micros, function_name, requested};

/// Call sites that are listed, and those of which lines are looked up for that: several may be of one.
const SITES: usize = 10;
const LOOKED_UP: usize = 64;

/// Requests for memory that were refused, of all processes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusedRequests {
    /// CUDA calls that failed with out-of-memory.
    pub calls: u64,
    /// Incidents, whether they are still known or not.
    pub incidents: u64,
}

/// A request for memory that was refused, with its retries, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct IncidentReport {
    /// Its number in the run, from 1.
    pub id: u64,
    /// When it was refused first; none if a file does not tell times of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// Id of the thread that asked.
    pub tid: u32,
    /// The id of its container, if it is in one.
    pub container: Option<String>,
    /// The function that was called, as the user called it.
    pub api: Cow<'static, str>,
    /// CUDA's error; none if the allocator of a framework gave up without a call.
    pub result: Option<i32>,
    /// Kind of memory asked for.
    pub kind: &'static str,
    /// Bytes that were asked for, if the call says how many.
    pub asked_bytes: Option<u64>,
    /// Calls that failed: more than one if it was retried.
    pub attempts: u64,
    /// Further calls that failed right after, and are in no incident of their own.
    pub repeats: u64,
    /// Outcome: `pending`, `retried` (with success), `failed` (a framework's allocator gave up),
    /// `continued` (the program went on without), `ended` (the process ended and had not gone on).
    pub outcome: &'static str,
    /// Seconds from the first refusal until then.
    pub outcome_seconds: Option<f64>,
    /// Memory of the host was asked for.
    pub host_memory: bool,
    /// Device index as CUDA numbers it for the process, if known; none for memory of the host.
    pub device: Option<u16>,
    /// Index on the host, as `nvidia-smi` shows it, if known.
    pub physical_index: Option<u32>,
    /// UUID of the GPU or of the part of it that was given to the process, if known.
    pub uuid: Option<String>,
    /// Label of the line at which it was asked for.
    pub label: String,
    /// The call stack, innermost first; empty if it is not known.
    pub stack: Vec<Frame>,
    /// It reaches the beginning of the thread.
    pub complete: bool,
    /// The GPU as NVML had it at that moment, if NVML is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuState>,
    /// Bytes of it that the process used, as NVML says.
    pub used_bytes: Option<u64>,
    /// Memory that the process held.
    #[serde(flatten, serialize_with = "live")]
    pub live: MemorySums,
    /// The GPU memory among that on the device that was asked, if it is known which.
    pub device_bytes: Option<u64>,
    /// Memory that it held, by kind.
    pub kinds: LiveByKind,
    /// The same by owner: GPU memory, or the host's if that was asked for.
    pub owners: Vec<OwnerReport>,
    /// The call sites that held most of the GPU, or of the host if its memory was asked for.
    pub sites: Vec<IncidentSite>,
    /// Memory held by the sites that are not listed; `None` if all are.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Omitted>,
    /// Memory that a framework's allocator had handed out on that device, and its message.
    #[serde(flatten, serialize_with = "by_framework")]
    pub allocator: Option<AllocatorHoldings>,
    /// The other processes on that GPU, most first.
    pub others: Vec<OtherReport>,
}

/// A GPU at the moment of an incident.
#[derive(Clone, Debug, Serialize)]
pub struct GpuState {
    /// Memory of the GPU according to NVML.
    #[serde(flatten)]
    pub memory: GpuMemory,
    /// Bytes that nobody uses; none if NVML does not say.
    pub free_bytes: Option<u64>,
}

/// A call site and what it held.
#[derive(Clone, Debug, Serialize)]
pub struct IncidentSite {
    /// Its number within the process; of tensors, within PyTorch's on that device.
    pub id: u32,
    /// Label of the call site.
    pub label: String,
    /// The function that was called.
    pub api: Cow<'static, str>,
    /// Memory that was live.
    #[serde(flatten)]
    pub live: Total,
    /// The call stack, innermost first; empty if it is not known.
    pub stack: Vec<Frame>,
}

/// Memory that a framework's allocator had handed out on the device, and its message when it gave up.
#[derive(Clone, Debug, Serialize)]
pub struct AllocatorHoldings {
    /// Whose it is: the key in JSON.
    #[serde(skip)]
    pub framework: Framework,
    /// Device index as the process numbers it.
    pub device: u16,
    /// Bytes that were asked of it and that it gave up on; none if it did not.
    pub gave_up_on_bytes: Option<u64>,
    /// Bytes that it had handed out, as it says.
    pub allocated_bytes: u64,
    /// Bytes that it had from CUDA for that, as it says.
    pub reserved_bytes: u64,
    /// Memory from CUDA that it was seen to hand out of.
    pub segments: u64,
    /// Bytes of the segments.
    pub segment_bytes: u64,
    /// Bytes of the largest block in it that is free; none if tensors are not traced.
    pub largest_free_bytes: Option<u64>,
    /// Bytes of the largest request that it has room for.
    pub largest_fit_bytes: Option<u64>,
    /// Bytes of it that `torch.cuda.empty_cache()` would give back.
    pub empty_cache_bytes: Option<u64>,
    /// Bytes of it that are held by less than 5 % of them.
    pub pinned_by_small_bytes: Option<u64>,
    /// The call sites of the tensors that took most.
    pub sites: Vec<IncidentSite>,
    /// Memory of the sites that are not listed; `None` if all are.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Omitted>,
}

/// Another process on the GPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OtherReport {
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// The id of its container, if it is in one.
    pub container: Option<String>,
    /// Bytes that NVML says it used, if NVML is there.
    pub used_bytes: Option<u64>,
    /// Bytes of it that were traced and live, if it is traced.
    pub live_bytes: Option<u64>,
}

impl OtherReport {
    /// Bytes that it has of the GPU.
    pub fn bytes(&self) -> u64 {
        self.used_bytes.or(self.live_bytes).unwrap_or(0)
    }
}

impl IncidentReport {
    /// What was refused, to whom, where, and what became of it.
    pub fn headline(&self) -> String {
        let at = self
            .time
            .map(|time| time.format(" at %H:%M:%S").to_string());
        // The framework's request, if it gave up on one; else CUDA's.
        let allocator = self.allocator.as_ref();
        let gave_up = allocator.and_then(|one| one.gave_up_on_bytes);
        let who = allocator.map_or("the program", |one| one.framework.name());
        let asked = match gave_up.or(self.asked_bytes) {
            Some(bytes) => size(bytes),
            None => "memory of unknown size".into(),
        };
        let after = match self.outcome_seconds.unwrap_or(0.0) {
            ..0.001 => "at once".into(),
            after => format!("after {}", short_age((after * 1e9) as u64)),
        };
        let given_up = match gave_up {
            Some(_) => format!("{who} gave up; "),
            None => String::new(),
        };
        let outcome = match self.outcome {
            "retried" => format!("retried with success {after}"),
            "failed" => format!("{who} gave up"),
            "continued" => format!("{given_up}the program went on"),
            "ended" => format!("{given_up}the program ended {after}"),
            _ => "not retried with success so far".into(),
        };
        format!(
            "out of memory #{}{}: {} was refused {asked} on {} at {}: {outcome}",
            self.id,
            at.unwrap_or_default(),
            self.who.with_pid(),
            self.place(),
            printable(&self.label),
        )
    }

    /// `GPU 0`, or the host.
    pub fn place(&self) -> String {
        let index = self.physical_index.or(self.device.map(u32::from));
        match (self.host_memory, index) {
            (true, _) => "the host".into(),
            (false, Some(index)) => format!("GPU {index}"),
            (false, None) => "a GPU".into(),
        }
    }

    /// Removes command lines and addresses.
    pub(crate) fn hide_secrets(&mut self) {
        self.who.command = None;
        for other in &mut self.others {
            other.who.command = None;
        }
        hide_in_site(&mut self.label, &mut self.stack);
        let of_allocator = self.allocator.iter_mut();
        let of_allocator = of_allocator.flat_map(|held| &mut held.sites);
        for site in self.sites.iter_mut().chain(of_allocator) {
            hide_in_site(&mut site.label, &mut site.stack);
        }
    }
}

/// The incidents that a report lists, and how many there were.
pub fn build(
    ledger: &Ledger,
    options: &Options,
    sources: ReportSources<'_>,
) -> (Vec<IncidentReport>, Option<RefusedRequests>) {
    let all = &ledger.incidents;
    let listed = all.listed(options.is_final);
    let reports = listed.map(|one| report(one, &options.view, sources.clock, sources.symbols));
    let refused = (all.count > 0).then_some(RefusedRequests {
        calls: all.refused_calls,
        incidents: all.count,
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
    let (asked, held) = (&incident.asked, &incident.held);
    let pid = incident.pid;
    let (frames, complete) = frames_of(pid, incident.stack.as_deref(), symbols);
    let device = incident.device();
    let identity = &incident.identity;
    let known = device.map_or_else(Default::default, |device| identity.device(device));
    let rest = held.other_sites;
    let (sites, omitted) = sites_of(pid, &held.sites, rest, view, symbols);
    let api = function_name(asked.row, symbols);
    let seconds = |ns: u64| ns.saturating_sub(incident.time_ns) as f64 / 1e9;
    let gpu = incident.gpu.as_deref();
    let mut holders = gpu.into_iter().flat_map(|gpu| &gpu.holders);
    let used = holders.find(|holder| holder.pid == pid);
    IncidentReport {
        id: incident.id,
        time: clock.map(|clock| clock.wall(incident.time_ns)),
        who: Who::of(pid, incident.uid, incident.comm.as_deref(), identity),
        tid: incident.tid,
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
        live: held.sums,
        device_bytes: held.on_device.map(|total| total.bytes),
        kinds: LiveByKind(held.kinds.iter().copied().collect()),
        owners: owners_of(held, symbols),
        sites,
        omitted,
        allocator: allocator(incident, view, symbols),
        others: others(incident),
    }
}

/// Whose it is: what is at the call sites that are kept, and the rest.
fn owners_of(held: &HeldByProcess, symbols: &dyn Symbolize) -> Vec<OwnerReport> {
    let mut owners = Owners::new(symbols);
    let sites = held.sites.iter().map(|site| {
        let path = owners.of_stack(site.stack.as_deref());
        (path.owner().to_owned(), site.live)
    });
    let others = (UNKNOWN.to_owned(), held.other_sites.1);
    owners::merge_by_owner(sites.chain([others]))
}

/// The report under the name of its framework.
fn by_framework<S: Serializer>(
    one: &Option<AllocatorHoldings>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(one.iter().map(|one| (one.framework.key(), one)))
}

/// The framework's own message, and the memory that its allocator had handed out.
fn allocator(
    incident: &Incident,
    view: &View,
    symbols: &dyn Symbolize,
) -> Option<AllocatorHoldings> {
    let given_up = incident.given_up.as_ref();
    let known = incident.held.allocator.as_ref();
    let device = given_up.and_then(|given_up| given_up.device);
    let device = device.or(known.map(|known| known.device))?;
    let known = known.filter(|known| known.device == device);
    let (sites, omitted) = known.map_or_else(Default::default, |known| {
        let rest = known.other_sites;
        sites_of(incident.pid, &known.sites, rest, view, symbols)
    });
    let said = given_up.filter(|one| one.device.is_some());
    let said = said.map(|one| (one.allocated_bytes, one.reserved_bytes));
    let seen = known.map(|one| (one.allocated_bytes, one.reserved_bytes));
    let (allocated_bytes, reserved_bytes) = said.or(seen)?;
    let found = known.map(|known| &known.found);
    let told = given_up.and_then(|one| gpuprobe_cuda::function(one.row)?.framework);
    Some(AllocatorHoldings {
        framework: told.or(known.and_then(|known| known.framework))?,
        device,
        gave_up_on_bytes: given_up.map(|told| told.bytes),
        allocated_bytes,
        reserved_bytes,
        segments: found.map_or(0, |found| found.segments.len() as u64),
        segment_bytes: found.map_or(0, Fragmentation::bytes),
        largest_free_bytes: found.map(|found| found.largest_free_bytes),
        largest_fit_bytes: found.map(|found| found.largest_fit_bytes),
        empty_cache_bytes: found.map(|found| found.unused_bytes),
        pinned_by_small_bytes: found.map(|found| found.pinned.bytes),
        sites,
        omitted,
    })
}

/// The other processes on the GPU: as they were traced, and as NVML has them.
fn others(incident: &Incident) -> Vec<OtherReport> {
    let traced = incident.others.iter().map(|other| OtherReport {
        who: Who::of(other.pid, other.uid, other.comm.as_deref(), &other.identity),
        container: other.identity.container.clone(),
        live_bytes: Some(other.live.bytes),
        used_bytes: None,
    });
    let mut others: Vec<_> = traced.collect();
    let holders = incident.gpu.iter().flat_map(|gpu| &gpu.holders);
    for holder in holders.filter(|holder| holder.pid != incident.pid) {
        let used_bytes = Some(holder.bytes);
        if let Some(other) = others.iter_mut().find(|other| other.who.pid == holder.pid) {
            other.used_bytes = used_bytes;
            continue;
        }
        let who = holder.who.as_ref();
        let identity = who.map(|who| who.identity.clone()).unwrap_or_default();
        let (uid, comm) = who.map(|who| (who.uid, &*who.comm)).unzip();
        others.push(OtherReport {
            who: Who::of(holder.pid, uid, comm, &identity),
            container: identity.container,
            used_bytes,
            live_bytes: None,
        });
    }
    others.sort_by_key(|other| (Reverse(other.bytes()), other.who.pid));
    others
}

/// The first of `held` by process `pid`, most first, those of one line of Python together; and what all the others hold.
fn sites_of(
    pid: u32,
    held: &[HeldSite],
    (others, rest): (u64, Total),
    view: &View,
    symbols: &dyn Symbolize,
) -> (Vec<IncidentSite>, Option<Omitted>) {
    let mut owners = Owners::new(symbols);
    let mut known: HashMap<SiteKey, usize> = HashMap::new();
    let mut sites: Vec<IncidentSite> = Vec::new();
    for site in held.iter().take(LOOKED_UP) {
        let stack = site.stack.as_deref();
        let (frames, _) = frames_of(pid, stack, symbols);
        let places: Vec<_> = frames.iter().map(place).collect();
        let is_pooled = owners.of_stack(stack).is_pooled();
        let key = SiteKey::of_lines(side(site.row), is_pooled, &places);
        let key = key.filter(|_| view.groups_by_lines());
        let next = sites.len();
        let index = key.map_or(next, |key| *known.entry(key).or_insert(next));
        match sites.get_mut(index) {
            Some(known) => known.live.merge(site.live),
            None => sites.push(IncidentSite {
                id: site.number,
                label: String::new(),
                api: function_name(site.row, symbols),
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
        site.stack = shown(std::mem::take(&mut site.stack), view).0;
    }
    (sites, omitted.if_any())
}
