//! Contexts and devices of processes, as far as API calls reveal them.

use std::collections::{HashMap, HashSet};

use rusqlite::types::Null;
use rusqlite::{Result, params};

use super::tables::Tables;
use crate::ids::{context_id, global_pid};
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
#[derive(Debug, Default)]
pub(super) struct ContextWriter {
    /// Processes, devices and contexts that have rows.
    known: HashSet<(u32, u16, i64)>,
    known_devices: HashSet<(u32, u16)>,
    identities: HashMap<u32, Identity>,
    /// Rows of live contexts that programs created, by process and number.
    live: HashMap<(u32, u16), i64>,
}

impl ContextWriter {
    /// Sets the identity of a process.
    pub(super) fn identified(&mut self, pid: u32, identity: Identity) {
        self.identities.insert(pid, identity);
    }

    /// Removes the contexts of a process that has exited or executed another program.
    pub(super) fn ended(&mut self, pid: u32) {
        self.identities.remove(&pid);
        self.live.retain(|(of, _), _| *of != pid);
    }

    /// The device of an object of the process: `reported` by a call, else 0 if the process sees only
    /// one device.
    pub(super) fn device(&self, pid: u32, reported: Option<u16>) -> Option<u16> {
        let single = || self.identities.get(&pid).is_some_and(|i| i.single_gpu);
        reported.or_else(|| single().then_some(0))
    }

    /// Writes the context that a successful call implies, and its creation or destruction.
    pub(super) fn called(&mut self, call: &Call, tables: &mut Tables<'_>) -> Result<()> {
        if call.result != 0 {
            return Ok(());
        }
        let device = self.device(call.pid, call.device);
        let end = tables.time(call.end_ns);
        let made = Some(call.context).filter(|number| !matches!(*number, 0 | CONTEXT_UNKNOWN));
        match (call.function.op, made) {
            (Op::ContextCreate, Some(number)) => {
                let row = params![global_pid(call.pid), device, context_id(0, number), end];
                tables.insert("GPUPROBE_CONTEXTS", row)?;
                // Numbers wrap around: an older context of this number stays without an end.
                let row = tables.connection.last_insert_rowid();
                self.live.insert((call.pid, number), row);
            }
            (Op::ContextDestroy, _) => {
                let row = made.and_then(|number| self.live.remove(&(call.pid, number)));
                if let Some(row) = row {
                    let sql = "UPDATE GPUPROBE_CONTEXTS SET t1 = ?2 WHERE rowid = ?1";
                    tables.execute(sql, [row, end])?;
                } else {
                    let id = made.map(|number| context_id(0, number));
                    let row = params![global_pid(call.pid), device, id, Null, end];
                    tables.insert("GPUPROBE_CONTEXTS", row)?;
                }
            }
            _ => {}
        }
        let number = match call.function.op {
            Op::ContextRetain => 0,
            Op::Allocate if call.captured => return Ok(()),
            // These succeed only with a context.
            Op::ContextCreate | Op::Allocate => call.context,
            _ => return Ok(()),
        };
        match device {
            Some(device) if number != CONTEXT_UNKNOWN => {
                self.seen(call.pid, device, number, tables)
            }
            _ => Ok(()),
        }
    }

    fn seen(&mut self, pid: u32, device: u16, number: u16, tables: &mut Tables<'_>) -> Result<()> {
        let context = context_id(device, number);
        if !self.known.insert((pid, device, context)) {
            return Ok(());
        }
        let row = params![NULL_STREAM, HARDWARE, VIRTUAL_MACHINE, pid, device, context];
        tables.insert("TARGET_INFO_CUDA_CONTEXT_INFO", row)?;
        let row = params![
            NULL_STREAM,
            HARDWARE,
            VIRTUAL_MACHINE,
            pid,
            context,
            DEFAULT_PRIORITY,
            IS_NULL_STREAM
        ];
        tables.insert("TARGET_INFO_CUDA_STREAM", row)?;
        if self.known_devices.insert((pid, device)) {
            let identity = self.identities.get(&pid);
            let gpu = identity.and_then(|identity| identity.device(device).physical_index);
            tables.insert("TARGET_INFO_CUDA_DEVICE", params![gpu, device, pid])?;
        }
        Ok(())
    }
}
