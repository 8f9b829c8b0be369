//! What of a file is selected: a process, a device and a time.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, FixedOffset, Local, NaiveDateTime};

use super::range::{first_ns, span};
use gpuprobe_model::typed::parse_moment;
use gpuprobe_recording::memory_rows::{CALLS, MEMORY, RowFilter};
use gpuprobe_recording::row::integer;
use gpuprobe_recording::{Database, Session, ids};

/// Filter on the events of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Filter {
    /// Look at this process only.
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,

    /// Look at this device only.
    #[arg(long, value_name = "N")]
    pub device: Option<i64>,

    /// Show memory of the host (pinned, pageable) too.
    #[arg(long)]
    pub host: bool,

    /// Begin this long after the first memory event, or at this time of day: 2s, 2026-11-25T12:00:00.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<Moment>,

    /// End this long after the first memory event, or at this time of day.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<Moment>,
}

impl Filter {
    /// Start of the selected time, nanoseconds from [`first_ns`].
    pub(crate) fn begin_ns(&self) -> Option<i64> {
        self.from.and_then(Moment::after_ns)
    }

    /// End of the selected time, nanoseconds from [`first_ns`].
    pub(crate) fn end_ns(&self) -> Option<i64> {
        self.to.and_then(Moment::after_ns)
    }

    /// Whether a part of the time is selected.
    pub fn has_range(&self) -> bool {
        self.from.or(self.to).is_some()
    }

    /// The filter of rows.
    pub(crate) fn rows(&self) -> RowFilter {
        RowFilter {
            pid: self.pid,
            device: self.device,
            from_ns: self.begin_ns(),
            to_ns: self.end_ns(),
        }
    }

    /// The same with times of day as times after the first memory event.
    ///
    /// # Errors
    ///
    /// Returns [`NoMatch`] if `database` does not have the selected process or device, or if the selected time begins
    /// after its end; another error if the time ends before it begins, is not known, or the file cannot be read.
    pub(super) fn resolve(mut self, database: &Database, session: &Session) -> Result<Self> {
        self.check_ids(database, session)?;
        if !self.has_range() {
            return Ok(self);
        }
        let shown = database.path().display();
        let first_ns = first_ns(database)?;
        for moment in [&mut self.from, &mut self.to].into_iter().flatten() {
            if let Moment::At(time) = moment {
                let Some(start_ns) = session.start_epoch_ns else {
                    bail!(
                        "{shown} has no times of day: give --from and --to as times after the first memory event"
                    );
                };
                let ns = time.timestamp_nanos_opt();
                let ns = ns.context("the time is out of range")?;
                let begin_ns = start_ns.saturating_add(first_ns.unwrap_or(0));
                *moment = Moment::After(ns.saturating_sub(begin_ns));
            }
        }
        let (Some(from), Some(first_ns)) = (self.begin_ns(), first_ns) else {
            return Ok(self);
        };
        if self.end_ns().is_some_and(|to| from > to) {
            bail!("--from is later than --to");
        }
        let rows_end = span(database)?.map(|(_, last)| last);
        let stop_ns = session.stop_ns.filter(|_| database.is_ours());
        let end = rows_end
            .max(database.limit(CALLS, "end", "DESC")?)
            .max(stop_ns);
        let end = end.unwrap_or(first_ns).saturating_sub(first_ns);
        if from > end {
            let end = end as f64 / 1e9;
            bail!(NoMatch(format!(
                "--from is beyond the end of {shown}: that is {end} s after the first memory event"
            )));
        }
        Ok(self)
    }

    fn check_ids(&self, database: &Database, session: &Session) -> Result<()> {
        if self.pid.is_none() && self.device.is_none() {
            return Ok(());
        }
        let (mut pids, mut devices) = (BTreeSet::new(), BTreeSet::new());
        for (table, process) in TABLES {
            let columns = format!("{process}, deviceId");
            database.each(table, &columns, "GROUP BY 1, 2", |row| {
                pids.extend(integer(row, 0).map(ids::pid));
                devices.extend(integer(row, 1));
            })?;
        }
        let shown = database.path().display();
        if let Some(pid) = self.pid.filter(|pid| !pids.contains(pid)) {
            let there = pids.iter().map(|pid| match session.processes.get(pid) {
                Some(name) => format!("{pid} {name}"),
                None => pid.to_string(),
            });
            let there = one_of(&there.collect::<Vec<_>>());
            bail!(NoMatch(format!(
                "no process {pid} in {shown}: --pid can be {there}"
            )));
        }
        let is_elsewhere = |device: &i64| !devices.is_empty() && !devices.contains(device);
        if let Some(device) = self.device.filter(is_elsewhere) {
            let there = one_of(&devices.iter().map(i64::to_string).collect::<Vec<_>>());
            bail!(NoMatch(format!(
                "no device {device} in {shown}: --device can be {there}"
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

/// Tables with rows by process, and the column of that.
const TABLES: [(&str, &str); 8] = [
    (MEMORY, "globalPid"),
    ("CUPTI_ACTIVITY_KIND_KERNEL", "globalPid"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", "globalPid"),
    (CALLS, "globalTid"),
    ("GPUPROBE_LAUNCH_COUNTS", "globalPid"),
    ("GPUPROBE_COPIES", "globalPid"),
    ("GPUPROBE_PROCESSES", "globalPid"),
];

/// Limit on the processes listed in a message.
const MAX_NAMED: usize = 10;

fn one_of(there: &[String]) -> String {
    match there.len().saturating_sub(MAX_NAMED) {
        0 => there.join(", "),
        others => format!(
            "{} or one of {others} others",
            there[..MAX_NAMED].join(", ")
        ),
    }
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

impl FromStr for Moment {
    type Err = String;

    /// A time after the first memory event, or before it with a minus, or a time of day.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(time) = Self::time_of_day(text) {
            return Ok(time);
        }
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text),
        };
        let ns = i64::try_from(parse_moment(digits)?.as_nanos()).unwrap_or(i64::MAX);
        Ok(Self::After(sign * ns))
    }
}

impl Moment {
    /// A time of day as in RFC 3339, or without an offset in the local time zone; `None` if `text` is none.
    fn time_of_day(text: &str) -> Option<Self> {
        if let Ok(time) = DateTime::parse_from_rfc3339(text) {
            return Some(Self::At(time));
        }
        let parse = |form: &&str| NaiveDateTime::parse_from_str(text, form).ok();
        let local = LOCAL.iter().find_map(parse)?;
        let time = local.and_local_timezone(Local).earliest()?;
        Some(Self::At(time.fixed_offset()))
    }

    fn after_ns(self) -> Option<i64> {
        match self {
            Self::After(ns) => Some(ns),
            Self::At(_) => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!("2s".parse::<Moment>(), Ok(Moment::After(2_000_000_000)));
        assert_eq!("-5ns".parse::<Moment>(), Ok(Moment::After(-5)));
        let noon = "2026-11-25T12:00:00Z".parse::<Moment>();
        assert!(matches!(noon, Ok(Moment::At(_))));
        for wrong in ["", "-", "--1s", "soon", "2026-11-25T25:00:00Z"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }

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
