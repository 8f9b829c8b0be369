//! CSV tables: one row per live allocation, kernel, direction, copy, activity record, or sum of
//! these. A file holds one table, which the command line checks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use super::activity::columns;
use super::activity::lines::PerRecordLine;
use super::activity::sums;
use super::bandwidth::{CopyReport, DirectionReport};
use super::cudatrace::KernelReport;
use super::memleak::{AllocationReport, Memleak, ProcessReport, SiteReport, ThreadReport};
use super::{GroupBy, Report, ReportWriter, fold, micros};
use gpuprobe_model::clock;

/// A table of `T`: the name of each column, and the function that formats its cell.
type Table<T> = [(&'static str, fn(&T) -> String)];

/// The first columns of every row of a report.
const COMMON: [&str; 2] = ["report_time", "final"];

/// Formats the cell of an allocation of a thread of a process.
type AllocationText = fn(&ProcessReport, &ThreadReport, &AllocationReport) -> String;

const MEMLEAK: &[(&str, AllocationText)] = &[
    ("pid", |p, _, _| p.pid.to_string()),
    ("uid", |p, _, _| optional(p.uid)),
    ("comm", |p, _, _| optional(p.comm.as_ref())),
    ("exited", |p, _, _| p.exited.to_string()),
    ("tid", |_, t, _| optional(t.tid)),
    ("thread", |_, t, _| optional(t.comm.as_ref())),
    ("address", |_, _, a| hex(a.address)),
    ("bytes", |_, _, a| a.bytes.to_string()),
    ("device", |_, _, a| optional(a.device)),
    ("kind", |_, _, a| a.kind.to_string()),
    ("api", |_, _, a| a.api.to_string()),
    ("time", |_, _, a| micros(a.time.as_ref())),
    ("name", |_, _, a| optional(a.name.as_ref())),
    ("handle", |_, _, a| optional(a.handle.map(hex))),
];
/// Further columns if call sites are known.
const SITES: &[&str] = &["site", "stack"];

const CUDATRACE: &Table<KernelReport> = &[
    ("pid", |k| k.pid.to_string()),
    ("uid", |k| optional(k.uid)),
    ("comm", |k| optional(k.comm.as_ref())),
    ("exited", |k| k.exited.to_string()),
    ("name", |k| k.name.clone()),
    ("mangled", |k| optional(k.mangled.as_ref())),
    ("handle", |k| hex(k.handle)),
    ("launches", |k| k.launches.to_string()),
    ("captured_launches", |k| k.captured_launches.to_string()),
    ("per_second", |k| k.per_second.to_string()),
    ("grid", |k| dimensions(k.grid)),
    ("block", |k| dimensions(k.block)),
    ("api", |k| k.api.to_owned()),
];

const BANDWIDTH: &Table<DirectionReport> = &[
    ("pid", |d| d.pid.to_string()),
    ("direction", |d| d.direction.to_owned()),
    ("mode", |d| d.mode.to_owned()),
    ("calls", |d| d.calls.to_string()),
    ("bytes", |d| d.bytes.to_string()),
    ("seconds", |d| optional(d.seconds)),
    ("bytes_per_second", |d| optional(d.bytes_per_second)),
    ("peak_bytes_per_second", |d| {
        optional(d.peak_bytes_per_second)
    }),
    ("wall_bytes_per_second", |d| {
        d.wall_bytes_per_second.to_string()
    }),
];

const COPIES: &Table<CopyReport> = &[
    ("time", |c| micros(c.time.as_ref())),
    ("pid", |c| c.pid.to_string()),
    ("tid", |c| c.tid.to_string()),
    ("api", |c| c.api.to_owned()),
    ("direction", |c| c.direction.to_owned()),
    ("mode", |c| c.mode.to_owned()),
    ("bytes", |c| c.bytes.to_string()),
    ("seconds", |c| c.seconds.to_string()),
    ("bytes_per_second", |c| optional(c.bytes_per_second)),
];

fn names<F>(table: &[(&'static str, F)]) -> impl Iterator<Item = &'static str> {
    table.iter().map(|(name, _)| *name)
}

#[derive(Default)]
pub(super) struct Csv {
    pub(super) header_written: bool,
    /// Whether rows are single copies or records, without the columns of reports.
    pub(super) singles: bool,
}

type Rows<'a> = csv::Writer<&'a mut dyn Write>;

impl ReportWriter for Csv {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        if self.singles {
            return Ok(());
        }
        let mut rows = csv::Writer::from_writer(out);
        let common = [
            report
                .time
                .as_ref()
                .map(clock::rfc3339_seconds)
                .unwrap_or_default(),
            report.is_final.to_string(),
        ];
        if let Some(memleak) = &report.memleak {
            let sites = if memleak.has_stacks || memleak.view.group.is_some_and(GroupBy::is_by_site)
            {
                SITES
            } else {
                &[]
            };
            self.header(
                COMMON
                    .into_iter()
                    .chain(names(MEMLEAK))
                    .chain(sites.iter().copied()),
                &mut rows,
            )?;
            write_memleak(memleak, &common, &mut rows)?;
        } else if let Some(cudatrace) = &report.cudatrace {
            self.table(CUDATRACE, &cudatrace.kernels, &common, &mut rows)?;
        } else if let Some(bandwidth) = &report.bandwidth_util {
            self.table(BANDWIDTH, &bandwidth.directions, &common, &mut rows)?;
        } else if let Some(activity) = &report.activity {
            self.header(sums::HEADER.iter().copied(), &mut rows)?;
            for sum in activity.processes.iter().flat_map(sums::rows) {
                write_row(&mut rows, common.iter().chain(&sum))?;
            }
        }
        rows.flush()
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        self.table(COPIES, std::slice::from_ref(copy), &[], &mut rows)?;
        rows.flush()
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        self.header(columns::HEADER.iter().copied(), &mut rows)?;
        write_row(&mut rows, line.row().texts())?;
        rows.flush()
    }
}

impl Csv {
    fn header(
        &mut self,
        columns: impl Iterator<Item = &'static str>,
        rows: &mut Rows<'_>,
    ) -> io::Result<()> {
        if !self.header_written {
            self.header_written = true;
            rows.write_record(columns.map(str::as_bytes))?;
        }
        Ok(())
    }

    /// Rows of a table, which begin with `common` if they are part of a report.
    fn table<T>(
        &mut self,
        table: &Table<T>,
        all: &[T],
        common: &[String],
        rows: &mut Rows<'_>,
    ) -> io::Result<()> {
        let first = COMMON.into_iter().take(common.len());
        self.header(first.chain(names(table)), rows)?;
        for one in all {
            let fields = table.iter().map(|(_, text)| text(one));
            write_row(rows, common.iter().cloned().chain(fields))?;
        }
        Ok(())
    }
}

/// Writes a row of [`cell`]s.
fn write_row<T: AsRef<str>>(
    rows: &mut Rows<'_>,
    cells: impl Iterator<Item = T>,
) -> csv::Result<()> {
    for text in cells {
        rows.write_field(&*cell(text.as_ref()))?;
    }
    rows.write_record(None::<&[u8]>)
}

/// Text for a cell of CSV. Text that a spreadsheet would take for a formula, and run when the file is
/// opened, is prefixed with an apostrophe: programs choose their own names, and those of their
/// functions (<https://owasp.org/www-community/attacks/CSV_Injection>).
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    match is_formula && text.parse::<f64>().is_err() {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

fn dimensions([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

fn write_memleak(memleak: &Memleak, common: &[String], rows: &mut Rows<'_>) -> io::Result<()> {
    for process in &memleak.processes {
        let stacks = stacks(process);
        for thread in &process.threads {
            for allocation in &thread.allocations {
                let text = MEMLEAK
                    .iter()
                    .map(|(_, text)| text(process, thread, allocation));
                let site = allocation.site.map(|site| {
                    let stack = stacks.get(&site).cloned().unwrap_or_default();
                    [site.to_string(), stack]
                });
                let fields = common.iter().cloned().chain(text);
                write_row(rows, fields.chain(site.into_iter().flatten()))?;
            }
        }
    }
    Ok(())
}

/// Call stacks of a process's call sites: functions, innermost first, separated by semicolons;
/// Python frames with file and line.
fn stacks(process: &ProcessReport) -> HashMap<u32, String> {
    let stack = |site: &SiteReport| {
        let functions = site.stack.iter().map(fold::text);
        (site.id, functions.collect::<Vec<_>>().join(";"))
    };
    process.sites.iter().flatten().map(stack).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn program_names_are_not_formulas() {
        let mut written = Vec::new();
        let out: &mut dyn Write = &mut written;
        let mut rows = csv::Writer::from_writer(out);
        let cells = ["=1+1", "+f", "-f", "@f", "\tf", "-3", "f=1", "", "a,b"];
        write_row(&mut rows, cells.into_iter()).unwrap();
        rows.flush().unwrap();
        drop(rows);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text, "'=1+1,'+f,'-f,'@f,'\tf,-3,f=1,,\"a,b\"\n");
    }
}
