//! Copies, for people.

use gpuprobe_model::text::size;
use std::io::{self, Write};

use crate::bandwidth::{BandwidthUtil, CopyReport, DirectionReport};
use crate::micros;

pub(super) fn write(report: &BandwidthUtil, out: &mut dyn Write) -> io::Result<()> {
    let sets = match report.sets {
        0 => String::new(),
        sets => format!(" and {sets} memory sets"),
    };
    writeln!(out, "Traced {} copies{sets}", report.copies)?;
    let mut pid = None;
    for direction in &report.directions {
        if pid != Some(direction.pid) {
            pid = Some(direction.pid);
            writeln!(out, "PID: {}", direction.pid)?;
        }
        write_direction(direction, report, out)?;
    }
    if report.captured > 0 {
        let captured = report.captured;
        writeln!(
            out,
            "{captured} copies were captured into graphs and did not run"
        )?;
    }
    if report.failed_calls > 0 {
        writeln!(out, "calls that failed: {}", report.failed_calls)?;
    }
    Ok(())
}

fn write_direction(
    direction: &DirectionReport,
    report: &BandwidthUtil,
    out: &mut dyn Write,
) -> io::Result<()> {
    let calls = direction.calls;
    let bytes = size(direction.bytes);
    write!(
        out,
        "        {:<7} {calls} calls  {bytes}",
        direction.direction
    )?;
    if let Some(gpu) = &direction.gpu
        && let Some(mean) = gpu.bytes_per_second
    {
        let peak = speed(gpu.peak_bytes_per_second);
        write!(out, "   mean {}  peak {peak}  on the GPU", speed(mean))?;
        if gpu.count != calls {
            write!(out, " ({} copies there)", gpu.count)?;
        }
        return end(direction, report, out);
    }
    match direction.bytes_per_second {
        Some(mean) => {
            let peak = speed(direction.peak_bytes_per_second.unwrap_or(mean));
            let now = direction.now_bytes_per_second.map_or("-".into(), speed);
            write!(out, "   mean {}  peak {peak}  now {now}", speed(mean))?;
        }
        None => {
            let wall = speed(direction.wall_bytes_per_second);
            write!(
                out,
                "   {wall} of wall-clock time (calls return before the transfer ends)"
            )?;
        }
    }
    end(direction, report, out)
}

/// The share of the link, and the end of the line.
fn end(direction: &DirectionReport, report: &BandwidthUtil, out: &mut dyn Write) -> io::Result<()> {
    if let (Some(used), Some(link)) = (direction.link_utilisation, &report.link) {
        write!(out, "   {:.0} % of {link}", used * 100.0)?;
    }
    writeln!(out)
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
