//! CSV tables: one row per live allocation, kernel, direction, call site of copies, copy, activity record, or sum of
//! these. A file holds one table, which the command line checks.

use std::io::{self, Write};

use serde::Serialize;

use super::tables::records::{RECORD, SUMS, record, sums};
use super::tables::work::COPY_SITES;
use super::tables::{Rows, memory, words};
use gpuprobe_model::clock;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::lists::AllocationRow;
use gpuprobe_report::records::PerRecordLine;
use gpuprobe_report::{GroupBy, Report, ReportWriter};

/// Columns, which are fields in JSON.
const KERNELS: &str = "pid uid comm exited name mangled handle launches captured_launches \
    per_second grid block api";
const DIRECTIONS: &str = "pid direction mode calls bytes seconds bytes_per_second \
    peak_bytes_per_second wall_bytes_per_second";
const COPY: &str = "time pid tid api direction mode bytes seconds bytes_per_second";

#[derive(Default)]
pub(crate) struct Csv {
    pub(crate) header_written: bool,
    /// Whether rows are single copies or records, without the columns of reports.
    pub(crate) singles: bool,
}

impl ReportWriter for Csv {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        if self.singles {
            return Ok(());
        }
        let time = report.time.as_ref().map(clock::rfc3339_seconds);
        let first = [
            ("report_time", time.unwrap_or_default()),
            ("final", report.is_final.to_string()),
        ];
        if let Some(memleak) = &report.memleak {
            let by_site = memleak.options.view.group.is_some_and(GroupBy::is_by_site);
            let sites = match memleak.options.stacks || by_site {
                true => memory::live_sites(),
                false => &[],
            };
            let rows = memleak.processes.iter().flat_map(AllocationRow::of_process);
            let columns = [memory::live(), sites];
            Rows::new(b',', out).table(self.takes_header(), &first, &columns, rows)
        } else if let Some(cudatrace) = &report.cudatrace {
            self.objects(KERNELS, &cudatrace.kernels, &first, out)
        } else if let Some(copies) = report.bandwidth_util.as_ref().filter(|it| it.is_by_site) {
            let rows = &copies.sites;
            Rows::new(b',', out).table(self.takes_header(), &first, &[COPY_SITES], rows)
        } else if let Some(bandwidth) = &report.bandwidth_util {
            self.objects(DIRECTIONS, &bandwidth.directions, &first, out)
        } else if let Some(activity) = &report.activity {
            let rows = activity.processes.iter().flat_map(sums);
            Rows::new(b',', out).table(self.takes_header(), &first, &[SUMS], rows)
        } else {
            Ok(())
        }
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        self.objects(COPY, [copy], &[], out)
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        self.objects(RECORD, [record(line)], &[], out)
    }
}

impl Csv {
    /// Whether the header comes next, which it does once.
    fn takes_header(&mut self) -> bool {
        !std::mem::replace(&mut self.header_written, true)
    }

    /// Writes these fields of objects, in rows that begin with `first` if they are part of a report.
    fn objects(
        &mut self,
        columns: &str,
        all: impl IntoIterator<Item: Serialize>,
        first: &[(&str, String)],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut rows = Rows::new(b',', out);
        if self.takes_header() {
            let names = first.iter().map(|(name, _)| *name);
            rows.row(names.chain(columns.split(' ')).map(Into::into))?;
        }
        for one in all {
            let one = serde_json::to_value(one)?;
            let fields = columns.split(' ').map(|column| words(&one[column]));
            let first = first.iter().map(|(_, value)| value.clone());
            rows.row(first.chain(fields).map(Into::into))?;
        }
        rows.flush()
    }
}
