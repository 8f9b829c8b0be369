//! CSV tables: one row per live allocation, kernel, direction, copy, activity record, or sum of
//! these. A file holds one table, which the command line checks.

use std::io::{self, Write};

use crate::bandwidth::CopyReport;
use crate::views::tables::memory::AllocationRow;
use crate::views::tables::records::{PerRecordLine, RECORD, SUMS, sums};
use crate::views::tables::work::{DIRECTIONS, LAUNCHES, SINGLE_COPIES};
use crate::views::tables::{Column, Rows, Separated};
use crate::{GroupBy, Report, ReportWriter};
use gpuprobe_model::clock;

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
        let common = [time.unwrap_or_default(), report.is_final.to_string()];
        if let Some(memleak) = &report.memleak {
            let by_site = memleak.view.group.is_some_and(GroupBy::is_by_site);
            let sites = match memleak.has_stacks || by_site {
                true => AllocationRow::SITES,
                false => &[],
            };
            let columns = [AllocationRow::LIVE, sites].concat();
            let processes = memleak.processes.iter();
            let rows = processes.flat_map(|process| AllocationRow::all(process, 0));
            self.table(&columns, rows, &common, out)
        } else if let Some(cudatrace) = &report.cudatrace {
            self.table(LAUNCHES, &cudatrace.kernels, &common, out)
        } else if let Some(bandwidth) = &report.bandwidth_util {
            self.table(DIRECTIONS, &bandwidth.directions, &common, out)
        } else if let Some(activity) = &report.activity {
            let sums = activity.processes.iter().flat_map(sums);
            self.table(SUMS, sums, &common, out)
        } else {
            Ok(())
        }
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        self.table(SINGLE_COPIES, [copy], &[], out)
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = Rows::new(Separated::Csv, out);
        if !std::mem::replace(&mut self.header_written, true) {
            rows.row(RECORD.into_iter().map(Into::into))?;
        }
        let fields = line.fields();
        rows.row(RECORD.into_iter().map(|name| fields.get(name).value()))?;
        rows.flush()
    }
}

impl Csv {
    /// Rows of a table, which begin with `common` if they are part of a report.
    fn table<T>(
        &mut self,
        columns: &[Column<T>],
        all: impl IntoIterator<Item: std::borrow::Borrow<T>>,
        common: &[String],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut rows = Rows::new(Separated::Csv, out);
        if !std::mem::replace(&mut self.header_written, true) {
            rows.header(&["report_time", "final"][..common.len()], columns)?;
        }
        rows.all(common, columns, all)?;
        rows.flush()
    }
}
