//! Checks that a file has the selected process, device and time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Result;

use super::Filter;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, Session, ids, row};

/// Error: the filter matches nothing in the file; its text lists what the file has.
#[derive(Debug)]
pub struct NoMatch(pub String);

impl fmt::Display for NoMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoMatch {}

/// A table, and its columns with the process and the device, if any.
type Table = (&'static str, &'static str, Option<&'static str>);

/// Tables with rows by process; the memory events first.
const TABLES: [Table; 8] = [
    (MEMORY, "globalPid", Some("deviceId")),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid", Some("deviceId")),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid", Some("deviceId")),
    ("CUPTI_ACTIVITY_KIND_MEMSET", "globalPid", Some("deviceId")),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid", None),
    ("GPUPROBE_LAUNCH_COUNTS", "globalPid", None),
    ("GPUPROBE_COPIES", "globalPid", None),
    ("GPUPROBE_PROCESSES", "globalPid", None),
];

/// Limit on the processes listed in a message.
const MAX_NAMED: usize = 10;

/// Checks that `database` has the selected process and device, and that the selected time does not
/// begin after the end.
///
/// # Errors
///
/// Returns [`NoMatch`] if nothing matches, or an error if the file cannot be read.
pub(crate) fn check(database: &Database, filter: &Filter) -> Result<()> {
    let shown = database.path().display();
    if let Some(pid) = filter.pid {
        let pids = pids(database)?;
        if !pids.contains(&pid) {
            let names = names(database)?;
            let there = pids.iter().map(|pid| match names.get(pid) {
                Some(name) => format!("{pid} {name}"),
                None => pid.to_string(),
            });
            return no_match(format!(
                "no process {pid} in {shown}: --pid can be {}",
                one_of(there.collect())
            ));
        }
    }
    if let Some(device) = filter.device {
        let devices = distinct(database, |(table, _, device)| Some((table, device?)))?;
        if !devices.contains(&device) && !devices.is_empty() {
            let there = devices.iter().map(i64::to_string).collect();
            return no_match(format!(
                "no device {device} in {shown}: --device can be {}",
                one_of(there)
            ));
        }
    }
    let Some(from) = filter.from_ns else {
        return Ok(());
    };
    match end_ns(database)? {
        Some(end) if from > end => no_match(format!(
            "--from is beyond the end of {shown}: that is {} s after the first memory event",
            end as f64 / 1e9
        )),
        _ => Ok(()),
    }
}

fn no_match(why: String) -> Result<()> {
    Err(NoMatch(why).into())
}

fn one_of(there: Vec<String>) -> String {
    let all = there.len();
    let some: Vec<_> = there.into_iter().take(MAX_NAMED).collect();
    match all {
        0 => "nothing: it has no process".to_owned(),
        _ if all > MAX_NAMED => format!("{} or one of {} others", some.join(", "), all - MAX_NAMED),
        _ => some.join(", "),
    }
}

fn pids(database: &Database) -> Result<BTreeSet<u32>> {
    let found = distinct(database, |(table, process, _)| Some((table, process)))?;
    Ok(found.into_iter().map(ids::pid).collect())
}

/// The distinct values of a column, over all tables that have it.
fn distinct(
    database: &Database,
    column: impl Fn(Table) -> Option<(&'static str, &'static str)>,
) -> Result<BTreeSet<i64>> {
    let mut found = BTreeSet::new();
    for (table, column) in TABLES.into_iter().filter_map(column) {
        if database.has_column(table, column) {
            let grouped = format!("GROUP BY {column}");
            database.each(table, &[column], &grouped, |values| {
                found.extend(row::integer(values, 0));
            })?;
        }
    }
    Ok(found)
}

fn names(database: &Database) -> Result<BTreeMap<u32, String>> {
    let mut names = BTreeMap::new();
    if database.has_table("PROCESSES") {
        database.each("PROCESSES", &["globalPid", "name"], "", |values| {
            if let Some((process, name)) = row::integer(values, 0).zip(row::text(values, 1)) {
                names.insert(ids::pid(process), name);
            }
        })?;
    }
    Ok(names)
}

/// End of the recording, or of the last row of [`TABLES`], nanoseconds from the first memory event; `None` if they are
/// empty.
fn end_ns(database: &Database) -> Result<Option<i64>> {
    let first = database.limit(MEMORY, "start", "ASC")?;
    let mut last = None;
    for (table, ..) in TABLES {
        for column in ["start", "end"] {
            last = last.max(database.limit(table, column, "DESC")?);
        }
    }
    if database.is_ours() {
        // The recording went on without a row.
        last = last.max(Session::read(database)?.stop_ns.filter(|_| last.is_some()));
    }
    Ok(first
        .zip(last)
        .map(|(first, last)| last.saturating_sub(first)))
}
