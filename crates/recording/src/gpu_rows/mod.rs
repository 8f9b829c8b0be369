//! Rows of GPU activity in recordings and exports of any version, converted to the records that
//! CUPTI delivers live, so that the engine processes both alike.

mod called;
mod nvtx;
mod tables;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_wire as wire;
use rusqlite::Row;

use super::row::integer;
use super::{Database, Resolver, ids};
use called::{CallEffect, CallsByCorrelation};
use gpuprobe_cuda::nsys::{OVERHEADS, class, domain};
use tables::{CALLS, COMMON, CORRELATION, CommonColumns, OWN, WAITS, id, small};
pub use tables::{COPIES, GRAPHS, KERNELS, SETS, WorkTable};

/// Number of records passed on at once.
const BATCH: usize = 4096;

/// Filter of the rows that are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowFilter {
    /// Only rows of this process.
    pub pid: Option<u32>,
    /// Only rows of this device, and rows without a device.
    pub device: Option<i64>,
}

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
    let names = SharedStrings {
        resolver: Resolver::new(database)?,
        known: RefCell::default(),
    };
    let mut batches = BatchesByProcess {
        open: HashMap::new(),
        take: &mut take,
    };
    let called = CallsByCorrelation::read(database, &names)?;
    work(database, filter, (&names, &called), &mut batches)?;
    calls(database, filter, &names, &mut batches)?;
    waits(database, filter, &called, &mut batches)?;
    overheads(database, filter, &names, &mut batches)?;
    nvtx::nvtx(database, filter, &names, &mut batches)?;
    batches.finish();
    Ok(())
}

/// Cache of strings that many rows share.
struct SharedStrings<'a> {
    resolver: Resolver<'a>,
    known: RefCell<HashMap<i64, Arc<str>>>,
}

impl SharedStrings<'_> {
    fn of(&self, id: i64) -> Arc<str> {
        let mut known = self.known.borrow_mut();
        let name = known
            .entry(id)
            .or_insert_with(|| Arc::from(&*self.resolver.string(id)));
        Arc::clone(name)
    }
}

/// Records collected by process.
struct BatchesByProcess<'a> {
    open: HashMap<u32, ActivityBatch>,
    take: &'a mut dyn FnMut(&ActivityBatch),
}

impl BatchesByProcess<'_> {
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

    fn finish(self) {
        self.open.values().for_each(self.take);
    }
}

fn work(
    database: &Database,
    filter: RowFilter,
    (names, called): (&SharedStrings<'_>, &CallsByCorrelation),
    batches: &mut BatchesByProcess<'_>,
) -> Result<()> {
    let most = WORK.iter().map(|table| table.columns.len()).max();
    let number = OWN + most.unwrap_or(0);
    let select = |(index, table): (usize, &WorkTable)| {
        let mut columns = [&COMMON[..], &["contextId", "streamId"], table.columns].concat();
        // NULL, as there is no such column.
        columns.resize(number, "");
        let columns = database.columns(table.name, &columns);
        let is_there = database.has_table(table.name);
        is_there.then(|| format!("SELECT {columns}, {index} FROM \"{}\"", table.name))
    };
    let all: Vec<_> = WORK.iter().enumerate().filter_map(select).collect();
    if all.is_empty() {
        return Ok(());
    }
    let sql = format!("{} ORDER BY 1, {}", all.join(" UNION ALL "), number + 1);
    let mut statement = database.prepare(&sql)?;
    let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
    let pass = database.pass("GPU work", &WORK.map(|table| table.name));
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        pass.step();
        let (process, device) = (integer(row, 2), integer(row, 3));
        let table = usize::try_from(integer(row, number).unwrap_or(-1)).ok();
        let table = table.and_then(|index| WORK.get(index));
        let Some((table, (start_ns, end_ns))) = table.zip(filter.times(row, process, device))
        else {
            continue;
        };
        let common = CommonColumns {
            start_ns,
            end_ns,
            device: device.map_or(0, |device| u32::try_from(device).unwrap_or(u32::MAX)),
            context: id(row, 4),
            stream: id(row, 5),
        };
        let pid = process.map_or(0, ids::pid);
        let mut record = (table.record)(row, &common);
        if let ActivityRecord::Memcpy(copy) = &mut record
            && let Some(CallEffect::Copied { is_async }) =
                called.effect(pid, integer(row, OWN + CORRELATION))
        {
            copy.flags = u8::from(is_async);
        }
        let is_kernel = matches!(record, ActivityRecord::Kernel(_));
        let name = integer(row, OWN).filter(|_| is_kernel);
        batches.push(pid, record, [name.map(|id| names.of(id)), None]);
    }
    Ok(())
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

/// Passes on driver and runtime calls, each once.
fn calls(
    database: &Database,
    filter: RowFilter,
    names: &SharedStrings<'_>,
    batches: &mut BatchesByProcess<'_>,
) -> Result<()> {
    let columns = [
        "start",
        "end",
        "globalTid",
        "eventClass",
        "nameId",
        "returnValue",
    ];
    database.each(CALLS, &columns, database.each_call_once(), |row| {
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
        let Some((start_ns, end_ns)) = filter.times(row, process, None) else {
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
        let pid = ids::pid(thread);
        batches.push(pid, ActivityRecord::Api(call), [Some(names.of(name)), None]);
    })
}

/// Passes on the synchronizations. Exports number the synchronization types differently by version,
/// so the column is used only for gpuprobe's recordings; otherwise the called function determines
/// the type.
fn waits(
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
        let process = integer(row, 2);
        let Some((start_ns, end_ns)) = filter.times(row, process, integer(row, 3)) else {
            return;
        };
        let pid = process.map_or(0, ids::pid);
        let wait = wire::Sync {
            start_ns,
            end_ns,
            sync_type: match called.effect(pid, integer(row, 5)) {
                _ if is_ours => small(row, 4),
                Some(CallEffect::Waited(kind)) => kind,
                _ => 0,
            },
            ..wire::Sync::default()
        };
        batches.push(pid, ActivityRecord::Sync(wait), [None, None]);
    })
}

/// Passes on the profiler's overheads.
fn overheads(
    database: &Database,
    filter: RowFilter,
    names: &SharedStrings<'_>,
    batches: &mut BatchesByProcess<'_>,
) -> Result<()> {
    let mut kinds: HashMap<i64, u32> = HashMap::new();
    let columns = ["start", "end", "globalTid", "nameId"];
    database.each("PROFILER_OVERHEAD", &columns, "", |row| {
        let thread = integer(row, 2);
        let process = thread.map(ids::process_of);
        let Some((start_ns, end_ns)) = filter.times(row, process, None) else {
            return;
        };
        let mut kind = |id| {
            *kinds
                .entry(id)
                .or_insert_with(|| overhead_kind(&names.of(id)))
        };
        let overhead = wire::Overhead {
            start_ns,
            end_ns,
            overhead_kind: integer(row, 3).map_or(0, &mut kind),
            ..wire::Overhead::default()
        };
        let pid = thread.map_or(0, ids::pid);
        batches.push(pid, ActivityRecord::Overhead(overhead), [None, None]);
    })
}

/// The overhead kind for a name in an export; 0 for names that CUPTI does not have.
fn overhead_kind(name: &str) -> u32 {
    let found = OVERHEADS.values.iter().find(|kind| kind.label == name);
    found.map_or(0, |kind| u32::try_from(kind.number).unwrap_or(0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;
