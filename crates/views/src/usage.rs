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
        let mut columns = COLUMNS.map(str::to_owned);
        let begun = match format {
            AnalysisFormat::Json => writeln!(
                usage.out,
                r#"{{"schema":{SCHEMA},"analysis":"usage","columns":{COLUMNS:?},"points":["#
            ),
            _ => {
                if format == AnalysisFormat::Text {
                    columns[0] += "_ns";
                }
                usage.row(columns)
            }
        };
        begun.context("cannot write the timeline")?;
        Ok(usage)
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
        let [total, valid, invalid, driver] = bytes.map(|bytes| bytes.to_string());
        self.row([time.to_string(), total, valid, invalid, driver])
            .context("cannot write the timeline")
    }

    fn row(&mut self, cells: [String; 5]) -> io::Result<()> {
        let separator = if self.points > 1 { "," } else { "" };
        match self.format {
            AnalysisFormat::Text => {
                let cells = cells.map(|cell| format!("{cell:>20}"));
                writeln!(self.out, "{}", cells.join(" "))
            }
            AnalysisFormat::Tsv => writeln!(self.out, "{}", cells.join("\t")),
            AnalysisFormat::Csv => writeln!(self.out, "{}", cells.join(",")),
            AnalysisFormat::Json => writeln!(self.out, "{separator}[{}]", cells.join(",")),
        }
    }
}
