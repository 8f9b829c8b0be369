//! All of a host, for people: GPUs and the processes on each, or processes.

use std::cmp::Reverse;
use std::io::{self, Write};

use gpuprobe_model::text::{printable, size};

use super::page::Page;
use crate::memleak::{Memleak, ProcessReport};
use crate::views::tables::memory::ProcessLine;
use crate::words::{bar, plural, short_model};

/// Blocks of the bar of a GPU that is full.
const BAR: usize = 18;

/// Writes GPUs in the order of the host, then those that are not known, and below each the processes that use it.
pub(super) fn write_gpus(memleak: &Memleak, page: &mut Page<'_>) -> io::Result<()> {
    let living = memleak.processes.iter().filter(|process| !process.exited);
    let shares = memleak.processes.iter().filter(|process| is_shown(process));
    let shares = shares.flat_map(|process| process.gpus.iter().map(move |share| (process, share)));
    let known = memleak.gpus.iter().map(|gpu| Some(gpu.index));
    let mut gpus: Vec<_> = known
        .chain(shares.clone().map(|(_, share)| share.index))
        .collect();
    gpus.sort_by_key(|index| index.unwrap_or(u32::MAX));
    gpus.dedup();
    let indices = gpus.iter().flatten().count() as u64;
    let mut title = vec![
        plural(indices, "GPU"),
        plural(living.clone().count() as u64, "process"),
    ];
    title.splice(0..0, memleak.host_name.as_deref().map(printable));
    page.head(&title.join("  "))?;
    for index in gpus {
        let users = shares.clone().filter(|(_, share)| share.index == index);
        let mut users: Vec<_> = users
            .map(|(process, share)| ProcessLine {
                process,
                share: Some(*share),
            })
            .collect();
        users.sort_by_key(|user| {
            let share = user.share.unwrap_or_default();
            let most = share.used_bytes.unwrap_or(0).max(share.live_bytes);
            (Reverse(most), user.process.pid)
        });
        writeln!(page, "{}", gpu_line(index, &users, memleak))?;
        write_top(&users, memleak.top, 2, page)?;
    }
    let elsewhere = living.filter(|process| process.gpus.is_empty());
    let elsewhere: Vec<_> = elsewhere.map(whole).collect();
    if !elsewhere.is_empty() {
        writeln!(page, "without memory of a GPU")?;
        page.table(ProcessLine::COLUMNS, &elsewhere, 2)?;
    }
    Ok(())
}

/// A process that ended and left nothing is not listed.
fn is_shown(process: &ProcessReport) -> bool {
    !process.exited || !process.live.is_empty()
}

fn whole(process: &ProcessReport) -> ProcessLine<'_> {
    ProcessLine {
        process,
        share: None,
    }
}

/// `GPU 0 H200  ███████████████░░░  118.00 of 141.00 GiB`.
fn gpu_line(index: Option<u32>, users: &[ProcessLine<'_>], memleak: &Memleak) -> String {
    let Some(index) = index else {
        return "GPU ? (nothing told which)".into();
    };
    let known = memleak.gpus.iter().find(|gpu| gpu.index == index);
    let name = known.map_or(String::new(), |gpu| format!(" {}", short_model(&gpu.name)));
    match known.and_then(|gpu| gpu.used_bytes.zip(gpu.total_bytes)) {
        Some((used, total)) => {
            let full = bar(used as f64 / total.max(1) as f64, BAR);
            let full = full.trim_end_matches(|c| c != '█');
            let empty = "░".repeat(BAR.saturating_sub(full.chars().count()));
            let (used, total) = (size(used), size(total));
            format!("GPU {index}{name}  {full}{empty}  {used} of {total} used")
        }
        None => {
            let traced = users.iter().filter_map(|user| user.share);
            let traced = traced.map(|share| share.live_bytes);
            let traced = size(traced.fold(0, u64::saturating_add));
            format!("GPU {index}{name}  {traced} traced")
        }
    }
}

/// Writes processes, one on each line.
pub(super) fn write_processes(memleak: &Memleak, page: &mut Page<'_>) -> io::Result<()> {
    let listed = memleak.processes.iter().filter(|process| is_shown(process));
    let listed: Vec<_> = listed.map(whole).collect();
    page.head(&plural(listed.len() as u64, "process"))?;
    write_top(&listed, memleak.top, 0, page)
}

fn write_top(
    lines: &[ProcessLine<'_>],
    top: Option<usize>,
    indent: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let (shown, rest) = lines.split_at(lines.len().min(top.unwrap_or(usize::MAX)));
    page.table(ProcessLine::COLUMNS, shown, indent)?;
    if rest.is_empty() {
        return Ok(());
    }
    let held = rest.iter().map(|line| match line.share {
        Some(share) => share.used_bytes.unwrap_or(share.live_bytes),
        None => line.process.live.live_bytes,
    });
    let held = size(held.fold(0, u64::saturating_add));
    let more = plural(rest.len() as u64, "more process");
    page.note(&format!("{:indent$}... {more}, {held} (--top all)", ""))
}
