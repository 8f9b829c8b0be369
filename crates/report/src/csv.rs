//! Tables: one row per live allocation, per kernel, per direction, per copy, per record of what the
//! GPU did, or per sum of these. A file holds one table; the command line sees to that.

use std::collections::HashMap;
use std::io::{self, Write};

use super::activity::columns;
use super::activity::lines::Line;
use super::activity::sums;
use super::bandwidth::{BandwidthUtil, CopyReport};
use super::cudatrace::Cudatrace;
use super::memleak::{Memleak, ProcessReport, SiteReport};
use super::{Report, Writer, micros};
use gpuprobe_model::clock;

const MEMLEAK: &[&str] = &[
    "report_time",
    "final",
    "pid",
    "uid",
    "comm",
    "exited",
    "tid",
    "thread",
    "address",
    "bytes",
    "device",
    "kind",
    "api",
    "time",
    "name",
    "handle",
];
/// The columns that come after these where call sites are known.
const SITES: &[&str] = &["site", "stack"];
const CUDATRACE: &[&str] = &[
    "report_time",
    "final",
    "pid",
    "uid",
    "comm",
    "exited",
    "name",
    "mangled",
    "handle",
    "launches",
    "captured_launches",
    "per_second",
    "grid",
    "block",
    "api",
];
const BANDWIDTH: &[&str] = &[
    "report_time",
    "final",
    "pid",
    "direction",
    "mode",
    "calls",
    "bytes",
    "seconds",
    "bytes_per_second",
    "peak_bytes_per_second",
    "wall_bytes_per_second",
];
const COPIES: &[&str] = &[
    "time",
    "pid",
    "tid",
    "api",
    "direction",
    "mode",
    "bytes",
    "seconds",
    "bytes_per_second",
];

#[derive(Default)]
pub(super) struct Csv {
    pub(super) header_written: bool,
    /// Rows are single copies or records: reports have no place among them.
    pub(super) singles: bool,
}

type Rows<'a> = csv::Writer<&'a mut dyn Write>;

impl Writer for Csv {
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
            let sites = if memleak.has_sites { SITES } else { &[] };
            self.header(&[MEMLEAK, sites].concat(), &mut rows)?;
            write_memleak(memleak, &common, &mut rows)?;
        } else if let Some(cudatrace) = &report.cudatrace {
            self.header(CUDATRACE, &mut rows)?;
            write_cudatrace(cudatrace, &common, &mut rows)?;
        } else if let Some(bandwidth) = &report.bandwidth_util {
            self.header(BANDWIDTH, &mut rows)?;
            write_bandwidth(bandwidth, &common, &mut rows)?;
        } else if let Some(activity) = &report.activity {
            self.header(sums::HEADER, &mut rows)?;
            for process in &activity.processes {
                for sum in sums::rows(process) {
                    rows.write_record(common.iter().chain(&sum))?;
                }
            }
        }
        rows.flush()
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        self.header(COPIES, &mut rows)?;
        rows.write_record([
            micros(copy.time.as_ref()),
            copy.pid.to_string(),
            copy.tid.to_string(),
            copy.api.to_owned(),
            copy.direction.to_owned(),
            copy.mode.to_owned(),
            copy.bytes.to_string(),
            copy.seconds.to_string(),
            optional(copy.bytes_per_second),
        ])?;
        rows.flush()
    }

    fn write_activity(&mut self, line: &Line<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut rows = csv::Writer::from_writer(out);
        self.header(columns::HEADER, &mut rows)?;
        rows.write_record(line.columns().row())?;
        rows.flush()
    }
}

impl Csv {
    fn header(&mut self, columns: &[&str], rows: &mut Rows<'_>) -> io::Result<()> {
        if !self.header_written {
            self.header_written = true;
            rows.write_record(columns)?;
        }
        Ok(())
    }
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

fn write_memleak(memleak: &Memleak, common: &[String], rows: &mut Rows<'_>) -> io::Result<()> {
    for process in &memleak.processes {
        let stacks = stacks(process);
        let process_fields = [
            process.pid.to_string(),
            optional(process.uid),
            process.comm.clone().unwrap_or_default(),
            process.exited.to_string(),
        ];
        for thread in &process.threads {
            let thread_fields = [
                optional(thread.tid),
                thread.comm.clone().unwrap_or_default(),
            ];
            for allocation in &thread.allocations {
                let fields = [
                    format!("{:#x}", allocation.address),
                    allocation.bytes.to_string(),
                    optional(allocation.device),
                    allocation.kind.to_string(),
                    allocation.api.to_string(),
                    micros(allocation.time.as_ref()),
                    allocation.name.clone().unwrap_or_default(),
                    optional(allocation.handle.map(|handle| format!("{handle:#x}"))),
                ];
                let parts = common.iter().chain(&process_fields);
                let site = allocation.site.map(|site| {
                    let stack = stacks.get(&site).cloned().unwrap_or_default();
                    [site.to_string(), stack]
                });
                let fields = thread_fields.iter().chain(&fields);
                rows.write_record(parts.chain(fields).chain(site.iter().flatten()))?;
            }
        }
    }
    Ok(())
}

/// The stacks of a process's call sites: functions, innermost first, with semicolons between.
fn stacks(process: &ProcessReport) -> HashMap<u32, String> {
    let stack = |site: &SiteReport| {
        let functions = site.stack.iter().map(|frame| frame.function.as_str());
        (site.id, functions.collect::<Vec<_>>().join(";"))
    };
    process.sites.iter().flatten().map(stack).collect()
}

fn write_cudatrace(
    cudatrace: &Cudatrace,
    common: &[String],
    rows: &mut Rows<'_>,
) -> io::Result<()> {
    let dimensions = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    for kernel in &cudatrace.kernels {
        let fields = [
            kernel.pid.to_string(),
            optional(kernel.uid),
            kernel.comm.clone().unwrap_or_default(),
            kernel.exited.to_string(),
            kernel.name.clone(),
            kernel.mangled.clone().unwrap_or_default(),
            format!("{:#x}", kernel.handle),
            kernel.launches.to_string(),
            kernel.captured_launches.to_string(),
            kernel.per_second.to_string(),
            dimensions(kernel.grid),
            dimensions(kernel.block),
            kernel.api.to_owned(),
        ];
        rows.write_record(common.iter().chain(&fields))?;
    }
    Ok(())
}

fn write_bandwidth(
    bandwidth: &BandwidthUtil,
    common: &[String],
    rows: &mut Rows<'_>,
) -> io::Result<()> {
    for direction in &bandwidth.directions {
        let fields = [
            direction.pid.to_string(),
            direction.direction.to_owned(),
            direction.mode.to_owned(),
            direction.calls.to_string(),
            direction.bytes.to_string(),
            optional(direction.seconds),
            optional(direction.bytes_per_second),
            optional(direction.peak_bytes_per_second),
            direction.wall_bytes_per_second.to_string(),
        ];
        rows.write_record(common.iter().chain(&fields))?;
    }
    Ok(())
}
