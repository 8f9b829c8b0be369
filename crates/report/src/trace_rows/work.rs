//! GPU work on its streams, with arrows from the calls that launched it.

use anyhow::Result;
use rusqlite::Row;

use super::tracks::TrackOwner;
use super::{Arguments, Reader, Span};
use gpuprobe_cuda::nsys;
use gpuprobe_recording::gpu_rows::{COPIES, GRAPHS, KERNELS, SETS, WorkTable};
use gpuprobe_recording::memory_rows::CALLS;
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, Resolver, kinds};

/// Columns of every table. Before them is the number of the table; after them are start and thread
/// of the call, and the further columns.
const COMMON: [&str; 8] = [
    "rowid",
    "start",
    "end",
    "globalPid",
    "deviceId",
    "contextId",
    "streamId",
    "correlationId",
];
const FURTHER: usize = 1 + COMMON.len() + 2;
/// Number of the further columns, of any table.
const MOST: usize = KERNELS.columns.len();

/// Adds arguments of a row, and gives its name.
type Describe = fn(&Row<'_>, &Resolver<'_>, &mut Arguments) -> String;

/// The tables, their category, and how their rows are named.
pub(super) static TABLES: [(WorkTable, &str, Describe); 4] = [
    (KERNELS, "kernel", kernel),
    (COPIES, "copy", copy),
    (SETS, "set", set),
    (GRAPHS, "graph", graph),
];

/// Query for the rows of a table, each with the call that launched it.
fn query(number: usize, table: &WorkTable, database: &Database) -> String {
    let column = |of: &str, alias: &str, name: &str| match database.has_column(of, name) {
        true => format!("{alias}.\"{name}\""),
        false => "NULL".to_owned(),
    };
    let mine = |name: &&str| match *name {
        "rowid" => "w.rowid".to_owned(),
        name => column(table.name, "w", name),
    };
    let call = |name: &str| column(CALLS, "c", name);
    let (mut calls, mut join) = (["NULL".to_owned(), "NULL".to_owned()], String::new());
    if database.has_table(CALLS) {
        calls = [call("start"), call("globalTid")];
        let (ours, process) = (mine(&"correlationId"), mine(&"globalPid"));
        join = format!(
            "LEFT JOIN \"{CALLS}\" c ON {} = {ours} AND {ours} <> 0 AND {} IS NOT 67 \
             AND {} >= {} AND ({process} IS NULL OR {} >> 24 = {process} >> 24)",
            call("correlationId"),
            call("eventClass"),
            call("end"),
            call("start"),
            call("globalTid"),
        );
    }
    let own = COMMON.iter().map(mine).chain(calls);
    let further = table.columns.iter().map(mine);
    let further = further.chain(std::iter::repeat("NULL".to_owned()));
    let columns: Vec<_> = own.chain(further.take(MOST)).collect();
    let (columns, name) = (columns.join(", "), table.name);
    format!("SELECT {number}, {columns} FROM \"{name}\" w {join}")
}

impl Reader<'_, '_> {
    /// The GPU work, in the order of its times.
    pub(super) fn work(&mut self) -> Result<()> {
        let database = self.database;
        let names = TABLES.each_ref().map(|(table, ..)| table.name);
        let tables = TABLES.iter().enumerate();
        let queries: Vec<_> = tables
            .filter(|(_, (table, ..))| database.has_table(table.name))
            .map(|(number, (table, ..))| query(number, table, database))
            .collect();
        if queries.is_empty() {
            return Ok(());
        }
        let sql = queries.join(" UNION ALL ") + " ORDER BY 3, 1, 2";
        let rows = database.prepare(&sql)?;
        let mut last = None;
        self.each(Some(rows), ("GPU work", &names), |reader, row| {
            let number = |index| integer(row, index);
            let (_, category, describe) = TABLES.get(usize::try_from(number(0)?).ok()?)?;
            // Several calls may have its correlation id; it is still one piece of work.
            let id = number(0).zip(number(1));
            if id.is_some() && std::mem::replace(&mut last, id) == id {
                return None;
            }
            let (start, end) = (number(2)?, number(3)?);
            let mut args = Arguments::new();
            let name = describe(row, &reader.resolver, &mut args);
            if let Some(correlation) = number(8).filter(|&number| number != 0) {
                args.insert("correlation".to_owned(), correlation.into());
            }
            let [process, device, context, stream] =
                [4, 5, 6, 7].map(|index| number(index).unwrap_or(0));
            let owner = TrackOwner::Stream(process, device, context, stream);
            Some(Span {
                end: Some(end),
                args,
                call: number(10).zip(number(9)),
                ..Span::new(owner, name.into(), category, start)
            })
        })
    }
}

fn further(row: &Row<'_>, index: usize) -> Option<i64> {
    integer(row, FURTHER + index)
}

fn insert(args: &mut Arguments, name: &str, value: Option<i64>) {
    if let Some(value) = value {
        args.insert(name.to_owned(), value.into());
    }
}

fn kernel(row: &Row<'_>, resolver: &Resolver<'_>, args: &mut Arguments) -> String {
    for (name, first) in [("grid", 1), ("block", 4)] {
        let sizes = [0, 1, 2].map(|index| further(row, first + index).unwrap_or(1).to_string());
        args.insert(name.to_owned(), sizes.join(" x ").into());
    }
    let names = [
        "registers per thread",
        "static shared memory",
        "dynamic shared memory",
        "graph node",
    ];
    for (name, index) in names.iter().zip(7..) {
        insert(args, name, further(row, index));
    }
    match further(row, 0) {
        Some(name) => resolver.string(name).to_string(),
        None => "?".to_owned(),
    }
}

/// Adds bytes, and bytes per second.
fn bytes(row: &Row<'_>, args: &mut Arguments) {
    let Some(bytes) = further(row, 0) else { return };
    insert(args, "bytes", Some(bytes));
    let ns = integer(row, 3).zip(integer(row, 2));
    let ns = ns.and_then(|(end, start)| end.checked_sub(start));
    if let Some(ns) = ns.filter(|&ns| ns > 0) {
        let speed = (bytes as f64 / ns as f64 * 1000.0).round() / 1000.0;
        args.insert("GB/s".to_owned(), speed.into());
    }
}

/// Adds the name of the memory kind in this column, if there is one.
fn kind(row: &Row<'_>, args: &mut Arguments, name: &str, index: usize) {
    if let Some(kind) = further(row, index).and_then(|kind| u8::try_from(kind).ok()) {
        let kind = kinds::of_id(kind).kind.name();
        args.insert(name.to_owned(), kind.into());
    }
}

fn copy(row: &Row<'_>, _: &Resolver<'_>, args: &mut Arguments) -> String {
    bytes(row, args);
    kind(row, args, "from", 2);
    kind(row, args, "to", 3);
    let kind = further(row, 1).and_then(|kind| u8::try_from(kind).ok());
    format!("copy {}", nsys::direction(kind.unwrap_or(0)).name())
}

fn set(row: &Row<'_>, _: &Resolver<'_>, args: &mut Arguments) -> String {
    bytes(row, args);
    kind(row, args, "memory", 1);
    args.insert("value".to_owned(), further(row, 2).into());
    "set".to_owned()
}

fn graph(row: &Row<'_>, _: &Resolver<'_>, args: &mut Arguments) -> String {
    args.insert("graph".to_owned(), further(row, 0).into());
    let executable = further(row, 1).or_else(|| further(row, 0));
    args.insert("executable graph".to_owned(), executable.into());
    format!("graph {}", executable.unwrap_or(0))
}
