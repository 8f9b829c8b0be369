//! Out-of-memory incidents: NVML is queried at once, messages and hooks follow shortly after.

use std::collections::{HashMap, VecDeque};

use tokio::time::{Duration, Instant};

use super::hook::Hooks;
use super::run::Run;
use crate::host::process;
use gpuprobe_engine::HostInfo;
use gpuprobe_engine::incidents::{Incident, IncidentOutcome};
use gpuprobe_model::stack::{NoSymbols, Symbolize};
use gpuprobe_model::{GpuHolder, GpuUsage, GpuUse, Untraced};
use gpuprobe_os::say;
use gpuprobe_recording::log::LogNote;
use gpuprobe_report::incidents::{self, IncidentReport};
use gpuprobe_views::{json, text};

/// How long to wait for a retry: PyTorch frees its cache and tries again, and a program that cannot
/// continue exits.
const SETTLES_WITHIN: Duration = Duration::from_millis(500);
/// How long to wait for symbols.
const NAMED_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of incidents waiting for their message, as many as the ledger keeps.
const MAX_WAITING: usize = 256;

/// State of the messages about incidents.
#[derive(Debug, Default)]
pub(super) struct AnnouncedIncidents {
    /// Number of the last incident noticed.
    seen: u64,
    waiting: VecDeque<(u64, Instant)>,
    /// The outcome printed, of incidents whose outcome may change.
    said: HashMap<u64, IncidentOutcome>,
    /// The hooks of `--on-oom`, if given.
    pub(super) hooks: Option<Hooks>,
}

impl AnnouncedIncidents {
    /// Empty state with `hooks`.
    pub(super) fn with(hooks: Option<Hooks>) -> Self {
        Self {
            hooks,
            ..Self::default()
        }
    }
}

impl Run<'_> {
    /// Queries NVML for the incidents since the last call: free memory on the GPU changes soon.
    pub(super) fn note_incidents(&mut self) {
        let count = self.sink.state.ledger.incidents.count;
        if count == self.reported_incidents.seen {
            return;
        }
        let mut usage: Option<GpuUsage> = None;
        for id in self.reported_incidents.seen + 1..=count {
            let Some(incident) = self.sink.state.ledger.incidents.get(id) else {
                continue;
            };
            let locations = incidents::locations_of(incident);
            let nvml = self.sink.host_info.nvml.as_ref();
            if let Some(nvml) = nvml.filter(|_| !incident.asked.at_host) {
                let usage = usage.get_or_insert_with(|| nvml.usage());
                let used = self.gpu_use(incident, usage);
                self.sink
                    .input_recorder
                    .note(LogNote::Incident(id, used.clone()));
                self.sink.state.ledger.set_incident_use(id, used);
            }
            if let Some(stacks) = &mut self.sink.stacks {
                stacks.want(locations.into_iter());
            }
            let waiting = &mut self.reported_incidents.waiting;
            if waiting.len() < MAX_WAITING {
                waiting.push_back((id, Instant::now()));
            }
        }
        self.reported_incidents.seen = count;
    }

    /// The GPU of `incident` and the processes that use its memory.
    fn gpu_use(&self, incident: &Incident, usage: &GpuUsage) -> GpuUse {
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
                let who = self.who(pid);
                holders.push(GpuHolder { pid, bytes, who });
            }
        }
        holders.sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.pid));
        GpuUse {
            gpu: Some(gpu.clone()),
            holders,
        }
    }

    /// Name, user and identity of a process on this host.
    fn who(&self, pid: u32) -> Option<Untraced> {
        let task = process::task_of(pid).ok()?;
        let identity = self.sink.host_info.identity(&task);
        Some(Untraced {
            uid: task.uid,
            comm: task.comm,
            identity,
        })
    }

    /// Prints the incidents that are settled or have waited long enough, and changed outcomes; all with
    /// `is_end`.
    pub(super) fn tell_incidents(&mut self, is_end: bool) {
        for _ in 0..self.reported_incidents.waiting.len() {
            let Some((id, since)) = self.reported_incidents.waiting.pop_front() else {
                break;
            };
            if is_end || self.is_ready(id, since) {
                self.tell(id);
            } else {
                self.reported_incidents.waiting.push_back((id, since));
            }
        }
        self.tell_outcomes();
    }

    fn is_ready(&self, id: u64, since: Instant) -> bool {
        let Some(incident) = self.sink.state.ledger.incidents.get(id) else {
            return true;
        };
        let is_settled = incident.outcome != IncidentOutcome::Pending;
        let stacks = self.sink.stacks.as_ref();
        let is_named = stacks.is_none_or(|stacks| {
            let needed = incidents::locations_of(incident);
            let mut needed = needed.iter();
            needed.all(|(pid, location, first)| stacks.frames.contains(*pid, location, *first))
        });
        let waited = since.elapsed();
        (is_settled || waited >= SETTLES_WITHIN) && (is_named || waited >= NAMED_WITHIN)
    }

    fn tell(&mut self, id: u64) {
        let Some((report, outcome)) = self.incident(id) else {
            return;
        };
        text::incidents::lines(&report).iter().for_each(say);
        if !outcome.is_final() {
            self.reported_incidents.said.insert(id, outcome);
        }
        if outcome == IncidentOutcome::Retried {
            return;
        }
        if let Some(hooks) = &mut self.reported_incidents.hooks {
            hooks.run_for(id, report.who.pid, json::incident(&report));
        }
    }

    /// Prints the changed outcomes of incidents printed before.
    fn tell_outcomes(&mut self) {
        let all = &self.sink.state.ledger.incidents;
        let changed = |(id, said): (&u64, &IncidentOutcome)| match all.get(*id) {
            Some(incident) => (incident.outcome != *said).then_some(*id),
            None => Some(*id),
        };
        let mut changed: Vec<_> = self
            .reported_incidents
            .said
            .iter()
            .filter_map(changed)
            .collect();
        changed.sort_unstable();
        for id in changed {
            self.reported_incidents.said.remove(&id);
            if let Some((report, outcome)) = self.incident(id) {
                say(report.headline());
                if !outcome.is_final() {
                    self.reported_incidents.said.insert(id, outcome);
                }
            }
        }
    }

    /// The report of an incident with the current state.
    fn incident(&self, id: u64) -> Option<(IncidentReport, IncidentOutcome)> {
        let incident = self.sink.state.ledger.incidents.get(id)?;
        let stacks = self.sink.stacks.as_ref();
        let symbols = stacks.map_or(&NoSymbols as &dyn Symbolize, |stacks| &stacks.frames);
        let view = &self.config.view;
        let report = incidents::report(incident, view, Some(&self.clock), symbols);
        Some((report, incident.outcome))
    }
}
