//! Creation and destruction of contexts.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::insert::Insert;
use crate::ids::{context_id, global_pid};
use gpuprobe_cuda::Op;
use gpuprobe_model::event::{CONTEXT_UNKNOWN, Call};

/// Writer of the times of contexts that programs create.
pub(super) struct ContextLifetimes<'c> {
    connection: &'c Connection,
    rows: Insert<'c>,
    /// Rows of live contexts, by process and number.
    live: HashMap<u32, HashMap<u16, i64>>,
}

impl<'c> ContextLifetimes<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            rows: Insert::into(connection, "GPUPROBE_CONTEXTS"),
            live: HashMap::new(),
        }
    }

    /// Removes the contexts of a process that has exited or executed another program.
    pub(super) fn ended(&mut self, pid: u32) {
        self.live.remove(&pid);
    }

    /// Writes a successful creation or destruction at session time `time` of a context of `device`.
    pub(super) fn called(
        &mut self,
        call: &Call,
        device: Option<u16>,
        time: i64,
    ) -> rusqlite::Result<()> {
        let number = Some(call.context).filter(|number| !matches!(*number, 0 | CONTEXT_UNKNOWN));
        match (call.function.op, number) {
            (Op::ContextCreate, Some(number)) => self.created(call.pid, number, device, time),
            (Op::ContextDestroy, _) => self.destroyed(call.pid, number, device, time),
            _ => Ok(()),
        }
    }

    fn created(
        &mut self,
        pid: u32,
        number: u16,
        device: Option<u16>,
        time: i64,
    ) -> rusqlite::Result<()> {
        let (id, end): (_, Option<i64>) = (context_id(0, number), None);
        self.rows
            .row(params![global_pid(pid), device, id, time, end])?;
        // Numbers wrap around: an older context of this number stays without an end.
        let row = self.connection.last_insert_rowid();
        self.live.entry(pid).or_default().insert(number, row);
        Ok(())
    }

    fn destroyed(
        &mut self,
        pid: u32,
        number: Option<u16>,
        device: Option<u16>,
        time: i64,
    ) -> rusqlite::Result<()> {
        let live = self.live.get_mut(&pid);
        if let Some(row) = live.and_then(|live| live.remove(&number?)) {
            let sql = "UPDATE GPUPROBE_CONTEXTS SET t1 = ?2 WHERE rowid = ?1";
            let mut update = self.connection.prepare_cached(sql)?;
            return update.execute([row, time]).map(|_| ());
        }
        let (id, start): (_, Option<i64>) = (number.map(|number| context_id(0, number)), None);
        self.rows
            .row(params![global_pid(pid), device, id, start, time])
    }
}
