//! Rows of GPU activity in recordings and exports of any version, converted to the records that
//! CUPTI delivers live, so that the engine processes both alike.

mod called;
mod nvtx;

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use gpuprobe_engine::activity::process::MODE_NOT_TOLD;
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_wire as wire;
use rusqlite::Row;

use super::row::integer;
use super::{Database, Resolver, ids, kinds};
use crate::memory_rows::{CALLS, RowFilter};
use called::{CallEffect, Effects, effects};
use gpuprobe_cuda::nsys::{OVERHEADS, class, domain};
pub use nvtx::nvtx_domains;

/// Table of synchronizations.
const WAITS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";

/// A table of GPU work.
pub struct WorkTable {
    /// Name of the table.
    pub name: &'static str,
    /// Columns in addition to the common ones.
    pub columns: &'static str,
}

/// The table of kernel executions.
pub const KERNELS: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_KERNEL",
    columns: "demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread, \
              staticSharedMemory, dynamicSharedMemory, graphNodeId",
};

/// Copies on the GPU.
pub const COPIES: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_MEMCPY",
    columns: "bytes, copyKind, srcKind, dstKind, correlationId",
};

/// Memsets on the GPU.
pub const SETS: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_MEMSET",
    columns: "bytes, memKind, value",
};

/// Executions of whole graphs.
pub const GRAPHS: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    columns: "graphId, graphExecId",
};

/// Columns that all tables of GPU work have.
const COMMON: &str = "start, end, globalPid, deviceId, contextId, streamId";
/// Index of the first of [`WorkTable::columns`] behind them.
const OWN: usize = 6;

/// Number of records passed on at once.
const BATCH: usize = 4096;

impl RowFilter {
    /// The times in the first two columns of a row of this process (global id) and device, if it
    /// passes the filter.
    fn times(
        &self,
        row: &Row<'_>,
        process: Option<i64>,
        device: Option<i64>,
    ) -> Option<(u64, u64)> {
        let (start, end) = integer(row, 0).zip(integer(row, 1))?;
        self.includes(process, device).then(|| times(start, end))
    }

    /// Whether a row of this process (global id) and device passes the filter.
    pub fn includes(&self, process: Option<i64>, device: Option<i64>) -> bool {
        self.pid
            .is_none_or(|pid| process.is_some_and(|process| ids::pid(process) == pid))
            && self
                .device
                .is_none_or(|wanted| device.is_none_or(|device| device == wanted))
    }
}

/// Tables of GPU work; at equal start times, rows are passed on in this order.
const WORK: [WorkTable; 4] = [KERNELS, COPIES, SETS, GRAPHS];

/// Passes the rows of `database` that match `filter` to `take`; kernels, copies, memsets and graphs
/// in the order of their start times.
pub fn each(
    database: &Database,
    filter: RowFilter,
    mut take: impl FnMut(&ActivityBatch),
) -> Result<()> {
    let names = Resolver::new(database)?;
    let mut reader = Reader {
        database,
        filter,
        effects: effects(database, &names)?,
        names,
        open: HashMap::new(),
        take: &mut take,
    };
    reader.work()?;
    reader.calls()?;
    reader.waits()?;
    reader.overheads()?;
    reader.nvtx()?;
    reader.open.values().for_each(reader.take);
    Ok(())
}

struct Reader<'a> {
    database: &'a Database,
    filter: RowFilter,
    names: Resolver<'a>,
    effects: Effects,
    /// Records that are not passed on yet, by process.
    open: HashMap<u32, ActivityBatch>,
    take: &'a mut dyn FnMut(&ActivityBatch),
}

impl Reader<'_> {
    /// Adds a record with its name and what qualifies it.
    fn push(&mut self, pid: u32, record: ActivityRecord, [name, qualifier]: [Option<Arc<str>>; 2]) {
        let batch = self.open.entry(pid).or_insert_with(|| ActivityBatch {
            pid,
            process: pid,
            cupti_version: 0,
            is_last: true,
            activities: Vec::new(),
        });
        batch.activities.push(Activity {
            pid,
            record,
            name,
            qualifier,
        });
        if batch.activities.len() >= BATCH {
            (self.take)(batch);
            batch.activities.clear();
        }
    }

    fn work(&mut self) -> Result<()> {
        let database = self.database;
        // Behind the columns of the largest table, the index of the table.
        let last = OWN + KERNELS.columns.split(", ").count();
        let select = |(index, table): (usize, &WorkTable)| {
            let columns = format!("{COMMON}, {}", table.columns);
            let missing = last - columns.split(", ").count();
            let columns = database.columns(table.name, &columns) + &", NULL".repeat(missing);
            let is_there = database.has_table(table.name);
            is_there.then(|| format!("SELECT {columns}, {index} FROM \"{}\"", table.name))
        };
        let all: Vec<_> = WORK.iter().enumerate().filter_map(select).collect();
        if all.is_empty() {
            return Ok(());
        }
        let sql = format!("{} ORDER BY 1, {}", all.join(" UNION ALL "), last + 1);
        let mut statement = database.prepare(&sql)?;
        let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
        let pass = database.pass("GPU work", &WORK.map(|table| table.name));
        while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
            pass.step();
            let (process, device) = (integer(row, 2), integer(row, 3));
            let Some(times) = self.filter.times(row, process, device) else {
                continue;
            };
            let pid = process.map_or(0, ids::pid);
            let table = usize::try_from(integer(row, last).unwrap_or(0)).unwrap_or(0);
            let record = record(row, table, times, |call| {
                match self.effects.get(&(pid, call?))? {
                    CallEffect::Copied { is_async } => Some(*is_async),
                    CallEffect::Waited(_) => None,
                }
            });
            let is_kernel = matches!(record, ActivityRecord::Kernel(_));
            let name = integer(row, OWN).filter(|_| is_kernel);
            let name = name.map(|id| self.names.string(id));
            self.push(pid, record, [name, None]);
        }
        Ok(())
    }

    /// Passes on driver and runtime calls, each once.
    fn calls(&mut self) -> Result<()> {
        let columns = "start, end, globalTid, eventClass, nameId, returnValue";
        let database = self.database;
        database.each(CALLS, columns, database.each_call_once(), |row| {
            let domain = match integer(row, 3) {
                None | Some(class::RUNTIME) => domain::RUNTIME,
                Some(class::DRIVER) => domain::DRIVER,
                // The duplicate rows that contain the call stacks.
                _ => return,
            };
            let (Some(thread), Some(name)) = (integer(row, 2), integer(row, 4)) else {
                return;
            };
            let process = Some(ids::process_of(thread));
            let Some((start_ns, end_ns)) = self.filter.times(row, process, None) else {
                return;
            };
            let call = wire::Api {
                start_ns,
                end_ns,
                domain,
                cbid: u32::try_from(name).unwrap_or(u32::MAX),
                tid: ids::tid(thread),
                result: u32::from(integer(row, 5).is_some_and(|result| result != 0)),
                ..wire::Api::default()
            };
            let name = Some(self.names.string(name));
            self.push(ids::pid(thread), ActivityRecord::Api(call), [name, None]);
        })
    }

    /// Passes on the synchronizations. Exports number the synchronization types differently by version,
    /// so the column is used only for gpuprobe's recordings; otherwise the called function determines
    /// the type.
    fn waits(&mut self) -> Result<()> {
        let columns = "start, end, globalPid, deviceId, syncType, correlationId";
        let database = self.database;
        database.each(WAITS, columns, "", |row| {
            let process = integer(row, 2);
            let Some((start_ns, end_ns)) = self.filter.times(row, process, integer(row, 3)) else {
                return;
            };
            let pid = process.map_or(0, ids::pid);
            let effect = integer(row, 5).and_then(|id| self.effects.get(&(pid, id)));
            let wait = wire::Sync {
                start_ns,
                end_ns,
                sync_type: match effect {
                    _ if database.is_ours() => small(row, 4),
                    Some(CallEffect::Waited(kind)) => *kind,
                    _ => 0,
                },
                ..wire::Sync::default()
            };
            self.push(pid, ActivityRecord::Sync(wait), [None, None]);
        })
    }

    /// Passes on the profiler's overheads; those with names that CUPTI does not have are of kind 0.
    fn overheads(&mut self) -> Result<()> {
        let columns = "start, end, globalTid, nameId";
        self.database.each("PROFILER_OVERHEAD", columns, "", |row| {
            let thread = integer(row, 2);
            let process = thread.map(ids::process_of);
            let Some((start_ns, end_ns)) = self.filter.times(row, process, None) else {
                return;
            };
            let name = integer(row, 3).map(|id| self.names.string(id));
            let mut kinds = OVERHEADS.values.iter();
            let kind = kinds.find(|kind| Some(kind.label) == name.as_deref());
            let overhead = wire::Overhead {
                start_ns,
                end_ns,
                overhead_kind: kind.map_or(0, |kind| u32::try_from(kind.number).unwrap_or(0)),
                ..wire::Overhead::default()
            };
            let pid = thread.map_or(0, ids::pid);
            self.push(pid, ActivityRecord::Overhead(overhead), [None, None]);
        })
    }
}

/// The record of a row of the table that [`WORK`] has at `table`; `is_async` is that of the call of a copy.
fn record(
    row: &Row<'_>,
    table: usize,
    (start_ns, end_ns): (u64, u64),
    is_async: impl Fn(Option<i64>) -> Option<bool>,
) -> ActivityRecord {
    let own = |column| number(row, OWN + column);
    let small = |column| small(row, OWN + column);
    let memory_kind = |column| {
        let kind = integer(row, OWN + column).and_then(|kind| u8::try_from(kind).ok());
        kinds::of_id(kind.unwrap_or(kinds::UNKNOWN)).cupti()
    };
    let id = |column| {
        let id = integer(row, column).map(u32::try_from);
        id.and_then(Result::ok).unwrap_or(wire::UNKNOWN_ID)
    };
    let device = integer(row, 3).map_or(0, |device| u32::try_from(device).unwrap_or(u32::MAX));
    let (context, stream) = (id(4), id(5));
    // With what all records of work have.
    macro_rules! work {
        ($record:ident { $($own:tt)* }) => {
            ActivityRecord::$record(wire::$record {
                start_ns,
                end_ns,
                device,
                context,
                stream,
                $($own)*
                ..wire::$record::default()
            })
        };
    }
    match table {
        0 => work!(Kernel {
            grid: [1, 2, 3].map(small),
            block: [4, 5, 6].map(small),
            registers_per_thread: u16::try_from(own(7)).unwrap_or(u16::MAX),
            static_shared_memory: small(8),
            dynamic_shared_memory: small(9),
        }),
        1 => work!(Memcpy {
            size_bytes: own(0),
            copy_kind: u8::try_from(own(1)).unwrap_or(0),
            source_kind: memory_kind(2),
            destination_kind: memory_kind(3),
            flags: is_async(integer(row, OWN + 4)).map_or(MODE_NOT_TOLD, u8::from),
        }),
        2 => work!(Memset {
            size_bytes: own(0),
            memory_kind: memory_kind(1).into(),
        }),
        _ => work!(GraphTrace {}),
    }
}

fn number(row: &Row<'_>, column: usize) -> u64 {
    let number = integer(row, column).map(u64::try_from);
    number.and_then(Result::ok).unwrap_or(0)
}

fn small(row: &Row<'_>, column: usize) -> u32 {
    u32::try_from(number(row, column)).unwrap_or(u32::MAX)
}

/// Time 0 of the session in records; not 0, because some exports start before time 0.
pub const ZERO_NS: u64 = 1 << 60;

/// Converts a session time to the time in records.
pub fn record_ns(time: i64) -> u64 {
    time.saturating_add(ZERO_NS.cast_signed())
        .max(0)
        .cast_unsigned()
}

/// Converts session times; an end before the start becomes the start.
fn times(start: i64, end: i64) -> (u64, u64) {
    (record_ns(start), record_ns(end.max(start)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
