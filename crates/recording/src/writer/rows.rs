//! Conversion of events and changes to rows.

mod calls;

use std::collections::{HashMap, VecDeque};

use rusqlite::types::Null;
use rusqlite::{Connection, Result, params};

use super::activity::ActivityWriter;
use super::chains::Chains;
use super::contexts::ContextWriter;
use super::facts::Facts;
use super::incidents;
use super::launches::{self, LaunchWriter};
use super::tables::{Tables, signed};
use crate::batch::LogStep;
use crate::ids::global_pid;
use crate::log;
use crate::log::LogNote;
use gpuprobe_cuda::{KindSet, Modes, Op};
use gpuprobe_engine::Change;
use gpuprobe_model::activity::ActivityBatch;
use gpuprobe_model::event::{Copy, Event, Launch, Task, Tensor};

/// Number of ended processes whose stacks and kernels are kept: their last launches and copies come through another
/// ring than the end, and are often read after it.
const KEPT_ENDS: usize = 64;

/// Writer of all rows.
pub(super) struct Rows<'c> {
    pub(super) tables: Tables<'c>,
    chains: Chains,
    launches: LaunchWriter,
    /// Ended processes, as numbered in launch keys, and their stack ids, oldest first.
    ended: VecDeque<(u32, Vec<(u32, u64)>)>,
    /// Rows of blocks that a framework handed out and whose requested size is unknown, by process
    /// and address.
    tensors: HashMap<(u32, u64), i64>,
    /// Number of the last call with a batch of copies, by process and thread.
    batches: HashMap<(u32, u32), i64>,
    modes: Modes,
    /// Filter of memory kinds.
    counted: KindSet,
    contexts: ContextWriter,
    /// Writer of CUPTI's activity records, if activity is traced.
    activities: Option<ActivityWriter>,
    /// Number of allocations on an unknown device.
    unknown_devices: u64,
    /// Number of records missing from the recording.
    pub(super) dropped: u64,
}

impl<'c> Rows<'c> {
    pub(super) fn new(connection: &'c Connection, facts: &Facts) -> Self {
        Self {
            tables: Tables::new(connection, facts.clock.monotonic_ns()),
            chains: Chains::default(),
            launches: LaunchWriter::default(),
            ended: VecDeque::new(),
            tensors: HashMap::new(),
            batches: HashMap::new(),
            modes: facts.modes,
            counted: facts.kinds,
            contexts: ContextWriter::default(),
            activities: (facts.modes.activity).then(|| ActivityWriter::new(facts)),
            unknown_devices: 0,
            dropped: 0,
        }
    }

    /// Number of calls written; one that a probe and CUPTI saw is one call.
    pub(super) fn calls(&self) -> i64 {
        let of_cupti = self.activities.as_ref().map_or(0, |a| a.calls.count);
        self.tables.correlation + of_cupti
    }

    /// Writes a chunk of the log.
    pub(super) fn log(&mut self, sequence: i64, batch: &[u8]) -> Result<()> {
        let count = signed(log::count(batch));
        let last_ns = self.tables.last_ns;
        let row = params![sequence, last_ns, count, batch];
        self.tables.insert("GPUPROBE_LOG", row)
    }

    /// Writes the rows of a step, and removes the changes of its event from `changes`. Returns the
    /// number of rows.
    pub(super) fn step(&mut self, step: LogStep, changes: &mut &[Change]) -> Result<u64> {
        match step {
            LogStep::Event(event, count) => {
                let (own, rest) = changes.split_at(count.min(changes.len()));
                *changes = rest;
                match (event, &mut self.activities) {
                    (Event::Activity(batch), Some(activities)) => {
                        activities.hold(batch);
                        Ok(0)
                    }
                    (event, _) => self.event(&event, own),
                }
            }
            LogStep::Note(note) => self.note(*note).map(|()| 0),
            LogStep::Counted(launched) => {
                launches::write_counts(&launched, &mut self.tables)?;
                Ok(launched.len() as u64)
            }
        }
    }

    fn note(&mut self, note: LogNote) -> Result<()> {
        match note {
            LogNote::Identity(pid, identity) => self.contexts.identified(pid, identity),
            LogNote::Used(monotonic_ns, gpu, bytes) => {
                let time = self.tables.time(monotonic_ns);
                let row = params![time, gpu, signed(bytes)];
                return self.tables.insert("GPUPROBE_SMI", row);
            }
            LogNote::Incident(id, used) => {
                return incidents::write_gpu(&mut self.tables, id, &used);
            }
            LogNote::Vanished(pid) => {
                self.chains.end(pid);
                return self.end(pid, self.tables.last_ns, "vanished");
            }
            LogNote::Stack(pid, number, stack) => self.chains.learn(pid, number, stack),
            LogNote::Frames(pid, location, is_innermost, frames) => {
                self.chains.add_frames(pid, location, is_innermost, frames);
            }
            LogNote::Lost(lost) => {
                return lost
                    .iter()
                    .try_for_each(|(what, count)| self.lost(what, *count));
            }
            LogNote::Report(mark) if !mark.lost_by_user.is_empty() => {
                self.tables
                    .execute("DELETE FROM GPUPROBE_LOST_BY_USER", [])?;
                for loss in mark.lost_by_user {
                    let count = i64::try_from(loss.count).unwrap_or(i64::MAX);
                    let row = params![loss.uid, loss.pid, loss.comm, loss.what, count];
                    self.tables.insert("GPUPROBE_LOST_BY_USER", row)?;
                }
            }
            LogNote::Dropped(records) => self.dropped = records,
            _ => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &Event, changes: &[Change]) -> Result<u64> {
        for change in changes {
            if let Change::Incident(row) = change {
                let chain = self.chains.id(row.pid, row.asked.stack);
                incidents::write(&mut self.tables, row, chain)?;
            }
        }
        match event {
            Event::Call(call) => {
                self.memory_call(call, changes)?;
                return Ok(1 + changes.len() as u64);
            }
            Event::Copy(copy) => {
                self.copy(copy, changes)?;
                return Ok(2);
            }
            Event::Launch(launch) => return self.launch(launch),
            Event::Tensor(tensor) => self.tensor(tensor)?,
            Event::Request(request) => {
                if let Some(row) = self.tensors.remove(&(request.pid, request.address)) {
                    let sql = "UPDATE GPUPROBE_TENSORS SET requested = ?2, stream = ?3 \
                               WHERE rowid = ?1";
                    let values = params![row, signed(request.bytes), signed(request.stream)];
                    self.tables.execute(sql, values)?;
                }
            }
            Event::Kernel(_) => {
                for change in changes {
                    if let Change::Named(handle, name) = change {
                        self.launches.named(*handle, name.clone(), &self.tables)?;
                    }
                }
            }
            Event::Process(task) => self.tables.process(task)?,
            Event::Thread(task) => self.tables.name_thread(task.pid, task.tid, &task.comm)?,
            Event::Exit(task) => self.end_of(task, "exit")?,
            Event::Exec(task) => self.end_of(task, "exec")?,
            Event::Checkpoint(task) => self.state(task, "checkpointed")?,
            Event::Restore(task) => self.state(task, "restored")?,
            Event::Activity(_)
            | Event::Blocks(_)
            | Event::ThreadExit(_)
            | Event::OutOfMemory(_)
            | Event::Memory(_) => return Ok(0),
        }
        Ok(1)
    }

    fn state(&mut self, task: &Task, state: &str) -> Result<()> {
        let row = params![global_pid(task.pid), self.tables.time(task.time_ns), state];
        self.tables.insert("GPUPROBE_CHECKPOINTS", row)
    }

    fn end_of(&mut self, task: &Task, how: &'static str) -> Result<()> {
        let time = self.tables.time(task.time_ns);
        self.ended
            .push_back((task.process, self.chains.end(task.pid)));
        if self.ended.len() > KEPT_ENDS
            && let Some((process, stacks)) = self.ended.pop_front()
        {
            self.launches.forget(process);
            self.chains.forget(&stacks);
        }
        self.end(task.pid, time, how)
    }

    /// Writes the exit of a process, or its execution of another program.
    fn end(&mut self, pid: u32, time: i64, how: &str) -> Result<()> {
        self.contexts.ended(pid);
        self.tensors.retain(|(of, _), _| *of != pid);
        self.batches.retain(|(of, _), _| *of != pid);
        let after = self.tables.correlation;
        let row = params![global_pid(pid), time, how, after];
        self.tables.insert("GPUPROBE_ENDS", row)
    }

    /// Writes a block that a framework's caching allocator handed out or took back. The requested
    /// size comes in a record of its own.
    fn tensor(&mut self, tensor: &Tensor) -> Result<()> {
        let row = params![
            self.tables.time(tensor.time_ns),
            self.tables.thread(tensor.pid, tensor.tid)?,
            tensor.device.map_or(-1, i64::from),
            signed(tensor.address),
            signed(tensor.bytes),
            tensor.is_free,
            signed(tensor.allocated_bytes),
            signed(tensor.reserved_bytes),
            Null,
            Null,
            self.chains.id(tensor.pid, tensor.stack)
        ];
        self.tables.insert("GPUPROBE_TENSORS", row)?;
        let block = (tensor.pid, tensor.address);
        match tensor.is_free {
            true => self.tensors.remove(&block),
            false => self
                .tensors
                .insert(block, self.tables.connection.last_insert_rowid()),
        };
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<u64> {
        let chain = self.chains.id(launch.pid, launch.stack);
        let thread = (launch.pid, launch.tid);
        let number = match (self.launches.number_of(launch), chain) {
            (Some((number, row)), Some(chain)) => {
                let sql = "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = ?2 \
                           WHERE rowid = ?1";
                self.tables.execute(sql, [row, chain])?;
                if let Some(activities) = &mut self.activities {
                    let probed = &mut activities.calls.probed;
                    probed.set_chain(thread, launch.start_ns, chain);
                }
                number
            }
            (Some((number, _)), None) => number,
            (None, _) => {
                let times = (launch.start_ns, launch.end_ns);
                self.call(launch.function, launch.result, thread, times, chain, false)?;
                self.tables.correlation
            }
        };
        let tables = &mut self.tables;
        self.launches.single(launch, number, tables)?;
        Ok(2)
    }

    fn copy(&mut self, copy: &Copy, changes: &[Change]) -> Result<()> {
        let thread = (copy.pid, copy.tid);
        let (number, end_ns) = if copy.begins_call() {
            let times = (copy.start_ns, copy.end_ns);
            let chain = self.chains.id(copy.pid, copy.stack);
            self.call(copy.function, copy.result, thread, times, chain, false)?;
            let number = self.tables.correlation;
            if copy.function.op == Op::CopyBatch {
                self.batches.insert(thread, number);
            }
            (number, copy.end_ns)
        } else {
            let batch = self.batches.get(&thread);
            (batch.copied().unwrap_or(0), copy.start_ns)
        };
        let understood = changes.iter().find_map(|change| match change {
            Change::Copied(direction, mode) => Some((direction.name(), mode.name())),
            _ => None,
        });
        let row = params![
            number,
            self.tables.time(copy.start_ns),
            self.tables.time(end_ns),
            global_pid(copy.pid),
            signed(copy.bytes),
            understood.map(|(direction, _)| direction),
            understood.map(|(_, mode)| mode),
            signed(copy.destination),
            signed(copy.source),
            copy.captured,
            copy.result
        ];
        self.tables.insert("GPUPROBE_COPIES", row)
    }

    /// Writes the call stacks whose frames are resolved; at the end, all of them.
    pub(super) fn chains(&mut self, is_end: bool) -> Result<()> {
        self.chains.write(&mut self.tables, is_end)
    }

    /// Starts the next round for the records of CUPTI that are held.
    pub(super) fn next_round(&mut self) {
        let activities = self.activities.iter_mut();
        activities.for_each(ActivityWriter::next_round);
    }

    /// Removes a batch of CUPTI's records that was held long enough; at the end, any.
    pub(super) fn due(&mut self, is_end: bool) -> Option<ActivityBatch> {
        self.activities.as_mut()?.due(is_end)
    }

    /// Writes such a batch. Returns the number of rows.
    pub(super) fn activity(&mut self, batch: &ActivityBatch) -> Result<u64> {
        if let Some(activities) = &mut self.activities {
            activities.write(batch, &mut self.tables)?;
        }
        Ok(batch.activities.len() as u64)
    }

    /// Final keys and values of `GPUPROBE_META`.
    pub(super) fn remarks(&self) -> Vec<(&'static str, String)> {
        let (calls, unknown) = (self.calls().to_string(), self.unknown_devices.to_string());
        let mut remarks = vec![
            ("calls", calls),
            ("allocations_on_unknown_devices", unknown),
        ];
        if let Some(activities) = &self.activities {
            remarks.push(("gpu_work_without_times", activities.untimed().to_string()));
        }
        remarks
    }

    fn lost(&self, what: &str, count: u64) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO GPUPROBE_LOST VALUES (?, ?)";
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.tables.execute(sql, params![what, count])
    }

    /// Writes what changes all the time.
    pub(super) fn write_counts(&self) -> Result<()> {
        let sql = "UPDATE ANALYSIS_DETAILS SET duration = ?1, stopTime = ?1";
        self.tables.execute(sql, [self.tables.last_ns])?;
        self.lost("recording", self.dropped)
    }
}
