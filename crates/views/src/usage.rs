//! Live memory over time.

use std::io::Write;

use anyhow::Result;

use super::report::AnalysisFormat;
use gpuprobe_analysis::File;
use gpuprobe_os::say;
use gpuprobe_report::SCHEMA;

/// Column names, in text and tables.
const COLUMNS: [&str; 5] = ["time", "total", "valid", "invalid", "driver"];

/// Writes the totals at every change.
pub(super) fn write(file: &File, format: AnalysisFormat, out: &mut dyn Write) -> Result<()> {
    let (begin, separator, width, end) = match format {
        AnalysisFormat::Text => ("", " ", 20, ""),
        AnalysisFormat::Tsv => ("", "\t", 0, ""),
        AnalysisFormat::Csv => ("", ",", 0, ""),
        AnalysisFormat::Json => ("[", ",", 0, "]"),
    };
    let row = |cells: [String; 5]| {
        let cells = cells.map(|cell| format!("{cell:>width$}"));
        format!("{begin}{}{end}", cells.join(separator))
    };
    let is_json = format == AnalysisFormat::Json;
    let head = match is_json {
        true => {
            format!(r#"{{"schema":{SCHEMA},"analysis":"usage","columns":{COLUMNS:?},"points":["#)
        }
        false => row(COLUMNS.map(str::to_owned)),
    };
    writeln!(out, "{head}")?;
    let mut points = 0u64;
    let (from, to) = file.usage(|time_ns, bytes| {
        let comma = if is_json && points > 0 { "," } else { "" };
        points += 1;
        let [total, valid, invalid, driver] = bytes.map(|bytes| bytes.to_string());
        let row = row([time_ns.to_string(), total, valid, invalid, driver]);
        Ok(writeln!(out, "{comma}{row}")?)
    })?;
    if points == 0 {
        say("no memory event in what was selected");
    }
    if is_json {
        let ends = serde_json::json!({ "from": from, "to": to }).to_string();
        let ends = ends.trim_start_matches('{');
        writeln!(out, "],{ends}")?;
    }
    Ok(())
}
