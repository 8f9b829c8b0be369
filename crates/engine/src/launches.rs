//! Kernel and graph launches, counted by kernel.
//!
//! The BPF programs count launches; their counts are read at each report. Names arrive once per
//! kernel. A name given by the program is certain; one found through the handle is trusted until
//! one of them contradicts a given name.

mod past;

pub use launcher::Launcher;
use launcher::MAX_NAMES;
use std::sync::Arc;

use hashbrown::HashMap;

use self::past::PastLaunches;
use super::change::{Change, Changes};
use gpuprobe_cuda::Op;
use gpuprobe_model::abi::{PROCESS_PID_SHIFT, RawLaunchKey};
use gpuprobe_model::event::{Event, KernelName, Task};
use gpuprobe_stacks::symbols;

/// Launch counts of a kernel or an executable graph.
#[derive(Clone, Debug, Default)]
pub struct LaunchCount {
    /// Launches that ran, as opposed to captured ones.
    pub runs: u64,
    /// Launches captured into a graph.
    pub captured: u64,
    /// `runs` at the last report.
    pub runs_reported: u64,
    /// Blocks of the first launch, in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block of the first launch, in x, y and z.
    pub block: [u32; 3],
}

impl LaunchCount {
    /// Adds the counts of another kernel.
    fn add(&mut self, other: &Self) {
        self.runs = self.runs.saturating_add(other.runs);
        self.captured = self.captured.saturating_add(other.captured);
        self.runs_reported = self.runs_reported.saturating_add(other.runs_reported);
    }
}

/// Names of kernels with reused handles; launches of further ones are counted together.
const MAX_SETTLED: usize = 1 << 16;

/// Process, row of the function table, and kernel name.
type Settled = (u32, u16, Option<Arc<str>>);

/// Launches of a kernel or a graph, as read from a file.
#[derive(Clone, Debug)]
pub struct LaunchTarget<'a> {
    /// Key of the kernel or graph in the file.
    pub key: RawLaunchKey,
    /// Process id (tgid) in the file.
    pub pid: u32,
    /// Name (comm) of the process, if known.
    pub comm: Option<&'a str>,
    /// User id of the process, if known.
    pub uid: Option<u32>,
    /// Whether the process has ended.
    pub exited: bool,
    /// Mangled name of the kernel, if known.
    pub mangled: Option<Arc<str>>,
    /// Launch counts of the kernel or graph.
    pub counted: LaunchCount,
}

/// Launch counts of a kernel or a graph by one function.
#[derive(Clone, Copy, Debug)]
pub struct CountedLaunch<'a> {
    /// Key of the kernel or graph.
    pub key: &'a RawLaunchKey,
    /// Number of its launches since tracing began.
    pub counted: &'a LaunchCount,
    /// The process that launches it, if known.
    pub launcher: Option<&'a Launcher>,
    /// Mangled name of the kernel, if known.
    pub mangled: Option<&'a Arc<str>>,
}

/// Launches of all processes.
#[derive(Debug, Default)]
pub struct Launches {
    launchers: HashMap<u32, Launcher>,
    counted: HashMap<RawLaunchKey, LaunchCount>,
    /// Counts of reused handles, by process, row and name.
    settled: HashMap<Settled, (RawLaunchKey, LaunchCount)>,
    past: PastLaunches,
    /// There are no more names of kernels: those that are gone are counted, too, until it is the limit.
    names_at_most: usize,
    /// Number of names dropped for lack of room.
    pub names_left_out: u64,
}

/// Upper limit of a launch count: half a year at a million launches a second. It keeps sums from
/// overflowing, whatever a recording contains.
const MAX_COUNT: u64 = 1 << 44;

impl Launches {
    /// Applies an event. `host_name` returns the name of the kernel with a host function, from
    /// process id and address.
    pub fn apply(&mut self, event: &Event, host_name: impl FnOnce(u32, u64) -> Option<String>) {
        match event {
            Event::Process(task) => {
                let launcher = self.launcher(task.process, task.pid);
                launcher.comm = Some(task.comm.clone());
                launcher.uid = Some(task.uid);
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            Event::Kernel(kernel) => self.learn(kernel, host_name),
            // Single launches are counted already.
            _ => {}
        }
    }

    /// Sets the counts read from the BPF map. Returns false if `key` can be removed from the map,
    /// as its counts will not grow: its process has ended, or the handle has a newer epoch and no
    /// launch was in flight.
    pub fn set_counts(&mut self, key: RawLaunchKey, runs: u64, captured: u64) -> bool {
        let (runs, captured) = (runs.min(MAX_COUNT), captured.min(MAX_COUNT));
        let counted = self.counted.entry(key).or_default();
        let unchanged = (counted.runs, counted.captured) == (runs, captured);
        counted.runs = runs;
        counted.captured = captured;
        let launcher = self.launcher(key.process, key.process >> PROCESS_PID_SHIFT);
        let age = launcher.newest_epoch.wrapping_sub(key.epoch).cast_signed();
        if age < 0 {
            launcher.newest_epoch = key.epoch;
        }
        if age > 0 && unchanged {
            self.settle(key);
            return false;
        }
        !launcher.exited
    }

    /// Adds the launches read from a file.
    pub fn enter(&mut self, launched: LaunchTarget<'_>) {
        let (key, mut counted) = (launched.key, launched.counted);
        counted.runs = counted.runs.min(MAX_COUNT);
        counted.captured = counted.captured.min(MAX_COUNT);
        let launcher = self.launcher(key.process, launched.pid);
        launcher.comm = launched.comm.map(str::to_owned);
        launcher.uid = launched.uid;
        launcher.exited = launched.exited;
        let first = LaunchCount {
            runs: 0,
            captured: 0,
            ..counted.clone()
        };
        let known = match launched.mangled {
            None => self.counted.entry(key).or_insert(first),
            mangled => {
                let place = (key.process, key.row, mangled);
                &mut self.settled.entry(place).or_insert((key, first)).1
            }
        };
        known.add(&counted);
    }

    /// Moves the counts of `key`, a reused handle, to the kernel's name, so that a program that
    /// keeps loading and unloading modules takes no more memory.
    fn settle(&mut self, key: RawLaunchKey) {
        let Some(old) = self.counted.remove(&key) else {
            return;
        };
        let launcher = self.launchers.get(&key.process);
        let name = launcher.and_then(|one| one.name(key.handle, key.epoch));
        let mut place = (key.process, key.row, name.cloned());
        let is_full = self.settled.len() >= MAX_SETTLED && !self.settled.contains_key(&place);
        if is_full && place.2.take().is_some() {
            self.names_left_out += 1;
        }
        let empty = LaunchCount {
            grid: old.grid,
            block: old.block,
            ..LaunchCount::default()
        };
        let settled = self.settled.entry(place).or_insert((key, empty));
        settled.1.add(&old);
        let same = |k: &RawLaunchKey| {
            (k.process, k.handle, k.epoch) == (key.process, key.handle, key.epoch)
        };
        if !self.counted.keys().any(same) {
            let launcher = self.launcher(key.process, key.process >> PROCESS_PID_SHIFT);
            launcher.names.remove(&(key.handle, key.epoch));
        }
    }

    /// All launch counts, in no particular order.
    pub fn counted(&self) -> impl Iterator<Item = CountedLaunch<'_>> {
        let current = self.counted.iter();
        let current = current.map(|(key, counted)| (key, counted, None));
        let settled = self.settled.iter();
        let settled = settled.map(|((_, _, name), (key, counted))| (key, counted, Some(name)));
        current.chain(settled).map(|(key, counted, settled_name)| {
            let launcher = self.launchers.get(&key.process);
            let name = || launcher?.name(key.handle, key.epoch);
            CountedLaunch {
                key,
                counted,
                launcher,
                mangled: settled_name.map_or_else(name, Option::as_ref),
            }
        })
    }

    /// Notes that a report has shown everything.
    pub fn mark_reported(&mut self) {
        let settled = self.settled.values_mut().map(|(_, counted)| counted);
        for counted in self.counted.values_mut().chain(settled) {
            counted.runs_reported = counted.runs;
        }
        for launcher in self.launchers.values_mut() {
            launcher.end_reported = launcher.exited;
        }
    }

    fn launcher(&mut self, id: u32, pid: u32) -> &mut Launcher {
        let launcher = self.launchers.entry(id).or_default();
        launcher.pid = pid;
        launcher
    }

    fn end(&mut self, task: &Task) {
        if let Some(launcher) = self.launchers.get_mut(&task.process) {
            launcher.exited = true;
            self.past.ending.push(task.process);
        }
    }

    fn learn(&mut self, kernel: &KernelName, host_name: impl FnOnce(u32, u64) -> Option<String>) {
        let function = gpuprobe_cuda::function(kernel.key.row);
        let is_launch = function.is_some_and(|f| f.op.is_launch());
        if is_launch {
            let counted = self.counted.entry(kernel.key).or_default();
            counted.grid = kernel.grid;
            counted.block = kernel.block;
        }
        if function.is_some_and(|f| f.op == Op::GraphLaunch) {
            return;
        }
        let by_host_function = function.is_some_and(|f| f.layer == gpuprobe_cuda::Layer::Runtime)
            && !kernel.name.as_deref().is_some_and(symbols::is_plausible);
        let process = kernel.key.process;
        self.names_at_most += usize::from(kernel.name.is_some());
        if self.names_at_most > MAX_NAMES {
            self.names_at_most = self.names() + 1;
        }
        if kernel.name.is_some() && self.names_at_most > MAX_NAMES {
            self.names_left_out += 1;
            return;
        }
        let launcher = self.launcher(process, kernel.pid);
        if !by_host_function {
            launcher.learn(kernel);
        } else if let Some(name) = host_name(kernel.pid, kernel.key.handle) {
            // A host function is not a handle: its name contradicts nothing.
            let place = (kernel.key.handle, kernel.key.epoch);
            launcher.names.insert(place, (name.into(), true));
        }
    }

    /// Records the names that have changed since `kernel` was named.
    pub(super) fn record_names(&mut self, kernel: &KernelName, changes: &mut Changes) {
        let Some(launcher) = self.launchers.get_mut(&kernel.key.process) else {
            return;
        };
        let retracts_names = std::mem::take(&mut launcher.retracts_names);
        let found = launcher.names.iter().filter(|(_, (_, given))| !given);
        let found = found.map(|(place, _)| place).filter(|_| retracts_names);
        for &(handle, epoch) in found.chain([&(kernel.key.handle, kernel.key.epoch)]) {
            let key = (kernel.key.process, handle, epoch);
            changes.record(|| Change::Named(key, launcher.name(handle, epoch).cloned()));
        }
    }

    /// Number of kernel names of all processes.
    fn names(&self) -> usize {
        let launchers = self.launchers.values();
        launchers.map(|launcher| launcher.names.len()).sum()
    }
}

mod launcher;
#[cfg(test)]
mod tests;
