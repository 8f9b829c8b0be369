//! What the GPU did, for people.

use std::io::{self, Write};

use super::{printable, size};
use crate::report::activity::{
    ActivitySummary, CallSummary, CopySummary, DeviceSummary, KernelSummary, MemorySummary,
    ProcessSummary, Timed, Times, names,
};
use crate::symbols;

/// Columns of a kernel's name at most.
const NAME_WIDTH: usize = 64;
/// What of a process is listed is indented by this.
const INDENT: &str = "        ";

pub(super) fn write(report: &ActivitySummary, out: &mut dyn Write) -> io::Result<()> {
    if report.records == 0 {
        return writeln!(out, "NO ACTIVITY.");
    }
    writeln!(out, "{} records of what the GPU did", report.records)?;
    for process in &report.processes {
        write_process(process, out)?;
    }
    if report.forgotten_processes > 0 {
        let count = report.forgotten_processes;
        writeln!(out, "... and {count} processes that ended long ago")?;
    }
    Ok(())
}

fn write_process(process: &ProcessSummary, out: &mut dyn Write) -> io::Result<()> {
    let uid = process.uid.map_or("?".into(), |uid| uid.to_string());
    let comm = printable(process.comm.as_deref().unwrap_or("?"));
    let exited = match (process.exited, process.complete) {
        (false, _) => "",
        (true, true) => " (exited)",
        (true, false) => " (exited; what CUPTI had not handed over by then is missing)",
    };
    writeln!(out, "PID: {} / UID: {uid} {comm}{exited}", process.pid)?;
    for device in &process.devices {
        write_device(device, process.observed_seconds, out)?;
    }
    write_kernels(process, out)?;
    process
        .copies
        .iter()
        .try_for_each(|copy| write_copy(copy, out))?;
    write_timed("waits for the GPU", &process.synchronizations, out)?;
    write_memory("memory", &process.memory, out)?;
    write_memory("memory pools", &process.memory_pools, out)?;
    write_calls(process, out)?;
    if process.graphs.count > 0 {
        writeln!(out, "    graphs: {}", times(&process.graphs, "runs"))?;
    }
    write_timed("cost of tracing", &process.overhead, out)?;
    if process.markers > 0 {
        writeln!(out, "    marks of the program: {}", process.markers)?;
    }
    Ok(())
}

fn write_device(device: &DeviceSummary, observed: f64, out: &mut dyn Write) -> io::Result<()> {
    let number = device
        .device
        .map_or("?".into(), |number| number.to_string());
    let name = device.name.as_deref().map(printable).unwrap_or_default();
    let space = if name.is_empty() { "" } else { " " };
    writeln!(
        out,
        "    GPU {number}{space}{name}: busy {}, {:.1} % of {:.3} s; since the last report {:.1} %",
        time(device.busy_ns as f64),
        device.busy_share * 100.0,
        observed,
        device.recent_busy_share * 100.0,
    )?;
    let gaps = &device.gaps;
    if gaps.count > 0 {
        writeln!(
            out,
            "{INDENT}nothing ran {} times between, for {}, at most {}",
            gaps.count,
            time(gaps.total_ns as f64),
            time(gaps.longest_ns as f64),
        )?;
        write_lengths(&gaps.by_length, out)?;
    }
    if device.late_records > 0 {
        let late = device.late_records;
        writeln!(
            out,
            "{INDENT}{late} records came too late to be counted as busy"
        )?;
    }
    Ok(())
}

/// Gaps by length, in powers of ten.
fn write_lengths(by_length: &[[u64; 2]], out: &mut dyn Write) -> io::Result<()> {
    const BOUNDS: [(u64, &str); 5] = [
        (1 << 10, "1 us"),
        (1 << 14, "16 us"),
        (1 << 20, "1 ms"),
        (1 << 24, "17 ms"),
        (u64::MAX, ""),
    ];
    let mut from = 0;
    let mut parts = Vec::new();
    for (index, &(bound, name)) in BOUNDS.iter().enumerate() {
        let within = by_length
            .iter()
            .filter(|[ns, _]| from < *ns && *ns <= bound);
        let count: u64 = within.map(|[_, count]| count).sum();
        let above = index.checked_sub(1).map_or("", |below| BOUNDS[below].1);
        if count > 0 && name.is_empty() {
            parts.push(format!("{count} of {above} and more"));
        } else if count > 0 {
            parts.push(format!("{count} below {name}"));
        }
        from = bound;
    }
    writeln!(out, "{INDENT}{}", parts.join(", "))
}

fn write_kernels(process: &ProcessSummary, out: &mut dyn Write) -> io::Result<()> {
    if process.kernels.is_empty() {
        return Ok(());
    }
    writeln!(out, "    kernels")?;
    let shown = |kernel: &KernelSummary| printable(&symbols::shorten(&kernel.name, NAME_WIDTH));
    let names: Vec<_> = process.kernels.iter().map(shown).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for (kernel, name) in process.kernels.iter().zip(&names) {
        writeln!(
            out,
            "{INDENT}{name:width$}   {:>5.1} %  {}",
            kernel.share * 100.0,
            times(&kernel.times, "runs"),
        )?;
    }
    if process.omitted_kernels > 0 {
        writeln!(out, "{INDENT}... and {} more", process.omitted_kernels)?;
    }
    Ok(())
}

fn write_copy(copy: &CopySummary, out: &mut dyn Write) -> io::Result<()> {
    let between = match (copy.source, copy.destination) {
        (Some(source), Some(destination)) => format!(" {source} to {destination}"),
        _ => String::new(),
    };
    let mode = copy.mode.map(|mode| format!(" {mode}")).unwrap_or_default();
    let speed = |speed: Option<f64>| {
        speed.map_or("-".to_owned(), |speed| format!("{:.1} GB/s", speed / 1e9))
    };
    writeln!(
        out,
        "    {}{mode}{between}: {} in {}, {}   mean {}  peak {}",
        copy.direction,
        copy.times.count,
        time(copy.times.total_ns as f64),
        size(copy.bytes),
        speed(copy.bytes_per_second),
        speed(copy.peak_bytes_per_second),
    )
}

fn write_timed(what: &str, all: &[Timed], out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "    {what}")?;
    for timed in all {
        writeln!(
            out,
            "{INDENT}{}: {}",
            timed.kind,
            times(&timed.times, "times")
        )?;
    }
    Ok(())
}

fn write_memory(what: &str, all: &[MemorySummary], out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let one = |memory: &MemorySummary| {
        let kind = memory
            .kind
            .map(|kind| format!("{kind} "))
            .unwrap_or_default();
        let (operation, count) = (memory.operation, memory.count);
        format!("{kind}{operation} {count} ({})", size(memory.bytes))
    };
    let all: Vec<_> = all.iter().map(one).collect();
    writeln!(out, "    {what}: {}", all.join(", "))
}

fn write_calls(process: &ProcessSummary, out: &mut dyn Write) -> io::Result<()> {
    if process.calls.is_empty() {
        return Ok(());
    }
    writeln!(out, "    calls")?;
    let shown = |call: &CallSummary| {
        let name = names::function(&call.name);
        printable(&symbols::shorten(name, NAME_WIDTH))
    };
    let names: Vec<_> = process.calls.iter().map(shown).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for (call, name) in process.calls.iter().zip(&names) {
        write!(out, "{INDENT}{:<8} {name:width$}   ", call.domain)?;
        write!(out, "{}", times(&call.times, "calls"))?;
        match call.failed {
            0 => writeln!(out)?,
            failed => writeln!(out, ", {failed} failed")?,
        }
    }
    if process.omitted_functions > 0 {
        writeln!(
            out,
            "{INDENT}... and {} more functions",
            process.omitted_functions
        )?;
    }
    Ok(())
}

fn times(times: &Times, unit: &str) -> String {
    let total = time(times.total_ns as f64);
    let mean = time(times.mean_ns);
    let (min, max) = (time(times.min_ns as f64), time(times.max_ns as f64));
    format!(
        "{} {unit}  {total}  mean {mean}  min {min}  max {max}",
        times.count
    )
}

/// Three or four digits, and the unit that fits.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::activity::{Activity, Batch, Record, wire};
    use crate::api::Modes;
    use crate::clock::Clock;
    use crate::event::Event;
    use crate::report::{self, Format, Lost, Options, View};
    use crate::stacks::NoSymbols;
    use crate::state::State;

    fn batch(records: impl IntoIterator<Item = (Record, &'static str)>) -> Event {
        let activity = |(record, name): (Record, &str)| Activity {
            pid: 7,
            record,
            name: (!name.is_empty()).then(|| Arc::from(name)),
            qualifier: None,
        };
        Event::Activity(Batch {
            pid: 7,
            process: 7,
            cupti_version: 130_001,
            is_last: true,
            activities: records.into_iter().map(activity).collect(),
        })
    }

    fn kernel(start_ns: u64, end_ns: u64) -> Record {
        Record::Kernel(wire::Kernel {
            start_ns,
            end_ns,
            ..wire::Kernel::default()
        })
    }

    #[test]
    fn sums_for_people() {
        let copy = wire::Memcpy {
            start_ns: 5_000,
            end_ns: 7_000,
            size_bytes: 20_000,
            copy_kind: 1,
            source_kind: 2,
            destination_kind: 3,
            flags: 1,
            ..wire::Memcpy::default()
        };
        let call = wire::Api {
            start_ns: 1_000,
            end_ns: 1_500,
            domain: 2,
            result: 1,
            ..wire::Api::default()
        };
        let memory = wire::Memory {
            time_ns: 900,
            operation: 1,
            memory_kind: 3,
            size_bytes: 1 << 20,
            ..wire::Memory::default()
        };
        let mut state = State::default();
        // The second kernel comes first, and the names are hostile.
        state.activity.apply(&batch([
            (kernel(3_000, 4_000), "_Z1kPf"),
            (kernel(1_000, 4_000), "evil\u{1b}[2J"),
            (Record::Memcpy(copy), ""),
            (Record::Api(call), "cudaMalloc_v3020"),
            (Record::Memory(memory), ""),
        ]));
        let options = Options {
            modes: Modes {
                activity: true,
                ..Modes::default()
            },
            top: Some(10),
            view: View::default(),
            stacks: false,
            now_ns: 10_900,
            is_final: true,
            since_last: Duration::from_nanos(10_000),
            since_start: Duration::from_nanos(10_000),
            link: None,
        };
        let clock = Clock::now();
        let report = report::build(&state, Lost::default(), &clock, &options, None, &NoSymbols);
        let mut out = Vec::new();
        Format::Text.writer(false).write(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, sums) = text.split_once('\n').unwrap();
        let expected = "\
5 records of what the GPU did
PID: 7 / UID: ? ?
    GPU 0: busy 5.00 us, 50.0 % of 0.000 s; since the last report 50.0 %
        nothing ran 1 times between, for 1.00 us, at most 1.00 us
        1 below 1 us
    kernels
        evil\\u{1b}[2J    75.0 %  1 runs  3.00 us  mean 3.00 us  min 3.00 us  max 3.00 us
        k(float*)        25.0 %  1 runs  1.00 us  mean 1.00 us  min 1.00 us  max 1.00 us
    H2D async pinned to device: 1 in 2.00 us, 19.53 KiB   mean 10.0 GB/s  peak 10.0 GB/s
    memory: device allocation 1 (1.00 MiB)
    calls
        runtime  cudaMalloc   1 calls  500 ns  mean 500 ns  min 500 ns  max 500 ns, 1 failed

";
        assert_eq!(sums, expected);
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        for (ns, expected) in [
            (0.0, "0 ns"),
            (999.0, "999 ns"),
            (1_500.0, "1.50 us"),
            (2_345_678.0, "2.346 ms"),
            (61e9, "61.000 s"),
        ] {
            assert_eq!(time(ns), expected);
        }
    }
}
