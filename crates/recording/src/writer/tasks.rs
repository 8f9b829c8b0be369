//! Names and exits of processes and threads.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::insert::{Insert, Strings};
use crate::ids::{global_pid, global_tid};
use gpuprobe_model::event::Task;

/// Linux's default thread priority.
const PRIORITY: i64 = 20;

/// A thread, and its row id if it has one.
#[derive(Debug, Default)]
struct ThreadRow {
    comm: String,
    row: Option<i64>,
}

/// Writer of processes and threads.
pub(super) struct Tasks<'c> {
    connection: &'c Connection,
    processes: HashMap<u32, String>,
    threads: HashMap<(u32, u32), ThreadRow>,
    rows: i64,
    names: Insert<'c>,
    exported: Insert<'c>,
    ours: Insert<'c>,
    ends: Insert<'c>,
}

impl<'c> Tasks<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            connection,
            processes: HashMap::new(),
            threads: HashMap::new(),
            rows: 0,
            names: Insert::into(connection, "ThreadNames"),
            exported: Insert::into(connection, "PROCESSES"),
            ours: Insert::into(connection, "GPUPROBE_PROCESSES"),
            ends: Insert::into(connection, "GPUPROBE_ENDS"),
        }
    }

    /// Writes a process that is new or was renamed.
    pub(super) fn process(&mut self, task: &Task, time_ns: i64) -> rusqlite::Result<()> {
        let global = global_pid(task.pid);
        self.ours
            .row(params![global, task.pid, task.uid, task.comm, time_ns])?;
        match self.processes.insert(task.pid, task.comm.clone()) {
            None => self.exported.row(params![global, task.pid, task.comm]),
            Some(old) if old != task.comm => {
                let sql = "UPDATE PROCESSES SET name = ?2 WHERE globalPid = ?1";
                self.connection
                    .execute(sql, params![global, task.comm])
                    .map(|_| ())
            }
            Some(_) => Ok(()),
        }
    }

    /// Ensures that a process has a row.
    pub(super) fn ensure(&mut self, pid: u32) -> rusqlite::Result<()> {
        if self.processes.contains_key(&pid) {
            return Ok(());
        }
        self.processes.insert(pid, String::new());
        self.exported.row(params![global_pid(pid), pid, ""])
    }

    /// Sets the name of a thread.
    pub(super) fn name_thread(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        strings: &mut Strings<'c>,
    ) -> rusqlite::Result<()> {
        let thread = self.threads.entry((pid, tid)).or_default();
        name.clone_into(&mut thread.comm);
        match thread.row {
            Some(row) => {
                let sql = "UPDATE ThreadNames SET nameId = ?2 WHERE rowid = ?1";
                let name = strings.id(name)?;
                self.connection.execute(sql, [row, name]).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Writes a thread that is new or was renamed.
    pub(super) fn thread(
        &mut self,
        task: &Task,
        strings: &mut Strings<'c>,
    ) -> rusqlite::Result<()> {
        self.name_thread(task.pid, task.tid, &task.comm, strings)
    }

    /// Ensures that a calling thread has a row, even without a name. Returns its global id.
    pub(super) fn caller(
        &mut self,
        pid: u32,
        tid: u32,
        strings: &mut Strings<'c>,
    ) -> rusqlite::Result<i64> {
        let global = global_tid(pid, tid);
        let thread = self.threads.entry((pid, tid)).or_default();
        if thread.row.is_none() {
            self.rows += 1;
            thread.row = Some(self.rows);
            let of_process = self.processes.get(&pid).map_or("", String::as_str);
            let name = if thread.comm.is_empty() {
                of_process
            } else {
                &thread.comm
            };
            self.names
                .row(params![strings.id(name)?, PRIORITY, global])?;
        }
        Ok(global)
    }

    /// Writes the exit of a process, or its execution of another program, after call number
    /// `after`.
    pub(super) fn end(
        &mut self,
        pid: u32,
        time_ns: i64,
        how: &str,
        after: i64,
    ) -> rusqlite::Result<()> {
        self.ends.row(params![global_pid(pid), time_ns, how, after])
    }
}
