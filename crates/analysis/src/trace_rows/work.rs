//! GPU work on its streams, with arrows from the calls that launched it.

use anyhow::Result;
use rusqlite::Row;
use serde_json::Value;

use super::tracks::TrackOwner;
use super::{Arguments, Reader, Span};
use gpuprobe_cuda::nsys;
use gpuprobe_recording::gpu_rows::{COPIES, GRAPHS, KERNELS, SETS, WorkTable};
use gpuprobe_recording::memory_rows::CALLS;
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Resolver, kinds};

/// Columns of every table. Before them are the number of the table and the row; after them are the further columns, and
/// start and thread of the call.
const COMMON: &str = "start, end, globalPid, deviceId, contextId, streamId, correlationId";
const FURTHER: usize = 9;
/// Index after the further columns, of any table; kernels have the most.
const CALL: usize = FURTHER + 11;

type Table = (WorkTable, &'static str, &'static [(&'static str, usize)]);

/// The tables, their category, and the arguments that further columns are.
pub(super) static TABLES: [Table; 4] = [
    (
        KERNELS,
        "kernel",
        &[
            ("registers per thread", 7),
            ("static shared memory", 8),
            ("dynamic shared memory", 9),
            ("graph node", 10),
        ],
    ),
    (COPIES, "copy", &[("bytes", 0)]),
    (SETS, "set", &[("bytes", 0), ("value", 2)]),
    (GRAPHS, "graph", &[("graph", 0)]),
];

impl Reader<'_, '_> {
    /// The GPU work, in the order of its times.
    pub(super) fn work(&mut self) -> Result<()> {
        let database = self.database;
        let call = "start, globalTid, correlationId, eventClass, end";
        let call = database.columns(CALLS, call);
        let from = match database.has_table(CALLS) {
            true => format!(" FROM \"{CALLS}\""),
            false => String::new(),
        };
        let query = |(number, (table, ..)): (usize, &Table)| {
            let columns = format!("{COMMON}, {}", table.columns);
            let missing = (CALL - 2).saturating_sub(columns.split(", ").count());
            let columns = database.columns(table.name, &columns) + &", NULL".repeat(missing);
            let id = database.columns(table.name, "correlationId");
            let process = database.columns(table.name, "globalPid");
            let is_there = database.has_table(table.name);
            is_there.then(|| {
                format!(
                    "SELECT {number}, w.rowid, {columns}, called, thread FROM \"{}\" w \
                     LEFT JOIN c ON caller = {id} AND caller <> 0 AND class IS NOT 67 \
                     AND until >= called AND ({process} IS NULL OR thread >> 24 = {process} >> 24)",
                    table.name
                )
            })
        };
        let queries: Vec<_> = TABLES.iter().enumerate().filter_map(query).collect();
        if queries.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "WITH c(called, thread, caller, class, until) AS NOT MATERIALIZED (SELECT {call}{from}) \
             {} ORDER BY 3, 1, 2",
            queries.join(" UNION ALL ")
        );
        let rows = database.prepare(&sql)?;
        let names = TABLES.each_ref().map(|(table, ..)| table.name);
        let mut last = None;
        self.each(Some(rows), ("GPU work", &names), |reader, row| {
            let number = |index| integer(row, index);
            let (_, category, named) = TABLES.get(usize::try_from(number(0)?).ok()?)?;
            // Several calls may have its correlation id; it is still one piece of work.
            let id = number(0).zip(number(1));
            if id.is_some() && std::mem::replace(&mut last, id) == id {
                return None;
            }
            let (start, end) = (number(2)?, number(3)?);
            let mut args = Arguments::new();
            for (name, index) in *named {
                insert(&mut args, name, number(FURTHER + index));
            }
            if let Some(bytes) = args.get("bytes").and_then(Value::as_f64)
                && end > start
            {
                let speed = bytes / end.saturating_sub(start) as f64;
                insert(&mut args, "GB/s", Some((speed * 1000.0).round() / 1000.0));
            }
            insert(&mut args, "correlation", number(8).filter(|&id| id != 0));
            let name = describe(category, row, &reader.resolver, &mut args);
            let [process, device, context, stream] =
                [4, 5, 6, 7].map(|index| number(index).unwrap_or(0));
            let owner = TrackOwner::Stream(process, device, context, stream);
            Some(Span {
                end: Some(end),
                args,
                call: number(CALL + 1).zip(number(CALL)),
                ..Span::new(owner, name.into(), category, start)
            })
        })
    }
}

pub(super) fn insert(args: &mut Arguments, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        args.insert(name.to_owned(), value.into());
    }
}

/// Adds the arguments that are made of columns, and gives the name.
fn describe(
    category: &str,
    row: &Row<'_>,
    resolver: &Resolver<'_>,
    args: &mut Arguments,
) -> String {
    let number = |index: usize| integer(row, FURTHER + index);
    let small = |index| number(index).and_then(|number| u8::try_from(number).ok());
    let memory = |index| small(index).map(|kind| kinds::of_id(kind).kind.name());
    let volume = |first: usize| {
        [0, 1, 2]
            .map(|n| number(first + n).unwrap_or(1).to_string())
            .join(" x ")
    };
    match category {
        "kernel" => {
            insert(args, "grid", Some(volume(1)));
            insert(args, "block", Some(volume(4)));
            let name = number(0).map(|name| resolver.string(name).to_string());
            name.unwrap_or_else(|| "?".to_owned())
        }
        "copy" => {
            insert(args, "from", memory(2));
            insert(args, "to", memory(3));
            format!("copy {}", nsys::direction(small(1).unwrap_or(0)).name())
        }
        "set" => {
            insert(args, "memory", memory(1));
            "set".to_owned()
        }
        _ => {
            let executable = number(1).or(number(0));
            insert(args, "executable graph", executable);
            format!("graph {}", executable.unwrap_or(0))
        }
    }
}
