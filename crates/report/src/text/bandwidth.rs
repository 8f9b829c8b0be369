//! Copies, for people.

use gpuprobe_model::text::size;
use std::io::{self, Write};

use super::page::Page;
use super::table::{Column, ReportTable};
use super::times::{gigabytes, percent};
use crate::bandwidth::{BandwidthUtil, CopyReport, DirectionReport};
use crate::micros;
use crate::words::{Who, plural};
use gpuprobe_cuda::Direction;
use gpuprobe_engine::transfers::EARLIER;

const INDENT: usize = 2;

pub(super) fn write(report: &BandwidthUtil, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    if report.directions.is_empty() {
        page.head("no copies so far", out)?;
    }
    let by_process = report.directions.chunk_by(|a, b| a.pid == b.pid);
    for directions in by_process {
        let Some(first) = directions.first() else {
            continue;
        };
        let name = match first.pid {
            EARLIER => "processes that ended earlier".to_owned(),
            pid => {
                let who = Who {
                    pid,
                    comm: first.comm.as_deref(),
                    uid: first.uid,
                    user: first.user.as_deref(),
                    command: first.command.as_deref(),
                    ..Who::default()
                };
                who.title()
            }
        };
        page.head_parts(&[name, counted(directions)], out)?;
        table(directions, report).write(page.columns, out)?;
    }
    if report.directions.iter().any(|d| !has_speed(d)) {
        writeln!(
            out,
            "{:INDENT$}no GB/S: calls return before the transfer ends; --activity times the GPU",
            ""
        )?;
    }
    if report.captured > 0 {
        let were = if report.captured == 1 { "was" } else { "were" };
        let copies = copies(report.captured);
        writeln!(out, "{copies} {were} captured into graphs and did not run")?;
    }
    if report.failed_calls > 0 {
        writeln!(out, "calls that failed: {}", report.failed_calls)?;
    }
    Ok(())
}

fn copies(count: u64) -> String {
    format!("{count} {}", if count == 1 { "copy" } else { "copies" })
}

/// `16 copies, 1 memory set`.
fn counted(directions: &[DirectionReport]) -> String {
    let calls = |sets: bool| {
        let all = directions.iter();
        let all = all.filter(|d| (d.direction == Direction::Set.name()) == sets);
        all.map(|d| d.calls).sum::<u64>()
    };
    match calls(true) {
        0 => copies(calls(false)),
        sets => format!("{}, {}", copies(calls(false)), plural(sets, "memory set")),
    }
}

/// Bytes per second, mean and peak: the GPU's, if it was timed.
fn speeds(direction: &DirectionReport) -> (Option<f64>, Option<f64>) {
    match &direction.gpu {
        Some(gpu) if gpu.bytes_per_second.is_some() => {
            (gpu.bytes_per_second, Some(gpu.peak_bytes_per_second))
        }
        _ => (direction.bytes_per_second, direction.peak_bytes_per_second),
    }
}

fn has_speed(direction: &DirectionReport) -> bool {
    speeds(direction).0.is_some()
}

fn table(directions: &[DirectionReport], report: &BandwidthUtil) -> ReportTable {
    let columns = [
        Column::left("DIRECTION"),
        Column::left("MODE"),
        Column::right("CALLS"),
        Column::right("BYTES"),
        Column::right("GB/S"),
        Column::right("PEAK"),
        Column::right("NOW"),
        Column::right("% OF LINK"),
        Column::left("LINK").needs_width(100),
        Column::left("TIMED BY").needs_width(80),
        Column::right("GB/S OF WALL TIME").needs_width(100),
    ];
    let mut table = ReportTable::new(INDENT, &columns);
    for direction in directions {
        let (mean, peak) = speeds(direction);
        let (used, link) = match (direction.link_utilisation, &report.link) {
            (Some(used), Some(link)) => (percent(used), link.to_string()),
            _ => Default::default(),
        };
        let timed_by = match (&direction.gpu, mean) {
            (_, None) => "",
            (Some(_), _) => "the GPU",
            (None, _) => "the calls",
        };
        table.row([
            direction.direction.to_owned(),
            direction.mode.to_owned(),
            direction.calls.to_string(),
            size(direction.bytes),
            gigabytes(mean),
            gigabytes(peak),
            gigabytes(direction.now_bytes_per_second),
            used,
            link,
            timed_by.to_owned(),
            gigabytes(Some(direction.wall_bytes_per_second)),
        ]);
    }
    table
}

/// `pageable to device`; nothing if neither is known.
pub(crate) fn memories(source: Option<&str>, destination: Option<&str>) -> String {
    match source.zip(destination) {
        None | Some(("unknown", "unknown")) => String::new(),
        Some((source, destination)) => format!("{source} to {destination}"),
    }
}

/// One line for one copy.
pub(super) fn write_copy(copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
    let speed = copy.bytes_per_second.map_or("-".into(), speed);
    writeln!(
        out,
        "{} {}:{} {} {} {} {} in {:.1} us  {speed}",
        micros(copy.time.as_ref()),
        copy.pid,
        copy.tid,
        copy.api,
        copy.direction,
        copy.mode,
        size(copy.bytes),
        copy.seconds * 1e6,
    )
}

/// Links and vendors count in powers of ten.
fn speed(bytes_per_second: f64) -> String {
    format!("{:.1} GB/s", bytes_per_second / 1e9)
}
