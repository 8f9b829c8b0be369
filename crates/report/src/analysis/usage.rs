//! Live memory over time.

use std::io::{self, Write};

use anyhow::{Context, Result};

use super::report::AnalysisFormat;
use super::{AnalysisTotals, MemoryChange};
use crate::SCHEMA;

/// Column names, in text and tables.
const COLUMNS: [&str; 5] = ["time", "total", "valid", "invalid", "driver"];

/// Writes the totals at every change.
pub(super) struct UsageWriter<'a> {
    out: &'a mut dyn Write,
    format: AnalysisFormat,
    host: bool,
    /// Number of points written.
    pub(super) points: u64,
}

impl<'a> UsageWriter<'a> {
    /// Writes the timeline to `out`. With `host`, host memory is part of the totals.
    pub(super) fn begin(
        out: &'a mut dyn Write,
        format: AnalysisFormat,
        host: bool,
    ) -> Result<Self> {
        let mut usage = Self {
            out,
            format,
            host,
            points: 0,
        };
        usage.header().context("cannot write the timeline")?;
        Ok(usage)
    }

    fn header(&mut self) -> io::Result<()> {
        match self.format {
            AnalysisFormat::Text => {
                let [_, rest @ ..] = COLUMNS;
                write!(self.out, "{:>20}", "time_ns")?;
                rest.iter()
                    .try_for_each(|name| write!(self.out, " {name:>20}"))?;
                writeln!(self.out)
            }
            AnalysisFormat::Tsv => writeln!(self.out, "{}", COLUMNS.join("\t")),
            AnalysisFormat::Csv => writeln!(self.out, "{}", COLUMNS.join(",")),
            AnalysisFormat::Json => writeln!(
                self.out,
                r#"{{"schema":{SCHEMA},"analysis":"usage","columns":{COLUMNS:?},"points":["#
            ),
        }
    }

    /// Ends the timeline; `from` and `to` limit the selected time, seconds from the first event.
    pub(super) fn finish(&mut self, from: Option<f64>, to: Option<f64>) -> Result<()> {
        if self.format == AnalysisFormat::Json {
            let ends = serde_json::json!({ "from": from, "to": to }).to_string();
            let ends = ends.trim_start_matches('{');
            writeln!(self.out, "],{ends}").context("cannot write the timeline")?;
        }
        Ok(())
    }

    fn point(&mut self, time: i64, bytes: [u64; 4]) -> io::Result<()> {
        let (begin, between, end) = match self.format {
            AnalysisFormat::Text => {
                write!(self.out, "{time:>20}")?;
                bytes
                    .iter()
                    .try_for_each(|bytes| write!(self.out, " {bytes:>20}"))?;
                return writeln!(self.out);
            }
            AnalysisFormat::Tsv => ("", b'\t', "\n"),
            AnalysisFormat::Csv => ("", b',', "\n"),
            AnalysisFormat::Json if self.points == 1 => ("[", b',', "]\n"),
            AnalysisFormat::Json => (",[", b',', "]\n"),
        };
        // There are millions of points.
        let mut digits = itoa::Buffer::new();
        self.out.write_all(begin.as_bytes())?;
        self.out.write_all(digits.format(time).as_bytes())?;
        for number in bytes {
            self.out.write_all(&[between])?;
            self.out.write_all(digits.format(number).as_bytes())?;
        }
        self.out.write_all(end.as_bytes())
    }

    /// Writes the totals after a change.
    pub(super) fn change(&mut self, change: &MemoryChange<'_>) -> Result<()> {
        if !self.host && change.parts().all(|part| part.is_host()) {
            return Ok(());
        }
        self.points += 1;
        let bytes = |side: &AnalysisTotals| {
            [side.total, side.valid, side.invalid, side.driver].map(|a| a.bytes)
        };
        let mut now = bytes(&change.live.gpu);
        if self.host {
            for (sum, host) in now.iter_mut().zip(bytes(&change.live.host)) {
                *sum = sum.saturating_add(host);
            }
        }
        self.point(change.time_ns, now)
            .context("cannot write the timeline")
    }
}
