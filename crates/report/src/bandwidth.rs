//! Report of copies: bytes moved, and throughput.

use std::time::Duration;

use gpuprobe_model::text::hex;
use serde::Serialize;

use super::{GroupBy, Options, ReportSources, clock_micros, is_zero};
use crate::copy_sites::{self, CopySiteReport};
use crate::words::Who;
use gpuprobe_cuda::Direction;
use gpuprobe_engine::totals::SizeCounts;
use gpuprobe_engine::transfers::{CopyFilter, EARLIER, Meter, Mode, Transfer};
use gpuprobe_engine::{GpuActivity, Transfers};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::link::PcieLink;

use chrono::{DateTime, FixedOffset};

/// Copies of all processes since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BandwidthUtil {
    /// Number of copies that ran.
    pub copies: u64,
    /// Number of memory sets.
    pub sets: u64,
    /// Copies and sets that returned an error.
    pub failed_calls: u64,
    /// Copies and sets captured into a graph instead of run.
    pub captured: u64,
    /// The host's link to its GPUs, if all have the same and it is known.
    pub link: Option<PcieLink>,
    /// Copies by process, direction and mode.
    pub directions: Vec<DirectionReport>,
    /// Copies by call site, with call stacks; of each process those that took the longest come first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<CopySiteReport>,
    /// Number of further call sites.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_sites: u64,
    /// Tables have call sites in place of directions.
    #[serde(skip)]
    pub is_by_site: bool,
}

/// Copies of a process in one direction and mode.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// Kinds of memory that the copies go between: `H2D`, `D2H`, `D2D`, `H2H`, `P2P`, ..., `set`,
    /// `unknown`.
    pub direction: &'static str,
    /// `sync` if the calls last as long as the transfers, else `async`.
    pub mode: &'static str,
    /// Number of copy calls.
    pub calls: u64,
    /// Sum of the bytes moved.
    pub bytes: u64,
    /// Seconds spent in the calls, if that is the time of the transfers.
    pub seconds: Option<f64>,
    /// Mean throughput: bytes over seconds.
    pub bytes_per_second: Option<f64>,
    /// Throughput of the fastest call, bytes per second.
    pub peak_bytes_per_second: Option<f64>,
    /// Bytes per second since the last report; `None` if nothing was copied.
    pub now_bytes_per_second: Option<f64>,
    /// Bytes per second of wall-clock time since tracing began.
    pub wall_bytes_per_second: f64,
    /// Bytes per second of wall-clock time since the last report.
    pub recent_bytes_per_second: f64,
    /// `bytes_per_second`, on the GPU if known, as a share of the link's capacity in one direction.
    pub link_utilisation: Option<f64>,
    /// Number of calls by size: `[bytes, calls]`, for sizes less than `bytes` and at least half of
    /// it.
    pub sizes: SizeCounts,
    /// The same copies with times on the GPU, if CUPTI reported them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuReport>,
    /// Whether the process has ended.
    #[serde(skip)]
    pub exited: bool,
}

impl DirectionReport {
    /// Whether it is of all processes that ended a while ago.
    pub fn is_of_earlier(&self) -> bool {
        self.who.pid == EARLIER
    }
}

/// Copies with their times on the GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Number of copies on the GPU.
    pub count: u64,
    /// Sum of the bytes copied.
    pub bytes: u64,
    /// Sum of the durations, seconds.
    pub seconds: f64,
    /// Mean throughput: bytes over seconds.
    pub bytes_per_second: Option<f64>,
    /// Throughput of the fastest copy, bytes per second.
    pub peak_bytes_per_second: f64,
}

/// Builds the report of copies.
pub(super) fn build(
    transfers: &Transfers,
    activities: &GpuActivity,
    options: &Options,
    sources: ReportSources<'_>,
) -> BandwidthUtil {
    let sites = options
        .stacks
        .then(|| copy_sites::build(transfers, options, sources.scope, sources.symbols));
    let (sites, omitted_sites) = sites.unwrap_or_default();
    let calls = |sets: bool| {
        let is_set = |which: &CopyFilter| which.direction == Direction::Set;
        let meters = transfers.meters();
        let meters = meters.filter(|(which, _)| is_set(which) == sets);
        meters.map(|(_, meter)| meter.calls).sum()
    };
    let directions = transfers
        .meters()
        .map(|(which, meter)| direction(which, meter, transfers, activities, options));
    BandwidthUtil {
        copies: calls(false),
        sets: calls(true),
        failed_calls: transfers.failed_calls,
        captured: transfers.captured,
        link: options.link,
        directions: directions.collect(),
        sites,
        omitted_sites,
        is_by_site: options.view.group.is_some_and(GroupBy::is_by_site),
    }
}

fn direction(
    which: &CopyFilter,
    meter: &Meter,
    transfers: &Transfers,
    activities: &GpuActivity,
    options: &Options,
) -> DirectionReport {
    let (comm, uid) = transfers.name(which.pid).unzip();
    let sync = which.mode == Mode::Sync;
    let speed = |bytes: u64, ns: u64| (sync && ns > 0).then(|| bytes as f64 * 1e9 / ns as f64);
    let (new_bytes, new_ns) = (
        meter.bytes.saturating_sub(meter.bytes_reported),
        meter.ns.saturating_sub(meter.ns_reported),
    );
    let gpu = activities.moved(which.pid, which.direction, which.mode);
    let gpu = (gpu.tally.count > 0).then(|| GpuReport {
        count: gpu.tally.count,
        bytes: gpu.bytes,
        seconds: gpu.tally.total_ns as f64 / 1e9,
        bytes_per_second: gpu.bytes_per_second(),
        peak_bytes_per_second: gpu.peak_bytes_per_second,
    });
    // Times measured on the GPU are exact, also for calls that wait for it.
    let on_gpu = gpu.as_ref().and_then(|gpu| gpu.bytes_per_second);
    let mean = speed(meter.bytes, meter.ns);
    let measured = on_gpu.or(mean);
    let link = options.link.filter(|_| which.direction.crosses_link());
    let per_second = |bytes: u64, time: Duration| bytes as f64 / time.as_secs_f64().max(1e-9);
    DirectionReport {
        who: Who::named(which.pid, uid.flatten(), comm),
        direction: which.direction.name(),
        mode: which.mode.name(),
        calls: meter.calls,
        bytes: meter.bytes,
        seconds: sync.then_some(meter.ns as f64 / 1e9),
        bytes_per_second: mean,
        peak_bytes_per_second: sync.then_some(meter.peak_bytes_per_second),
        now_bytes_per_second: speed(new_bytes, new_ns),
        wall_bytes_per_second: per_second(meter.bytes, options.since_start),
        recent_bytes_per_second: per_second(new_bytes, options.since_last),
        link_utilisation: measured
            .zip(link)
            .map(|(mean, link)| mean / link.bytes_per_second()),
        sizes: meter.sizes,
        gpu,
        exited: transfers.has_ended(which.pid),
    }
}

/// One copy, for `--per-call`.
#[derive(Clone, Debug, Serialize)]
pub struct CopyReport {
    /// When the copy was called.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Thread id of the call.
    pub tid: u32,
    /// Name of the copy function.
    pub api: &'static str,
    /// Direction, as in [`DirectionReport`].
    pub direction: &'static str,
    /// Mode, as in [`DirectionReport`].
    pub mode: &'static str,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Seconds spent in the call.
    pub seconds: f64,
    /// Bytes per second, if the call lasted as long as the transfer.
    pub bytes_per_second: Option<f64>,
    /// Destination address, in hex in JSON.
    #[serde(serialize_with = "hex")]
    pub destination: u64,
    /// Source address in hex; `None` for a set.
    pub source: Option<String>,
}

impl CopyReport {
    /// The report of `transfer`.
    pub fn of(transfer: &Transfer, clock: &WallClock) -> Self {
        let copy = &transfer.copy;
        Self {
            time: Some(clock.wall(copy.start_ns)),
            pid: copy.pid,
            tid: copy.tid,
            api: copy.function.symbol,
            direction: transfer.which.direction.name(),
            mode: transfer.which.mode.name(),
            bytes: copy.bytes,
            seconds: copy.end_ns.saturating_sub(copy.start_ns) as f64 / 1e9,
            bytes_per_second: transfer.bytes_per_second(),
            destination: copy.destination,
            source: (transfer.which.direction != Direction::Set)
                .then(|| format!("{:#x}", copy.source)),
        }
    }
}
