//! Live memory over time.

use std::io::{self, Write};

use anyhow::{Context, Result};

use super::report::AnalysisFormat;
use gpuprobe_report::SCHEMA;

/// Column names, in text and tables.
const COLUMNS: [&str; 5] = ["time", "total", "valid", "invalid", "driver"];

/// Writes the totals at every change.
pub(super) struct UsageWriter<'a> {
    out: &'a mut dyn Write,
    format: AnalysisFormat,
    /// Number of points written.
    pub(super) points: u64,
}

impl<'a> UsageWriter<'a> {
    /// Writes the timeline to `out`. With `host`, host memory is part of the totals.
    pub(super) fn begin(out: &'a mut dyn Write, format: AnalysisFormat) -> Result<Self> {
        let mut usage = Self {
            out,
            format,
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

    /// Writes the totals after a change.
    pub(super) fn point(&mut self, time: i64, bytes: [u64; 4]) -> Result<()> {
        self.points += 1;
        self.line(time, bytes).context("cannot write the timeline")
    }

    fn line(&mut self, time: i64, bytes: [u64; 4]) -> io::Result<()> {
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
}
