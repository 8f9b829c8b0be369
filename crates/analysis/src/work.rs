//! Launches, copies and GPU activity of a file, applied to the engine.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use gpuprobe_report::about::GpuTime;
use rusqlite::Row;

use super::file::{File, Observer};
use super::processes::Spans;
use super::range::{self, TimeRange};
use gpuprobe_cuda::{Direction, FUNCTIONS, Op};
use gpuprobe_engine::State;
use gpuprobe_engine::activity::by_work::{ByWork, WorkKind};
use gpuprobe_engine::launches::{LaunchCount, LaunchTarget};
use gpuprobe_engine::transfers::{CopyFilter, Mode};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_model::activity::ActivityRecord;
use gpuprobe_recording::gpu_rows;
use gpuprobe_recording::memory_rows::{CALLS, RowFilter};
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, ids};
use gpuprobe_report::activity::BusyShares;

/// Applies the records of `file` to `state`; returns the utilisation of GPUs.
pub(super) fn read(
    file: &File,
    range: TimeRange,
    state: &mut State,
    observer: &mut dyn Observer,
) -> Result<Vec<GpuTime>> {
    let (database, session, rows) = (&file.database, &file.session, file.filter.rows());
    let mut gpus: BTreeMap<u32, ByWork> = BTreeMap::new();
    let mut marker = 0;
    let mut all: Option<(u64, u64)> = None;
    gpu_rows::each(database, rows, |batch| {
        observer.activity(batch);
        // Of work that begins before the range, its part in it.
        let records = batch.activities.iter().map(|one| &one.record);
        for (work, device, start_ns, end_ns) in records.clone().filter_map(work_of) {
            if let Some((start_ns, end_ns)) = range.part(start_ns, end_ns) {
                gpus.entry(device).or_default().add(work, start_ns, end_ns);
            }
        }
        if range.is_whole() {
            state.activity.batch(batch);
            return;
        }
        for (start, end) in records.filter_map(range::times) {
            let (first, last) = all.unwrap_or((start, end));
            all = Some((first.min(start), last.max(end)));
        }
        let part = range::part_of(batch, range, &mut marker);
        state.activity.batch(&part);
    })?;
    for (pid, name) in &session.processes {
        let uid = session.users.get(pid).copied();
        state.activity.introduce(*pid, name, uid);
        state.transfers.introduce(*pid, name, uid);
    }
    let mut ended = HashSet::new();
    database.each("GPUPROBE_ENDS", "globalPid, t0, how", "", |row| {
        // A process that calls `exec` goes on.
        if let Some(pid) = integer(row, 0).map(ids::pid)
            && text(row, 2).as_deref() != Some("exec")
        {
            ended.insert(pid);
            let time_ns = gpu_rows::record_ns(integer(row, 1).unwrap_or(0));
            state.activity.end_process(pid, time_ns);
        }
    })?;
    let only_counted = range.is_whole() || !has_single_launches(database)?;
    each_launch(database, rows, only_counted, |launch| {
        let pid = launch.key.process;
        if only_counted || range.has(launch.start_ns) {
            state.launches.enter(LaunchTarget {
                key: launch.key,
                pid,
                comm: session.processes.get(&pid).map(String::as_str),
                uid: session.users.get(&pid).copied(),
                exited: ended.contains(&pid),
                mangled: launch.mangled,
                counted: launch.count,
            });
        }
    })?;
    copies(file, range, state, observer)?;
    let observed_ns = match range.is_whole() {
        true => {
            let mut spans = Spans::default();
            spans.activities(&state.activity);
            spans.run_ns().unwrap_or(0)
        }
        false => {
            let selected = all.and_then(|(first, last)| range.part(first, last));
            selected.map_or(0, |(first, last)| last.saturating_sub(first))
        }
    };
    let gpus = gpus.iter().map(|(&device, busy)| {
        let (sums, work) = (busy.any.sums(), busy.spent());
        let span_ns = sums.last_ns.saturating_sub(sums.first_ns);
        GpuTime {
            device,
            busy_ns: sums.busy_ns,
            span_ns,
            share: sums.busy_ns as f64 / span_ns.max(1) as f64,
            gaps: sums.gaps.count,
            longest_gap_ns: sums.gaps.longest_ns,
            name: session.gpus.get(&device.into()).cloned(),
            shares: BusyShares::of(&work, observed_ns),
            work,
            observed_ns,
        }
    });
    Ok(gpus.collect())
}

/// The work of a GPU that a record is about: its kind, its device, its begin and its end.
pub(crate) fn work_of(record: &ActivityRecord) -> Option<(WorkKind, u32, u64, u64)> {
    Some(match record {
        ActivityRecord::Kernel(r) => (WorkKind::Kernel, r.device, r.start_ns, r.end_ns),
        ActivityRecord::Memcpy(r) => (WorkKind::Copy, r.device, r.start_ns, r.end_ns),
        ActivityRecord::Memset(r) => (WorkKind::Set, r.device, r.start_ns, r.end_ns),
        ActivityRecord::GraphTrace(r) => (WorkKind::Graph, r.device, r.start_ns, r.end_ns),
        _ => return None,
    })
}

fn unsigned(row: &Row<'_>, column: usize) -> u64 {
    let number = integer(row, column).unwrap_or(0);
    u64::try_from(number).unwrap_or(0)
}

/// The table of copies, as called.
pub(crate) const CALLED_COPIES: &str = "GPUPROBE_COPIES";

/// A call that copied.
pub(crate) struct CalledCopy {
    /// Process, direction, which is unknown if the file has another, and mode.
    pub(crate) which: CopyFilter,
    pub(crate) bytes: u64,
    /// Start of the call, nanoseconds of the session.
    pub(crate) start_ns: i64,
    /// Duration of the call, nanoseconds.
    pub(crate) ns: u64,
}

/// Enters the copies of `file` within `range`, as recorded at their calls; `observer` sees those at any time.
fn copies(
    file: &File,
    range: TimeRange,
    state: &mut State,
    observer: &mut dyn Observer,
) -> Result<()> {
    let columns = "t0, t1, bytes, globalPid, direction, mode, captured, result";
    let (filter, transfers) = (file.filter.rows(), &mut state.transfers);
    file.database.each(CALLED_COPIES, columns, "", |row| {
        let Some(process) = integer(row, 3).filter(|&id| filter.includes(Some(id), None)) else {
            return;
        };
        let [captured, failed] = [6, 7].map(|column| integer(row, column).unwrap_or(0) != 0);
        let [direction, mode] = [4, 5].map(|column| text(row, column).unwrap_or_default());
        let direction = Direction::ALL.into_iter().find(|d| d.name() == direction);
        let start_ns = integer(row, 0).unwrap_or(0);
        let ns = integer(row, 1).map_or(0, |end_ns| end_ns.saturating_sub(start_ns).max(0));
        // Further copies of a batch have no duration.
        let calls = u64::from(ns > 0);
        let copy = CalledCopy {
            which: CopyFilter {
                pid: ids::pid(process),
                direction: direction.unwrap_or(Direction::Unknown),
                mode: match mode == Mode::Sync.name() {
                    true => Mode::Sync,
                    false => Mode::Async,
                },
            },
            bytes: unsigned(row, 2),
            start_ns,
            ns: ns.unsigned_abs(),
        };
        if !failed && !captured {
            observer.copy(&copy);
        }
        match range.has(start_ns) {
            false => {}
            true if failed => transfers.failed_calls += 1,
            true if captured => transfers.captured += calls,
            true => transfers.enter(copy.which, calls, copy.bytes, copy.ns),
        }
    })
}

/// Launches as counted over the whole recording.
pub(crate) const COUNTS: &str = "GPUPROBE_LAUNCH_COUNTS";
/// Every single launch, and the kernels and graphs that are launched.
const SINGLE: &str = "GPUPROBE_LAUNCHES";
const LAUNCHED: &str = "GPUPROBE_LAUNCHED";

/// A launch, or all launches of a kernel or graph by a function of a process.
pub(crate) struct LaunchRow {
    pub(crate) key: RawLaunchKey,
    /// Mangled name of the kernel, or the name if it has no other.
    pub(crate) mangled: Option<Arc<str>>,
    pub(crate) count: LaunchCount,
    /// Begin of the call, nanoseconds of the session.
    pub(crate) start_ns: i64,
    pub(crate) is_graph: bool,
}

/// Whether each launch was recorded, with its time.
pub(crate) fn has_single_launches(database: &Database) -> Result<bool> {
    database.has_rows(SINGLE)
}

/// Passes the launches that match `filter` to `take`: as counted, or one by one without calls that failed.
pub(crate) fn each_launch(
    database: &Database,
    filter: RowFilter,
    only_counted: bool,
    mut take: impl FnMut(LaunchRow),
) -> Result<()> {
    let tables: &[&str] = match only_counted {
        true => &[COUNTS],
        false => &[SINGLE, LAUNCHED, CALLS],
    };
    if !tables.iter().all(|table| database.has_table(table)) {
        return Ok(());
    }
    let sql = match only_counted {
        true => format!(
            "SELECT globalPid, name, mangled, handle, api, isGraph, gridX, gridY, gridZ, \
             blockX, blockY, blockZ, launches, captured FROM {COUNTS}"
        ),
        false => format!(
            "SELECT k.globalPid, name, mangled, handle, api, isGraph, gridX, gridY, gridZ, \
             blockX, blockY, blockZ, captured = 0, captured, start FROM {SINGLE} l \
             JOIN {LAUNCHED} k ON k.launched = l.launched \
             JOIN {CALLS} c ON c.correlationId = l.correlationId \
             WHERE eventClass <> 67 AND ifnull(returnValue, 0) = 0 ORDER BY l.rowid"
        ),
    };
    let mut statement = database.prepare(&sql)?;
    let mut rows = statement.query([]).map_err(|e| database.explain(e))?;
    let pass = database.pass("launches", &tables[..1]);
    while let Some(row) = rows.next().map_err(|e| database.explain(e))? {
        pass.step();
        let Some(process) = integer(row, 0).filter(|&id| filter.includes(Some(id), None)) else {
            continue;
        };
        let is_graph = integer(row, 5) == Some(1);
        let named = || text(row, 1).filter(|name| !name.starts_with("0x"));
        let mangled = text(row, 2).or_else(named).filter(|_| !is_graph);
        let volume =
            |first: usize| [0, 1, 2].map(|n| u32::try_from(unsigned(row, first + n)).unwrap_or(0));
        take(LaunchRow {
            key: RawLaunchKey {
                handle: integer(row, 3).unwrap_or(0).cast_unsigned(),
                process: ids::pid(process),
                row: row_of(&text(row, 4).unwrap_or_default(), is_graph),
                epoch: 0,
            },
            mangled: mangled.map(Into::into),
            count: LaunchCount {
                runs: unsigned(row, 12),
                captured: unsigned(row, 13),
                grid: volume(6),
                block: volume(9),
                ..LaunchCount::default()
            },
            start_ns: integer(row, 14).unwrap_or(0),
            is_graph,
        });
    }
    Ok(())
}

/// Row of the function `symbol`; if it is unknown, of another function that launches.
fn row_of(symbol: &str, is_graph: bool) -> u16 {
    let op = [Op::Launch, Op::GraphLaunch][usize::from(is_graph)];
    let functions = || (0..).zip(FUNCTIONS).filter(|(_, f)| f.op == op);
    let known = functions().find(|(_, function)| function.symbol == symbol);
    let known = known.or_else(|| functions().next());
    known.map_or(0, |(row, _)| row)
}
