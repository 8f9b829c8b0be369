//! Launches, copies and GPU activity of a file, applied to the engine.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use serde::Serialize;

use super::file::{File, Observer};
use super::launches;
use super::processes::Spans;
use super::range::{self, RecordFilter, TimeRange};
use crate::activity::BusyShares;
use gpuprobe_cuda::Direction;
use gpuprobe_engine::activity::by_work::{ByWork, Spent, WorkKind};
use gpuprobe_engine::transfers::{CopyFilter, Mode};
use gpuprobe_engine::{State, Transfers};
use gpuprobe_model::activity::{ActivityBatch, ActivityRecord};
use gpuprobe_recording::gpu_rows::{self, RowFilter};
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, ids};

/// Utilisation of a GPU by all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuTime {
    /// Device index in the file.
    pub device: u32,
    /// Time with a kernel, a copy, a memory set or a graph running, nanoseconds.
    pub busy_ns: u64,
    /// Time from the first of these to the end of the last, nanoseconds.
    pub span_ns: u64,
    /// `busy_ns` as a share of `span_ns`, 0 to 1.
    pub share: f64,
    /// Number of idle gaps in between.
    pub gaps: u64,
    /// Length of the longest gap, nanoseconds.
    pub longest_gap_ns: u64,
    /// Name of the GPU, if the file has it.
    pub name: Option<String>,
    /// Busy time by kind of work.
    #[serde(flatten)]
    pub work: Spent,
    /// Time from the first record of any kind in the file to the end of the last, nanoseconds.
    pub observed_ns: u64,
    /// Busy and idle time as shares of `observed_ns`.
    pub shares: BusyShares,
}

/// Applies the records of `file` to `state`; returns the utilisation of GPUs.
pub(super) fn read(
    file: &File,
    range: TimeRange,
    state: &mut State,
    observer: &mut dyn Observer,
) -> Result<Vec<GpuTime>> {
    let File {
        database,
        session,
        filter,
        ..
    } = file;
    let row_filter = RowFilter {
        pid: filter.pid,
        device: filter.device,
    };
    let mut gpus = BTreeMap::new();
    let mut records = RecordFilter::new(range);
    let mut all: Option<(u64, u64)> = None;
    gpu_rows::each(database, row_filter, |batch| {
        observer.activity(batch);
        busy(batch, range, &mut gpus);
        if range.is_whole() {
            state.activity.batch(batch);
            return;
        }
        let times = batch.activities.iter();
        for (start, end) in times.filter_map(|activity| range::times(&activity.record)) {
            let (first, last) = all.unwrap_or((start, end));
            all = Some((first.min(start), last.max(end)));
        }
        state.activity.batch(&records.part_of(batch));
    })?;
    for (pid, name) in &session.processes {
        let uid = session.users.get(pid).copied();
        state.activity.introduce(*pid, name, uid);
        state.transfers.introduce(*pid, name, uid);
    }
    let ends = ends(database)?;
    for (&pid, &time_ns) in &ends {
        state.activity.end_process(pid, time_ns);
    }
    let file = (database, session);
    launches::read(file, row_filter, &ends, range, &mut state.launches)?;
    copies(database, row_filter, range, observer, &mut state.transfers)?;
    let selected = all.and_then(|(first, last)| range.part(first, last));
    let observed_ns = match range.is_whole() {
        true => {
            let mut spans = Spans::default();
            spans.activities(&state.activity);
            spans.run_ns().unwrap_or(0)
        }
        false => selected.map_or(0, |(first, last)| last.saturating_sub(first)),
    };
    let named = |device: u32| session.gpus.get(&device.into()).cloned();
    Ok(gpus
        .iter()
        .map(|(&device, busy)| gpu(device, named(device), busy, observed_ns))
        .collect())
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

/// Adds the work in `range`, of a record that begins before it, too.
fn busy(batch: &ActivityBatch, range: TimeRange, gpus: &mut BTreeMap<u32, ByWork>) {
    for activity in &batch.activities {
        if let Some((work, device, start_ns, end_ns)) = work_of(&activity.record)
            && let Some((start_ns, end_ns)) = range.part(start_ns, end_ns)
        {
            let gpu = gpus.entry(device).or_default();
            gpu.add(work, start_ns, end_ns);
        }
    }
}

fn gpu(device: u32, name: Option<String>, busy: &ByWork, observed_ns: u64) -> GpuTime {
    let (sums, spent) = (busy.sums(), busy.spent());
    let span_ns = sums.last_ns.saturating_sub(sums.first_ns);
    GpuTime {
        device,
        busy_ns: sums.busy_ns,
        span_ns,
        share: sums.busy_ns as f64 / span_ns.max(1) as f64,
        gaps: sums.gaps.count,
        longest_gap_ns: sums.gaps.longest_ns,
        name,
        work: spent,
        observed_ns,
        shares: BusyShares::of(&spent, observed_ns),
    }
}

pub(super) fn unsigned(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

/// When processes ended, on the clock of records, by process id. A process that calls `exec` goes
/// on.
fn ends(database: &Database) -> Result<HashMap<u32, u64>> {
    let mut ends = HashMap::new();
    let columns = ["globalPid", "t0", "how"];
    database.each("GPUPROBE_ENDS", &columns, "", |row| {
        let goes_on = text(row, 2).as_deref() == Some("exec");
        if let Some(process) = integer(row, 0).filter(|_| !goes_on) {
            let time_ns = gpu_rows::record_ns(integer(row, 1).unwrap_or(0));
            ends.insert(ids::pid(process), time_ns);
        }
    })?;
    Ok(ends)
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

/// Enters the copies within `range` that match `row_filter`, as recorded at their calls; `observer` sees those at any
/// time.
fn copies(
    database: &Database,
    row_filter: RowFilter,
    range: TimeRange,
    observer: &mut dyn Observer,
    transfers: &mut Transfers,
) -> Result<()> {
    let columns = [
        "t0",
        "t1",
        "bytes",
        "globalPid",
        "direction",
        "mode",
        "captured",
        "result",
    ];
    database.each(CALLED_COPIES, &columns, "", |row| {
        let Some(process) = integer(row, 3).filter(|&id| row_filter.includes(Some(id), None))
        else {
            return;
        };
        let [captured, failed] = [6, 7].map(|column| integer(row, column).unwrap_or(0) != 0);
        let [direction, mode] = [4, 5].map(|column| text(row, column).unwrap_or_default());
        let direction = Direction::ALL.into_iter().find(|d| d.name() == direction);
        let ends = integer(row, 1).zip(integer(row, 0));
        let copy = CalledCopy {
            which: CopyFilter {
                pid: ids::pid(process),
                direction: direction.unwrap_or(Direction::Unknown),
                mode: match mode == Mode::Sync.name() {
                    true => Mode::Sync,
                    false => Mode::Async,
                },
            },
            bytes: unsigned(integer(row, 2)),
            start_ns: integer(row, 0).unwrap_or(0),
            ns: unsigned(ends.and_then(|(end, start)| end.checked_sub(start))),
        };
        if !failed && !captured {
            observer.copy(&copy);
        }
        match range.has(copy.start_ns) {
            false => {}
            true if failed => transfers.failed_calls += 1,
            true if captured => transfers.captured += 1,
            true => transfers.enter(copy.which, copy.bytes, copy.ns),
        }
    })
}
