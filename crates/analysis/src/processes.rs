//! Figures by process of a file.

use std::collections::{BTreeMap, HashSet};

use gpuprobe_report::about::ProcessRow;

use gpuprobe_cuda::Direction;
use gpuprobe_engine::{GpuActivity, Ledger};
use gpuprobe_recording::Session;
use gpuprobe_recording::gpu_rows::ZERO_NS;
use gpuprobe_report::Report;

/// First and last times of processes, on the clock of the session.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    times: BTreeMap<u32, (i64, i64)>,
}

impl Spans {
    pub(super) fn saw(&mut self, pid: u32, first_ns: i64, last_ns: i64) {
        let span = self.times.entry(pid).or_insert((first_ns, last_ns));
        *span = (span.0.min(first_ns), span.1.max(last_ns));
    }

    pub(super) fn activities(&mut self, activities: &GpuActivity) {
        let session_ns = |ns: u64| ns.cast_signed().saturating_sub_unsigned(ZERO_NS);
        for (_, process) in activities.processes() {
            if process.first_ns <= process.last_ns {
                let (first, last) = (process.first_ns, process.last_ns);
                self.saw(process.pid, session_ns(first), session_ns(last));
            }
        }
    }

    /// Time from the first record of any process to the end of the last, nanoseconds.
    pub(super) fn run_ns(&self) -> Option<u64> {
        let first = self.times.values().map(|span| span.0).min()?;
        let last = self.times.values().map(|span| span.1).max()?;
        Some(last.abs_diff(first))
    }
}

/// The processes of the file of `report`, by descending memory.
pub(super) fn rows(
    report: &Report,
    ledger: Option<&Ledger>,
    spans: &Spans,
    session: &Session,
) -> Vec<ProcessRow> {
    let mut rows: BTreeMap<u32, ProcessRow> = BTreeMap::new();
    for (&pid, &(first, last)) in &spans.times {
        rows.entry(pid).or_default().run_ns = last.abs_diff(first);
    }
    for process in ledger.into_iter().flat_map(|ledger| ledger.processes(true)) {
        let row = rows.entry(process.pid).or_default();
        let live = process.totals.sums.gpu;
        // PID reuse: several processes may share a row.
        row.peak_bytes = row.peak_bytes.max(process.peak_bytes);
        row.never_freed_bytes = row.never_freed_bytes.saturating_add(live.bytes);
        row.never_freed_allocations += live.allocations;
    }
    for process in report.activity.iter().flat_map(|a| &a.processes) {
        let row = rows.entry(process.who.pid).or_default();
        let kernels = || process.devices.iter().map(|device| &device.kernels);
        row.launches += kernels().map(|times| times.count).sum::<u64>();
        row.graph_launches += process.graphs.count;
        let ns = kernels().map(|times| times.total_ns);
        let ns = ns.fold(row.kernel_ns.unwrap_or(0), u64::saturating_add);
        row.kernel_ns = Some(ns).filter(|_| row.launches > 0);
        for copy in process.copies.iter().filter(|copy| copy.source.is_some()) {
            row.copies += copy.times.count;
            row.copied_bytes = row.copied_bytes.saturating_add(copy.bytes);
        }
    }
    // Calls count in processes without GPU activity in the file.
    let pids = |is_it: fn(&ProcessRow) -> bool| -> HashSet<u32> {
        let rows = rows.iter().filter(|(_, row)| is_it(row));
        rows.map(|(pid, _)| *pid).collect()
    };
    let launched = pids(|row| row.kernel_ns.is_some() || row.graph_launches > 0);
    let copied = pids(|row| row.copies > 0);
    if let Some(trace) = &report.cudatrace {
        let kernels = trace.processes.iter();
        for one in kernels.filter(|one| !launched.contains(&one.who.pid)) {
            rows.entry(one.who.pid).or_default().launches += one.launches;
        }
        let graphs = trace.graphs.iter();
        for one in graphs.filter(|one| !launched.contains(&one.pid)) {
            rows.entry(one.pid).or_default().graph_launches += one.launches;
        }
    }
    for called in report.bandwidth_util.iter().flat_map(|b| &b.directions) {
        if called.direction != Direction::Set.name() && !copied.contains(&called.who.pid) {
            let row = rows.entry(called.who.pid).or_default();
            row.copies += called.calls;
            row.copied_bytes = row.copied_bytes.saturating_add(called.bytes);
        }
    }
    for (&pid, row) in &mut rows {
        row.pid = pid;
        // Exports have the path of the program.
        let name = session.processes.get(&pid);
        row.comm = name.map(|name| name.rsplit('/').next().unwrap_or(name).to_owned());
        row.uid = session.users.get(&pid).copied();
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| {
        let work = (row.kernel_ns, row.launches, row.copied_bytes);
        std::cmp::Reverse((row.peak_bytes, work, row.run_ns))
    });
    rows
}
