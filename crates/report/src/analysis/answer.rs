//! Writes the results of analyses in every format.

use std::cmp::Reverse;
use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::diff::Diff;
use super::file::Analysis;
use super::report::AnalysisFormat;
use crate::memleak::Memleak;
use crate::views::tables::memory::{AllocationRow, GrowthRow, SiteRow, growth};
use crate::views::tables::work::{PROCESSES, Work};
use crate::views::tables::{Column, Rows, Separated};
use crate::views::text::file;
use crate::views::text::page::Page;
use crate::{GroupBy, Report, SortBy, View};
use gpuprobe_os::terminal::Layout;

/// Writes results in a format.
pub(super) struct AnalysisWriter {
    pub(super) format: AnalysisFormat,
    /// Limit on the rows of a list, in text.
    pub(super) top: usize,
    /// Width of lines and colours, in text.
    pub(super) layout: Layout,
    /// Grouping, filters and order of lists.
    pub(super) view: View,
    /// Whether host memory is listed, too.
    pub(super) host: bool,
}

fn json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

impl AnalysisWriter {
    /// The allocations of a report, in the order selected.
    fn allocations<'a>(&self, memleak: &'a Memleak, first_ns: u64) -> Vec<AllocationRow<'a>> {
        let processes = memleak.processes.iter();
        let rows = processes.flat_map(|process| AllocationRow::all(process, first_ns));
        let rows = rows.filter(|row| self.host || !row.allocation.at_host);
        let mut rows: Vec<_> = rows.collect();
        let by_age = self.view.sort == SortBy::Age;
        rows.sort_by_key(|row| {
            let (bytes, time_ns) = (row.allocation.bytes, row.allocation.time_ns);
            let first = if by_age { time_ns } else { 0 };
            (first, Reverse(bytes), time_ns, row.allocation.address)
        });
        rows
    }

    /// Writes a table of CSV or TSV.
    fn table<T>(&self, columns: &[Column<T>], rows: &[T], out: &mut dyn Write) -> io::Result<()> {
        let separated = match self.format {
            AnalysisFormat::Tsv => Separated::Tsv,
            _ => Separated::Csv,
        };
        let mut table = Rows::new(separated, out);
        table.header(&[], columns)?;
        table.all(&[], columns, rows)?;
        table.flush()
    }

    /// Writes the result of an analysis.
    pub(super) fn question(
        &self,
        analysis: Analysis,
        report: &Report,
        out: &mut dyn Write,
    ) -> Result<()> {
        let written = match self.format {
            AnalysisFormat::Json => json(report, out),
            AnalysisFormat::Text => {
                let mut page = Page::of_file(self.layout, out);
                file::write(analysis, report, self.top, self.host, &mut page)
            }
            AnalysisFormat::Tsv | AnalysisFormat::Csv => self.separated(analysis, report, out),
        };
        written.context("cannot write the report")
    }

    fn separated(
        &self,
        analysis: Analysis,
        report: &Report,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match analysis {
            Analysis::Kernels => self.table(Work::KERNELS, &Work::kernels_of_file(report), out),
            Analysis::Copies => self.table(Work::COPIES, &Work::copies_of_file(report), out),
            Analysis::Calls => {
                let calls = Work::timed_of_file(report, Work::calls);
                self.table(Work::CALLS, &calls, out)
            }
            Analysis::Waits => {
                let waits = Work::timed_of_file(report, Work::waits);
                self.table(Work::WAITS, &waits, out)
            }
            Analysis::Nvtx => {
                let ranges = Work::timed_of_file(report, Work::ranges);
                self.table(Work::RANGES, &ranges, out)
            }
            Analysis::Processes => {
                let about = report.about.as_ref();
                let processes = about.and_then(|about| about.processes.as_deref());
                self.table(PROCESSES, processes.unwrap_or_default(), out)
            }
            Analysis::Watermark | Analysis::Leakage => {
                let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
                    return Ok(());
                };
                if self.view.group.is_some_and(GroupBy::is_by_site) {
                    let sites = SiteRow::all(memleak, self.view.sort, self.host);
                    return self.table(SiteRow::COLUMNS, &sites, out);
                }
                let allocations = self.allocations(memleak, about.first_ns);
                self.table(AllocationRow::COLUMNS, &allocations, out)
            }
            Analysis::Explain | Analysis::Summary | Analysis::Page => Ok(()),
        }
    }

    pub(super) fn diff(&self, diff: &Diff, out: &mut dyn Write) -> Result<()> {
        let written = match self.format {
            AnalysisFormat::Json => json(diff, out),
            AnalysisFormat::Text => {
                let mut page = Page::of_file(self.layout, out);
                file::write_diff(diff, &self.view, self.top, &mut page)
            }
            AnalysisFormat::Tsv | AnalysisFormat::Csv => {
                let mut lists = vec![("watermark", &diff.at_peak), ("leakage", &diff.never_freed)];
                if let Some(tensors) = &diff.tensors {
                    lists.push(("tensors_watermark", &tensors.at_peak));
                    lists.push(("tensors_leakage", &tensors.never_freed));
                }
                let rows = lists.into_iter();
                let rows = rows.flat_map(|(what, all)| all.iter().map(move |one| (what, one)));
                let rows: Vec<GrowthRow<'_>> = rows.collect();
                self.table(&growth(), &rows, out)
            }
        };
        written.context("cannot write the report")
    }
}
