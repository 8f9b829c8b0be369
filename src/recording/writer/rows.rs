//! From what happens to rows.

use std::collections::HashSet;

use rusqlite::{Connection, params};

use super::chains::Chains;
use super::insert::{Insert, Strings};
use super::tasks::Tasks;
use crate::api::{Belongs, FUNCTIONS, Function, Layer, Op};
use crate::clock::Clock;
use crate::event::{Call, Copy, Event};
use crate::recording::enums::class;
use crate::recording::ids::global_pid;
use crate::recording::kinds;
use crate::recording::log::{self, Note};
use crate::recording::player::{Played, Player};
use crate::stacks::KnownFrames;
use crate::state::transfers::Transfer;
use crate::state::{Allocation, Outcome};
use crate::symbols;

/// The primary context of a device has the number after the device's.
const FIRST_CONTEXT: i64 = 1;
/// `memoryOperationType`.
const ALLOCATION: i64 = 0;
const DEALLOCATION: i64 = 1;

/// Writes rows.
pub(super) struct Rows<'c> {
    connection: &'c Connection,
    base_ns: u64,
    strings: Strings<'c>,
    tasks: Tasks<'c>,
    chains: Chains<'c>,
    log: Insert<'c>,
    calls: Insert<'c>,
    memory: Insert<'c>,
    copies: Insert<'c>,
    unmatched: Insert<'c>,
    launches: Insert<'c>,
    used: Insert<'c>,
    /// `nameId` by row of the function table.
    names: Vec<Option<i64>>,
    /// Processes that see one GPU only.
    single_gpu: HashSet<u32>,
    correlation: i64,
    last_ns: i64,
    /// Launches were counted since they were last written.
    is_counted: bool,
    /// Allocations whose device nothing tells.
    pub(super) unknown_devices: u64,
}

fn signed(number: u64) -> i64 {
    // Addresses of more than 63 bits are negative in exports too.
    number.cast_signed()
}

impl<'c> Rows<'c> {
    pub(super) fn new(connection: &'c Connection, clock: &Clock) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            connection,
            base_ns: clock.monotonic_ns(),
            strings: Strings::new(connection),
            tasks: Tasks::new(connection),
            chains: Chains::new(into),
            log: into("GPUPROBE_LOG"),
            calls: into("CUPTI_ACTIVITY_KIND_RUNTIME"),
            memory: into("CUDA_GPU_MEMORY_USAGE_EVENTS"),
            copies: into("GPUPROBE_COPIES"),
            unmatched: into("GPUPROBE_UNMATCHED_FREES"),
            launches: into("GPUPROBE_LAUNCHES"),
            used: into("GPUPROBE_SMI"),
            names: vec![None; FUNCTIONS.len()],
            single_gpu: HashSet::new(),
            correlation: 0,
            last_ns: 0,
            is_counted: false,
            unknown_devices: 0,
        }
    }

    /// Calls that have been written.
    pub(super) fn calls(&self) -> i64 {
        self.correlation
    }

    /// The latest time of anything, nanoseconds of the session.
    pub(super) fn last_ns(&self) -> i64 {
        self.last_ns
    }

    fn time(&mut self, monotonic_ns: u64) -> i64 {
        let time = signed(monotonic_ns).saturating_sub(signed(self.base_ns));
        self.last_ns = self.last_ns.max(time);
        time
    }

    /// A piece of the log.
    pub(super) fn log(&mut self, sequence: i64, batch: &[u8]) -> rusqlite::Result<()> {
        self.log.row(params![
            sequence,
            self.last_ns,
            signed(log::count(batch)),
            batch
        ])
    }

    /// Something that is no record, before it is played.
    pub(super) fn note(&mut self, note: &Note) -> rusqlite::Result<()> {
        match note {
            Note::Identity(pid, identity) => {
                if identity.single_gpu {
                    self.single_gpu.insert(*pid);
                }
                Ok(())
            }
            Note::Used(monotonic_ns, gpu, bytes) => {
                let time = self.time(*monotonic_ns);
                self.used.row(params![time, gpu, signed(*bytes)])
            }
            Note::Vanished(pid) => {
                self.chains.end(*pid);
                self.tasks
                    .end(*pid, self.last_ns, "vanished", self.correlation)
            }
            Note::Stack(pid, number, stack) => {
                self.chains.learn(*pid, *number, stack);
                Ok(())
            }
            Note::Frames(..) => {
                self.chains.news();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An entry has been played. Returns the number of rows.
    pub(super) fn played(&mut self, played: &Played, player: &mut Player) -> rusqlite::Result<u64> {
        match played {
            Played::Event(event, transfer) => self.event(event, transfer.as_ref(), player),
            Played::Counts => {
                self.is_counted = true;
                Ok(0)
            }
            Played::Lost | Played::Report(_) | Played::Nothing => Ok(0),
        }
    }

    fn event(
        &mut self,
        event: &Event,
        transfer: Option<&Transfer>,
        player: &mut Player,
    ) -> rusqlite::Result<u64> {
        match event {
            Event::Call(call) => {
                self.call(
                    call.row,
                    call.function,
                    call.result,
                    (call.pid, call.tid),
                    (call.start_ns, call.end_ns),
                    self.chains.id(call.pid, call.stack),
                )?;
                let mut rows = 1;
                for outcome in player.state.ledger.take_outcomes() {
                    self.outcome(&outcome, call)?;
                    rows += 1;
                }
                return Ok(rows);
            }
            Event::Copy(copy) => {
                self.call(
                    copy.row,
                    copy.function,
                    copy.result,
                    (copy.pid, copy.tid),
                    (copy.start_ns, copy.end_ns),
                    None,
                )?;
                self.copy(copy, transfer)?;
                return Ok(2);
            }
            Event::Process(task) => {
                let time = self.time(task.time_ns);
                self.tasks.process(task, time)?;
            }
            Event::Thread(task) => self.tasks.thread(task, &mut self.strings)?,
            Event::Exit(task) | Event::Exec(task) => {
                let how = if matches!(event, Event::Exec(_)) {
                    "exec"
                } else {
                    "exit"
                };
                let time = self.time(task.time_ns);
                self.chains.end(task.pid);
                self.tasks.end(task.pid, time, how, self.correlation)?;
            }
            _ => return Ok(0),
        }
        Ok(1)
    }

    fn call(
        &mut self,
        row: u16,
        function: &Function,
        result: i32,
        (pid, tid): (u32, u32),
        (start_ns, end_ns): (u64, u64),
        stack: Option<i64>,
    ) -> rusqlite::Result<()> {
        self.correlation += 1;
        let name = match self.names.get(usize::from(row)).copied().flatten() {
            Some(name) => name,
            None => {
                let name = self.strings.id(function.symbol)?;
                if let Some(slot) = self.names.get_mut(usize::from(row)) {
                    *slot = Some(name);
                }
                name
            }
        };
        let class = match function.layer {
            Layer::Runtime => class::RUNTIME,
            Layer::Driver => class::DRIVER,
        };
        let thread = self.tasks.caller(pid, tid, &mut self.strings)?;
        let (start, end) = (self.time(start_ns), self.time(end_ns));
        self.calls.row(params![
            start,
            end,
            class,
            thread,
            self.correlation,
            name,
            result,
            stack
        ])
    }

    /// What the ledger made of `call`.
    fn outcome(&mut self, outcome: &Outcome, call: &Call) -> rusqlite::Result<()> {
        let (start, end) = (self.time(call.start_ns), self.time(call.end_ns));
        let own = Some(self.correlation);
        match outcome {
            Outcome::Allocated(allocation) => {
                self.memory(call.pid, allocation, end, ALLOCATION, own)
            }
            Outcome::Freed(allocation) => {
                self.memory(call.pid, allocation, start, DEALLOCATION, own)
            }
            // Its own free has been entered, but has not returned yet.
            Outcome::GaveWay(allocation) => {
                self.memory(call.pid, allocation, end, DEALLOCATION, None)
            }
            Outcome::UnknownFree(address) => self.unmatched.row(params![
                self.correlation,
                start,
                global_pid(call.pid),
                signed(*address)
            ]),
        }
    }

    fn memory(
        &mut self,
        pid: u32,
        allocation: &Allocation,
        time: i64,
        operation: i64,
        correlation: Option<i64>,
    ) -> rusqlite::Result<()> {
        let single = self.single_gpu.contains(&pid);
        let device = allocation.device().or(single.then_some(0)).map(i64::from);
        self.unknown_devices += u64::from(device.is_none() && operation == ALLOCATION);
        // The column cannot be NULL; how many are unknown stands in GPUPROBE_META.
        let device = device.unwrap_or(0);
        let kind = match allocation.belongs() {
            Belongs::Gpu => kinds::of(allocation.kind()).id,
            Belongs::Host => kinds::PINNED,
            // Another process or API has it, and it is not counted again.
            Belongs::Elsewhere => return Ok(()),
        };
        let (variable, nothing): (Option<&str>, Option<i64>) = (None, None);
        self.memory.row(params![
            time,
            global_pid(pid),
            device,
            device + FIRST_CONTEXT,
            signed(allocation.address),
            0,
            signed(allocation.size_bytes),
            kind,
            operation,
            variable,
            correlation,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing,
            nothing
        ])
    }

    fn copy(&mut self, copy: &Copy, transfer: Option<&Transfer>) -> rusqlite::Result<()> {
        let (start, end) = (self.time(copy.start_ns), self.time(copy.end_ns));
        self.copies.row(params![
            self.correlation,
            start,
            end,
            global_pid(copy.pid),
            signed(copy.bytes),
            transfer.map(|transfer| transfer.which.direction.name()),
            transfer.map(|transfer| transfer.which.mode.name()),
            signed(copy.destination),
            signed(copy.source),
            copy.captured,
            copy.result
        ])
    }

    /// Writes the call stacks whose frames are known; at the end, all of them. Stops after about
    /// `max_rows`; returns whether there is more.
    pub(super) fn chains(
        &mut self,
        known: &KnownFrames,
        is_end: bool,
        max_rows: usize,
    ) -> rusqlite::Result<bool> {
        self.chains
            .write(known, &mut self.strings, is_end, max_rows)
    }

    /// Writes what has been launched so far, if it has been counted again.
    pub(super) fn launches(&mut self, player: &Player) -> rusqlite::Result<()> {
        if !std::mem::take(&mut self.is_counted) {
            return Ok(());
        }
        self.connection
            .execute("DELETE FROM GPUPROBE_LAUNCHES", [])?;
        for (key, counted, mangled) in player.state.launches.counted() {
            let function = crate::api::function(key.row);
            let pid = player
                .state
                .launches
                .launcher_of(key.process)
                .map_or(0, |l| l.pid);
            let name = match &mangled {
                Some(mangled) => symbols::demangle(mangled),
                None => format!("{:#x}", key.handle),
            };
            self.launches.row(params![
                global_pid(pid),
                name,
                mangled,
                signed(key.handle),
                function.map(|f| f.symbol),
                counted.grid[0],
                counted.grid[1],
                counted.grid[2],
                counted.block[0],
                counted.block[1],
                counted.block[2],
                signed(counted.runs),
                signed(counted.captured),
                function.is_some_and(|f| f.op == Op::GraphLaunch)
            ])?;
        }
        Ok(())
    }
}
