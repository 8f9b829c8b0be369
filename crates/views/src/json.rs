//! JSON Lines: one object per line.

use std::io::{self, Write};

use serde::Serialize;

use super::tables::records::record;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::incidents::IncidentReport;
use gpuprobe_report::records::PerRecordLine;
use gpuprobe_report::{Report, ReportWriter, SCHEMA};

pub(crate) struct Json;

impl ReportWriter for Json {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        object(report, out)
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        line("copy", copy, out)
    }

    fn write_activity(&mut self, one: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        line("record", &record(one), out)
    }
}

/// Writes one line.
pub(crate) fn object(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Writes a line for one thing; its key distinguishes it from a report.
fn line(key: &str, value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write!(out, r#"{{"schema":{SCHEMA},"{key}":"#)?;
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"}\n")
}

/// An incident as it is in a report.
pub fn incident(incident: &IncidentReport) -> String {
    let mut json = Vec::new();
    // A vector takes all.
    let _ = line("incident", incident, &mut json);
    String::from_utf8_lossy(&json).trim_end().to_owned()
}
