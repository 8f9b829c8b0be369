//! What of a file is selected: a process, a device and a time.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, FixedOffset, Local, NaiveDateTime};

use super::first_ns;
use gpuprobe_recording::memory_rows::MEMORY;
use gpuprobe_recording::{Database, MemoryRow, Session, ids, row};

/// Filter on the events of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Include this process only.
    pub pid: Option<u32>,
    /// Include this device only.
    pub device: Option<i64>,
    /// Include host memory, too.
    pub host: bool,
    /// Start of the selected time, nanoseconds from [`first_ns`].
    pub from_ns: Option<i64>,
    /// End of the selected time, nanoseconds from [`first_ns`].
    pub to_ns: Option<i64>,
}

impl Filter {
    /// Selects the time between two moments of `file`.
    ///
    /// # Errors
    ///
    /// Returns an error if the second is earlier, or if `file` cannot be read or has no times of day where it needs
    /// them.
    pub fn between(self, from: Option<Moment>, to: Option<Moment>, file: &Path) -> Result<Self> {
        let needs_file = [from, to]
            .iter()
            .any(|one| matches!(one, Some(Moment::At(_))));
        let zero = needs_file.then(|| Zero::of(file)).transpose()?;
        let ns = |moment: Option<Moment>| moment.map(|one| one.after(zero.as_ref())).transpose();
        let (from_ns, to_ns) = (ns(from)?, ns(to)?);
        if from_ns.zip(to_ns).is_some_and(|(from, to)| from > to) {
            bail!("--from is later than --to");
        }
        Ok(Self {
            from_ns,
            to_ns,
            ..self
        })
    }

    /// Whether a part of the time is selected.
    pub fn has_range(&self) -> bool {
        self.from_ns.is_some() || self.to_ns.is_some()
    }

    /// Whether `row` is of the selected process and device.
    pub fn includes(&self, row: &MemoryRow) -> bool {
        self.pid.is_none_or(|pid| pid == ids::pid(row.process))
            && self.device.is_none_or(|device| device == row.device)
    }

    /// Checks that `database` has the selected process and device, and that the selected time does not
    /// begin after the end.
    ///
    /// # Errors
    ///
    /// Returns [`NoMatch`] if nothing matches, or an error if the file cannot be read.
    pub(crate) fn check(&self, database: &Database) -> Result<()> {
        let shown = database.path().display();
        if let Some(pid) = self.pid {
            let pids = distinct(database, |(table, process, _)| Some((table, process)))?;
            let pids: BTreeSet<_> = pids.into_iter().map(ids::pid).collect();
            if !pids.contains(&pid) {
                let names = Session::read(database)?.processes;
                let there = pids.iter().map(|pid| match names.get(pid) {
                    Some(name) => format!("{pid} {name}"),
                    None => pid.to_string(),
                });
                let there = one_of(there.collect());
                bail!(NoMatch(format!(
                    "no process {pid} in {shown}: --pid can be {there}"
                )));
            }
        }
        if let Some(device) = self.device {
            let devices = distinct(database, |(table, _, device)| Some((table, device?)))?;
            if !devices.contains(&device) && !devices.is_empty() {
                let there = one_of(devices.iter().map(i64::to_string).collect());
                bail!(NoMatch(format!(
                    "no device {device} in {shown}: --device can be {there}"
                )));
            }
        }
        let Some(from) = self.from_ns else {
            return Ok(());
        };
        if let Some(end) = end_ns(database)?.filter(|&end| from > end) {
            let end = end as f64 / 1e9;
            bail!(NoMatch(format!(
                "--from is beyond the end of {shown}: that is {end} s after the first memory event"
            )));
        }
        Ok(())
    }
}

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

fn one_of(mut there: Vec<String>) -> String {
    let others = there.len().saturating_sub(MAX_NAMED);
    there.truncate(MAX_NAMED);
    match (there.is_empty(), others) {
        (true, _) => "nothing: it has no process".to_owned(),
        (_, 0) => there.join(", "),
        _ => format!("{} or one of {others} others", there.join(", ")),
    }
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

/// Forms of a local time of day.
const LOCAL: [&str; 2] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];

/// A time in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds after the first memory event; negative for before it.
    After(i64),
    /// Time of day.
    At(DateTime<FixedOffset>),
}

impl Moment {
    /// A time of day as in RFC 3339, or without an offset in the local time zone; `None` if `text` is none.
    pub fn time_of_day(text: &str) -> Option<Self> {
        if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            return Some(Self::At(time));
        }
        let parse = |form: &&str| NaiveDateTime::parse_from_str(text, form).ok();
        let local = LOCAL.iter().find_map(parse)?;
        let time = local.and_local_timezone(Local).earliest()?;
        Some(Self::At(time.fixed_offset()))
    }

    /// Nanoseconds after the first memory event of the file whose times begin at `zero`, which a time of day needs.
    fn after(self, zero: Option<&Zero>) -> Result<i64> {
        let (time, zero) = match (self, zero) {
            (Self::After(ns), _) => return Ok(ns),
            (Self::At(time), zero) => (time, zero.context("the file has no times of day")?),
        };
        let epoch_ns = time
            .timestamp_nanos_opt()
            .context("the time is out of range")?;
        Ok(epoch_ns
            .saturating_sub(zero.start_ns)
            .saturating_sub(zero.first_ns))
    }
}

/// Where the times of a file begin: nanoseconds since 1970, and from there to its first memory event.
struct Zero {
    start_ns: i64,
    first_ns: i64,
}

impl Zero {
    fn of(file: &Path) -> Result<Self> {
        let database = Database::open(file)?;
        let Some(start_ns) = Session::read(&database)?.start_epoch_ns else {
            bail!(
                "{} has no times of day: give --from and --to as times after the first memory event",
                file.display()
            );
        };
        let first_ns = first_ns(&database)?.unwrap_or(0);
        Ok(Self { start_ns, first_ns })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day() {
        let epoch_ns = |text: &str| match Moment::time_of_day(text)? {
            Moment::At(time) => time.timestamp_nanos_opt(),
            Moment::After(_) => None,
        };
        let noon = 1_795_608_000_000_000_000;
        assert_eq!(epoch_ns("2026-11-25T12:00:00Z"), Some(noon));
        assert_eq!(
            epoch_ns("2026-11-25T13:00:00.5+01:00"),
            Some(noon + 500_000_000)
        );
        let local = epoch_ns("2026-11-25 12:00:00.25");
        assert_eq!(local, epoch_ns("2026-11-25T12:00:00.25"));
        assert_eq!(local.map(|ns| ns % 1_000_000_000), Some(250_000_000));
        for wrong in ["", "12", "5ms", "2026-11-25", "2026-13-25T12:00:00Z"] {
            assert_eq!(epoch_ns(wrong), None, "{wrong}");
        }
    }
}
