//! Values that all rows have in common: times, numbers, strings and threads.

use rusqlite::{Connection, Params};

use super::tables::Tables;
use super::tasks::Tasks;

/// State shared by the writers of rows.
pub(super) struct RowContext<'c> {
    base_ns: u64,
    pub(super) tables: Tables<'c>,
    pub(super) tasks: Tasks,
    /// Last `correlationId` that was assigned to a call of a probe.
    pub(super) correlation: i64,
    /// Latest time of any row, session time in nanoseconds.
    pub(super) last_ns: i64,
}

impl<'c> RowContext<'c> {
    /// Session times count from `base_ns` of `CLOCK_MONOTONIC`.
    pub(super) fn new(connection: &'c Connection, base_ns: u64) -> Self {
        Self {
            base_ns,
            tables: Tables::new(connection),
            tasks: Tasks::default(),
            correlation: 0,
            last_ns: 0,
        }
    }

    /// Inserts a row with values for all columns.
    pub(super) fn insert(
        &mut self,
        table: &'static str,
        values: impl Params,
    ) -> rusqlite::Result<()> {
        self.tables.insert(table, values)
    }

    /// The id of `text` in the table of strings.
    pub(super) fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        self.tables.string(text)
    }

    /// Converts `CLOCK_MONOTONIC` nanoseconds to session time.
    pub(super) fn time(&mut self, monotonic_ns: u64) -> i64 {
        let time = signed(monotonic_ns).saturating_sub(signed(self.base_ns));
        self.last_ns = self.last_ns.max(time);
        time
    }

    /// The global id of a thread, which is given a row.
    pub(super) fn thread(&mut self, pid: u32, tid: u32) -> rusqlite::Result<i64> {
        self.tasks.caller(pid, tid, &mut self.tables)
    }
}

/// Numbers of more than 63 bits are negative, as in exports.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}
