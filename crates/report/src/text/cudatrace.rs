//! The histogram of launches, for people.

use std::collections::HashMap;
use std::io::{self, Write};

use gpuprobe_model::text::printable;

use super::page::Page;
use super::table::{Column, ReportTable};
use crate::cudatrace::{Cudatrace, KernelReport, LauncherReport};
use crate::words::{Who, dim, plural};

/// Blocks of the bar of a kernel that has all launches.
const BAR_WIDTH: f64 = 16.0;

pub(super) fn write(report: &Cudatrace, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    if report.launches + report.graph_launches + report.captured_launches == 0 {
        return page.head("no kernel was launched", out);
    }
    // What was only captured has not run.
    let mut ran: HashMap<u32, Vec<&KernelReport>> = HashMap::new();
    for kernel in report.kernels.iter().filter(|k| k.launches > 0) {
        ran.entry(kernel.process).or_default().push(kernel);
    }
    for process in report.processes.iter().filter(|p| p.launches > 0) {
        let kernels = ran.remove(&process.id).unwrap_or_default();
        write_process(process, &kernels, page, out)?;
    }
    for graph in &report.graphs {
        let launches = plural(graph.launches, "launch");
        let graphs = plural(graph.graphs, "graph");
        let line = format!("pid {}: {launches} of {graphs}", graph.pid);
        page.head(&line, out)?;
    }
    let captured = match report.captured_launches {
        0 => return Ok(()),
        1 => "1 launch was captured into a graph and did not run".to_owned(),
        captured => format!("{captured} launches were captured into graphs and did not run"),
    };
    page.head(&captured, out)
}

fn write_process(
    process: &LauncherReport,
    kernels: &[&KernelReport],
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let who = Who {
        pid: process.pid,
        comm: process.comm.as_deref(),
        command: process.command.as_deref(),
        user: process.user.as_deref(),
        uid: process.uid,
        exited: process.exited,
    };
    page.head(&who.title(), out)?;
    let launches = plural(process.launches, "launch");
    let different = plural(process.kernels, "kernel");
    let calls = calls(&process.calls);
    writeln!(out, "{launches} of {different} by {calls}")?;
    table(process, kernels, page.full_names).write(page.columns, out)?;
    if process.omitted_kernels > 0 {
        let kernels = plural(process.omitted_kernels, "more kernel");
        let launches = plural(process.omitted_launches, "launch");
        let more = format!("... {kernels}, {launches} (--top all)");
        writeln!(out, "{}", dim(&more))?;
    }
    Ok(())
}

/// Which functions launched; how often each, if there are several.
fn calls(calls: &[(&'static str, u64)]) -> String {
    if let [(api, _)] = calls {
        return (*api).to_owned();
    }
    let each = calls.iter().map(|(api, count)| format!("{api} ({count})"));
    each.collect::<Vec<_>>().join(", ")
}

fn table(process: &LauncherReport, kernels: &[&KernelReport], full_names: bool) -> ReportTable {
    let columns = [
        Column::right("#"),
        Column::right("LAUNCHES"),
        Column::right("%LAUNCHES"),
        Column::right("PER SEC"),
        Column::left("GRID").needs_width(90),
        Column::left("BLOCK").needs_width(90),
        Column::left("").needs_width(120),
        Column::kernel(full_names),
    ];
    let mut table = ReportTable::new(0, &columns);
    for (index, kernel) in kernels.iter().enumerate() {
        let share = kernel.launches as f64 / process.launches.max(1) as f64;
        table.row([
            (index + 1).to_string(),
            kernel.launches.to_string(),
            format!("{:.1}", share * 100.0),
            format!("{:.1}", kernel.per_second),
            dimensions(kernel.grid),
            dimensions(kernel.block),
            "█".repeat((share * BAR_WIDTH).round() as usize),
            printable(&kernel.name),
        ]);
    }
    table
}

/// `8x16x1`; what is one is left out at the end.
fn dimensions(dimensions: [u32; 3]) -> String {
    match dimensions {
        // Not known.
        [0, ..] => String::new(),
        [x, 1, 1] => x.to_string(),
        [x, y, 1] => format!("{x}x{y}"),
        [x, y, z] => format!("{x}x{y}x{z}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use gpuprobe_os::color::unpainted;

    use super::*;

    fn report(names: &[&str]) -> Cudatrace {
        let kernels: Vec<_> = names
            .iter()
            .map(|name| KernelReport {
                pid: 574,
                uid: Some(1000),
                comm: Some("python3".into()),
                exited: false,
                name: (*name).into(),
                mangled: None,
                handle: 1,
                launches: 1000,
                captured_launches: 0,
                per_second: 499.8,
                grid: [1024, 1, 1],
                block: [128, 2, 1],
                api: "cuLaunchKernel",
                process: 1,
            })
            .collect();
        let launches = 1000 * names.len() as u64;
        let process = LauncherReport {
            pid: 574,
            uid: Some(1000),
            comm: Some("python3".into()),
            user: None,
            command: None,
            exited: false,
            launches,
            calls: vec![("cuLaunchKernel", launches)],
            kernels: names.len() as u64 + 1,
            omitted_kernels: 1,
            omitted_launches: 1,
            per_second: 0.0,
            id: 1,
        };
        Cudatrace {
            launches,
            captured_launches: 1,
            processes: vec![process],
            kernels,
            ..Cudatrace::default()
        }
    }

    fn written(report: &Cudatrace, width: Option<usize>) -> String {
        let mut out = Vec::new();
        write(report, &Page::new(width, None), &mut out).unwrap();
        unpainted(&String::from_utf8(out).unwrap())
    }

    #[test]
    fn columns_and_plurals() {
        assert_eq!(
            written(&report(&["void k2<float>(T1 *, int)"]), None),
            "python3  pid 574 uid 1000
1000 launches of 2 kernels by cuLaunchKernel
#  LAUNCHES  %LAUNCHES  PER SEC  GRID  BLOCK                    KERNEL
1      1000      100.0    499.8  1024  128x2  ████████████████  k2<float>
... 1 more kernel, 1 launch (--top all)
1 launch was captured into a graph and did not run
"
        );
        assert_eq!(
            written(&Cudatrace::default(), None),
            "no kernel was launched\n"
        );
        assert_eq!(calls(&[("a", 2), ("b", 1)]), "a (2), b (1)");
    }

    #[test]
    fn no_two_kernels_print_alike() {
        let names: Vec<_> = include_str!("../names/kernels.txt")
            .lines()
            .step_by(2)
            .collect();
        for width in [Some(80), Some(120), Some(200), None] {
            let text = written(&report(&names), width);
            let rows: Vec<_> = text.lines().filter(|line| line.contains("499.8")).collect();
            assert_eq!(rows.len(), names.len());
            let name = |row: &&str| row.trim_start().split_once(' ').unwrap().1.to_owned();
            let different: HashSet<_> = rows.iter().map(name).collect();
            assert_eq!(different.len(), names.len(), "{text}");
            let is_wide = |row: &&str| width.is_some_and(|width| row.chars().count() > width);
            assert!(!rows.iter().any(is_wide), "{text}");
        }
    }
}
