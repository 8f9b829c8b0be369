//! Kernels and copies.

use std::io::{self, Write};

use crate::Report;
use crate::analysis::merged::{Copies, Kernel, timed_processes};
use crate::analysis::work::Gpu;
use gpuprobe_model::text::{printable, size};
use gpuprobe_stacks::symbols;

/// Columns of a kernel's name at most.
const NAME_WIDTH: usize = 64;

/// Kernels that ran on a GPU that was timed, or else those that were launched.
pub(in crate::analysis) fn kernels(
    report: &Report,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let kernels = Kernel::all(report);
    let launches: u64 = kernels.iter().map(|kernel| kernel.launches).sum();
    let ran = timed_processes(report).map(|process| process.graphs.count);
    let ran: u64 = ran.sum();
    let called = report
        .cudatrace
        .as_ref()
        .map_or(0, |trace| trace.graph_launches);
    let graphs = if ran > 0 { ran } else { called };
    writeln!(
        out,
        "kernels: {launches} launches of {} kernels, {graphs} graph launches",
        kernels.len()
    )?;
    gpus(report.about.as_ref().map_or(&[], |about| &about.gpus), out)?;
    let times = kernels.iter().filter_map(|kernel| kernel.times);
    let total: u64 = times.map(|times| times.total_ns).sum();
    for kernel in kernels.iter().take(top) {
        let name = printable(&symbols::shorten(kernel.name, NAME_WIDTH));
        write!(out, "  {:>10}  {name}", kernel.launches)?;
        if let Some(times) = kernel.times {
            let share = times.total_ns as f64 * 100.0 / total.max(1) as f64;
            let us = |ns: u64| ns as f64 / 1e3;
            write!(
                out,
                "   {:.3} ms on the GPU ({share:.1} %), mean {:.1} us ({:.1} to {:.1})",
                times.total_ns as f64 / 1e6,
                times.mean_ns / 1e3,
                us(times.min_ns),
                us(times.max_ns)
            )?;
        }
        if let Some(captured) = kernel.captured.filter(|&captured| captured > 0) {
            write!(out, "   {captured} captured")?;
        }
        writeln!(out)?;
    }
    match kernels.len().saturating_sub(top) {
        0 => Ok(()),
        rest => writeln!(out, "  ... and {rest} more"),
    }
}

fn gpus(gpus: &[Gpu], out: &mut dyn Write) -> io::Result<()> {
    let ms = |ns: u64| ns as f64 / 1e6;
    for gpu in gpus {
        writeln!(
            out,
            "  gpu_{}: busy {:.3} of {:.3} ms ({:.1} %), {} gaps, the longest {:.3} ms",
            gpu.device,
            ms(gpu.busy_ns),
            ms(gpu.span_ns),
            gpu.share * 100.0,
            gpu.gaps,
            ms(gpu.longest_gap_ns)
        )?;
    }
    Ok(())
}

/// Copies that ran on a GPU that was timed, or else those that were called.
pub(in crate::analysis) fn copies(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let copies = Copies::all(report);
    writeln!(
        out,
        "copies: {}",
        copies.iter().map(|copy| copy.count).sum::<u64>()
    )?;
    for copy in &copies {
        write!(
            out,
            "  {:<12} {:<5} {:>10}  {}",
            copy.direction,
            copy.mode,
            copy.count,
            size(copy.bytes)
        )?;
        match (copy.bytes_per_second(), copy.ns) {
            (Some(speed), Some(ns)) => {
                let (ms, speed) = (ns as f64 / 1e6, speed / 1e9);
                writeln!(out, "   {ms:.3} ms   {speed:.1} GB/s")?;
            }
            _ => writeln!(out)?,
        }
    }
    Ok(())
}
