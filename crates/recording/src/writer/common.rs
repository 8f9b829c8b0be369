//! What all rows have in common: times, numbers, strings and threads.

use rusqlite::Connection;

use super::insert::Strings;
use super::tasks::Tasks;

/// What the writers of rows share.
pub(super) struct Common<'c> {
    base_ns: u64,
    pub(super) strings: Strings<'c>,
    pub(super) tasks: Tasks<'c>,
    /// The last `correlationId` that was given out.
    pub(super) correlation: i64,
    /// The latest time of anything, nanoseconds of the session.
    pub(super) last_ns: i64,
}

impl<'c> Common<'c> {
    /// Times are from `base_ns` of `CLOCK_MONOTONIC` on.
    pub(super) fn new(connection: &'c Connection, base_ns: u64) -> Self {
        Self {
            base_ns,
            strings: Strings::new(connection),
            tasks: Tasks::new(connection),
            correlation: 0,
            last_ns: 0,
        }
    }

    /// A time of the session.
    pub(super) fn time(&mut self, monotonic_ns: u64) -> i64 {
        let time = signed(monotonic_ns).saturating_sub(signed(self.base_ns));
        self.last_ns = self.last_ns.max(time);
        time
    }

    /// The next `correlationId`: one sequence for the whole recording.
    pub(super) fn number(&mut self) -> i64 {
        self.correlation += 1;
        self.correlation
    }

    /// The global id of a thread that has a row.
    pub(super) fn thread(&mut self, pid: u32, tid: u32) -> rusqlite::Result<i64> {
        self.tasks.caller(pid, tid, &mut self.strings)
    }
}

/// Numbers of more than 63 bits are negative in exports too.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}
