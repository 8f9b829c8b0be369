//! Times at which the selected part begins or ends, as they are typed.

use std::path::Path;

use anyhow::{Context, Result, bail};
use chrono::{DateTime, FixedOffset, Local, NaiveDateTime};

use super::{Filter, first_ns};
use gpuprobe_recording::{Database, Session};

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

    /// Nanoseconds after the first memory event of the file.
    fn after_first(self, file: &Path) -> Result<i64> {
        let time = match self {
            Self::After(ns) => return Ok(ns),
            Self::At(time) => time,
        };
        let database = Database::open(file)?;
        let session = Session::read(&database)?;
        let shown = file.display();
        let Some(start_ns) = session.start_epoch_ns else {
            bail!(
                "{shown} has no times of day: give --from and --to as times after the first memory event"
            );
        };
        let epoch_ns = time
            .timestamp_nanos_opt()
            .context("the time is out of range")?;
        let first_ns = first_ns(&database)?.unwrap_or(0);
        Ok(epoch_ns.saturating_sub(start_ns).saturating_sub(first_ns))
    }
}

impl Filter {
    /// Selects the time between two moments of `file`.
    ///
    /// # Errors
    ///
    /// Returns an error if the second is earlier, or if `file` cannot be read or has no times of day where it needs
    /// them.
    pub fn between(self, from: Option<Moment>, to: Option<Moment>, file: &Path) -> Result<Self> {
        let ns = |moment: Option<Moment>| moment.map(|one| one.after_first(file)).transpose();
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
