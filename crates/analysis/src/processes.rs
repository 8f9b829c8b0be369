//! Figures by process of a file.

use std::collections::{BTreeMap, HashSet};

use gpuprobe_report::about::ProcessRow;

use gpuprobe_cuda::{Direction, Modes};
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

fn add(sum: &mut Option<u64>, more: u64) {
    *sum = sum.map(|sum| sum.saturating_add(more));
}

/// The processes of the file of `report`, by descending memory. Of what was not `recorded`, there are no figures.
pub(super) fn rows(
    report: &Report,
    ledger: Option<&Ledger>,
    spans: &Spans,
    session: &Session,
    recorded: Option<Modes>,
) -> Vec<ProcessRow> {
    let of = |has: fn(Modes) -> bool| recorded.is_none_or(has).then_some(0);
    let memory = of(|modes| modes.memleak);
    let launches = of(|modes| modes.cudatrace || modes.activity);
    let copies = of(|modes| modes.bandwidth_util || modes.activity);
    let new = || ProcessRow {
        peak_bytes: memory,
        never_freed_bytes: memory,
        never_freed_allocations: memory,
        launches,
        graph_launches: launches,
        copies,
        copied_bytes: copies,
        ..ProcessRow::default()
    };
    let mut rows: BTreeMap<u32, ProcessRow> = BTreeMap::new();
    for (&pid, &(first, last)) in &spans.times {
        rows.entry(pid).or_insert_with(new).run_ns = last.abs_diff(first);
    }
    for process in ledger.into_iter().flat_map(|ledger| ledger.processes(true)) {
        let row = rows.entry(process.pid).or_insert_with(new);
        let live = process.totals.sums.gpu;
        // PID reuse: several processes may share a row.
        row.peak_bytes = row.peak_bytes.map(|peak| peak.max(process.peak_bytes));
        add(&mut row.never_freed_bytes, live.bytes);
        add(&mut row.never_freed_allocations, live.allocations);
    }
    for process in report.activity.iter().flat_map(|a| &a.processes) {
        let row = rows.entry(process.who.pid).or_insert_with(new);
        let kernels = || process.devices.iter().map(|device| &device.kernels);
        add(&mut row.launches, kernels().map(|times| times.count).sum());
        add(&mut row.graph_launches, process.graphs.count);
        let ns = kernels().map(|times| times.total_ns);
        let ns = ns.fold(row.kernel_ns.unwrap_or(0), u64::saturating_add);
        row.kernel_ns = Some(ns).filter(|_| row.launches > Some(0));
        for copy in process.copies.iter().filter(|copy| copy.source.is_some()) {
            add(&mut row.copies, copy.times.count);
            add(&mut row.copied_bytes, copy.bytes);
        }
    }
    // Calls count in processes without GPU activity in the file.
    let pids = |is_it: fn(&ProcessRow) -> bool| -> HashSet<u32> {
        let rows = rows.iter().filter(|(_, row)| is_it(row));
        rows.map(|(pid, _)| *pid).collect()
    };
    let launched = pids(|row| row.kernel_ns.is_some() || row.graph_launches > Some(0));
    let copied = pids(|row| row.copies > Some(0));
    if let Some(trace) = &report.cudatrace {
        let kernels = trace.processes.iter();
        for one in kernels.filter(|one| !launched.contains(&one.who.pid)) {
            let row = rows.entry(one.who.pid).or_insert_with(new);
            add(&mut row.launches, one.launches);
        }
        let graphs = trace.graphs.iter();
        for one in graphs.filter(|one| !launched.contains(&one.pid)) {
            let row = rows.entry(one.pid).or_insert_with(new);
            add(&mut row.graph_launches, one.launches);
        }
    }
    for called in report.bandwidth_util.iter().flat_map(|b| &b.directions) {
        if called.direction != Direction::Set.name() && !copied.contains(&called.who.pid) {
            let row = rows.entry(called.who.pid).or_insert_with(new);
            add(&mut row.copies, called.calls);
            add(&mut row.copied_bytes, called.bytes);
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
