//! Out-of-memory incidents: NVML is queried at once, messages and hooks follow shortly after.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;
use std::time::{Duration, Instant};

use super::ProcessFilter;
use super::hook::Hooks;
use super::run::{look_up, symbols};
use super::sink::Sink;
use crate::host::host_info::ProcFs;
use gpuprobe_analysis::snapshot::FoundSnapshot;
use gpuprobe_engine::incidents::{Incident, IncidentOutcome};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::{GpuHolder, GpuUsage, GpuUse};
use gpuprobe_os::{files, say};
use gpuprobe_recording::log::LogNote;
use gpuprobe_report::{View, incidents};
use gpuprobe_views::export::write_snapshot;
use gpuprobe_views::{json, text};

/// How long to wait for a retry: PyTorch frees its cache and tries again, and a program that cannot
/// continue exits.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);
/// How long to wait for symbols.
const NAMED_WITHIN: Duration = Duration::from_secs(1);

/// How long a process that uses its allocator is tried.
const SNAPSHOT_WITHIN: Duration = Duration::from_millis(50);

/// What has been printed of an incident.
#[derive(Debug)]
enum Told {
    /// Nothing since it happened.
    Nothing(Instant),
    /// This outcome, which may change.
    Outcome(IncidentOutcome),
}

/// The incidents of a session of which something is still to be printed.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    /// Number of the last incident noticed.
    seen: u64,
    open: BTreeMap<u64, Told>,
    /// The hooks of `--on-oom`, if given.
    pub(super) hooks: Option<Hooks>,
    /// Whether PyTorch's memory is looked for when it happens, and what was found, by number.
    takes_snapshots: bool,
    found: BTreeMap<u64, FoundSnapshot>,
}

impl Incidents {
    pub(super) fn new(hooks: Option<Hooks>, takes_snapshots: bool) -> Self {
        Self {
            hooks,
            takes_snapshots,
            ..Self::default()
        }
    }

    /// Queries NVML for the incidents since the last call: free memory on the GPU changes soon.
    pub(super) fn note(&mut self, sink: &mut Sink) {
        let count = sink.state.ledger.incidents.count;
        let mut usage: Option<GpuUsage> = None;
        for id in self.seen + 1..=count {
            let Some(incident) = sink.state.ledger.incidents.get(id) else {
                continue;
            };
            if let Some(stacks) = &mut sink.stacks {
                stacks.want(incidents::locations_of(incident).into_iter());
            }
            if self.takes_snapshots {
                // Before the program unwinds, which frees some of it.
                let mut blocks = sink.host_info.blocks.borrow_mut();
                let found = blocks.read_tried(incident.pid, SNAPSHOT_WITHIN).ok();
                let found = found.map(|found| (id, FoundSnapshot::new(&found, None)));
                self.found.extend(found);
            }
            let nvml = sink.host_info.nvml.as_ref();
            if let Some(nvml) = nvml.filter(|_| !incident.asked.at_host) {
                let usage = usage.get_or_insert_with(|| nvml.usage());
                let used = gpu_use(incident, usage, &sink.host_info);
                sink.input_recorder
                    .note(LogNote::Incident(id, used.clone()));
                sink.state.ledger.incidents.learn(id, used);
            }
            self.open.insert(id, Told::Nothing(Instant::now()));
        }
        self.seen = count;
    }

    /// Prints the incidents that are settled or have waited long enough, and changed outcomes; all with
    /// `is_end`.
    pub(super) fn tell(&mut self, sink: &Sink, view: &View, clock: &WallClock, is_end: bool) {
        for (id, told) in std::mem::take(&mut self.open) {
            let Some(incident) = sink.state.ledger.incidents.get(id) else {
                continue;
            };
            let outcome = incident.outcome;
            let is_due = match told {
                Told::Nothing(since) => is_end || is_ready(incident, since, sink),
                Told::Outcome(told) => told != outcome,
            };
            if !is_due {
                self.open.insert(id, told);
                continue;
            }
            let report = incidents::report(incident, view, Some(clock), symbols(sink));
            match told {
                Told::Nothing(_) => text::incidents::lines(&report).iter().for_each(say),
                Told::Outcome(_) => say(report.headline()),
            }
            if let Some(found) = self.found.remove(&id)
                && outcome != IncidentOutcome::Retried
            {
                write(id, report.who.pid, &found);
            }
            if !outcome.is_final() {
                self.open.insert(id, Told::Outcome(outcome));
            }
            if let (Told::Nothing(_), Some(hooks)) = (told, &mut self.hooks)
                && outcome != IncidentOutcome::Retried
            {
                hooks.run_for(id, report.who.pid, json::incident(&report));
            }
        }
    }
}

/// Writes PyTorch's memory at an incident into a new file in the current folder.
fn write(id: u64, pid: u32, found: &FoundSnapshot) {
    let name = format!("gpuprobe-oom-{pid}-{id}.pickle");
    let created = files::create_new(Path::new(&name));
    match created.and_then(|(file, _)| write_snapshot(found, &mut BufWriter::new(file))) {
        Ok(()) => say(format_args!(
            "PyTorch's memory at incident #{id} is in {name}"
        )),
        Err(error) => say(format_args!(
            "warning: incident #{id}: cannot write {name}: {error:#}"
        )),
    }
}

fn is_ready(incident: &Incident, since: Instant, sink: &Sink) -> bool {
    let is_settled = incident.outcome != IncidentOutcome::Pending;
    let is_named = sink.stacks.as_ref().is_none_or(|stacks| {
        let needed = incidents::locations_of(incident);
        let mut needed = needed.iter();
        needed.all(|(pid, location, first)| stacks.frames.contains(*pid, location, *first))
    });
    let waited = since.elapsed();
    (is_settled || waited >= SETTLES_WITHIN) && (is_named || waited >= NAMED_WITHIN)
}

/// The GPU of `incident` and the processes that use its memory.
fn gpu_use(incident: &Incident, usage: &GpuUsage, host_info: &ProcFs) -> GpuUse {
    let device = incident.device();
    let device = device.map(|device| incident.identity.device(device));
    let device = device.unwrap_or_default();
    let mut gpus = usage.gpus.iter();
    let gpu = match (device.physical_index, &usage.gpus[..]) {
        (Some(index), _) => gpus.find(|gpu| gpu.index == index),
        (None, [only]) => Some(only),
        (None, _) => gpus.find(|gpu| device.uuid.as_ref() == Some(&gpu.uuid)),
    };
    let Some(gpu) = gpu else {
        return GpuUse::default();
    };
    let mut holders = Vec::new();
    for (&pid, used) in &usage.processes {
        let here = used.iter().filter(|(index, _)| *index == gpu.index);
        if let Some(bytes) = here.map(|(_, bytes)| *bytes).reduce(u64::saturating_add) {
            let who = look_up(host_info, &ProcessFilter::default(), pid);
            holders.push(GpuHolder { pid, bytes, who });
        }
    }
    holders.sort_by_key(|holder| (Reverse(holder.bytes), holder.pid));
    GpuUse {
        gpu: Some(gpu.clone()),
        holders,
    }
}
