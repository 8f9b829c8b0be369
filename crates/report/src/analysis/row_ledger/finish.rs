//! The end of a file's memory events: counts of calls, and names of processes and threads.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;

use super::RowLedger;
use gpuprobe_cuda::{FUNCTIONS, Op};
use gpuprobe_engine::Counts;
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_recording::memory_rows;
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, Session, ids};

/// Upper limit of GPUs per host.
const MAX_GPUS: i64 = 255;

/// Thread ids and names, by process.
type ThreadNames = HashMap<u32, Vec<(u32, Rc<str>)>>;

impl RowLedger<'_> {
    /// Ends the events. If none of the selected events was in the selected time, the peak is the
    /// memory that was live at its start.
    pub(super) fn finish(
        &mut self,
        calls: &memory_rows::Counts,
        database: &Database,
    ) -> Result<()> {
        self.apply_remaining_contexts();
        if let Some(from) = self.begin_ns().filter(|_| self.last_ns().is_some()) {
            self.begin_by(self.last_ns.max(from));
        }
        let counts = self.counts(calls, database)?;
        self.ledger.set_counts(counts);
        Ok(())
    }

    /// Counts of the calls, as in a live run.
    fn counts(&mut self, calls: &memory_rows::Counts, database: &Database) -> Result<Counts> {
        let mut counts = Counts::default();
        for (&function, &[succeeded, failed]) in calls {
            let row = usize::from(self.callers.function_of(function));
            let Some(function) = FUNCTIONS.get(row).filter(|f| f.op.is_memory()) else {
                continue;
            };
            let succeeded_if = |is_of: bool| if is_of { succeeded } else { 0 };
            counts.failed_calls += failed;
            counts.by_row[row] += succeeded;
            counts.alloc_calls += succeeded_if(function.op.allocates());
            counts.free_calls += succeeded_if(function.op.frees());
            counts.null_frees += succeeded_if(function.op == Op::Free);
        }
        counts.unknown_frees = self.findings.unmatched_frees + self.unknown_frees(database)?;
        // Plain frees that were neither of known nor of unknown memory are of null pointers.
        let of_something = self.frees.saturating_add(counts.unknown_frees);
        counts.null_frees = counts.null_frees.saturating_sub(of_something);
        counts.free_calls -= counts.null_frees;
        Ok(counts)
    }

    /// Number of frees of memory allocated before a recording of gpuprobe began.
    fn unknown_frees(&self, database: &Database) -> Result<u64> {
        let mut frees = 0;
        let columns = ["globalPid", "t0"];
        database.each("GPUPROBE_UNMATCHED_FREES", &columns, "", |found| {
            let (Some(process), Some(time_ns)) = (integer(found, 0), integer(found, 1)) else {
                return;
            };
            let is_early = self.begin_ns().is_some_and(|from| time_ns < from);
            let is_selected = !is_early && !self.is_beyond(time_ns);
            let is_of = |pid| pid == ids::pid(process);
            frees += u64::from(is_selected && self.filter.pid.is_none_or(is_of));
        })?;
        Ok(frees)
    }

    /// Sets the names and identities of processes and threads.
    pub(super) fn introduce(&mut self, database: &Database, session: &Session) -> Result<()> {
        let threads = self.thread_names(database)?;
        let last = session.gpus.keys().max().copied().unwrap_or(-1);
        let device = |id: i64| DeviceIdentity {
            physical_index: None,
            // Format of NVML.
            uuid: session.gpu_uuids.get(&id).map(|uuid| match uuid {
                named if named.starts_with("GPU-") || named.starts_with("MIG-") => named.clone(),
                bare => format!("GPU-{bare}"),
            }),
        };
        let devices: Vec<_> = (0..=last.min(MAX_GPUS)).map(device).collect();
        for process in self.ledger.processes_mut() {
            // Exports have the path of the program.
            let name = session.processes.get(&process.pid);
            let name = name.map(|name| name.rsplit('/').next().unwrap_or(name));
            process.comm = name.map(str::to_owned);
            process.uid = session.users.get(&process.pid).copied();
            process.identity.devices.clone_from(&devices);
            for (tid, name) in threads.get(&process.pid).into_iter().flatten() {
                process.name_thread(*tid, name);
            }
        }
        Ok(())
    }

    /// Names of threads, by process.
    fn thread_names(&self, database: &Database) -> Result<ThreadNames> {
        let mut threads = ThreadNames::new();
        let columns = ["globalTid", "nameId"];
        database.each("ThreadNames", &columns, "", |found| {
            if let (Some(thread), Some(name)) = (integer(found, 0), integer(found, 1)) {
                let name = self.callers.string(name);
                let of_process = threads.entry(ids::pid(thread)).or_default();
                of_process.push((ids::tid(thread), name));
            }
        })?;
        Ok(threads)
    }
}
