//! Rows about what the GPU did, in recordings and in exports of any version, as the same records
//! that CUPTI's become live: the engine adds both up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use gpuprobe_engine::activity::process::MODE_NOT_TOLD;
use gpuprobe_model::activity::{Activity, Batch, Record};
use gpuprobe_wire as wire;
use rusqlite::{Row, Rows};

use super::row::integer;
use super::{Database, Resolver, ids};
use gpuprobe_cuda::kinds;
use gpuprobe_cuda::nsys::{OVERHEADS, class, domain};

/// Records that are handed on at once.
const BATCH: usize = 4096;

/// What is read of each table: the first columns are the same in all of them.
const COMMON: [&str; 4] = ["start", "end", "globalPid", "deviceId"];

/// A table of what occupies a GPU: its further columns, and what a row of it is.
struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    record: fn(&Row<'_>, &Common) -> Record,
}

/// The columns that all of them have.
struct Common {
    start_ns: u64,
    end_ns: u64,
    device: u32,
    context: u32,
    stream: u32,
}

const WORK: [Table; 4] = [
    Table {
        name: "CUPTI_ACTIVITY_KIND_KERNEL",
        columns: &[
            "demangledName",
            "gridX",
            "gridY",
            "gridZ",
            "blockX",
            "blockY",
            "blockZ",
            "registersPerThread",
            "staticSharedMemory",
            "dynamicSharedMemory",
        ],
        record: kernel,
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_MEMCPY",
        columns: &["bytes", "copyKind", "srcKind", "dstKind"],
        record: copy,
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_MEMSET",
        columns: &["bytes", "memKind"],
        record: set,
    },
    Table {
        name: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        columns: &[],
        record: graph,
    },
];

/// Where the columns of [`Table::columns`] begin.
const OWN: usize = COMMON.len() + 2;

fn number(row: &Row<'_>, index: usize) -> u64 {
    integer(row, index)
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

fn id(row: &Row<'_>, index: usize) -> u32 {
    integer(row, index)
        .and_then(|id| u32::try_from(id).ok())
        .unwrap_or(wire::UNKNOWN_ID)
}

fn small(row: &Row<'_>, index: usize) -> u32 {
    u32::try_from(number(row, index)).unwrap_or(u32::MAX)
}

fn memory_kind(row: &Row<'_>, index: usize) -> u8 {
    let kind = integer(row, index).and_then(|kind| u8::try_from(kind).ok());
    kinds::of_id(kind.unwrap_or(kinds::UNKNOWN)).cupti()
}

fn kernel(row: &Row<'_>, common: &Common) -> Record {
    Record::Kernel(wire::Kernel {
        start_ns: common.start_ns,
        end_ns: common.end_ns,
        device: common.device,
        context: common.context,
        stream: common.stream,
        grid: [1, 2, 3].map(|index| small(row, OWN + index)),
        block: [4, 5, 6].map(|index| small(row, OWN + index)),
        registers_per_thread: u16::try_from(number(row, OWN + 7)).unwrap_or(u16::MAX),
        static_shared_memory: small(row, OWN + 8),
        dynamic_shared_memory: small(row, OWN + 9),
        ..wire::Kernel::default()
    })
}

fn copy(row: &Row<'_>, common: &Common) -> Record {
    Record::Memcpy(wire::Memcpy {
        start_ns: common.start_ns,
        end_ns: common.end_ns,
        device: common.device,
        context: common.context,
        stream: common.stream,
        size_bytes: number(row, OWN),
        copy_kind: u8::try_from(number(row, OWN + 1)).unwrap_or(0),
        source_kind: memory_kind(row, OWN + 2),
        destination_kind: memory_kind(row, OWN + 3),
        flags: MODE_NOT_TOLD,
        ..wire::Memcpy::default()
    })
}

fn set(row: &Row<'_>, common: &Common) -> Record {
    Record::Memset(wire::Memset {
        start_ns: common.start_ns,
        end_ns: common.end_ns,
        device: common.device,
        context: common.context,
        stream: common.stream,
        size_bytes: number(row, OWN),
        memory_kind: memory_kind(row, OWN + 1).into(),
        ..wire::Memset::default()
    })
}

fn graph(_: &Row<'_>, common: &Common) -> Record {
    Record::GraphTrace(wire::GraphTrace {
        start_ns: common.start_ns,
        end_ns: common.end_ns,
        device: common.device,
        context: common.context,
        stream: common.stream,
        ..wire::GraphTrace::default()
    })
}

/// Which rows are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Of this process only.
    pub pid: Option<u32>,
    /// Of this device only, and those that are of none.
    pub device: Option<i64>,
}

impl Filter {
    /// Whether a row of this process (its global id) and device is read.
    pub fn includes(&self, process: Option<i64>, device: Option<i64>) -> bool {
        self.pid
            .is_none_or(|pid| process.is_some_and(|process| ids::pid(process) == pid))
            && self
                .device
                .is_none_or(|wanted| device.is_none_or(|device| device == wanted))
    }
}

/// Hands the rows of `database` that `filter` includes to `take`, those of kernels, copies, sets and
/// graphs in the order of their beginnings.
///
/// # Errors
/// Returns what reading the file fails with.
pub fn each(database: &Database, filter: Filter, mut take: impl FnMut(&Batch)) -> Result<()> {
    let names = Names {
        resolver: Resolver::new(database)?,
        known: RefCell::default(),
    };
    let mut batches = Batches {
        open: HashMap::new(),
        take: &mut take,
    };
    work(database, filter, &names, &mut batches)?;
    calls(database, filter, &names, &mut batches)?;
    waits(database, filter, &mut batches)?;
    overheads(database, filter, &names, &mut batches)?;
    batches.finish();
    Ok(())
}

/// Strings that many rows share.
struct Names<'a> {
    resolver: Resolver<'a>,
    known: RefCell<HashMap<i64, Arc<str>>>,
}

impl Names<'_> {
    fn of(&self, id: i64) -> Arc<str> {
        let mut known = self.known.borrow_mut();
        let name = known
            .entry(id)
            .or_insert_with(|| Arc::from(&*self.resolver.string(id)));
        Arc::clone(name)
    }
}

/// Records by process.
struct Batches<'a> {
    open: HashMap<u32, Batch>,
    take: &'a mut dyn FnMut(&Batch),
}

impl Batches<'_> {
    fn push(&mut self, pid: u32, record: Record, name: Option<Arc<str>>) {
        let batch = self.open.entry(pid).or_insert_with(|| Batch {
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
            qualifier: None,
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

/// A row of one of [`WORK`].
struct Piece {
    start: i64,
    pid: u32,
    record: Record,
    name: Option<i64>,
}

fn work(
    database: &Database,
    filter: Filter,
    names: &Names<'_>,
    batches: &mut Batches<'_>,
) -> Result<()> {
    let mut statements = Vec::new();
    for table in &WORK {
        let columns = COMMON.iter().chain(&["contextId", "streamId"]);
        let columns: Vec<_> = columns.chain(table.columns).copied().collect();
        let found = database.select(table.name, &columns, "ORDER BY start")?;
        statements.extend(found.map(|statement| (table, statement)));
    }
    let mut sources = Vec::new();
    for (table, statement) in &mut statements {
        let rows = statement.query([]).map_err(|e| database.explain(e))?;
        sources.push((*table, rows));
    }
    // Each is in order: the earliest of their next rows is the next of all.
    let mut next = Vec::new();
    for (table, rows) in &mut sources {
        next.push(piece(database, filter, table, rows)?);
    }
    let earliest = |next: &[Option<Piece>]| {
        let there = next.iter().enumerate();
        let starts = there.filter_map(|(index, piece)| Some((piece.as_ref()?.start, index)));
        starts.min().map(|(_, index)| index)
    };
    while let Some(index) = earliest(&next) {
        let (table, rows) = &mut sources[index];
        let following = piece(database, filter, table, rows)?;
        if let Some(piece) = std::mem::replace(&mut next[index], following) {
            batches.push(piece.pid, piece.record, piece.name.map(|id| names.of(id)));
        }
    }
    Ok(())
}

/// The next row that is read and makes sense.
fn piece(
    database: &Database,
    filter: Filter,
    table: &Table,
    rows: &mut Rows<'_>,
) -> Result<Option<Piece>> {
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        let (process, device) = (integer(row, 2), integer(row, 3));
        let Some((start, end)) = integer(row, 0).zip(integer(row, 1)) else {
            continue;
        };
        if !filter.includes(process, device) {
            continue;
        }
        let (start_ns, end_ns) = times(start, end);
        let common = Common {
            start_ns,
            end_ns,
            device: device.map_or(0, |device| u32::try_from(device).unwrap_or(u32::MAX)),
            context: id(row, 4),
            stream: id(row, 5),
        };
        let record = (table.record)(row, &common);
        let is_kernel = matches!(record, Record::Kernel(_));
        return Ok(Some(Piece {
            start,
            pid: process.map_or(0, ids::pid),
            record,
            name: integer(row, OWN).filter(|_| is_kernel),
        }));
    }
    Ok(None)
}

/// Times of the session, which some exports begin before 0; what ends before it begins lasts
/// nothing.
fn times(start: i64, end: i64) -> (u64, u64) {
    let ns = |time: i64| time.saturating_add(1 << 60).max(0).cast_unsigned();
    (ns(start), ns(end.max(start)))
}

/// Calls of the driver and the runtime. A second row of a call, which has its call stack, is none.
fn calls(
    database: &Database,
    filter: Filter,
    names: &Names<'_>,
    batches: &mut Batches<'_>,
) -> Result<()> {
    let columns = [
        "start",
        "end",
        "globalTid",
        "eventClass",
        "nameId",
        "returnValue",
    ];
    database.each("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, "", |row| {
        let Some((start, end)) = integer(row, 0).zip(integer(row, 1)) else {
            return;
        };
        let domain = match integer(row, 3) {
            Some(class::RUNTIME) => domain::RUNTIME,
            Some(class::DRIVER) => domain::DRIVER,
            _ => return,
        };
        let (Some(thread), Some(name)) = (integer(row, 2), integer(row, 4)) else {
            return;
        };
        if !filter.includes(Some(ids::process_of(thread)), None) {
            return;
        }
        let (start_ns, end_ns) = times(start, end);
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
        batches.push(pid, Record::Api(call), Some(names.of(name)));
    })
}

/// Waits for the GPU. Of which kind they are, exports number in their own way from version to
/// version: only recordings of ours are believed.
fn waits(database: &Database, filter: Filter, batches: &mut Batches<'_>) -> Result<()> {
    let columns = ["start", "end", "globalPid", "deviceId", "syncType"];
    let is_ours = database.is_ours();
    database.each("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &columns, "", |row| {
        let (process, device) = (integer(row, 2), integer(row, 3));
        let Some((start, end)) = integer(row, 0).zip(integer(row, 1)) else {
            return;
        };
        if !filter.includes(process, device) {
            return;
        }
        let (start_ns, end_ns) = times(start, end);
        let wait = wire::Sync {
            start_ns,
            end_ns,
            sync_type: if is_ours { small(row, 4) } else { 0 },
            ..wire::Sync::default()
        };
        batches.push(process.map_or(0, ids::pid), Record::Sync(wait), None);
    })
}

/// What tracing itself took.
fn overheads(
    database: &Database,
    filter: Filter,
    names: &Names<'_>,
    batches: &mut Batches<'_>,
) -> Result<()> {
    let mut kinds: HashMap<i64, u32> = HashMap::new();
    let columns = ["start", "end", "globalTid", "nameId"];
    database.each("PROFILER_OVERHEAD", &columns, "", |row| {
        let Some((start, end)) = integer(row, 0).zip(integer(row, 1)) else {
            return;
        };
        let thread = integer(row, 2);
        if !filter.includes(thread.map(ids::process_of), None) {
            return;
        }
        let (start_ns, end_ns) = times(start, end);
        let kind = integer(row, 3).map_or(0, |id| {
            *kinds
                .entry(id)
                .or_insert_with(|| overhead_kind(&names.of(id)))
        });
        let overhead = wire::Overhead {
            start_ns,
            end_ns,
            overhead_kind: kind,
            ..wire::Overhead::default()
        };
        let pid = thread.map_or(0, ids::pid);
        batches.push(pid, Record::Overhead(overhead), None);
    })
}

/// The number of a kind of overhead by its name in an export; 0 if CUPTI has none of this name.
fn overhead_kind(name: &str) -> u32 {
    let found = OVERHEADS.values.iter().find(|kind| kind.label == name);
    found.map_or(0, |kind| u32::try_from(kind.number).unwrap_or(0))
}
