//! Rows from CUPTI's activity records.
//!
//! Records are held until the probes, whose records come another way, have delivered the same calls.

mod calls;
mod nvtx;
mod places;
mod probed;
mod work;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{HashMap, VecDeque};

use rusqlite::{Result, params};

use super::facts::Facts;
use super::tables::{Tables, signed};
use crate::ids::{cupti_correlation, global_pid};
use calls::CuptiCalls;
use gpuprobe_cuda::kinds;
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_wire as wire;
use nvtx::Nvtx;
use places::Places;
use work::{WorkColumns, WorkWriter};

pub(super) use probed::ProbedCall;

/// Maximum number of batches that are held.
const MAX_HELD: usize = 256;

/// Writer of activity records.
pub(super) struct ActivityWriter {
    /// Batches with the rounds in which they arrived.
    held: VecDeque<(u64, ActivityBatch)>,
    /// A round is the time between two commits.
    round: u64,
    /// Numbers of processes, by process id and the number that distinguishes it from others with
    /// that id.
    processes: HashMap<(u32, u32), u32>,
    pub(super) calls: CuptiCalls,
    work: WorkWriter,
    /// Memory events are written: those of probes are not.
    has_memory: bool,
    nvtx: Nvtx,
    places: Places,
}

impl ActivityWriter {
    pub(super) fn new(facts: &Facts) -> Self {
        Self {
            held: VecDeque::new(),
            round: 0,
            processes: HashMap::new(),
            calls: CuptiCalls::default(),
            work: WorkWriter::default(),
            has_memory: !facts.modes.memleak,
            nvtx: Nvtx::default(),
            places: Places::default(),
        }
    }

    /// Number of GPU work records without times, which get no row.
    pub(super) fn untimed(&self) -> u64 {
        self.work.untimed
    }

    /// Adds a batch of a collector.
    pub(super) fn hold(&mut self, batch: ActivityBatch) {
        self.held.push_back((self.round, batch));
    }

    /// Starts the next round.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
        self.calls.probed.expire();
    }

    /// Removes a batch that was held for a whole round; at the end, any.
    pub(super) fn due(&mut self, is_end: bool) -> Option<ActivityBatch> {
        let is_due = is_end || self.held.len() > MAX_HELD;
        let is_due = |(round, _): &mut (u64, _)| is_due || *round + 1 < self.round;
        self.held.pop_front_if(is_due).map(|(_, batch)| batch)
    }

    /// Writes the rows of a batch.
    pub(super) fn write(&mut self, batch: &ActivityBatch, tables: &mut Tables<'_>) -> Result<()> {
        let next = u32::try_from(self.processes.len()).map_or(u32::MAX, |count| count + 1);
        let process = self.processes.entry((batch.pid, batch.process));
        let process = *process.or_insert(next);
        for activity in &batch.activities {
            self.record(process, activity, tables)?;
        }
        tables.ensure_process(batch.pid)
    }

    fn record(&mut self, process: u32, activity: &Activity, tables: &mut Tables<'_>) -> Result<()> {
        let pid = activity.pid;
        let name = activity.name.as_deref();
        let number = |id: u32| {
            let is_known = !matches!(id, 0 | wire::UNKNOWN_ID);
            is_known.then(|| cupti_correlation(process, id))
        };
        // The columns that all records of work have.
        macro_rules! work {
            ($record:expr, $device:expr) => {
                WorkColumns {
                    pid,
                    start_ns: $record.start_ns,
                    end_ns: $record.end_ns,
                    device: $device,
                    context: self.places.of(pid, $record.context),
                    stream: $record.stream,
                    number: number($record.correlation),
                }
            };
        }
        match &activity.record {
            ActivityRecord::Api(api) => self.calls.write(process, activity, api, tables),
            ActivityRecord::Device(device) => self.places.device(pid, device, name, tables),
            ActivityRecord::Context(context) => self.places.context(pid, context, tables),
            ActivityRecord::Stream(stream) => self.places.stream(pid, stream, tables),
            ActivityRecord::Memory(memory) if self.has_memory => {
                work::memory(activity, memory, number(memory.correlation), tables)
            }
            ActivityRecord::MemoryPool(pool) if self.has_memory => {
                work::pool(pid, pool, number(pool.correlation), tables)
            }
            ActivityRecord::Marker(marker) => {
                let thread = self.calls.object(pid, marker.object);
                self.nvtx.marker(activity, marker, thread, tables)
            }
            ActivityRecord::Name(name) => {
                let thread = self.calls.object(pid, name.object);
                places::name(activity, name, thread, tables)
            }
            ActivityRecord::Overhead(overhead) => {
                let thread = self.calls.object(pid, overhead.object);
                self.work.overhead(overhead, thread, tables)
            }
            ActivityRecord::ExternalCorrelation(external) => {
                // The number that another tool gave to a call.
                let Some(number) = number(external.correlation) else {
                    return Ok(());
                };
                let (kind, theirs) = (external.external_kind, signed(external.external_id));
                let row = params![number, global_pid(pid), kind, theirs];
                tables.insert("GPUPROBE_EXTERNAL", row)
            }
            ActivityRecord::Kernel(kernel) => {
                let work = work!(kernel, kernel.device);
                self.work.kernel(&work, kernel, activity, tables)
            }
            ActivityRecord::Memcpy(copy) => self.work.copy(&work!(copy, copy.device), copy, tables),
            ActivityRecord::Memset(set) => {
                let kind = kinds::of_cupti(set.memory_kind.into()).id;
                let node = work::node(set.graph_node);
                let own = params![set.value, signed(set.size_bytes), node, kind];
                let work = work!(set, set.device);
                let table = "CUPTI_ACTIVITY_KIND_MEMSET";
                self.work.row(table, &work, own, tables)
            }
            ActivityRecord::GraphTrace(graph) => {
                // CUPTI has a single id for the launched graph, which is written to both columns.
                let own = params![graph.graph, graph.graph];
                let work = work!(graph, graph.device);
                let table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
                self.work.row(table, &work, own, tables)
            }
            ActivityRecord::Sync(sync) => {
                // The record has no device, and the column is NOT NULL.
                let device = self.places.of(pid, sync.context).device;
                let work = work!(sync, device.unwrap_or(0));
                let own = params![sync.sync_type, sync.event];
                let table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
                self.work.row(table, &work, own, tables)
            }
            _ => Ok(()),
        }
    }
}
