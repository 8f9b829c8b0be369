//! What was launched and copied.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::Selection;
use crate::activity::ActivitySummary;
use crate::{Options, View};
use gpuprobe_cuda::{Direction, Modes};
use gpuprobe_engine::Activities;
use gpuprobe_engine::activity::busy;
use gpuprobe_engine::activity::tally::Tally;
use gpuprobe_model::activity::{Batch, Record};
use gpuprobe_recording::gpu_rows::{self, Filter};
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, Session};

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

/// The time of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// Device.
    pub device: i64,
    /// Time with anything running: a kernel, a copy, a memory set or a graph.
    pub busy_ns: u64,
    /// Time from the first of these to the end of the last.
    pub span_ns: u64,
    /// Share of that time, 0 to 1.
    pub share: f64,
    /// Times in between with nothing running.
    pub gaps: u64,
    /// The longest of them.
    pub longest_gap_ns: u64,
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

/// What the GPU did and which calls were made, as the engine adds it up.
#[derive(Debug, Default)]
pub struct Work {
    activities: Activities,
    /// When anything ran on a GPU, whoever's it was.
    gpus: BTreeMap<i64, busy::Busy>,
}

impl Work {
    /// Reads what `database` has of it.
    ///
    /// # Errors
    /// Returns what reading the file fails with.
    pub fn read(database: &Database, session: &Session, selection: &Selection) -> Result<Self> {
        let mut work = Self::default();
        gpu_rows::each(database, filter(selection), |batch| work.add(batch))?;
        for (pid, name) in &session.processes {
            work.activities.name(*pid, name);
        }
        Ok(work)
    }

    fn add(&mut self, batch: &Batch) {
        for activity in &batch.activities {
            let (device, start_ns, end_ns) = match &activity.record {
                Record::Kernel(r) => (r.device, r.start_ns, r.end_ns),
                Record::Memcpy(r) => (r.device, r.start_ns, r.end_ns),
                Record::Memset(r) => (r.device, r.start_ns, r.end_ns),
                Record::GraphTrace(r) => (r.device, r.start_ns, r.end_ns),
                _ => continue,
            };
            let gpu = self.gpus.entry(device.into()).or_default();
            gpu.add(start_ns, end_ns);
        }
        self.activities.batch(batch);
    }

    /// The sums that a live report has of them; of kernels and functions, the first `top` of each
    /// process.
    pub fn summary(&self, top: Option<usize>) -> Option<ActivitySummary> {
        self.activities.processes().next()?;
        let options = Options {
            modes: Modes {
                activity: true,
                ..Modes::default()
            },
            top,
            view: View::default(),
            stacks: false,
            now_ns: 0,
            is_final: true,
            since_last: Duration::ZERO,
            since_start: Duration::ZERO,
            link: None,
        };
        Some(crate::activity::build(&self.activities, &options))
    }

    fn busy(&self) -> Vec<Busy> {
        let one = |(&device, busy): (&i64, &busy::Busy)| {
            let sums = busy.sums();
            let span_ns = sums.last_ns.saturating_sub(sums.first_ns);
            Busy {
                device,
                busy_ns: sums.busy_ns,
                span_ns,
                share: sums.busy_ns as f64 / span_ns.max(1) as f64,
                gaps: sums.gaps.count,
                longest_gap_ns: sums.gaps.longest_ns,
            }
        };
        self.gpus.iter().map(one).collect()
    }

    /// Kernels by name, of all processes.
    fn kernels(&self) -> BTreeMap<Rc<str>, Kernel> {
        let mut kernels: BTreeMap<Rc<str>, Kernel> = BTreeMap::new();
        for (_, process) in self.activities.processes() {
            let named = process.kernels.iter().map(|k| (&*k.name, &k.runs));
            let rest = [("(no name)", &process.kernels.unnamed)].into_iter();
            let rest = rest.chain([("(other kernels)", &process.kernels.others)]);
            for (name, runs) in named.chain(rest.filter(|(_, runs)| runs.count > 0)) {
                let name: Rc<str> = name.into();
                let kernel = kernels.entry(name).or_insert_with_key(Kernel::never);
                kernel.add(runs);
            }
        }
        kernels
    }

    /// Launches of whole graphs.
    fn graphs(&self) -> u64 {
        let processes = self.activities.processes();
        processes.map(|(_, process)| process.graphs.count).sum()
    }
}

impl Kernel {
    /// One that has not run, on a GPU that was timed.
    fn never(name: &Rc<str>) -> Self {
        Self {
            name: Rc::clone(name),
            launches: 0,
            captured: None,
            gpu_ns: Some(0),
            shortest_ns: None,
            longest_ns: Some(0),
        }
    }

    fn add(&mut self, runs: &Tally) {
        self.launches += runs.count;
        self.gpu_ns = self.gpu_ns.map(|ns| ns.saturating_add(runs.total_ns));
        let shortest = self.shortest_ns.unwrap_or(u64::MAX).min(runs.min_ns);
        self.shortest_ns = Some(shortest);
        self.longest_ns = self.longest_ns.max(Some(runs.max_ns));
    }
}

fn unsigned(number: Option<i64>) -> u64 {
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

fn filter(selection: &Selection) -> Filter {
    Filter {
        pid: selection.pid,
        device: selection.device,
    }
}

/// The histogram of launches: of what ran on the GPU where that was timed, else of calls.
///
/// # Errors
/// Returns what reading the file fails with.
pub fn kernels(database: &Database, selection: &Selection, work: &Work) -> Result<Kernels> {
    let mut found = Kernels {
        kernels: work.kernels().into_values().collect(),
        graph_launches: work.graphs(),
        gpus: work.busy(),
        launches: 0,
    };
    let counted = counted(database, selection)?;
    // Where the GPU was timed, counting the calls too would count them twice.
    if found.kernels.is_empty() {
        found.kernels = counted.kernels.into_values().collect();
    }
    if found.graph_launches == 0 {
        found.graph_launches = counted.graphs;
    }
    found.launches = found.kernels.iter().map(|kernel| kernel.launches).sum();
    found.kernels.sort_by(|a, b| {
        let key = |kernel: &Kernel| (Reverse(kernel.gpu_ns), Reverse(kernel.launches));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(found)
}

/// Launches by the calls that made them.
#[derive(Default)]
struct Counted {
    kernels: BTreeMap<String, Kernel>,
    graphs: u64,
}

fn counted(database: &Database, selection: &Selection) -> Result<Counted> {
    let mut found = Counted::default();
    let filter = filter(selection);
    let columns = ["globalPid", "name", "launches", "captured", "isGraph"];
    database.each("GPUPROBE_LAUNCH_COUNTS", &columns, "", |row| {
        if !filter.includes(integer(row, 0), None) {
            return;
        }
        let (launches, captured) = (unsigned(integer(row, 2)), unsigned(integer(row, 3)));
        if integer(row, 4) == Some(1) {
            found.graphs += launches;
            return;
        }
        let name = text(row, 1).unwrap_or_else(|| "?".to_owned());
        let kernel = found.kernels.entry(name).or_insert_with_key(|name| Kernel {
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
    Ok(found)
}

/// Count, bytes and time by direction and mode.
type Moved = BTreeMap<(String, String), (u64, u64, u64)>;

fn add(moved: &mut Moved, (direction, mode): (&str, &str), more: (u64, u64, u64)) {
    let sums = moved.entry((direction.to_owned(), mode.to_owned()));
    let (count, bytes, ns) = sums.or_default();
    *count += more.0;
    *bytes = bytes.saturating_add(more.1);
    *ns = ns.saturating_add(more.2);
}

/// Copies and memory sets by direction: of what ran on the GPU where that was timed, else of calls.
///
/// # Errors
/// Returns what reading the file fails with.
pub fn copies(database: &Database, selection: &Selection, work: &Work) -> Result<Vec<Copies>> {
    let mut moved = Moved::new();
    for (_, process) in work.activities.processes() {
        let copies = process.copies.iter().map(|(which, m)| (which.direction, m));
        let sets = (process.sets.tally.count > 0).then_some((Direction::Set, &process.sets));
        for (direction, sums) in copies.chain(sets) {
            let more = (sums.tally.count, sums.bytes, sums.tally.total_ns);
            add(&mut moved, (direction.name(), "gpu"), more);
        }
    }
    if moved.is_empty() {
        let filter = filter(selection);
        let columns = ["t0", "t1", "bytes", "globalPid", "direction", "mode"];
        database.each("GPUPROBE_COPIES", &columns, "", |row| {
            if !filter.includes(integer(row, 3), None) {
                return;
            }
            let ends = integer(row, 1).zip(integer(row, 0));
            let ns = unsigned(ends.and_then(|(end, start)| end.checked_sub(start)));
            let direction = text(row, 4).unwrap_or_default();
            let mode = text(row, 5).unwrap_or_default();
            let more = (1, unsigned(integer(row, 2)), ns);
            add(&mut moved, (&direction, &mode), more);
        })?;
    }
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
