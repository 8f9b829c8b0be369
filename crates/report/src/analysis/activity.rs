//! What was launched and copied.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use anyhow::Result;
use serde::Serialize;

use super::Selection;
use super::busy::{Busy, busy};
use gpuprobe_cuda::Direction;
use gpuprobe_cuda::nsys::COPY_LABELS;
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, Resolver, ids};

/// A kernel and its launches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kernel {
    /// Its name, as its source has it.
    pub name: Rc<str>,
    /// Launches that ran.
    pub launches: u64,
    /// Launches that went into a graph, if that is known.
    pub captured: Option<u64>,
    /// Time on the GPU, if it was measured.
    pub gpu_ns: Option<u64>,
    /// The shortest run, if it was measured.
    pub shortest_ns: Option<u64>,
    /// The longest run, if it was measured.
    pub longest_ns: Option<u64>,
}

impl Kernel {
    /// The mean of its runs, if they were measured.
    pub fn mean_ns(&self) -> Option<f64> {
        let total = self.gpu_ns?;
        Some(total as f64 / self.launches.max(1) as f64)
    }
}

/// All kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kernels {
    /// Most time first, then most launches.
    pub kernels: Vec<Kernel>,
    /// Launches of kernels that ran.
    pub launches: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// How busy each GPU was, by device; empty if that was not measured.
    pub gpus: Vec<Busy>,
}

/// Copies of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// Between which memories.
    pub direction: String,
    /// What the time means: `gpu` if the GPU was timed, `sync` if calls lasted as long as the
    /// transfers, `async` if they did not.
    pub mode: String,
    /// Calls, or transfers.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time of the transfers, if it is known.
    pub ns: Option<u64>,
    /// Bytes over time.
    pub bytes_per_second: Option<f64>,
}

fn unsigned(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

pub(super) fn is_selected(
    selection: &Selection,
    process: Option<i64>,
    device: Option<i64>,
) -> bool {
    selection
        .pid
        .is_none_or(|pid| process.is_some_and(|process| ids::pid(process) == pid))
        && selection
            .device
            .is_none_or(|wanted| device.is_none_or(|device| device == wanted))
}

/// The histogram of launches.
///
/// # Errors
/// Those of the file.
pub fn kernels(database: &Database, selection: &Selection) -> Result<Kernels> {
    let mut found = Kernels::default();
    let resolver = Resolver::new(database)?;
    let mut timed: HashMap<i64, Kernel> = HashMap::new();
    let columns = ["start", "end", "demangledName", "globalPid", "deviceId"];
    database.each("CUPTI_ACTIVITY_KIND_KERNEL", &columns, "", |row| {
        if !is_selected(selection, integer(row, 3), integer(row, 4)) {
            return;
        }
        let (Some(start), Some(end), Some(name)) =
            (integer(row, 0), integer(row, 1), integer(row, 2))
        else {
            return;
        };
        let ns = unsigned(end.checked_sub(start));
        let kernel = timed.entry(name).or_insert_with(|| Kernel {
            name: resolver.string(name),
            launches: 0,
            captured: None,
            gpu_ns: Some(0),
            shortest_ns: Some(ns),
            longest_ns: Some(0),
        });
        kernel.launches += 1;
        kernel.gpu_ns = kernel.gpu_ns.map(|sum| sum.saturating_add(ns));
        kernel.shortest_ns = kernel.shortest_ns.min(Some(ns));
        kernel.longest_ns = kernel.longest_ns.max(Some(ns));
    })?;
    database.each(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        &["globalPid", "deviceId"],
        "",
        |row| {
            let selected = is_selected(selection, integer(row, 0), integer(row, 1));
            found.graph_launches += u64::from(selected);
        },
    )?;
    found.kernels = timed.into_values().collect();
    let timed_graphs = found.graph_launches > 0;
    let mut counted: BTreeMap<String, Kernel> = BTreeMap::new();
    let columns = ["globalPid", "name", "launches", "captured", "isGraph"];
    database.each("GPUPROBE_LAUNCH_COUNTS", &columns, "", |row| {
        if !is_selected(selection, integer(row, 0), None) {
            return;
        }
        let (launches, captured) = (unsigned(integer(row, 2)), unsigned(integer(row, 3)));
        if integer(row, 4) == Some(1) {
            // Where the GPU was timed, counting the calls too would count them twice.
            found.graph_launches += if timed_graphs { 0 } else { launches };
            return;
        }
        let name = text(row, 1).unwrap_or_else(|| "?".to_owned());
        let kernel = counted.entry(name).or_insert_with_key(|name| Kernel {
            name: name.as_str().into(),
            launches: 0,
            captured: Some(0),
            gpu_ns: None,
            shortest_ns: None,
            longest_ns: None,
        });
        kernel.launches += launches;
        kernel.captured = kernel.captured.map(|sum| sum + captured);
    })?;
    // Likewise.
    if found.kernels.is_empty() {
        found.kernels = counted.into_values().collect();
    }
    found.gpus = busy(database, selection)?;
    found.launches = found.kernels.iter().map(|kernel| kernel.launches).sum();
    found.kernels.sort_by(|a, b| {
        let key = |kernel: &Kernel| (Reverse(kernel.gpu_ns), Reverse(kernel.launches));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(found)
}

/// Count, bytes and time by direction and mode.
type Moved = BTreeMap<(String, String), (u64, u64, u64)>;

fn add(moved: &mut Moved, direction: &str, mode: &str, bytes: u64, ns: u64) {
    let (count, sum, time) = moved
        .entry((direction.to_owned(), mode.to_owned()))
        .or_default();
    *count += 1;
    *sum = sum.saturating_add(bytes);
    *time = time.saturating_add(ns);
}

/// Copies and memory sets, by direction.
///
/// # Errors
/// Those of the file.
pub fn copies(database: &Database, selection: &Selection) -> Result<Vec<Copies>> {
    let mut moved = Moved::new();
    let duration = |row: &rusqlite::Row<'_>| {
        unsigned(
            integer(row, 1)
                .zip(integer(row, 0))
                .and_then(|(end, start)| end.checked_sub(start)),
        )
    };
    let columns = ["start", "end", "bytes", "globalPid", "deviceId", "copyKind"];
    database.each("CUPTI_ACTIVITY_KIND_MEMCPY", &columns, "", |row| {
        if is_selected(selection, integer(row, 3), integer(row, 4)) {
            let kind = integer(row, 5).and_then(|kind| usize::try_from(kind).ok());
            let label = kind
                .and_then(|kind| COPY_LABELS.get(kind))
                .unwrap_or(&COPY_LABELS[0]);
            add(
                &mut moved,
                label,
                "gpu",
                unsigned(integer(row, 2)),
                duration(row),
            );
        }
    })?;
    database.each("CUPTI_ACTIVITY_KIND_MEMSET", &columns[..5], "", |row| {
        if is_selected(selection, integer(row, 3), integer(row, 4)) {
            let set = Direction::Set.name();
            add(
                &mut moved,
                set,
                "gpu",
                unsigned(integer(row, 2)),
                duration(row),
            );
        }
    })?;
    let timed = !moved.is_empty();
    let columns = ["t0", "t1", "bytes", "globalPid", "direction", "mode"];
    database.each("GPUPROBE_COPIES", &columns, "", |row| {
        if !timed && is_selected(selection, integer(row, 3), None) {
            let direction = text(row, 4).unwrap_or_default();
            let mode = text(row, 5).unwrap_or_default();
            add(
                &mut moved,
                &direction,
                &mode,
                unsigned(integer(row, 2)),
                duration(row),
            );
        }
    })?;
    let copies = moved
        .into_iter()
        .map(|((direction, mode), (count, bytes, ns))| {
            let ns = (mode != "async").then_some(ns);
            let bytes_per_second = ns
                .filter(|&ns| ns > 0)
                .map(|ns| bytes as f64 * 1e9 / ns as f64);
            Copies {
                direction,
                mode,
                count,
                bytes,
                ns,
                bytes_per_second,
            }
        });
    Ok(copies.collect())
}
