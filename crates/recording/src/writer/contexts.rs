//! Contexts and devices of processes, as far as API calls reveal them.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, params};

use super::insert::Insert;
use super::lifetimes::ContextLifetimes;
use crate::ids::context_id;
use gpuprobe_cuda::Op;
use gpuprobe_model::event::{CONTEXT_UNKNOWN, Call};
use gpuprobe_model::identity::Identity;

/// Values of the columns `hwId` and `vmId`.
pub(super) const HARDWARE: i64 = 0;
pub(super) const VIRTUAL_MACHINE: i64 = 1;
/// Default stream of every context, its priority, and its flag in `ENUM_CUPTI_STREAM_TYPE`.
const NULL_STREAM: i64 = 7;
const DEFAULT_PRIORITY: i64 = 0;
const IS_NULL_STREAM: i64 = 3;

/// Writer of contexts.
pub(super) struct ContextWriter<'c> {
    connection: &'c Connection,
    contexts: Insert<'c>,
    streams: Insert<'c>,
    devices: Insert<'c>,
    /// Processes, devices and contexts that have rows.
    known: HashSet<(u32, u16, i64)>,
    known_devices: HashSet<(u32, u16)>,
    identities: HashMap<u32, Identity>,
    lifetimes: ContextLifetimes<'c>,
}

impl<'c> ContextWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            connection,
            contexts: into("TARGET_INFO_CUDA_CONTEXT_INFO"),
            streams: into("TARGET_INFO_CUDA_STREAM"),
            devices: into("TARGET_INFO_CUDA_DEVICE"),
            known: HashSet::new(),
            known_devices: HashSet::new(),
            identities: HashMap::new(),
            lifetimes: ContextLifetimes::new(connection),
        }
    }

    /// Sets the identity of a process.
    pub(super) fn identified(&mut self, pid: u32, identity: Identity) {
        self.identities.insert(pid, identity);
    }

    /// Removes the contexts of a process that has exited or executed another program.
    pub(super) fn ended(&mut self, pid: u32) {
        self.identities.remove(&pid);
        self.lifetimes.ended(pid);
    }

    /// The device of an object of the process: `reported` by a call, else 0 if the process sees only
    /// one device.
    pub(super) fn device(&self, pid: u32, reported: Option<u16>) -> Option<u16> {
        let single = || self.identities.get(&pid).is_some_and(|i| i.single_gpu);
        reported.or_else(|| single().then_some(0))
    }

    /// Writes the context that a successful call implies, and its creation or destruction at
    /// `end`, the session time of the call's return.
    pub(super) fn called(&mut self, call: &Call, end: i64) -> rusqlite::Result<()> {
        if call.result != 0 {
            return Ok(());
        }
        if matches!(call.function.op, Op::ContextCreate | Op::ContextDestroy) {
            let device = self.device(call.pid, call.device);
            self.lifetimes.called(call, device, end)?;
        }
        let number = match call.function.op {
            Op::ContextRetain => 0,
            Op::Allocate if call.captured => return Ok(()),
            // These succeed only with a context.
            Op::ContextCreate | Op::Allocate => call.context,
            _ => return Ok(()),
        };
        match self.device(call.pid, call.device) {
            Some(device) if number != CONTEXT_UNKNOWN => self.seen(call.pid, device, number),
            _ => Ok(()),
        }
    }

    fn seen(&mut self, pid: u32, device: u16, number: u16) -> rusqlite::Result<()> {
        let context = context_id(device, number);
        if !self.known.insert((pid, device, context)) {
            return Ok(());
        }
        let nothing: Option<i64> = None;
        self.contexts.row(params![
            NULL_STREAM,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            device,
            context,
            nothing,
            nothing
        ])?;
        self.streams.row(params![
            NULL_STREAM,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            context,
            DEFAULT_PRIORITY,
            IS_NULL_STREAM
        ])?;
        if self.known_devices.insert((pid, device)) {
            let gpu = self.gpu(pid, device)?;
            self.devices.row(params![gpu, device, pid])?;
        }
        Ok(())
    }

    /// The row of the device in the table of GPUs, if there is one.
    fn gpu(&self, pid: u32, device: u16) -> rusqlite::Result<Option<u32>> {
        let identity = self.identities.get(&pid);
        let Some(index) = identity.and_then(|i| i.device(device).physical_index) else {
            return Ok(None);
        };
        let table = "TARGET_INFO_GPU";
        if !self.connection.table_exists(None, table)? {
            return Ok(None);
        }
        let sql = "SELECT count(*) FROM TARGET_INFO_GPU WHERE id = ?";
        let there: i64 = self.connection.query_row(sql, [index], |row| row.get(0))?;
        Ok((there > 0).then_some(index))
    }
}
