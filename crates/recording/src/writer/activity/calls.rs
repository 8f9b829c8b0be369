//! Rows of driver and runtime API calls as CUPTI reported them.
//!
//! A call that a probe saw, too, has its row beside that of CUPTI, and a row that says so.

use std::collections::HashMap;

use rusqlite::{Result, params};

use super::probed::ProbedCalls;
use crate::ids::cupti_correlation;
use crate::memory_rows::CALLS;
use crate::writer::tables::Tables;
use gpuprobe_cuda::names::without_version;
use gpuprobe_cuda::nsys::{class, domain, object};
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// Writer of CUPTI's calls.
#[derive(Default)]
pub(in crate::writer) struct CuptiCalls {
    /// The recent calls of probes.
    pub(in crate::writer) probed: ProbedCalls,
    /// Thread ids in the host's PID namespace, by (process, thread id in the process's own
    /// namespace).
    outer: HashMap<(u32, u32), u32>,
    /// Number of calls that no probe saw, less those of probes that are within others.
    pub(in crate::writer) count: i64,
}

impl CuptiCalls {
    /// Process and thread id of an object; `None` if it is not a thread.
    pub(super) fn object(&self, pid: u32, object: wire::Object) -> Option<(u32, u32)> {
        let is_thread = object.kind == object::THREAD;
        is_thread.then(|| (pid, self.tid(pid, object.a, object.b).unwrap_or(object.b)))
    }

    /// Translates a thread id of a process to the host's PID namespace; `own_pid` is the process id
    /// in its own namespace.
    fn tid(&self, pid: u32, own_pid: u32, tid: u32) -> Option<u32> {
        if own_pid == pid {
            return Some(tid);
        }
        // The main thread has the id of the process.
        let main = (tid == own_pid).then_some(pid);
        self.outer.get(&(pid, tid)).copied().or(main)
    }

    /// Writes a call. Without times it gets no row.
    pub(super) fn write(
        &mut self,
        process: u32,
        activity: &Activity,
        api: &wire::Api,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        if api.start_ns == 0 {
            return Ok(());
        }
        let (pid, number) = (activity.pid, cupti_correlation(process, api.correlation));
        let times = (api.start_ns, api.end_ns.max(api.start_ns));
        let unnamed = || format!("[cbid {} of domain {}]", api.cbid, api.domain).into();
        let name = activity.name.clone().unwrap_or_else(unnamed);
        let mut outer = self.tid(pid, api.pid, api.tid);
        if outer.is_none() {
            let plain = tables.string(without_version(&name))?;
            outer = self.probed.thread_of(pid, plain, times);
            self.outer
                .extend(outer.map(|outer| ((pid, api.tid), outer)));
        }
        let tid = outer.unwrap_or(api.tid);
        let class = match api.domain {
            domain::RUNTIME => class::RUNTIME,
            _ => class::DRIVER,
        };
        let thread = tables.thread(pid, tid)?;
        let (start, end) = (tables.time(times.0), tables.time(times.1));
        // Error codes are small, as in the probes' records.
        let (name, result) = (tables.string(&name)?, api.result.cast_signed());
        let same = self.probed.take((pid, tid), times, class);
        let chain = same.iter().find_map(|call| call.chain);
        let row = params![start, end, class, thread, number, name, result, chain];
        tables.insert(CALLS, row)?;
        self.count += 1;
        for probed in same {
            self.count -= 1;
            tables.insert("GPUPROBE_SAME_CALLS", params![probed.number, number])?;
        }
        Ok(())
    }
}
