//! All of a host, for people: GPUs and the processes on each, or processes.

use std::cmp::Reverse;
use std::io::{self, Write};

use gpuprobe_model::text::{printable, size};

use super::page::{Page, bar};
use super::table::{Column, ReportTable};
use crate::memleak::{GpuShare, Memleak, ProcessReport};
use crate::words::{dim, plural, short_model, signed_size};

/// Blocks of the bar of a GPU that is full.
const BAR: usize = 18;

/// A GPU, and what processes have on it.
struct GpuProcesses<'a> {
    index: Option<u32>,
    users: Vec<(&'a ProcessReport, GpuShare)>,
}

/// Writes GPUs, and below each the processes that use it.
pub(super) fn write_gpus(
    memleak: &Memleak,
    top: Option<usize>,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let gpus = by_gpu(memleak);
    let known = gpus.iter().filter(|gpu| gpu.index.is_some()).count() as u64;
    let living = memleak
        .processes
        .iter()
        .filter(|process| !process.exited)
        .count() as u64;
    let mut title = vec![plural(known, "GPU"), processes(living)];
    title.splice(0..0, memleak.host_name.as_deref().map(printable));
    page.head_parts(&title, out)?;
    for gpu in &gpus {
        writeln!(out, "{}", gpu_line(gpu, memleak))?;
        table(&gpu.users, top, page, out)?;
    }
    let elsewhere: Vec<_> = memleak
        .processes
        .iter()
        .filter(|process| process.gpus.is_empty() && !process.exited)
        .collect();
    write_others(&elsewhere, page, out)
}

/// GPUs in the order of the host, then those that are not known.
fn by_gpu(memleak: &Memleak) -> Vec<GpuProcesses<'_>> {
    let mut gpus: Vec<GpuProcesses<'_>> = memleak
        .gpus
        .iter()
        .map(|gpu| GpuProcesses {
            index: Some(gpu.index),
            users: Vec::new(),
        })
        .collect();
    for process in memleak.processes.iter().filter(|process| is_shown(process)) {
        for share in &process.gpus {
            match gpus.iter_mut().find(|gpu| gpu.index == share.index) {
                Some(gpu) => gpu.users.push((process, *share)),
                None => gpus.push(GpuProcesses {
                    index: share.index,
                    users: vec![(process, *share)],
                }),
            }
        }
    }
    gpus.sort_by_key(|gpu| gpu.index.unwrap_or(u32::MAX));
    for gpu in &mut gpus {
        gpu.users.sort_by_key(|(process, share)| {
            let most = share.used_bytes.unwrap_or(0).max(share.live_bytes);
            (Reverse(most), process.pid)
        });
    }
    gpus
}

/// A process that ended and left nothing is not listed.
fn is_shown(process: &ProcessReport) -> bool {
    !process.exited || !process.live.is_empty()
}

/// `GPU 0 H200  ███████████████░░░  118.00 of 141.00 GiB`.
fn gpu_line(gpu: &GpuProcesses<'_>, memleak: &Memleak) -> String {
    let Some(index) = gpu.index else {
        return "GPU ? (nothing told which)".into();
    };
    let known = memleak.gpus.iter().find(|gpu| gpu.index == index);
    let name = known.map_or(String::new(), |gpu| format!(" {}", short_model(&gpu.name)));
    let memory = known.and_then(|gpu| gpu.used_bytes.zip(gpu.total_bytes));
    match memory {
        Some((used, total)) => {
            let full = bar(used as f64 / total.max(1) as f64, BAR);
            let full = full.trim_end_matches(|c| c != '█');
            let empty = "░".repeat(BAR.saturating_sub(full.chars().count()));
            let (used, total) = (size(used), size(total));
            format!("GPU {index}{name}  {full}{empty}  {used} of {total} used")
        }
        None => {
            let traced = gpu.users.iter().map(|(_, share)| share.live_bytes);
            let traced = size(traced.fold(0, u64::saturating_add));
            format!("GPU {index}{name}  {traced} traced")
        }
    }
}

fn table(
    users: &[(&ProcessReport, GpuShare)],
    top: Option<usize>,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let columns = [
        Column::right("PID"),
        Column::left("USER"),
        Column::left("COMMAND"),
        Column::left("CONTAINER"),
        Column::right("NVIDIA-SMI"),
        Column::right("TRACED"),
        Column::right("BEFORE+CTX").needs_width(90),
        Column::right("PER MIN"),
        Column::text("TOP SITE"),
    ];
    let mut table = ReportTable::new(2, &columns);
    let shown = top.unwrap_or(usize::MAX).min(users.len());
    for (process, share) in &users[..shown] {
        let rest = share
            .used_bytes
            .map(|used| used.saturating_sub(share.live_bytes));
        table.row([
            process.pid.to_string(),
            process.who().user(),
            command(process, page),
            container(process),
            share.used_bytes.map_or(String::new(), size),
            held(share.live_bytes),
            rest.map_or(String::new(), size),
            process
                .change_bytes_per_minute
                .map_or(String::new(), signed_size),
            top_site(process),
        ]);
    }
    table.write(page.columns, out)?;
    let rest = &users[shown..];
    if rest.is_empty() {
        return Ok(());
    }
    let bytes = rest
        .iter()
        .map(|(_, share)| share.used_bytes.unwrap_or(share.live_bytes));
    let bytes = size(bytes.fold(0, u64::saturating_add));
    let more = processes(rest.len() as u64);
    let more = format!("... {more} more, {bytes} (--top all)");
    writeln!(out, "  {}", dim(&more))
}

/// A size; empty if there is nothing.
fn held(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => size(bytes),
    }
}

/// Columns of a command where lines are short, and where they are not.
const COMMAND: [usize; 2] = [14, 32];

fn command(process: &ProcessReport, page: &Page) -> String {
    let program = process.who().program();
    let [narrow, wide] = COMMAND;
    let width = match page.columns {
        Some(columns) if columns < 100 => narrow,
        _ => wide,
    };
    let mut command = crate::names::cut(&program, width);
    if process.exited {
        command += " (ended)";
    }
    command
}

fn container(process: &ProcessReport) -> String {
    let id = process.container.as_deref().unwrap_or_default();
    id.get(..12).unwrap_or(id).to_owned()
}

/// The call site that holds most.
fn top_site(process: &ProcessReport) -> String {
    if !process.traced {
        return "(before attach)".into();
    }
    let sites = process.listed().iter();
    let largest = sites.max_by_key(|site| site.live.live_bytes);
    largest.map_or(String::new(), |site| printable(&site.label))
}

/// Processes that hold no memory of a GPU.
fn write_others(others: &[&ProcessReport], page: &Page, out: &mut dyn Write) -> io::Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    writeln!(out, "without memory of a GPU")?;
    let columns = [
        Column::right("PID"),
        Column::left("USER"),
        Column::right("HOST MEMORY"),
        Column::text("COMMAND"),
    ];
    let mut table = ReportTable::new(2, &columns);
    for process in others {
        table.row([
            process.pid.to_string(),
            process.who().user(),
            held(process.live.host_bytes),
            process.who().program(),
        ]);
    }
    table.write(page.columns, out)
}

/// Writes processes, one on each line.
pub(super) fn write_processes(
    memleak: &Memleak,
    top: Option<usize>,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let listed: Vec<_> = memleak.processes.iter().filter(|p| is_shown(p)).collect();
    page.head(&processes(listed.len() as u64), out)?;
    let columns = [
        Column::right("PID"),
        Column::left("USER"),
        Column::left("COMMAND"),
        Column::left("CONTAINER"),
        Column::left("GPU"),
        Column::right("HELD"),
        Column::right("CHANGE").needs_width(100),
        Column::right("PEAK").needs_width(110),
        Column::right("N").needs_width(100),
        Column::right("NVIDIA-SMI"),
        Column::text("TOP SITE"),
    ];
    let mut table = ReportTable::new(0, &columns);
    let shown = top.unwrap_or(usize::MAX).min(listed.len());
    for process in &listed[..shown] {
        let gpu = |share: &GpuShare| share.index.map_or("?".into(), |index| index.to_string());
        let gpus: Vec<_> = process.gpus.iter().map(gpu).collect();
        table.row([
            process.pid.to_string(),
            process.who().user(),
            command(process, page),
            container(process),
            gpus.join(","),
            size(process.live.live_bytes),
            process.change_bytes.map_or(String::new(), signed_size),
            size(process.peak_bytes),
            process.live.live_allocations.to_string(),
            process
                .nvml
                .map_or(String::new(), |nvml| size(nvml.used_bytes)),
            top_site(process),
        ]);
    }
    table.write(page.columns, out)?;
    match listed.len() - shown {
        0 => Ok(()),
        more => {
            let more = format!("... {} more (--top all)", processes(more as u64));
            writeln!(out, "{}", dim(&more))
        }
    }
}

/// `1 process`, `2 processes`.
fn processes(number: u64) -> String {
    let plural = if number == 1 { "process" } else { "processes" };
    format!("{number} {plural}")
}
