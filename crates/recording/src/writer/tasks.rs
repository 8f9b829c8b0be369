//! Names and exits of processes and threads.

use std::collections::HashMap;

use rusqlite::params;

use super::tables::Tables;
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
#[derive(Debug, Default)]
pub(super) struct Tasks {
    processes: HashMap<u32, String>,
    threads: HashMap<(u32, u32), ThreadRow>,
    /// Number of rows of threads.
    rows: i64,
}

impl Tasks {
    /// Writes a process that is new or was renamed.
    pub(super) fn process(
        &mut self,
        task: &Task,
        time_ns: i64,
        tables: &mut Tables<'_>,
    ) -> rusqlite::Result<()> {
        let global = global_pid(task.pid);
        let row = params![global, task.pid, task.uid, task.comm, time_ns];
        tables.insert("GPUPROBE_PROCESSES", row)?;
        match self.processes.insert(task.pid, task.comm.clone()) {
            None => tables.insert("PROCESSES", params![global, task.pid, task.comm]),
            Some(old) if old != task.comm => {
                let sql = "UPDATE PROCESSES SET name = ?2 WHERE globalPid = ?1";
                tables.execute(sql, params![global, task.comm])
            }
            Some(_) => Ok(()),
        }
    }

    /// Ensures that a process has a row.
    pub(super) fn ensure(&mut self, pid: u32, tables: &mut Tables<'_>) -> rusqlite::Result<()> {
        if self.processes.contains_key(&pid) {
            return Ok(());
        }
        self.processes.insert(pid, String::new());
        tables.insert("PROCESSES", params![global_pid(pid), pid, ""])
    }

    /// Sets the name of a thread.
    pub(super) fn name_thread(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        tables: &mut Tables<'_>,
    ) -> rusqlite::Result<()> {
        let thread = self.threads.entry((pid, tid)).or_default();
        name.clone_into(&mut thread.comm);
        let Some(row) = thread.row else { return Ok(()) };
        let name = tables.string(name)?;
        let sql = "UPDATE ThreadNames SET nameId = ?2 WHERE rowid = ?1";
        tables.execute(sql, [row, name])
    }

    /// Ensures that a calling thread has a row, even without a name. Returns its global id.
    pub(super) fn caller(
        &mut self,
        pid: u32,
        tid: u32,
        tables: &mut Tables<'_>,
    ) -> rusqlite::Result<i64> {
        let global = global_tid(pid, tid);
        let thread = self.threads.entry((pid, tid)).or_default();
        if thread.row.is_none() {
            self.rows += 1;
            thread.row = Some(self.rows);
            let name = match thread.comm.as_str() {
                "" => self.processes.get(&pid).map_or("", String::as_str),
                comm => comm,
            };
            let name = tables.string(name)?;
            tables.insert("ThreadNames", params![name, PRIORITY, global])?;
        }
        Ok(global)
    }
}
