//! Failed allocations (incidents).

use rusqlite::types::Null;
use rusqlite::{Result, params};

use super::schema;
use super::tables::{Tables, signed};
use crate::ids::global_pid;
use gpuprobe_engine::IncidentRow;
use gpuprobe_model::GpuUse;
use gpuprobe_model::event::OutOfMemory;

/// What is updated with later information.
const UPDATED: &str = "ON CONFLICT (id) DO UPDATE SET device = excluded.device, attempts = excluded.attempts, \
     repeats = excluded.repeats, outcome = excluded.outcome, settled = excluded.settled, \
     liveBytes = excluded.liveBytes, torchRequested = excluded.torchRequested, \
     torchAllocated = excluded.torchAllocated, torchReserved = excluded.torchReserved, \
     chain = coalesce(chain, excluded.chain)";

/// Inserts or updates the row of an incident with the call stack `chain`.
pub(super) fn write(tables: &mut Tables<'_>, row: &IncidentRow, chain: Option<i64>) -> Result<()> {
    let [attempts, repeats] = row.calls;
    let told = |of: fn(&OutOfMemory) -> u64| row.given_up.as_ref().map(|one| signed(of(one)));
    let api = gpuprobe_cuda::function(row.asked.row).map_or("", |function| function.name());
    let (outcome, settled_ns) = row.outcome;
    let values = params![
        signed(row.id),
        tables.time(row.time_ns),
        tables.thread(row.pid, row.tid)?,
        api,
        row.asked.result,
        row.asked.kind.name(),
        row.asked.bytes.map(signed),
        row.asked.device,
        signed(attempts),
        signed(repeats),
        outcome.name(),
        settled_ns.map(|ns| tables.time(ns)),
        signed(row.live_bytes),
        told(|one| one.bytes),
        told(|one| one.allocated_bytes),
        told(|one| one.reserved_bytes),
        Null,
        Null,
        Null,
        chain
    ];
    let insert = schema::insert("GPUPROBE_INCIDENTS");
    tables.execute(&format!("{insert} {UPDATED}"), values)
}

/// Adds the GPU use to an incident.
pub(super) fn write_gpu(tables: &mut Tables<'_>, id: u64, used: &GpuUse) -> Result<()> {
    let id = signed(id);
    if let Some(gpu) = &used.gpu {
        let sql =
            "UPDATE GPUPROBE_INCIDENTS SET gpu = ?2, gpuTotal = ?3, gpuUsed = ?4 WHERE id = ?1";
        let (total, used) = (gpu.total_bytes.map(signed), gpu.used_bytes.map(signed));
        tables.execute(sql, params![id, gpu.index, total, used])?;
    }
    for holder in &used.holders {
        let name = holder.who.as_ref().map(|who| who.comm.as_str());
        let row = params![id, global_pid(holder.pid), signed(holder.bytes), name];
        tables.insert("GPUPROBE_INCIDENT_HOLDERS", row)?;
    }
    Ok(())
}
