//! JSON Lines: one object per line.

use std::io::{self, Write};

use serde::Serialize;

use crate::bandwidth::CopyReport;
use crate::views::tables::records::{Fields, PerRecordLine};
use crate::{Report, ReportWriter, SCHEMA};

pub(crate) struct Json;

impl ReportWriter for Json {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, report)?;
        out.write_all(b"\n")
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        let line = CopyLine {
            schema: SCHEMA,
            copy,
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        let record = line.fields();
        serde_json::to_writer(
            &mut *out,
            &RecordLine {
                schema: SCHEMA,
                record,
            },
        )?;
        out.write_all(b"\n")
    }
}

/// A line for an activity record; its key distinguishes it from a report.
#[derive(Serialize)]
struct RecordLine<'a> {
    schema: u32,
    record: Fields<'a>,
}

/// A line for a copy; its key distinguishes it from a report.
#[derive(Serialize)]
struct CopyLine<'a> {
    schema: u32,
    copy: &'a CopyReport,
}
