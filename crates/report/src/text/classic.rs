//! Who holds memory by thread, in the words of the first version: scripts read it.

use gpuprobe_model::text::printable;
use gpuprobe_model::text::size;
use std::io::{self, Write};

use super::nvidia_smi::Unit;
use super::page::Page;
use crate::memleak::{
    AllocationReport, LiveMemory, Memleak, NvmlUsage, Omitted, PoolReport, ProcessReport,
    ThreadReport,
};
use crate::words::amount;
use gpuprobe_cuda::MemoryKind;

pub(super) fn write(memleak: &Memleak, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    page.rule(out)?;
    if !memleak.has_calls() && memleak.processes.is_empty() {
        return writeln!(out, "no memory call so far");
    }
    write_processes(memleak, out)?;
    writeln!(out)?;
    writeln!(out, "TOTAL LEAKED: {}", size(memleak.live.live_bytes))?;
    write_besides(&memleak.live, out)?;
    writeln!(out)?;
    writeln!(out, "{}", call_counts(memleak))?;
    if memleak.failed_calls > 0 {
        writeln!(out, "calls that failed: {}", memleak.failed_calls)?;
    }
    if memleak.unknown_frees > 0 {
        let unknown = memleak.unknown_frees;
        writeln!(
            out,
            "frees of memory allocated before tracing began: {unknown}"
        )?;
    }
    let LiveMemory {
        live_bytes,
        live_allocations,
        ..
    } = memleak.live;
    writeln!(
        out,
        "{live_bytes} bytes leaked from {live_allocations} cuda memory allocation(s)"
    )
}

/// Each process with its threads and their allocations.
pub(super) fn write_processes(memleak: &Memleak, out: &mut dyn Write) -> io::Result<()> {
    // A process that ended and leaked nothing is no news.
    let is_shown = |process: &&ProcessReport| !process.exited || !process.live.is_empty();
    let mut shown = memleak.processes.iter().filter(is_shown);
    shown.try_for_each(|process| write_process(process, out))
}

/// Writes live memory that takes no GPU memory of its own.
fn write_besides(live: &LiveMemory, out: &mut dyn Write) -> io::Result<()> {
    if live.host_allocations > 0 {
        let (host, count) = (size(live.host_bytes), live.host_allocations);
        writeln!(out, "besides, host memory: {host} in {count}")?;
    }
    if live.imported_allocations > 0 {
        let (imported, count) = (size(live.imported_bytes), live.imported_allocations);
        writeln!(out, "besides, memory of others: {imported} in {count}")?;
    }
    Ok(())
}

/// Names each allocating function that was called.
fn call_counts(memleak: &Memleak) -> String {
    let mut counts = memleak
        .calls
        .iter()
        .map(|(symbol, calls)| format!("`{symbol}` calls: {calls}"));
    let first = counts
        .next()
        .unwrap_or_else(|| "allocating calls: 0".into());
    counts.fold(format!("total number of {first}"), |line, next| {
        format!("{line}, {next}")
    })
}

fn write_process(process: &ProcessReport, out: &mut dyn Write) -> io::Result<()> {
    let uid = process.uid.map_or("?".into(), |uid| uid.to_string());
    let exited = if process.exited { " (exited)" } else { "" };
    let container = process.container.as_deref().map_or(String::new(), |id| {
        let inner = process.container_pid;
        let inner = inner.map_or(String::new(), |pid| format!(", PID {pid} there"));
        format!(" in container {}{inner}", id.get(..12).unwrap_or(id))
    });
    writeln!(out, "PID: {} / UID: {uid}{container}{exited}", process.pid)?;
    if process.threads.is_empty() {
        writeln!(out, "  nothing live")?;
    }
    for thread in &process.threads {
        write_thread(thread, out)?;
    }
    write_sums(process, out)?;
    for pool in &process.pools {
        write_pool(pool, out)?;
    }
    if let Some(nvml) = &process.nvml {
        writeln!(out, "  {}", nvml_line(nvml))?;
    }
    Ok(())
}

fn write_thread(thread: &ThreadReport, out: &mut dyn Write) -> io::Result<()> {
    let comm = printable(thread.comm.as_deref().unwrap_or("?"));
    let tid = thread.tid.map_or("?".into(), |tid| tid.to_string());
    writeln!(out, "  {comm}:{tid}")?;
    for allocation in &thread.allocations {
        writeln!(out, "    {}", allocation_line(allocation))?;
    }
    if thread.omitted_allocations > 0 {
        let (count, size) = (thread.omitted_allocations, size(thread.omitted_bytes));
        writeln!(out, "    ... and {count} more, {size}")?;
    }
    thread
        .filtered
        .map_or(Ok(()), |left| write_filtered("    ", &left, out))
}

/// Writes live memory that is not listed because the options filter it.
fn write_filtered(indent: &str, filtered: &Omitted, out: &mut dyn Write) -> io::Result<()> {
    let amount = amount(filtered.bytes, filtered.allocations);
    writeln!(out, "{indent}not listed for age or size: {amount}")
}

/// `gpu_0`, as the process numbers its GPUs.
pub(super) fn place(allocation: &AllocationReport) -> String {
    match allocation.device {
        _ if allocation.at_host => "host".into(),
        Some(device) => format!("gpu_{device}"),
        None => "gpu_?".into(),
    }
}

fn allocation_line(allocation: &AllocationReport) -> String {
    let place = place(allocation);
    let (address, bytes) = (allocation.address, size(allocation.bytes));
    let mut line = format!("{address:#x}:{place}: {bytes}");
    if allocation.kind != MemoryKind::Device {
        line += &format!(" {}", allocation.kind);
    }
    if allocation.computed {
        line += " (computed)";
    }
    if allocation.kind == MemoryKind::Static && allocation.bytes == 0 {
        line += " (size unknown)";
    }
    if let Some(name) = &allocation.name {
        line += &format!(" {}", printable(name));
    }
    if allocation.mapped_bytes == Some(0) {
        line += " (not mapped)";
    }
    line
}

/// By kind and by device, where that says more than the total.
fn write_sums(process: &ProcessReport, out: &mut dyn Write) -> io::Result<()> {
    let kinds = &process.kinds.0;
    let plain = kinds.iter().all(|(kind, _)| *kind == MemoryKind::Device);
    if !plain {
        let kinds: Vec<_> = kinds.iter().map(super::process::of_kind).collect();
        writeln!(out, "  by kind: {}", kinds.join(", "))?;
    }
    if process.devices.len() > 1 {
        let device = |d: Option<u16>| d.map_or("?".into(), |d| d.to_string());
        let devices = process.devices.iter();
        let devices: Vec<_> = devices
            .map(|d| format!("gpu_{} {}", device(d.device), size(d.bytes)))
            .collect();
        writeln!(out, "  by device: {}", devices.join(", "))?;
    }
    if process.reserved_address_bytes > 0 {
        let reserved = size(process.reserved_address_bytes);
        writeln!(out, "  address space reserved, no memory: {reserved}")?;
    }
    Ok(())
}

fn write_pool(pool: &PoolReport, out: &mut dyn Write) -> io::Result<()> {
    let Some(reserved) = pool.reserved_bytes else {
        return Ok(());
    };
    let name = pool
        .pool
        .map_or("?".into(), |handle| format!("{handle:#x}"));
    let (used, reserved) = (size(pool.used_bytes), size(reserved));
    writeln!(out, "  pool {name}: used {used}, reserved {reserved}")
}

/// `tracked A + before attach or outside CUDA B (of it context about C) = nvidia-smi D`: adds up
/// as it is written, whatever rounding does.
fn nvml_line(nvml: &NvmlUsage) -> String {
    let NvmlUsage {
        used_bytes,
        tracked_bytes,
        other_bytes,
        context_bytes,
    } = *nvml;
    let unit = Unit::of(used_bytes);
    let (used, tracked) = (unit.hundredths(used_bytes), unit.hundredths(tracked_bytes));
    let sign = if other_bytes < 0 { '-' } else { '+' };
    let context = context_bytes.map_or(String::new(), |bytes| {
        format!(
            " (of it context about {})",
            unit.text(unit.hundredths(bytes))
        )
    });
    format!(
        "tracked {} {sign} before attach or outside CUDA {}{context} = nvidia-smi {}",
        unit.text(tracked),
        unit.text(used.abs_diff(tracked)),
        unit.text(used),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_line_adds_up_as_it_is_written() {
        let nvml = NvmlUsage {
            used_bytes: 7 * GIB,
            tracked_bytes: 5 * GIB + GIB / 8,
            other_bytes: 2 * (GIB as i64) - (GIB / 8) as i64,
            context_bytes: Some(GIB / 2),
        };
        assert_eq!(
            nvml_line(&nvml),
            "tracked 5.13 GiB + before attach or outside CUDA 1.87 GiB \
             (of it context about 0.50 GiB) = nvidia-smi 7.00 GiB"
        );
    }

    #[test]
    fn more_tracked_than_used_is_said_too() {
        let nvml = NvmlUsage {
            used_bytes: 10 << 20,
            tracked_bytes: 12 << 20,
            other_bytes: -(2 << 20),
            context_bytes: None,
        };
        assert_eq!(
            nvml_line(&nvml),
            "tracked 12.00 MiB - before attach or outside CUDA 2.00 MiB = nvidia-smi 10.00 MiB"
        );
    }
}
