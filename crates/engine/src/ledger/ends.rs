//! Ends of processes.

use super::super::limits::LedgerUsage;
use super::super::process::Process;
use super::Ledger;
use gpuprobe_model::event::Task;

impl Ledger {
    /// Ends `pid`, for which no exit event was seen.
    pub fn end_unseen(&mut self, pid: u32) {
        self.end_at(pid, None);
    }

    pub(crate) fn end_at(&mut self, pid: u32, time_ns: Option<u64>) {
        self.incidents.end(pid, time_ns);
        self.record_incidents();
        if let Some(mut process) = self.processes.remove(pid) {
            process.ended_ns = time_ns;
            if let Some(addresses) = &mut self.addresses {
                addresses.end_process(&process, time_ns);
            }
            self.retire(process);
        }
    }

    pub(super) fn end(&mut self, task: &Task) {
        self.processes.drop_early_stacks(task.pid);
        self.end_at(task.pid, Some(task.time_ns));
    }

    fn retire(&mut self, mut process: Process) {
        process.exited = true;
        if !self.is_of_file {
            let kept = process.account.kept;
            self.limits.change(kept, LedgerUsage::default());
        }
        let ended_ns = process.ended_ns.unwrap_or(0);
        process.sites.after_peak(self.peaks, ended_ns);
        process.sites.end();
        self.live_bytes = self
            .live_bytes
            .saturating_sub(process.totals.sums.gpu.bytes);
        self.ended.push(process);
        if !self.is_of_file {
            self.ended.forget_surplus();
        }
    }
}
