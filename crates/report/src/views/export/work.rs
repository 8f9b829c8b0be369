//! GPU work on its streams, with arrows from the calls that launched it.

use std::io::Write;

use anyhow::Result;
use rusqlite::{Row, Rows};

use super::events::{Arguments, ChromeEventWriter};
use super::tracks::{TrackOwner, Tracks};
use gpuprobe_cuda::nsys;
use gpuprobe_recording::memory_rows::CALLS;
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, Resolver, gpu_rows, kinds};

/// Columns of every table, and those of the call.
const COMMON: [&str; 7] = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "streamId",
    "globalPid",
    "correlationId",
];
/// Index of the row's own id, start and thread of the call; further columns follow.
const ROW: usize = COMMON.len();
const CALL: usize = ROW + 1;
const THREAD: usize = CALL + 1;
const FURTHER: usize = THREAD + 1;

/// A table, and how its rows are named.
struct ShownTable {
    table: gpu_rows::WorkTable,
    category: &'static str,
    describe: fn(&Row<'_>, &Resolver<'_>, &mut Arguments) -> String,
}

static TABLES: [ShownTable; 4] = [
    ShownTable {
        table: gpu_rows::KERNELS,
        category: "kernel",
        describe: kernel,
    },
    ShownTable {
        table: gpu_rows::COPIES,
        category: "copy",
        describe: copy,
    },
    ShownTable {
        table: gpu_rows::SETS,
        category: "set",
        describe: set,
    },
    ShownTable {
        table: gpu_rows::GRAPHS,
        category: "graph",
        describe: graph,
    },
];

/// A piece of GPU work.
struct WorkItem {
    start: i64,
    end: i64,
    of: TrackOwner,
    category: &'static str,
    name: String,
    args: Arguments,
    /// Thread and start of the call that launched it.
    call: Option<(i64, i64)>,
}

/// Reads the rows of a table one by one.
struct TableReader<'a> {
    shown: &'static ShownTable,
    rows: Rows<'a>,
    /// Id of the last row read.
    last: Option<i64>,
    next: Option<WorkItem>,
}

/// Writes the GPU work.
pub(super) fn work<W: Write>(
    database: &Database,
    resolver: &Resolver<'_>,
    tracks: &mut Tracks<'_>,
    events: &mut ChromeEventWriter<W>,
) -> Result<()> {
    let mut statements = Vec::new();
    for shown in &TABLES {
        if database.has_table(shown.table.name) {
            let query = query(&shown.table, database);
            statements.push((shown, database.prepare(&query)?));
        }
    }
    let pass = database.pass("GPU work", &TABLES.each_ref().map(|shown| shown.table.name));
    let mut readers = Vec::new();
    for (shown, statement) in &mut statements {
        let mut reader = TableReader {
            shown,
            rows: statement.query([]).map_err(|e| database.explain(e))?,
            last: None,
            next: None,
        };
        reader.read(database, resolver)?;
        readers.push(reader);
    }
    // Each table is sorted: the earliest of their next rows comes next.
    let start =
        |reader: &&mut TableReader<'_>| reader.next.as_ref().map_or(i64::MAX, |item| item.start);
    while let Some(reader) = readers.iter_mut().min_by_key(start)
        && let Some(item) = reader.next.take()
    {
        pass.step();
        let times = (item.start, item.end);
        let track = tracks.place(item.of, times);
        events.slice((&item.name, item.category), track, times, item.args)?;
        if let Some((thread, called)) = item.call {
            let from = tracks.of_call(thread, called);
            events.arrow((from, called), (track, item.start))?;
        }
        reader.read(database, resolver)?;
    }
    Ok(())
}

/// Query for the rows of a table in time order, each with the call that launched it.
fn query(table: &gpu_rows::WorkTable, database: &Database) -> String {
    let column = |of: &str, alias: &str, name: &str| match database.has_column(of, name) {
        true => format!("{alias}.\"{name}\""),
        false => "NULL".to_owned(),
    };
    let mine = |name: &&str| column(table.name, "w", name);
    let call = |name: &str| column(CALLS, "c", name);
    let mut columns: Vec<_> = COMMON.iter().map(mine).collect();
    columns.push("w.rowid".to_owned());
    let mut join = String::new();
    if database.has_table(CALLS) {
        columns.extend([call("start"), call("globalTid")]);
        let (ours, process) = (mine(&"correlationId"), mine(&"globalPid"));
        join = format!(
            "LEFT JOIN \"{CALLS}\" c ON {} = {ours} AND {ours} <> 0 AND {} <> 67 \
             AND {} >= {} AND ({process} IS NULL OR {} >> 24 = {process} >> 24)",
            call("correlationId"),
            call("eventClass"),
            call("end"),
            call("start"),
            call("globalTid"),
        );
    } else {
        columns.extend(["NULL".to_owned(), "NULL".to_owned()]);
    }
    columns.extend(table.columns.iter().map(mine));
    let (columns, name) = (columns.join(", "), table.name);
    format!("SELECT {columns} FROM \"{name}\" w {join} ORDER BY w.start, w.rowid")
}

impl TableReader<'_> {
    /// Reads up to the next valid row.
    fn read(&mut self, database: &Database, resolver: &Resolver<'_>) -> Result<()> {
        self.next = None;
        while let Some(row) = self.rows.next().map_err(|e| database.explain(e))? {
            let number = |index| integer(row, index);
            // Several calls may have its correlation id; it is still one piece of work.
            let id = number(ROW);
            if id.is_some() && std::mem::replace(&mut self.last, id) == id {
                continue;
            }
            let (Some(start), Some(end)) = (number(0), number(1)) else {
                continue;
            };
            if end < start {
                continue;
            }
            let or_zero = |index| number(index).unwrap_or(0);
            let mut args = Arguments::new();
            let name = (self.shown.describe)(row, resolver, &mut args);
            if let Some(correlation) = number(6).filter(|&number| number != 0) {
                args.insert("correlation".to_owned(), correlation.into());
            }
            self.next = Some(WorkItem {
                start,
                end,
                of: TrackOwner::Stream(or_zero(5), or_zero(2), or_zero(3), or_zero(4)),
                category: self.shown.category,
                name,
                args,
                call: number(THREAD).zip(number(CALL)),
            });
            break;
        }
        Ok(())
    }
}

fn further(row: &Row<'_>, index: usize) -> Option<i64> {
    integer(row, FURTHER + index)
}

fn sizes(row: &Row<'_>, first: usize) -> String {
    let size = |index| further(row, index).unwrap_or(1).to_string();
    [size(first), size(first + 1), size(first + 2)].join(" x ")
}

fn kernel(row: &Row<'_>, resolver: &Resolver<'_>, args: &mut Arguments) -> String {
    args.insert("grid".to_owned(), sizes(row, 1).into());
    args.insert("block".to_owned(), sizes(row, 4).into());
    let names = [
        "registers per thread",
        "static shared memory",
        "dynamic shared memory",
        "graph node",
    ];
    for (name, value) in names.iter().zip((7..).map(|index| further(row, index))) {
        if let Some(value) = value {
            args.insert((*name).to_owned(), value.into());
        }
    }
    match further(row, 0) {
        Some(name) => resolver.string(name).to_string(),
        None => "?".to_owned(),
    }
}

/// Adds bytes, and bytes per second.
fn bytes(row: &Row<'_>, args: &mut Arguments) {
    let Some(bytes) = further(row, 0) else { return };
    args.insert("bytes".to_owned(), bytes.into());
    let ns = integer(row, 1).zip(integer(row, 0));
    let ns = ns.and_then(|(end, start)| end.checked_sub(start));
    if let Some(ns) = ns.filter(|&ns| ns > 0) {
        let speed = bytes as f64 / ns as f64;
        args.insert(
            "GB/s".to_owned(),
            ((speed * 1000.0).round() / 1000.0).into(),
        );
    }
}

/// Name of the memory kind in this column, if there is one.
fn kind(row: &Row<'_>, index: usize) -> Option<&'static str> {
    let kind = further(row, index).and_then(|kind| u8::try_from(kind).ok())?;
    Some(kinds::of_id(kind).kind.name())
}

fn copy(row: &Row<'_>, _: &Resolver<'_>, args: &mut Arguments) -> String {
    bytes(row, args);
    for (name, index) in [("from", 2), ("to", 3)] {
        if let Some(kind) = kind(row, index) {
            args.insert(name.to_owned(), kind.into());
        }
    }
    let kind = further(row, 1).and_then(|kind| u8::try_from(kind).ok());
    format!("copy {}", nsys::direction(kind.unwrap_or(0)).name())
}

fn set(row: &Row<'_>, _: &Resolver<'_>, args: &mut Arguments) -> String {
    bytes(row, args);
    if let Some(kind) = kind(row, 1) {
        args.insert("memory".to_owned(), kind.into());
    }
    args.insert("value".to_owned(), further(row, 2).into());
    "set".to_owned()
}

fn graph(row: &Row<'_>, _: &Resolver<'_>, args: &mut Arguments) -> String {
    args.insert("graph".to_owned(), further(row, 0).into());
    let executable = further(row, 1).or_else(|| further(row, 0));
    args.insert("executable graph".to_owned(), executable.into());
    format!("graph {}", executable.unwrap_or(0))
}
