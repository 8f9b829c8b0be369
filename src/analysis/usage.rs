//! The timeline of what was live.

use std::io::Write;

use anyhow::{Context, Result};

use super::report::Format;
use super::tracker::{Change, Totals};
use super::{Tracker, Visitor};
use crate::recording::kinds;

/// The columns, in text and tables.
pub const COLUMNS: [&str; 5] = ["time", "total", "valid", "invalid", "driver"];

/// Writes the totals at every change.
pub struct Usage<'a> {
    out: &'a mut dyn Write,
    format: Format,
    host: bool,
    /// Something has been written.
    is_begun: bool,
    /// Lines that were written.
    pub points: u64,
}

impl<'a> Usage<'a> {
    /// Writes to `out`; with `host`, memory of the host is part of the totals.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(out: &'a mut dyn Write, format: Format, host: bool) -> Result<Self> {
        let mut usage = Self {
            out,
            format,
            host,
            is_begun: false,
            points: 0,
        };
        let header = match format {
            Format::Text => format!("{:>20} {:>20} {:>20} {:>20} {:>20}", "time_ns", "total", "valid", "invalid", "driver"),
            Format::Tsv => COLUMNS.join("\t"),
            Format::Csv => COLUMNS.join(","),
            Format::Json => r#"{"schema":1,"analysis":"usage","columns":["time","total","valid","invalid","driver"],"points":["#.to_owned(),
        };
        usage.line(&header)?;
        Ok(usage)
    }

    /// Ends the timeline.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(&mut self) -> Result<()> {
        if self.format == Format::Json {
            self.line("]}")?;
        }
        Ok(())
    }

    fn line(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}").context("cannot write the timeline")
    }
}

impl Visitor for Usage<'_> {
    fn change(&mut self, change: &Change, tracker: &Tracker) -> Result<()> {
        if !change.is_last || (kinds::of_id(change.kind).is_host && !self.host) {
            return Ok(());
        }
        self.points += 1;
        let bytes =
            |side: &Totals| [side.total, side.valid, side.invalid, side.driver].map(|a| a.bytes);
        let mut now = bytes(tracker.totals());
        if self.host {
            for (sum, host) in now.iter_mut().zip(bytes(tracker.host())) {
                *sum = sum.saturating_add(host);
            }
        }
        let [total, valid, invalid, driver] = now;
        let time = change.time_ns;
        let written = match self.format {
            Format::Text => writeln!(
                self.out,
                "{time:>20} {total:>20} {valid:>20} {invalid:>20} {driver:>20}"
            ),
            Format::Tsv => writeln!(self.out, "{time}\t{total}\t{valid}\t{invalid}\t{driver}"),
            Format::Csv => writeln!(self.out, "{time},{total},{valid},{invalid},{driver}"),
            Format::Json => {
                let comma = if self.is_begun { "," } else { "" };
                writeln!(
                    self.out,
                    "{comma}[{time},{total},{valid},{invalid},{driver}]"
                )
            }
        };
        self.is_begun = true;
        written.context("cannot write the timeline")
    }
}
