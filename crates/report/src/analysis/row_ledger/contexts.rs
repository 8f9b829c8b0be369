//! Contexts of a file, applied to the engine's ledger.

use std::collections::HashMap;

use anyhow::Result;

use super::{RowLedger, unsigned};
use crate::analysis::Filter;
use gpuprobe_recording::{ContextChange, Database, context_rows};

/// Creations and destructions of contexts by process, in the order of their times, and the number
/// of those that were applied.
#[derive(Default)]
pub(super) struct ContextChanges(HashMap<u32, (Vec<ContextChange>, usize)>);

impl ContextChanges {
    /// Reads the contexts of the selected process and device; contexts of an unknown device are
    /// included.
    pub(super) fn read(database: &Database, filter: &Filter) -> Result<Self> {
        let is_of_device = |row: &ContextChange| {
            let devices = filter.device.zip(row.device);
            devices.is_none_or(|(selected, device)| selected == device)
        };
        let mut all = context_rows::by_process(database)?;
        all.retain(|pid, rows| {
            rows.retain(is_of_device);
            filter.pid.is_none_or(|selected| selected == *pid) && !rows.is_empty()
        });
        let all = all.into_iter().map(|(pid, rows)| (pid, (rows, 0)));
        Ok(Self(all.collect()))
    }

    /// Starts again with the first change of each process.
    pub(super) fn restart(&mut self) {
        self.0.values_mut().for_each(|(_, applied)| *applied = 0);
    }

    /// Removes the next change of a process until `until_ns`, if there is one.
    fn next(&mut self, pid: u32, until_ns: i64) -> Option<ContextChange> {
        let (rows, applied) = self.0.get_mut(&pid)?;
        let row = rows.get(*applied).filter(|row| row.time_ns <= until_ns)?;
        *applied += 1;
        Some(*row)
    }
}

impl RowLedger<'_> {
    /// Applies the selected context changes of a process until `until_ns` of the session, before
    /// the process ends. Nothing else depends on their order with other processes or with memory:
    /// the memory that goes with a context has rows of its own.
    pub(super) fn apply_contexts(&mut self, pid: u32, until_ns: i64) {
        while let Some(row) = self.contexts.next(pid, until_ns) {
            if self.is_beyond(row.time_ns) {
                continue;
            }
            let time_ns = unsigned(row.time_ns);
            match row.creates {
                true => self.ledger.create_context(pid, row.number, time_ns),
                false => self.ledger.destroy_context(pid, row.number, time_ns),
            }
        }
    }

    /// Applies the context changes of processes that have not ended.
    pub(super) fn apply_remaining_contexts(&mut self) {
        let pids: Vec<_> = self.contexts.0.keys().copied().collect();
        for pid in pids {
            self.apply_contexts(pid, i64::MAX);
        }
    }
}
