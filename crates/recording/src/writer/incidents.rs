//! Failed allocations (incidents).

use rusqlite::{Connection, params};

use super::common::signed;
use crate::ids::global_pid;
use gpuprobe_engine::IncidentRow;
use gpuprobe_model::GpuUse;

/// One row per incident, updated with later information.
const UPSERT: &str = "INSERT INTO GPUPROBE_INCIDENTS (id, t0, globalTid, api, returnValue, kind, \
     requested, device, attempts, repeats, outcome, settled, liveBytes, torchRequested, \
     torchAllocated, torchReserved, chain) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) \
     ON CONFLICT (id) DO UPDATE SET device = excluded.device, attempts = excluded.attempts, \
     repeats = excluded.repeats, outcome = excluded.outcome, settled = excluded.settled, \
     liveBytes = excluded.liveBytes, torchRequested = excluded.torchRequested, \
     torchAllocated = excluded.torchAllocated, torchReserved = excluded.torchReserved, \
     chain = coalesce(chain, excluded.chain)";

/// Columns of an incident that the recording determines.
pub(super) struct IncidentPlace {
    /// Session time of the event, nanoseconds.
    pub(super) time: i64,
    /// Session time at which it was settled.
    pub(super) settled: Option<i64>,
    /// Global thread id.
    pub(super) thread: i64,
    /// Chain id of the call stack.
    pub(super) chain: Option<i64>,
}

/// Inserts or updates the row of an incident.
pub(super) fn write(
    connection: &Connection,
    row: &IncidentRow,
    place: &IncidentPlace,
) -> rusqlite::Result<()> {
    let [attempts, repeats] = row.calls;
    let told = |index: usize| row.given_up.map(|sums| signed(sums[index]));
    let api = gpuprobe_cuda::function(row.row).map_or("", |function| function.name());
    let (outcome, _) = row.outcome;
    let mut upsert = connection.prepare_cached(UPSERT)?;
    upsert.execute(params![
        signed(row.id),
        place.time,
        place.thread,
        api,
        row.result,
        row.kind.name(),
        row.bytes.map(signed),
        row.device,
        signed(attempts),
        signed(repeats),
        outcome.name(),
        place.settled,
        signed(row.live_bytes),
        told(0),
        told(1),
        told(2),
        place.chain
    ])?;
    Ok(())
}

/// Adds the GPU use to an incident.
pub(super) fn write_gpu(connection: &Connection, id: u64, used: &GpuUse) -> rusqlite::Result<()> {
    let id = signed(id);
    if let Some(gpu) = &used.gpu {
        let sql =
            "UPDATE GPUPROBE_INCIDENTS SET gpu = ?2, gpuTotal = ?3, gpuUsed = ?4 WHERE id = ?1";
        let (total, used) = (gpu.total_bytes.map(signed), gpu.used_bytes.map(signed));
        let mut update = connection.prepare_cached(sql)?;
        update.execute(params![id, gpu.index, total, used])?;
    }
    for holder in &used.holders {
        let sql = "INSERT INTO GPUPROBE_INCIDENT_HOLDERS VALUES (?, ?, ?, ?)";
        let name = holder.who.as_ref().map(|who| who.comm.as_str());
        let mut insert = connection.prepare_cached(sql)?;
        insert.execute(params![
            id,
            global_pid(holder.pid),
            signed(holder.bytes),
            name
        ])?;
    }
    Ok(())
}
