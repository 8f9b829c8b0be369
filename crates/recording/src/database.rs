//! Read access to a recording or nsys export.

mod file;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Error, Result, bail};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, Statement};

use self::file::{bytes, check_magic, explain, has_too_many_rows};
use super::{opening, row};
use gpuprobe_os::progress::{Pass, SharedProgress};

/// Maximum size of a value, bytes: a malicious file must not exhaust memory.
const MAX_VALUE_BYTES: i32 = 64 << 20;

/// How long to wait for a file that another program has locked.
const LOCKED_FOR: Duration = Duration::from_secs(2);

/// Number of SQLite virtual machine instructions between two checks of the limit.
const LOOK_EVERY: i32 = 100_000;
/// Limit of SQLite virtual machine instructions, per byte of the file and in addition. Reports,
/// plots and exports of an nsys export took 0.3 per byte.
const PER_BYTE: u64 = 30;
const BESIDES: u64 = 10_000_000;

/// See [`Database::each_call_once`].
const EACH_CALL_ONCE: &str = "WHERE \"correlationId\" IS NULL OR \
     \"correlationId\" NOT IN (SELECT \"correlationId\" FROM GPUPROBE_SAME_CALLS)";

/// Cache for temporary sorting, KiB.
const CACHE_KIB: i32 = 32 << 10;

/// A database file, opened read-only.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Connection,
    tables: HashMap<String, HashSet<String>>,
    /// Shows how far reading is.
    pub progress: SharedProgress,
}

impl Database {
    /// Opens `path`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not an SQLite database, or is neither a
    /// recording nor an nsys export; the message names the reason and the remedy.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_with(path, &(Arc::new(()) as SharedProgress))
    }

    /// Opens `path`; `progress` shows how far reading is.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`Self::open`].
    pub fn open_with(path: &Path, progress: &SharedProgress) -> Result<Self> {
        check_magic(path)?;
        let connection = opening::open(path).map_err(|error| match error.downcast() {
            Ok(error) => explain(path, error),
            Err(error) => error,
        })?;
        let mut database = Self {
            path: path.to_owned(),
            connection,
            tables: HashMap::new(),
            progress: Arc::clone(progress),
        };
        database.prepare_tables().map_err(|e| explain(path, e))?;
        if !database.tables.keys().any(|table| is_trace_table(table)) {
            bail!(
                "{} is an SQLite database, but neither a recording of gpuprobe (--record) nor an \
                 export of Nsight Systems (`nsys export --type sqlite`): it has none of their \
                 tables",
                path.display()
            );
        }
        Ok(database)
    }

    /// Prepares the connection, and lists the ordinary tables of the file. Views, which nsys never creates, could be
    /// endless, and virtual tables could execute arbitrary code.
    fn prepare_tables(&mut self) -> rusqlite::Result<()> {
        self.bound()?;
        self.connection.busy_timeout(LOCKED_FOR)?;
        self.connection
            .set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
        // SQL that the file itself defines (triggers, views) is not executed.
        for (config, on) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        ] {
            self.connection.set_db_config(config, on)?;
        }
        self.connection.execute_batch(&format!(
            "PRAGMA cell_size_check = ON; PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; \
             PRAGMA temp_store = FILE; PRAGMA cache_size = -{CACHE_KIB}"
        ))?;
        let sql = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c \
                   WHERE m.type = 'table' AND m.rootpage > 0";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(found) = rows.next()? {
            if let (Some(table), Some(column)) = (row::text(found, 0), row::text(found, 1)) {
                self.tables.entry(table).or_default().insert(column);
            }
        }
        Ok(())
    }

    /// Bounds the number of instructions: a damaged file, with pages that form a cycle or are
    /// shared, may have more rows than its size allows.
    fn bound(&mut self) -> rusqlite::Result<()> {
        let mut used = 0;
        let path = self.path.clone();
        let progress = Arc::clone(&self.progress);
        let is_too_much = move || {
            progress.tick();
            used += LOOK_EVERY as u64;
            used > BESIDES && used > BESIDES + bytes(&path).saturating_mul(PER_BYTE)
        };
        self.connection
            .progress_handler(LOOK_EVERY, Some(is_too_much))
    }

    /// Starts a pass over all rows of `tables`, which contain `what`.
    pub fn pass(&self, what: &'static str, tables: &[&str]) -> Pass<'_> {
        let counts = tables.iter().map(|table| self.count(table));
        Pass::begin(&*self.progress, what, counts.fold(0, u64::saturating_add))
    }

    /// Approximate number of rows, found without reading them; 0 if the table does not exist.
    fn count(&self, table: &str) -> u64 {
        if !self.has_table(table) {
            return 0;
        }
        // No row is deleted from recordings and exports.
        let sql = format!(
            "SELECT (SELECT max(rowid) FROM \"{table}\") - (SELECT min(rowid) FROM \"{table}\") + 1"
        );
        let count = self
            .connection
            .query_one(&sql, [], |found| Ok(row::integer(found, 0)));
        let count = count.ok().flatten().unwrap_or(0);
        u64::try_from(count).unwrap_or(0)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the table exists. Absent and empty tables have the same meaning.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether a table exists and has a row.
    pub fn has_rows(&self, table: &str) -> Result<bool> {
        let mut has_some = false;
        self.each(table, "rowid", "LIMIT 1", |_| has_some = true)?;
        Ok(has_some)
    }

    /// The smallest (`ASC`) or largest (`DESC`) number in a column; `None` if there is none.
    pub fn limit(&self, table: &str, column: &str, order: &str) -> Result<Option<i64>> {
        let mut found = None;
        if self.has_column(table, column) {
            let rest =
                format!("WHERE \"{column}\" IS NOT NULL ORDER BY \"{column}\" {order} LIMIT 1");
            self.each(table, column, &rest, |values| {
                found = row::integer(values, 0);
            })?;
        }
        Ok(found)
    }

    /// Which rows of the table of calls to read: a call that a probe and CUPTI saw has a row of
    /// each, of which CUPTI's is read.
    pub fn each_call_once(&self) -> &'static str {
        match self.has_column("GPUPROBE_SAME_CALLS", "correlationId") {
            true => EACH_CALL_ONCE,
            false => "",
        }
    }

    /// Whether the column exists.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables
            .get(table)
            .is_some_and(|columns| columns.contains(column))
    }

    /// Whether the file was written by gpuprobe.
    pub fn is_ours(&self) -> bool {
        self.has_table("GPUPROBE_META")
    }

    /// Prepares `SELECT columns FROM table` followed by `rest`; `, ` separates columns. A column that does not exist is
    /// NULL in every row. `None` if the table does not exist.
    pub fn select(&self, table: &str, columns: &str, rest: &str) -> Result<Option<Statement<'_>>> {
        // `rest` may name them, too.
        let named = |column| format!("{} AS \"{column}\"", self.columns(table, column));
        let columns: Vec<_> = columns.split(", ").map(named).collect();
        self.select_sql(table, &columns.join(", "), rest)
    }

    /// The same of columns in SQL.
    pub(super) fn select_sql(
        &self,
        table: &str,
        columns: &str,
        rest: &str,
    ) -> Result<Option<Statement<'_>>> {
        if !self.has_table(table) {
            return Ok(None);
        }
        self.prepare(&format!("SELECT {columns} FROM \"{table}\" {rest}"))
            .map(Some)
    }

    /// These columns in SQL; one that does not exist is NULL.
    pub fn columns(&self, table: &str, columns: &str) -> String {
        let column = |column| match self.has_column(table, column) {
            true => format!("\"{column}\""),
            false => "NULL".to_owned(),
        };
        let columns: Vec<_> = columns.split(", ").map(column).collect();
        columns.join(", ")
    }

    /// Prepares any other query.
    ///
    /// # Errors
    /// Returns an error if the query is invalid or the file cannot be read.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        self.connection.prepare(sql).map_err(|e| self.explain(e))
    }

    /// Calls `take` with every row of [`Self::select`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or the error of `take`.
    pub fn each(
        &self,
        table: &str,
        columns: &str,
        rest: &str,
        mut take: impl FnMut(&rusqlite::Row<'_>),
    ) -> Result<()> {
        let Some(mut statement) = self.select(table, columns, rest)? else {
            return Ok(());
        };
        let mut rows = statement.query([]).map_err(|e| self.explain(e))?;
        let reads_all = matches!(rest, "" | "ORDER BY rowid" | EACH_CALL_ONCE);
        let pass = reads_all.then(|| self.pass("rows", &[table]));
        while let Some(found) = rows.next().map_err(|e| self.explain(e))? {
            take(found);
            pass.iter().for_each(Pass::step);
        }
        Ok(())
    }

    /// Checks that `read` bytes, all of one column, fit into the file.
    ///
    /// # Errors
    /// Returns an error if they do not, which means that the same data was read repeatedly.
    pub fn check_has(&self, read: u64) -> Result<()> {
        if read > bytes(&self.path) {
            bail!(has_too_many_rows(&self.path));
        }
        Ok(())
    }

    /// Adds the file and a remedy to an SQLite error.
    pub fn explain(&self, error: rusqlite::Error) -> Error {
        explain(&self.path, error)
    }
}

/// Whether a table name is typical for recordings or exports.
fn is_trace_table(table: &str) -> bool {
    const BEGINS: [&str; 9] = [
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "CUPTI_ACTIVITY_KIND_",
        "EXPORT_META_DATA",
        "GPUPROBE_",
        "META_DATA_",
        "NVTX_EVENTS",
        "PROFILER_OVERHEAD",
        "StringIds",
        "TARGET_INFO_",
    ];
    BEGINS.iter().any(|begin| table.starts_with(begin))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
