//! Rows from CUPTI's activity records.
//!
//! CUPTI has correlation ids per process, delivers a call up to seconds after its return, and may
//! deliver a kernel before the call that launched it. A call that was also seen by a probe already
//! has a row, which is then shared. Records are therefore held for one or two rounds (a round is
//! the time between two commits) until everything that belongs together has arrived.

mod calls;
mod memory;
mod names;
mod numbers;
mod nvtx;
mod places;
mod threads;
mod work;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{HashMap, VecDeque};

use rusqlite::Connection;

use super::common::RowContext;
use super::facts::Facts;
use calls::{ActivityCallWriter, CuptiCall};
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_wire as wire;
use memory::MemoryEventWriter;
use names::CuptiFunctionIds;
use numbers::CorrelationIds;
use nvtx::Nvtx;
use places::Places;
use work::WorkWriter;

pub(super) use threads::Seen;

/// Maximum number of rounds that a record waits for its call.
const MAX_ROUNDS: u64 = 8;
/// Maximum number of held records; beyond it, records are written at once.
const MAX_HELD: usize = 400_000;
/// Age after which CUPTI no longer delivers a call.
const MAX_CALL_AGE_NS: u64 = 10_000_000_000;

/// A process: its id, and the number that distinguishes it from others with that id.
type Process = (u32, u32);

/// State of a process.
#[derive(Debug, Default)]
struct CuptiProcess {
    numbers: CorrelationIds,
    /// Round of its first batch.
    since: u64,
    /// CUPTI delivers its API calls.
    has_calls: bool,
    /// Round in which it exited.
    ended: Option<u64>,
}

impl CuptiProcess {
    /// Whether the call of a record may still arrive.
    fn may_arrive(&self, round: u64) -> bool {
        self.has_calls || round < self.since + MAX_ROUNDS
    }
}

/// A held record.
#[derive(Debug)]
struct WaitingActivity<T> {
    round: u64,
    process: Process,
    what: T,
}

/// Writer of activity records.
pub(super) struct ActivityWriter<'c> {
    cupti_processes: HashMap<Process, CuptiProcess>,
    round: u64,
    /// Held calls; the first `sorted` are sorted by time.
    held_calls: VecDeque<WaitingActivity<CuptiCall>>,
    /// Held records whose call has not arrived.
    waiting: VecDeque<WaitingActivity<Activity>>,
    sorted: usize,
    functions: CuptiFunctionIds,
    calls: ActivityCallWriter<'c>,
    work: WorkWriter<'c>,
    memory: MemoryEventWriter<'c>,
    nvtx: Nvtx<'c>,
    places: Places<'c>,
    /// GPU work whose call never arrived, in processes that deliver calls.
    pub(super) without_calls: u64,
}

impl<'c> ActivityWriter<'c> {
    pub(super) fn new(connection: &'c Connection, facts: &Facts) -> Self {
        Self {
            cupti_processes: HashMap::new(),
            round: 0,
            held_calls: VecDeque::new(),
            waiting: VecDeque::new(),
            sorted: 0,
            functions: CuptiFunctionIds::default(),
            calls: ActivityCallWriter::new(connection),
            work: WorkWriter::new(connection),
            memory: MemoryEventWriter::new(connection, !facts.modes.memleak),
            nvtx: Nvtx::new(connection),
            places: Places::new(connection),
            without_calls: 0,
        }
    }

    /// Registers a call seen by a probe, which has a row.
    pub(super) fn seen(&mut self, pid: u32, tid: u32, call: Seen) {
        self.calls.threads.add(pid, tid, call);
    }

    /// Number of GPU work records without times, which get no row.
    pub(super) fn untimed(&self) -> u64 {
        self.work.untimed
    }

    /// A process has exited or executed another program.
    pub(super) fn ended(&mut self, pid: u32) {
        let round = self.round;
        let of_pid = self
            .cupti_processes
            .iter_mut()
            .filter(|((of, _), _)| *of == pid);
        of_pid.for_each(|(_, cupti_process)| cupti_process.ended = Some(round));
    }

    /// Adds a batch of a collector. Returns the number of rows.
    pub(super) fn take(
        &mut self,
        batch: &ActivityBatch,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<u64> {
        let process = (batch.pid, batch.process);
        let round = self.round;
        let cupti_process = self
            .cupti_processes
            .entry(process)
            .or_insert_with(|| CuptiProcess {
                since: round,
                ..CuptiProcess::default()
            });
        // The batch was in flight when the process exited.
        cupti_process.ended = cupti_process.ended.map(|_| round);
        let is_call = |activity: &Activity| matches!(activity.record, ActivityRecord::Api(_));
        cupti_process.has_calls |= batch.activities.iter().any(is_call);
        let mut rows = 0;
        for activity in &batch.activities {
            if let ActivityRecord::Api(api) = &activity.record {
                let function = self.functions.of(activity, api, &mut common.strings)?;
                let what = CuptiCall {
                    api: *api,
                    function,
                };
                self.held_calls.push_back(WaitingActivity {
                    round,
                    process,
                    what,
                });
                continue;
            }
            let known = match correlation(&activity.record) {
                None | Some(0 | wire::UNKNOWN_ID) => Some(None),
                Some(id) => self.number_of(process, id).map(Some),
            };
            match known {
                Some(number) => {
                    rows += 1;
                    self.write(activity, number, common)?;
                }
                None => self.waiting.push_back(WaitingActivity {
                    round,
                    process,
                    what: activity.clone(),
                }),
            }
        }
        common.tasks.ensure(batch.pid)?;
        Ok(rows)
    }

    /// Starts the next round.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
        self.calls.threads.expire(MAX_CALL_AGE_NS);
        let round = self.round;
        self.cupti_processes
            .retain(|_, t| t.ended.is_none_or(|ended| round < ended + 2 * MAX_ROUNDS));
        self.sorted = 0;
    }

    /// Whether any record is held.
    pub(super) fn is_waiting(&self) -> bool {
        !self.held_calls.is_empty() || !self.waiting.is_empty()
    }

    /// Whether so many records are held that they must be written at once.
    pub(super) fn is_crowded(&self) -> bool {
        self.held_calls.len() + self.waiting.len() > MAX_HELD
    }

    /// Writes records that have been held long enough, about `most` rows; at the end, all records.
    /// Returns whether there are more.
    pub(super) fn settle(
        &mut self,
        common: &mut RowContext<'c>,
        is_end: bool,
        most: usize,
    ) -> rusqlite::Result<bool> {
        self.sort(is_end);
        let mut rows = 0;
        while self.sorted > 0 && rows < most {
            self.sorted -= 1;
            rows += 1;
            let Some(held) = self.held_calls.pop_front() else {
                break;
            };
            let number = self.calls.write(held.process.0, &held.what, common)?;
            let cupti_process = self.cupti_processes.get_mut(&held.process);
            if let (Some(cupti_process), Some((id, number))) = (cupti_process, number) {
                cupti_process.numbers.set(id, number);
            }
        }
        if self.sorted > 0 {
            return Ok(true);
        }
        for _ in 0..self.waiting.len() {
            if rows >= most {
                return Ok(true);
            }
            let Some(waiting) = self.waiting.pop_front() else {
                break;
            };
            match self.number(&waiting, is_end, common) {
                Some(number) => {
                    rows += 1;
                    self.write(&waiting.what, Some(number), common)?;
                }
                None => self.waiting.push_back(waiting),
            }
        }
        if is_end {
            self.nvtx.finish(common)?;
        }
        Ok(false)
    }

    /// Sorts the calls that have been held long enough by time, outer calls before nested ones.
    fn sort(&mut self, is_end: bool) {
        if self.sorted > 0 {
            return;
        }
        let ripe = self
            .held_calls
            .iter()
            .take_while(|held| held.round < self.round);
        self.sorted = match is_end || self.is_crowded() {
            true => self.held_calls.len(),
            false => ripe.count(),
        };
        let ripe = &mut self.held_calls.make_contiguous()[..self.sorted];
        ripe.sort_by_key(|held| {
            let api = &held.what.api;
            (api.start_ns, std::cmp::Reverse(api.end_ns))
        });
    }

    fn number_of(&self, process: Process, id: u32) -> Option<i64> {
        self.cupti_processes.get(&process)?.numbers.get(id)
    }

    /// The number of the call of a record; `None` while the call may still arrive.
    fn number(
        &mut self,
        waiting: &WaitingActivity<Activity>,
        is_end: bool,
        common: &mut RowContext<'c>,
    ) -> Option<i64> {
        let id = correlation(&waiting.what.record).unwrap_or(0);
        let is_crowded = self.is_crowded();
        let Some(cupti_process) = self.cupti_processes.get_mut(&waiting.process) else {
            return Some(common.number());
        };
        if let Some(number) = cupti_process.numbers.get(id) {
            return Some(number);
        }
        let is_late = self.round >= waiting.round + MAX_ROUNDS;
        if !(is_end || is_late || is_crowded) && cupti_process.may_arrive(self.round) {
            return None;
        }
        self.without_calls += u64::from(cupti_process.has_calls);
        // All work of one call gets the same number.
        let number = common.number();
        cupti_process.numbers.set(id, number);
        Some(number)
    }

    fn write(
        &mut self,
        activity: &Activity,
        number: Option<i64>,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let pid = activity.pid;
        match &activity.record {
            ActivityRecord::Device(device) => {
                let name = activity.name.as_deref();
                self.places.device(pid, device, name)
            }
            ActivityRecord::Context(context) => self.places.context(pid, context),
            ActivityRecord::Stream(stream) => self.places.stream(pid, stream),
            ActivityRecord::Memory(memory) => self.memory.usage(activity, memory, number, common),
            ActivityRecord::MemoryPool(pool) => self.memory.pool(pid, pool, number, common),
            ActivityRecord::Marker(marker) => {
                let thread = self.calls.object(pid, marker.object);
                self.nvtx.marker(activity, marker, thread, common)
            }
            ActivityRecord::Name(name) => {
                let thread = self.calls.object(pid, name.object);
                self.places.name(activity, name, thread, common)
            }
            ActivityRecord::Overhead(overhead) => {
                let thread = self.calls.object(pid, overhead.object);
                self.work.overhead(overhead, thread, common)
            }
            ActivityRecord::ExternalCorrelation(external) => {
                self.work.external(pid, external, number)
            }
            ActivityRecord::Kernel(kernel) => {
                let context = self.places.of(pid, kernel.context);
                self.work.kernel(activity, kernel, number, context, common)
            }
            ActivityRecord::Memcpy(copy) => {
                let context = self.places.of(pid, copy.context);
                self.work.copy(pid, copy, number, context, common)
            }
            ActivityRecord::Memset(set) => {
                let context = self.places.of(pid, set.context);
                self.work.set(pid, set, number, context, common)
            }
            ActivityRecord::GraphTrace(graph) => {
                let context = self.places.of(pid, graph.context);
                self.work.graph(pid, graph, number, context, common)
            }
            ActivityRecord::Sync(sync) => {
                let context = self.places.of(pid, sync.context);
                self.work.sync(pid, sync, number, context, common)
            }
            ActivityRecord::Api(_) => Ok(()),
        }
    }
}

/// CUPTI's correlation id of a record; `None` for records without a call.
fn correlation(record: &ActivityRecord) -> Option<u32> {
    match record {
        ActivityRecord::Kernel(kernel) => Some(kernel.correlation),
        ActivityRecord::Memcpy(copy) => Some(copy.correlation),
        ActivityRecord::Memset(set) => Some(set.correlation),
        ActivityRecord::Memory(memory) => Some(memory.correlation),
        ActivityRecord::MemoryPool(pool) => Some(pool.correlation),
        ActivityRecord::Sync(sync) => Some(sync.correlation),
        ActivityRecord::GraphTrace(graph) => Some(graph.correlation),
        ActivityRecord::ExternalCorrelation(external) => Some(external.correlation),
        ActivityRecord::Device(_)
        | ActivityRecord::Context(_)
        | ActivityRecord::Stream(_)
        | ActivityRecord::Api(_)
        | ActivityRecord::Overhead(_)
        | ActivityRecord::Name(_)
        | ActivityRecord::Marker(_) => None,
    }
}
