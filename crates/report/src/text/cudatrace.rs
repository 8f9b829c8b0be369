//! The histogram of launches, for people.

use gpuprobe_model::text::printable;
use std::collections::HashMap;
use std::io::{self, Write};

use crate::cudatrace::{Cudatrace, KernelReport, LauncherReport};
use gpuprobe_stacks::symbols;

/// Columns of a kernel's name at most.
const NAME_WIDTH: usize = 64;
/// Blocks of the bar of a kernel that has all launches.
const BAR_WIDTH: f64 = 16.0;

pub(super) fn write(report: &Cudatrace, out: &mut dyn Write) -> io::Result<()> {
    if report.launches + report.graph_launches + report.captured_launches == 0 {
        return writeln!(out, "NO LAUNCH.");
    }
    // What was only captured has not run.
    let mut ran: HashMap<u32, Vec<&KernelReport>> = HashMap::new();
    for kernel in report.kernels.iter().filter(|k| k.launches > 0) {
        ran.entry(kernel.process).or_default().push(kernel);
    }
    for process in report.processes.iter().filter(|p| p.launches > 0) {
        let kernels = ran.remove(&process.id).unwrap_or_default();
        write_process(process, &kernels, out)?;
    }
    for graph in &report.graphs {
        let (pid, launches, graphs) = (graph.pid, graph.launches, graph.graphs);
        writeln!(
            out,
            "PID: {pid}: {launches} graph launches of {graphs} graphs"
        )?;
    }
    if report.captured_launches > 0 {
        let captured = report.captured_launches;
        writeln!(
            out,
            "{captured} launches were captured into graphs and did not run"
        )?;
    }
    Ok(())
}

fn write_process(
    process: &LauncherReport,
    kernels: &[&KernelReport],
    out: &mut dyn Write,
) -> io::Result<()> {
    let uid = process.uid.map_or("?".into(), |uid| uid.to_string());
    let comm = printable(process.comm.as_deref().unwrap_or("?"));
    let exited = if process.exited { " (exited)" } else { "" };
    writeln!(out, "PID: {} / UID: {uid} {comm}{exited}", process.pid)?;
    let calls: Vec<_> = process
        .calls
        .iter()
        .map(|(api, launches)| format!("{launches} `{api}`"))
        .collect();
    writeln!(
        out,
        "{} calls for {} kernels",
        calls.join(", "),
        process.kernels
    )?;
    let names: Vec<_> = kernels
        .iter()
        .map(|k| printable(&symbols::shorten(&k.name, NAME_WIDTH)))
        .collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for (kernel, name) in kernels.iter().zip(&names) {
        let share = kernel.launches as f64 / process.launches.max(1) as f64;
        let bar = "█".repeat((share * BAR_WIDTH).round() as usize);
        writeln!(
            out,
            "        {name:width$}   {} launches  {:>5.1} %  {:>9.1}/s  {bar:16}  grid {} block {}",
            kernel.launches,
            share * 100.0,
            kernel.per_second,
            dimensions(kernel.grid),
            dimensions(kernel.block),
        )?;
    }
    if process.omitted_kernels > 0 {
        let (count, launches) = (process.omitted_kernels, process.omitted_launches);
        writeln!(out, "        ... and {count} more, {launches} launches")?;
    }
    Ok(())
}

fn dimensions([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}
