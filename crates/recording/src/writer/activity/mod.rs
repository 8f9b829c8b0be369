//! What CUPTI told, as rows.
//!
//! CUPTI counts calls for each process by itself, tells of a call up to seconds after it returned,
//! and may tell of a kernel before it tells of the call that launched it. A call that a probe saw
//! as well has a row already, which becomes that of both. So records wait for a round or two, a
//! round being the time between two commits, before they become rows: until then, everything that
//! belongs together has come.

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

use super::common::Common;
use super::facts::Facts;
use calls::{Calls, Told};
use gpuprobe_model::activity::{Activity, Batch, Record};
use gpuprobe_wire as wire;
use memory::Memory;
use names::Functions;
use numbers::Numbers;
use nvtx::Nvtx;
use places::Places;
use work::Work;

pub(super) use threads::Seen;

/// Rounds that what belongs to a call waits for that call.
const PATIENCE: u64 = 8;
/// Records that wait at most; beyond, they do not wait any longer.
const MOST: usize = 400_000;
/// A call that ended this long ago is not told of any more.
const FORGET_NS: u64 = 10_000_000_000;

/// A process: its id, and what tells it from others with that id.
type Process = (u32, u32);

/// What is kept of a process.
#[derive(Debug, Default)]
struct Teller {
    numbers: Numbers,
    /// The round of its first batch.
    since: u64,
    /// CUPTI tells of its calls.
    tells_calls: bool,
    /// The round in which it ended.
    ended: Option<u64>,
}

impl Teller {
    /// Whether the call behind something may still be told of.
    fn may_tell(&self, round: u64) -> bool {
        self.tells_calls || round < self.since + PATIENCE
    }
}

/// Something that waits.
#[derive(Debug)]
struct Waiting<T> {
    round: u64,
    process: Process,
    what: T,
}

/// Writes what CUPTI told.
pub(super) struct Activities<'c> {
    tellers: HashMap<Process, Teller>,
    round: u64,
    /// Calls, of which the first `sorted` are in the order of their times.
    told: VecDeque<Waiting<Told>>,
    /// What belongs to calls that are not known yet.
    waiting: VecDeque<Waiting<Activity>>,
    sorted: usize,
    functions: Functions,
    calls: Calls<'c>,
    work: Work<'c>,
    memory: Memory<'c>,
    nvtx: Nvtx<'c>,
    places: Places<'c>,
    /// Work of the GPU whose call was never told, though others were.
    pub(super) without_calls: u64,
}

impl<'c> Activities<'c> {
    pub(super) fn new(connection: &'c Connection, facts: &Facts) -> Self {
        Self {
            tellers: HashMap::new(),
            round: 0,
            told: VecDeque::new(),
            waiting: VecDeque::new(),
            sorted: 0,
            functions: Functions::default(),
            calls: Calls::new(connection),
            work: Work::new(connection),
            memory: Memory::new(connection, !facts.modes.memleak),
            nvtx: Nvtx::new(connection),
            places: Places::new(connection),
            without_calls: 0,
        }
    }

    /// A probe saw a call, which has a row.
    pub(super) fn seen(&mut self, pid: u32, tid: u32, call: Seen) {
        self.calls.threads.add(pid, tid, call);
    }

    /// Work of the GPU that has no times, and therefore no row.
    pub(super) fn untimed(&self) -> u64 {
        self.work.untimed
    }

    /// A process has ended, or runs another program.
    pub(super) fn ended(&mut self, pid: u32) {
        let round = self.round;
        let of_pid = self.tellers.iter_mut().filter(|((of, _), _)| *of == pid);
        of_pid.for_each(|(_, teller)| teller.ended = Some(round));
    }

    /// Takes what a collector has told. Returns the number of rows.
    pub(super) fn take(&mut self, batch: &Batch, common: &mut Common<'c>) -> rusqlite::Result<u64> {
        let process = (batch.pid, batch.process);
        let round = self.round;
        let teller = self.tellers.entry(process).or_insert_with(|| Teller {
            since: round,
            ..Teller::default()
        });
        // What was on its way when the process ended.
        teller.ended = teller.ended.map(|_| round);
        let is_call = |activity: &Activity| matches!(activity.record, Record::Api(_));
        teller.tells_calls |= batch.activities.iter().any(is_call);
        let mut rows = 0;
        for activity in &batch.activities {
            if let Record::Api(api) = &activity.record {
                let function = self.functions.of(activity, api, &mut common.strings)?;
                let what = Told {
                    api: *api,
                    function,
                };
                self.told.push_back(Waiting {
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
                None => self.waiting.push_back(Waiting {
                    round,
                    process,
                    what: activity.clone(),
                }),
            }
        }
        common.tasks.ensure(batch.pid)?;
        Ok(rows)
    }

    /// Begins another round.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
        self.calls.threads.forget(FORGET_NS);
        let round = self.round;
        self.tellers
            .retain(|_, t| t.ended.is_none_or(|ended| round < ended + 2 * PATIENCE));
        self.sorted = 0;
    }

    /// Whether anything waits for the next round.
    pub(super) fn is_waiting(&self) -> bool {
        !self.told.is_empty() || !self.waiting.is_empty()
    }

    /// Whether so much waits that it is to be settled at once.
    pub(super) fn is_crowded(&self) -> bool {
        self.told.len() + self.waiting.len() > MOST
    }

    /// Writes what need not wait any longer: about `most` rows, at the end all there is. Returns
    /// whether there is more of that.
    pub(super) fn settle(
        &mut self,
        common: &mut Common<'c>,
        is_end: bool,
        most: usize,
    ) -> rusqlite::Result<bool> {
        self.sort(is_end);
        let mut rows = 0;
        while self.sorted > 0 && rows < most {
            self.sorted -= 1;
            rows += 1;
            let Some(told) = self.told.pop_front() else {
                break;
            };
            let number = self.calls.write(told.process.0, &told.what, common)?;
            let teller = self.tellers.get_mut(&told.process);
            if let (Some(teller), Some((id, number))) = (teller, number) {
                teller.numbers.set(id, number);
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

    /// Puts the calls that need not wait any longer in the order of their times, those around
    /// others before these.
    fn sort(&mut self, is_end: bool) {
        if self.sorted > 0 {
            return;
        }
        let ripe = self.told.iter().take_while(|told| told.round < self.round);
        self.sorted = match is_end || self.is_crowded() {
            true => self.told.len(),
            false => ripe.count(),
        };
        let ripe = &mut self.told.make_contiguous()[..self.sorted];
        ripe.sort_by_key(|told| {
            let api = &told.what.api;
            (api.start_ns, std::cmp::Reverse(api.end_ns))
        });
    }

    fn number_of(&self, process: Process, id: u32) -> Option<i64> {
        self.tellers.get(&process)?.numbers.get(id)
    }

    /// The number of the call behind something; none while that may still be told.
    fn number(
        &mut self,
        waiting: &Waiting<Activity>,
        is_end: bool,
        common: &mut Common<'c>,
    ) -> Option<i64> {
        let id = correlation(&waiting.what.record).unwrap_or(0);
        let is_crowded = self.is_crowded();
        let Some(teller) = self.tellers.get_mut(&waiting.process) else {
            return Some(common.number());
        };
        if let Some(number) = teller.numbers.get(id) {
            return Some(number);
        }
        let is_late = self.round >= waiting.round + PATIENCE;
        if !(is_end || is_late || is_crowded) && teller.may_tell(self.round) {
            return None;
        }
        self.without_calls += u64::from(teller.tells_calls);
        // What one call has done still has one number.
        let number = common.number();
        teller.numbers.set(id, number);
        Some(number)
    }

    fn write(
        &mut self,
        activity: &Activity,
        number: Option<i64>,
        common: &mut Common<'c>,
    ) -> rusqlite::Result<()> {
        let pid = activity.pid;
        match &activity.record {
            Record::Device(device) => {
                let name = activity.name.as_deref();
                self.places.device(pid, device, name)
            }
            Record::Context(context) => self.places.context(pid, context),
            Record::Stream(stream) => self.places.stream(pid, stream),
            Record::Memory(memory) => self.memory.usage(activity, memory, number, common),
            Record::MemoryPool(pool) => self.memory.pool(pid, pool, number, common),
            Record::Marker(marker) => {
                let thread = self.calls.object(pid, marker.object);
                self.nvtx.marker(activity, marker, thread, common)
            }
            Record::Name(name) => {
                let thread = self.calls.object(pid, name.object);
                self.places.name(activity, name, thread, common)
            }
            Record::Overhead(overhead) => {
                let thread = self.calls.object(pid, overhead.object);
                self.work.overhead(overhead, thread, common)
            }
            Record::ExternalCorrelation(external) => self.work.external(pid, external, number),
            Record::Kernel(kernel) => {
                let context = self.places.of(pid, kernel.context);
                self.work.kernel(activity, kernel, number, context, common)
            }
            Record::Memcpy(copy) => {
                let context = self.places.of(pid, copy.context);
                self.work.copy(pid, copy, number, context, common)
            }
            Record::Memset(set) => {
                let context = self.places.of(pid, set.context);
                self.work.set(pid, set, number, context, common)
            }
            Record::GraphTrace(graph) => {
                let context = self.places.of(pid, graph.context);
                self.work.graph(pid, graph, number, context, common)
            }
            Record::Sync(sync) => {
                let context = self.places.of(pid, sync.context);
                self.work.sync(pid, sync, number, context, common)
            }
            Record::Api(_) => Ok(()),
        }
    }
}

/// CUPTI's correlation id of what belongs to a call; none of what does not.
fn correlation(record: &Record) -> Option<u32> {
    match record {
        Record::Kernel(kernel) => Some(kernel.correlation),
        Record::Memcpy(copy) => Some(copy.correlation),
        Record::Memset(set) => Some(set.correlation),
        Record::Memory(memory) => Some(memory.correlation),
        Record::MemoryPool(pool) => Some(pool.correlation),
        Record::Sync(sync) => Some(sync.correlation),
        Record::GraphTrace(graph) => Some(graph.correlation),
        Record::ExternalCorrelation(external) => Some(external.correlation),
        Record::Device(_)
        | Record::Context(_)
        | Record::Stream(_)
        | Record::Api(_)
        | Record::Overhead(_)
        | Record::Name(_)
        | Record::Marker(_) => None,
    }
}
