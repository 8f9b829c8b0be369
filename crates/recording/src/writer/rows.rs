//! Conversion of events and changes to rows.

mod calls;
mod counts;

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::activity::ActivityWriter;
use super::chains::Chains;
use super::common::{RowContext, signed};
use super::contexts::ContextWriter;
use super::facts::Facts;
use super::incidents;
use super::insert::Insert;
use super::launches::LaunchWriter;
use super::pools::PoolWriter;
use super::tensors::TensorWriter;
use crate::batch::LogStep;
use crate::ids::global_pid;
use crate::log;
use crate::log::LogNote;
use gpuprobe_cuda::{FUNCTIONS, KindSet, Modes};
use gpuprobe_engine::{Change, IncidentRow};
use gpuprobe_model::UserLoss;
use gpuprobe_model::event::{Copy, Event, Launch, Task, Tensor};

/// Placement of a call's call stack.
#[derive(Clone, Copy, Debug)]
enum StackSlot {
    /// The stack is unknown.
    None,
    /// In the row of the call.
    OfCall(i64),
    /// In a second row of the call, as in nsys exports for runtime allocations: scripts for exports
    /// expect it there.
    Apart(i64),
}

impl StackSlot {
    fn chain(self) -> Option<i64> {
        match self {
            Self::None => None,
            Self::OfCall(chain) | Self::Apart(chain) => Some(chain),
        }
    }
}

/// Dependent rows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    /// Rows other than an allocation.
    Something,
    Allocates,
}

/// Writer of all rows.
pub(super) struct Rows<'c> {
    connection: &'c Connection,
    common: RowContext<'c>,
    chains: Chains<'c>,
    log: Insert<'c>,
    calls: Insert<'c>,
    memory: Insert<'c>,
    copies: Insert<'c>,
    unmatched: Insert<'c>,
    launches: LaunchWriter<'c>,
    used: Insert<'c>,
    tensors: TensorWriter<'c>,
    /// `nameId` by row of the function table.
    names: Vec<Option<i64>>,
    modes: Modes,
    /// Filter of memory kinds.
    counted: KindSet,
    contexts: ContextWriter<'c>,
    pools: PoolWriter<'c>,
    /// Writer of CUPTI's activity records, if activity is traced.
    activities: Option<ActivityWriter<'c>>,
    /// Number of allocations on an unknown device.
    unknown_devices: u64,
    /// Losses so far, by name.
    lost: BTreeMap<String, u64>,
    /// Losses by user and process; `None` once written.
    lost_by_user: Option<Vec<UserLoss>>,
    /// Number of records missing from the recording.
    pub(super) dropped: u64,
}

impl<'c> Rows<'c> {
    pub(super) fn new(connection: &'c Connection, facts: &Facts) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            connection,
            common: RowContext::new(connection, facts.clock.monotonic_ns()),
            chains: Chains::new(into),
            log: into("GPUPROBE_LOG"),
            calls: into("CUPTI_ACTIVITY_KIND_RUNTIME"),
            memory: into("CUDA_GPU_MEMORY_USAGE_EVENTS"),
            copies: into("GPUPROBE_COPIES"),
            unmatched: into("GPUPROBE_UNMATCHED_FREES"),
            launches: LaunchWriter::new(connection),
            used: into("GPUPROBE_SMI"),
            tensors: TensorWriter::new(connection),
            names: vec![None; FUNCTIONS.len()],
            modes: facts.modes,
            counted: facts.kinds,
            contexts: ContextWriter::new(connection),
            pools: PoolWriter::new(connection),
            activities: (facts.modes.activity).then(|| ActivityWriter::new(connection, facts)),
            unknown_devices: 0,
            lost: BTreeMap::new(),
            lost_by_user: None,
            dropped: 0,
        }
    }

    /// Number of calls written.
    pub(super) fn calls(&self) -> i64 {
        self.common.correlation
    }

    /// Latest session time of any row, nanoseconds.
    pub(super) fn last_ns(&self) -> i64 {
        self.common.last_ns
    }

    fn time(&mut self, monotonic_ns: u64) -> i64 {
        self.common.time(monotonic_ns)
    }

    /// Writes a chunk of the log.
    pub(super) fn log(&mut self, sequence: i64, batch: &[u8]) -> rusqlite::Result<()> {
        self.log.row(params![
            sequence,
            self.common.last_ns,
            signed(log::count(batch)),
            batch
        ])
    }

    /// Writes the rows of a step, and removes the changes of its event from `changes`. Returns the
    /// number of rows.
    pub(super) fn step(&mut self, step: LogStep, changes: &mut &[Change]) -> rusqlite::Result<u64> {
        match step {
            LogStep::Event(event, count) => {
                let (own, rest) = changes.split_at(count.min(changes.len()));
                *changes = rest;
                self.event(&event, own)
            }
            LogStep::Note(note) => self.note(*note).map(|()| 0),
            LogStep::Counted(launched) => {
                self.launches.counted(launched);
                Ok(0)
            }
        }
    }

    fn note(&mut self, note: LogNote) -> rusqlite::Result<()> {
        match note {
            LogNote::Identity(pid, identity) => self.contexts.identified(pid, identity),
            LogNote::Used(monotonic_ns, gpu, bytes) => {
                let time = self.time(monotonic_ns);
                return self.used.row(params![time, gpu, signed(bytes)]);
            }
            LogNote::Incident(id, used) => {
                return incidents::write_gpu(self.connection, id, &used);
            }
            LogNote::Vanished(pid) => {
                self.chains.end(pid);
                return self.end(pid, self.common.last_ns, "vanished");
            }
            LogNote::Stack(pid, number, stack) => self.chains.learn(pid, number, stack),
            LogNote::Frames(pid, location, is_innermost, frames) => {
                self.chains.add_frames(pid, location, is_innermost, frames);
            }
            LogNote::Lost(lost) => self.lost = lost,
            LogNote::Report(mark) if !mark.lost_by_user.is_empty() => {
                self.lost_by_user = Some(mark.lost_by_user);
            }
            LogNote::Dropped(records) => self.dropped = records,
            _ => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &Event, changes: &[Change]) -> rusqlite::Result<u64> {
        for change in changes {
            if let Change::Incident(row) = change {
                self.incident(row)?;
            }
        }
        match event {
            Event::Call(call) => {
                self.memory_call(call, changes)?;
                return Ok(1 + changes.len() as u64);
            }
            Event::Copy(copy) => {
                self.call(
                    copy.row,
                    copy.function,
                    copy.result,
                    (copy.pid, copy.tid),
                    (copy.start_ns, copy.end_ns),
                    (StackSlot::None, Does::Something),
                )?;
                self.copy(copy, changes)?;
                return Ok(2);
            }
            Event::Launch(launch) => return self.launch(launch),
            Event::Tensor(tensor) => self.tensor(tensor)?,
            Event::Request(request) => self.tensors.request(request),
            Event::Kernel(_) => {
                for change in changes {
                    if let Change::Named(handle, name) = change {
                        self.launches.named(*handle, name.clone())?;
                    }
                }
            }
            Event::Process(task) => {
                let time = self.time(task.time_ns);
                self.common.tasks.process(task, time)?;
            }
            Event::Thread(task) => {
                let strings = &mut self.common.strings;
                self.common.tasks.thread(task, strings)?;
            }
            Event::Exit(task) => self.end_of(task, "exit")?,
            Event::Exec(task) => self.end_of(task, "exec")?,
            Event::Activity(batch) => {
                return match &mut self.activities {
                    Some(activities) => activities.take(batch, &mut self.common),
                    None => Ok(0),
                };
            }
            Event::ThreadExit(_) | Event::OutOfMemory(_) => return Ok(0),
        }
        Ok(1)
    }

    fn end_of(&mut self, task: &Task, how: &'static str) -> rusqlite::Result<()> {
        let time = self.time(task.time_ns);
        self.chains.end(task.pid);
        self.launches.end(task.process);
        self.end(task.pid, time, how)
    }

    /// Writes the exit of a process, or its execution of another program.
    fn end(&mut self, pid: u32, time: i64, how: &str) -> rusqlite::Result<()> {
        self.contexts.ended(pid);
        if let Some(activities) = &mut self.activities {
            activities.ended(pid);
        }
        let after = self.common.correlation;
        self.common.tasks.end(pid, time, how, after)
    }

    /// Writes or updates a failed allocation.
    fn incident(&mut self, row: &IncidentRow) -> rusqlite::Result<()> {
        let place = incidents::IncidentPlace {
            time: self.time(row.time_ns),
            settled: row.outcome.1.map(|ns| self.time(ns)),
            thread: self.common.thread(row.pid, row.tid)?,
            chain: self.chains.id(row.pid, row.stack),
        };
        incidents::write(self.connection, row, &place)
    }

    fn tensor(&mut self, tensor: &Tensor) -> rusqlite::Result<()> {
        let chain = self.chains.id(tensor.pid, tensor.stack);
        let thread = self.common.thread(tensor.pid, tensor.tid)?;
        let time = self.time(tensor.time_ns);
        self.tensors.block(*tensor, (time, thread), chain)
    }

    fn launch(&mut self, launch: &Launch) -> rusqlite::Result<u64> {
        let chain = self.chains.id(launch.pid, launch.stack);
        let correlation = match self.launches.number_of(launch) {
            Some((number, row)) => {
                if let Some(chain) = chain {
                    self.enter_stack(row, chain)?;
                }
                number
            }
            None => {
                self.call(
                    launch.key.row,
                    launch.function,
                    launch.result,
                    (launch.pid, launch.tid),
                    (launch.start_ns, launch.end_ns),
                    (
                        chain.map_or(StackSlot::None, StackSlot::OfCall),
                        Does::Something,
                    ),
                )?;
                self.common.correlation
            }
        };
        self.launches.single(launch, correlation)?;
        Ok(2)
    }

    /// Adds a call stack to a call that already has a row.
    fn enter_stack(&self, row: i64, chain: i64) -> rusqlite::Result<()> {
        let sql = "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = ?2 WHERE rowid = ?1";
        let mut update = self.connection.prepare_cached(sql)?;
        update.execute([row, chain]).map(|_| ())
    }

    fn copy(&mut self, copy: &Copy, changes: &[Change]) -> rusqlite::Result<()> {
        let understood = changes.iter().find_map(|change| match change {
            Change::Copied(direction, mode) => Some((direction.name(), mode.name())),
            _ => None,
        });
        let (start, end) = (self.time(copy.start_ns), self.time(copy.end_ns));
        self.copies.row(params![
            self.common.correlation,
            start,
            end,
            global_pid(copy.pid),
            signed(copy.bytes),
            understood.map(|(direction, _)| direction),
            understood.map(|(_, mode)| mode),
            signed(copy.destination),
            signed(copy.source),
            copy.captured,
            copy.result
        ])
    }

    /// Writes the call stacks whose frames are resolved; at the end, all of them. Stops after about
    /// `max_rows`; returns whether there are more.
    pub(super) fn chains(&mut self, is_end: bool, max_rows: usize) -> rusqlite::Result<bool> {
        self.chains
            .write(&mut self.common.strings, is_end, max_rows)
    }

    /// Starts the next round for held records.
    pub(super) fn next_round(&mut self) {
        self.activities
            .iter_mut()
            .for_each(ActivityWriter::next_round);
        self.tensors.next_round();
    }

    /// Whether any record is held.
    pub(super) fn is_waiting(&self) -> bool {
        self.tensors.is_waiting()
            || self
                .activities
                .as_ref()
                .is_some_and(ActivityWriter::is_waiting)
    }

    /// Whether so many records are held that they must be written before the next round.
    pub(super) fn is_crowded(&self) -> bool {
        self.activities
            .as_ref()
            .is_some_and(ActivityWriter::is_crowded)
    }

    /// Writes records that have been held long enough; at the end, all of them. Stops after about
    /// `max_rows`; returns whether there are more.
    pub(super) fn settle(&mut self, is_end: bool, max_rows: usize) -> rusqlite::Result<bool> {
        self.tensors.settle(is_end)?;
        match &mut self.activities {
            Some(activities) => activities.settle(&mut self.common, is_end, max_rows),
            None => Ok(false),
        }
    }
}
