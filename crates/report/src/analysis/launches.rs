//! Launches of a recording: as counted over all of it, or one by one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use anyhow::Result;

use super::range::TimeRange;
use super::work::unsigned;
use gpuprobe_cuda::nsys::class;
use gpuprobe_cuda::{FUNCTIONS, Op};
use gpuprobe_engine::Launches;
use gpuprobe_engine::launches::{LaunchCount, LaunchTarget};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_recording::gpu_rows::RowFilter;
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, Session, ids};
use rusqlite::Row;

/// Counts over the whole recording.
pub(crate) const COUNTS: &str = "GPUPROBE_LAUNCH_COUNTS";
/// Every single launch, and the kernels and graphs that are launched.
const SINGLE: &str = "GPUPROBE_LAUNCHES";
const LAUNCHED: &str = "GPUPROBE_LAUNCHED";
/// Calls, which have the times.
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

/// A kernel or graph that is launched, by a function of a process.
#[derive(Clone, Debug)]
pub(crate) struct LaunchedKernel {
    pub(crate) key: RawLaunchKey,
    /// Mangled name, or the name if it has no other.
    mangled: Option<Arc<str>>,
    pub(crate) op: Op,
}

impl LaunchedKernel {
    /// Its mangled name, or its handle.
    pub(crate) fn name(&self) -> Arc<str> {
        let handle = || format!("{:#x}", self.key.handle).into();
        self.mangled.clone().unwrap_or_else(handle)
    }

    /// Columns in which rows have one.
    const COLUMNS: [&str; 6] = ["globalPid", "name", "mangled", "handle", "api", "isGraph"];

    /// The kernel or graph of a row with these columns first, if it matches `filter`.
    fn of(row: &Row<'_>, filter: RowFilter) -> Option<Self> {
        let process = integer(row, 0).filter(|&id| filter.includes(Some(id), None))?;
        let op = match integer(row, 5) {
            Some(1) => Op::GraphLaunch,
            _ => Op::Launch,
        };
        let name = text(row, 2).or_else(|| text(row, 1).filter(|name| !name.starts_with("0x")));
        Some(Self {
            key: RawLaunchKey {
                handle: integer(row, 3).unwrap_or(0).cast_unsigned(),
                process: ids::pid(process),
                row: row_of(&text(row, 4).unwrap_or_default(), op),
                epoch: 0,
            },
            mangled: name.filter(|_| op == Op::Launch).map(Into::into),
            op,
        })
    }
}

/// Reads the launches within `range` that match `filter`: of the whole recording, as counted. Processes have ended as
/// in `ends`.
pub(super) fn read(
    (database, session): (&Database, &Session),
    filter: RowFilter,
    ends: &HashMap<u32, u64>,
    range: TimeRange,
    launches: &mut Launches,
) -> Result<()> {
    let mut enter = |kernel: LaunchedKernel, counted| {
        let pid = kernel.key.process;
        launches.enter(LaunchTarget {
            key: kernel.key,
            pid,
            comm: session.processes.get(&pid).map(String::as_str),
            uid: session.users.get(&pid).copied(),
            exited: ends.contains_key(&pid),
            mangled: kernel.mangled,
            counted,
        });
    };
    if range.is_whole() || !has_times(database)? {
        let own = [
            "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "launches", "captured",
        ];
        let columns: Vec<_> = LaunchedKernel::COLUMNS.into_iter().chain(own).collect();
        return database.each(COUNTS, &columns, "", |row| {
            if let Some(kernel) = LaunchedKernel::of(row, filter) {
                let count = LaunchCount {
                    runs: unsigned(integer(row, 12)),
                    captured: unsigned(integer(row, 13)),
                    grid: volume(row, 6),
                    block: volume(row, 9),
                    ..LaunchCount::default()
                };
                enter(kernel, count);
            }
        });
    }
    let mut counts: HashMap<i64, (LaunchedKernel, LaunchCount)> = HashMap::new();
    each_single(database, filter, range, |one| {
        let new = || (one.kernel.clone(), LaunchCount::default());
        let (_, count) = counts.entry(one.launched).or_insert_with(new);
        match one.is_captured {
            true => count.captured += 1,
            false => count.runs += 1,
        }
        if count.runs + count.captured == 1 {
            (count.grid, count.block) = (one.grid, one.block);
        }
    })?;
    for (kernel, count) in counts.into_values() {
        enter(kernel, count);
    }
    Ok(())
}

/// A single launch.
pub(crate) struct SingleLaunch<'a> {
    /// Number of what is launched.
    launched: i64,
    pub(crate) kernel: &'a LaunchedKernel,
    /// Begin of the call, nanoseconds of the session.
    pub(crate) start_ns: i64,
    pub(crate) is_captured: bool,
    grid: [u32; 3],
    block: [u32; 3],
}

/// Whether launches have no times.
pub(super) fn are_only_counted(database: &Database) -> Result<bool> {
    Ok(database.has_rows(COUNTS)? && !has_times(database)?)
}

/// Whether each launch was recorded, with its time.
pub(crate) fn has_times(database: &Database) -> Result<bool> {
    database.has_rows(SINGLE)
}

/// Passes the launches within `range` that match `filter` to `take`.
pub(crate) fn each_single(
    database: &Database,
    filter: RowFilter,
    range: TimeRange,
    mut take: impl FnMut(&SingleLaunch<'_>),
) -> Result<()> {
    let mut kernels = HashMap::new();
    let columns: Vec<_> = LaunchedKernel::COLUMNS
        .into_iter()
        .chain(["launched"])
        .collect();
    database.each(LAUNCHED, &columns, "", |row| {
        let number = integer(row, 6);
        kernels.extend(number.zip(LaunchedKernel::of(row, filter)));
    })?;
    let starts = starts(database, range)?;
    let columns = [
        "correlationId",
        "launched",
        "captured",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
    ];
    database.each(SINGLE, &columns, "", |row| {
        let (Some(call), Some(launched)) = (integer(row, 0), integer(row, 1)) else {
            return;
        };
        if let (Some(&start_ns), Some(kernel)) = (starts.get(&call), kernels.get(&launched)) {
            take(&SingleLaunch {
                launched,
                kernel,
                start_ns,
                is_captured: integer(row, 2).is_some_and(|captured| captured != 0),
                grid: volume(row, 3),
                block: volume(row, 6),
            });
        }
    })
}

/// When the calls of launches within `range` began, by correlation id, without calls that failed.
fn starts(database: &Database, range: TimeRange) -> Result<HashMap<i64, i64>> {
    let mut starts = HashMap::new();
    database.each(SINGLE, &["correlationId"], "", |row| {
        if let Some(call) = integer(row, 0) {
            starts.insert(call, None);
        }
    })?;
    let columns = ["correlationId", "start", "eventClass", "returnValue"];
    database.each(CALLS, &columns, "", |row| {
        let (Some(call), Some(start)) = (integer(row, 0), integer(row, 1)) else {
            return;
        };
        let has_failed = integer(row, 3).is_some_and(|result| result != 0);
        if integer(row, 2) != Some(class::BACKTRACE)
            && !has_failed
            && let Entry::Occupied(mut known) = starts.entry(call)
        {
            known.get_mut().get_or_insert(start);
        }
    })?;
    let begun = starts.into_iter();
    let begun = begun.filter_map(|(call, start)| Some((call, start?)));
    Ok(begun.filter(|(_, start)| range.has(*start)).collect())
}

/// Three sizes, from the column `first` on.
fn volume(row: &Row<'_>, first: usize) -> [u32; 3] {
    [0, 1, 2].map(|n| u32::try_from(unsigned(integer(row, first + n))).unwrap_or(0))
}

/// Row of the function `symbol` with operation `op`; if it is unknown, of another function with
/// `op`.
fn row_of(symbol: &str, op: Op) -> u16 {
    let functions = || FUNCTIONS.iter().enumerate().filter(|(_, f)| f.op == op);
    let known = functions().find(|(_, function)| function.symbol == symbol);
    let row = known
        .or_else(|| functions().next())
        .map_or(0, |(row, _)| row);
    u16::try_from(row).unwrap_or(0)
}
