//! Synchronizations (waits for the GPU).

use anyhow::Result;
use gpuprobe_model::activity::ActivityRecord;
use gpuprobe_wire as wire;

use super::called::CallsByCorrelation;
use super::tables::small;
use super::{BatchesByProcess, RowFilter, times};
use crate::row::integer;
use crate::{Database, ids};

/// Table of synchronizations.
pub(super) const WAITS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";

/// Passes on the synchronizations. Exports number the synchronization types differently by version,
/// so the column is used only for gpuprobe's recordings; otherwise the called function determines
/// the type.
pub(super) fn waits(
    database: &Database,
    filter: RowFilter,
    called: &CallsByCorrelation,
    batches: &mut BatchesByProcess<'_>,
) -> Result<()> {
    let is_ours = database.is_ours();
    let columns = [
        "start",
        "end",
        "globalPid",
        "deviceId",
        "syncType",
        "correlationId",
    ];
    database.each(WAITS, &columns, "", |row| {
        let (process, device) = (integer(row, 2), integer(row, 3));
        let Some((start, end)) = integer(row, 0).zip(integer(row, 1)) else {
            return;
        };
        if !filter.includes(process, device) {
            return;
        }
        let (start_ns, end_ns) = times(start, end);
        let pid = process.map_or(0, ids::pid);
        let wait = wire::Sync {
            start_ns,
            end_ns,
            sync_type: if is_ours {
                small(row, 4)
            } else {
                called.wait(pid, integer(row, 5)).unwrap_or(0)
            },
            ..wire::Sync::default()
        };
        batches.push(pid, ActivityRecord::Sync(wait), None);
    })
}
