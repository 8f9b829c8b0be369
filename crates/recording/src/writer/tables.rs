//! Rows of a recording: tables that are created on first use, and what rows have in common: times, strings, calls,
//! processes and threads.

use std::iter;

use hashbrown::HashMap;
use rusqlite::types::Null;
use rusqlite::{Connection, Params, Result, Statement, ToSql, params, params_from_iter};

use super::schema;
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

/// The tables of a recording.
pub(super) struct Tables<'c> {
    pub(super) connection: &'c Connection,
    inserts: HashMap<&'static str, Statement<'c>>,
    /// Ids in the table of strings.
    strings: HashMap<String, i64>,
    /// Session time 0, `CLOCK_MONOTONIC` nanoseconds.
    base_ns: u64,
    /// Latest time of any row, session time in nanoseconds.
    pub(super) last_ns: i64,
    /// Last `correlationId` that was assigned to a call of a probe.
    pub(super) correlation: i64,
    /// Names of the processes that have rows.
    processes: HashMap<u32, String>,
    threads: HashMap<(u32, u32), ThreadRow>,
}

impl<'c> Tables<'c> {
    /// Session times count from `base_ns` of `CLOCK_MONOTONIC`.
    pub(super) fn new(connection: &'c Connection, base_ns: u64) -> Self {
        Self {
            connection,
            inserts: HashMap::new(),
            strings: HashMap::new(),
            base_ns,
            last_ns: 0,
            correlation: 0,
            processes: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    /// Creates a table, if it does not exist.
    pub(super) fn create(&self, table: &str) -> Result<()> {
        let sql = schema::create(table);
        sql.map_or(Ok(()), |sql| self.connection.execute_batch(&sql))
    }

    /// Inserts a row; its last columns are NULL without values.
    pub(super) fn insert(&mut self, table: &'static str, values: &[&dyn ToSql]) -> Result<()> {
        if let Some(insert) = self.inserts.get_mut(table) {
            return execute(insert, values);
        }
        self.create(table)?;
        let insert = self.connection.prepare(&schema::insert(table))?;
        execute(self.inserts.entry(table).or_insert(insert), values)
    }

    /// Executes another statement.
    pub(super) fn execute(&self, sql: &str, values: impl Params) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// The id of `text` in the table of strings, which has each once.
    pub(super) fn string(&mut self, text: &str) -> Result<i64> {
        if let Some(id) = self.strings.get(text) {
            return Ok(*id);
        }
        let id = i64::try_from(self.strings.len()).unwrap_or(i64::MAX);
        self.insert("StringIds", params![id, text])?;
        self.strings.insert(text.to_owned(), id);
        Ok(id)
    }

    /// Converts `CLOCK_MONOTONIC` nanoseconds to session time.
    pub(super) fn time(&mut self, monotonic_ns: u64) -> i64 {
        let time = signed(monotonic_ns).saturating_sub(signed(self.base_ns));
        self.last_ns = self.last_ns.max(time);
        time
    }

    /// Writes a process that is new or was renamed.
    pub(super) fn process(&mut self, task: &Task) -> Result<()> {
        let (global, time) = (global_pid(task.pid), self.time(task.time_ns));
        let row = params![global, task.pid, task.uid, task.comm, time];
        self.insert("GPUPROBE_PROCESSES", row)?;
        match self.processes.insert(task.pid, task.comm.clone()) {
            None => self.insert("PROCESSES", params![global, task.pid, task.comm]),
            Some(old) if old != task.comm => {
                let sql = "UPDATE PROCESSES SET name = ?2 WHERE globalPid = ?1";
                self.execute(sql, params![global, task.comm])
            }
            Some(_) => Ok(()),
        }
    }

    /// Ensures that a process has a row.
    pub(super) fn ensure_process(&mut self, pid: u32) -> Result<()> {
        if self.processes.contains_key(&pid) {
            return Ok(());
        }
        self.processes.insert(pid, String::new());
        self.insert("PROCESSES", params![global_pid(pid), pid, ""])
    }

    /// Sets the name of a thread.
    pub(super) fn name_thread(&mut self, pid: u32, tid: u32, name: &str) -> Result<()> {
        let thread = self.threads.entry((pid, tid)).or_default();
        name.clone_into(&mut thread.comm);
        let Some(row) = thread.row else { return Ok(()) };
        let name = self.string(name)?;
        let sql = "UPDATE ThreadNames SET nameId = ?2 WHERE rowid = ?1";
        self.execute(sql, [row, name])
    }

    /// The global id of a thread, which is given a row, even without a name.
    pub(super) fn thread(&mut self, pid: u32, tid: u32) -> Result<i64> {
        let global = global_tid(pid, tid);
        let thread = self.threads.entry((pid, tid)).or_default();
        if thread.row.is_none() {
            let mut name = thread.comm.clone();
            if name.is_empty() {
                name = self.processes.get(&pid).cloned().unwrap_or_default();
            }
            let name = self.string(&name)?;
            self.insert("ThreadNames", params![name, PRIORITY, global])?;
            let row = Some(self.connection.last_insert_rowid());
            self.threads.entry((pid, tid)).or_default().row = row;
        }
        Ok(global)
    }
}

/// Executes an insertion, with NULL for what has no value.
fn execute(insert: &mut Statement<'_>, values: &[&dyn ToSql]) -> Result<()> {
    let rest = iter::repeat(&Null as &dyn ToSql);
    let values = values.iter().copied().chain(rest);
    let values = values.take(insert.parameter_count());
    insert.execute(params_from_iter(values)).map(|_| ())
}

/// Numbers of more than 63 bits are negative, as in exports.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}
