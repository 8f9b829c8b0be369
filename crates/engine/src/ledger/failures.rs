//! Calls that failed for lack of memory.

use super::super::change::Change;
use super::super::incidents::{self, GivenUp, HeldByProcess, Incident, MemoryRequest};
use super::Ledger;
use gpuprobe_model::GpuUse;
use gpuprobe_model::event::{Call, OutOfMemory};

impl Ledger {
    /// Sets the memory use of the GPU of incident `id`, from NVML.
    pub fn set_incident_use(&mut self, id: u64, gpu: GpuUse) {
        self.incidents.learn(id, gpu);
    }

    /// Updates incidents with a call that has returned: a failed request, or a successful one of a
    /// thread with an open incident.
    pub(super) fn note_outcome(&mut self, call: &Call) {
        if incidents::is_refused(call) {
            self.refused(call);
        } else if call.result == 0
            && call.function.op.allocates()
            && !call.captured
            && self.incidents.is_open(call.pid)
        {
            let who = (call.pid, call.tid);
            self.incidents.given(who, Some(call.into()), call.end_ns);
            self.record_incidents();
        }
    }

    fn refused(&mut self, call: &Call) {
        self.processes.enter(call.pid);
        let processes = &self.processes;
        let Some(process) = processes.get(call.pid) else {
            return;
        };
        let (asked, when) = (MemoryRequest::of(call, process), (call.tid, call.end_ns));
        let incident = |id, asked| Incident::new(id, process, when, asked).among(processes.iter());
        self.incidents.refused(call.pid, when, asked, incident);
        self.record_incidents();
    }

    /// Records that the allocator of a framework has given up.
    pub(super) fn gave_up(&mut self, oom: &OutOfMemory) {
        self.processes.enter(oom.pid);
        let processes = &self.processes;
        let Some(process) = processes.get(oom.pid) else {
            return;
        };
        let when = (oom.tid, oom.time_ns);
        let incident = |id| {
            let asked = MemoryRequest::reported(oom, process);
            Incident::new(id, process, when, asked).among(processes.iter())
        };
        let held = || HeldByProcess::of(process, Some(oom.device), false);
        let given_up = GivenUp::of(oom, process);
        self.incidents.gave_up(oom, given_up, held, incident);
        self.record_incidents();
    }

    pub(super) fn record_incidents(&mut self) {
        for row in self.incidents.take_changed() {
            self.changes.record(|| Change::Incident(Box::new(row)));
        }
    }
}
