//! Rows of driver and runtime API calls as CUPTI reported them.
//!
//! Calls of the driver within those of the runtime are in a table of gpuprobe's, so that GPU work
//! has one call. A call that a probe saw, too, has its row beside that of CUPTI, and a row that
//! says so.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rusqlite::params;

use super::probed::ProbedCalls;
use crate::ids::cupti_correlation;
use crate::writer::tables::Tables;
use gpuprobe_cuda::names::without_version;
use gpuprobe_cuda::nsys::{class, domain, object};
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// Maximum number of held calls; beyond it, calls are written at once.
const MAX_HELD: usize = 400_000;

/// A call that CUPTI reported.
struct CuptiCall {
    /// Round in which it arrived.
    round: u64,
    pid: u32,
    number: i64,
    api: wire::Api,
    /// CUPTI's name of the function: `cudaMalloc_v3020`.
    name: Option<Arc<str>>,
}

/// Writer of CUPTI's calls.
#[derive(Default)]
pub(in crate::writer) struct CuptiCalls {
    round: u64,
    held: VecDeque<CuptiCall>,
    /// Recent calls of the runtime by correlation id, and their rounds.
    runtime: HashMap<i64, u64>,
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
        match self.outer.get(&(pid, tid)) {
            Some(outer) => Some(*outer),
            // The main thread has the id of the process.
            None if tid == own_pid => Some(pid),
            None => None,
        }
    }

    /// Adds a call. Without times it gets no row.
    pub(super) fn add(&mut self, process: u32, activity: &Activity, api: &wire::Api) {
        if api.start_ns == 0 {
            return;
        }
        let number = cupti_correlation(process, api.correlation);
        if api.domain == domain::RUNTIME {
            self.runtime.insert(number, self.round);
        }
        self.held.push_back(CuptiCall {
            round: self.round,
            pid: activity.pid,
            number,
            api: *api,
            name: activity.name.clone(),
        });
    }

    /// Starts the next round, which is the time between two commits.
    pub(in crate::writer) fn next_round(&mut self) {
        self.round += 1;
        self.runtime.retain(|_, round| *round + 3 > self.round);
        self.probed.expire();
    }

    /// Whether any call is held.
    pub(in crate::writer) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Writes calls that were held for a whole round, `most` at most; at the end, all of them.
    /// Returns whether there are more.
    pub(super) fn settle(
        &mut self,
        tables: &mut Tables<'_>,
        is_end: bool,
        most: usize,
    ) -> rusqlite::Result<bool> {
        for _ in 0..most {
            let is_due = is_end || self.held.len() > MAX_HELD;
            let is_due = |call: &mut CuptiCall| is_due || call.round + 1 < self.round;
            match self.held.pop_front_if(is_due) {
                Some(call) => self.write(&call, tables)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn write(&mut self, call: &CuptiCall, tables: &mut Tables<'_>) -> rusqlite::Result<()> {
        let (api, pid, number) = (&call.api, call.pid, call.number);
        let times = (api.start_ns, api.end_ns.max(api.start_ns));
        let unnamed = || format!("[cbid {} of domain {}]", api.cbid, api.domain).into();
        let name = call.name.clone().unwrap_or_else(unnamed);
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
        if class == class::DRIVER && self.runtime.contains_key(&number) {
            let row = params![number, start, end, class, thread, name, result];
            return tables.insert("GPUPROBE_NESTED", row);
        }
        let same = self.probed.take((pid, tid), times);
        let chain = same.iter().find_map(|call| call.chain);
        let row = params![start, end, class, thread, number, name, result, chain];
        tables.insert("CUPTI_ACTIVITY_KIND_RUNTIME", row)?;
        self.count += 1;
        for probed in same {
            self.count -= 1;
            tables.insert("GPUPROBE_SAME_CALLS", params![probed.number, number])?;
        }
        Ok(())
    }
}
