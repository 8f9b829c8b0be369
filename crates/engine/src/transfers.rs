//! Copies: bytes moved, and throughput.
//!
//! The duration of a synchronous copy between host and device is the time of the transfer, and
//! gives a throughput. An asynchronous call only enqueues, as do copies within a device and memory
//! sets; a small synchronous copy to the device may return once the bytes are staged. For these,
//! bytes per second of wall-clock time are reported, and no throughput.

use direction::CopyEndpoints;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::addresses::{AddressKind, REMEMBER_NS};
use super::ledger::Ledger;
use super::totals::SizeCounts;
use gpuprobe_cuda::{Direction, MemoryKind};
use gpuprobe_model::event::{Copy, Event};
use gpuprobe_model::stack::CallStack;

/// Synchronous copies to the device of up to this many bytes from pageable memory return once they
/// are staged (CUDA's documentation of API synchronisation behaviour).
const STAGED_BYTES: u64 = 64 * 1024;

gpuprobe_cuda::named! {
    /// Meaning of the duration of a copy call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Mode {
        /// The duration is the time of the transfer.
        Sync = "sync",
        /// The duration is the time of enqueueing or staging.
        Async = "async",
    }
}

/// Copies of one process, direction and mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// Number of copy calls.
    pub calls: u64,
    /// Sum of the bytes moved.
    pub bytes: u64,
    /// Time spent in the calls, nanoseconds.
    pub ns: u64,
    /// Throughput of the fastest call, bytes per second.
    pub peak_bytes_per_second: f64,
    /// `bytes` at the last report.
    pub bytes_reported: u64,
    /// `ns` at the last report.
    pub ns_reported: u64,
    /// Number of copies by size in bytes.
    pub sizes: SizeCounts,
}

impl Meter {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.saturating_add(other.ns);
        self.peak_bytes_per_second = self.peak_bytes_per_second.max(other.peak_bytes_per_second);
        self.bytes_reported = self.bytes_reported.saturating_add(other.bytes_reported);
        self.ns_reported = self.ns_reported.saturating_add(other.ns_reported);
        self.sizes.merge(&other.sizes);
    }
}

/// Key of a [`Meter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyFilter {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Kinds of memory that the copy goes between.
    pub direction: Direction,
    /// Meaning of the durations.
    pub mode: Mode,
}

/// From where copies were made, and between what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopySite {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Row of the function.
    pub row: u16,
    /// Kinds of memory that the copy goes between.
    pub direction: Direction,
    /// The host's side of the copy, pinned or pageable; `None` if there is none or it is not known.
    pub host_memory: Option<MemoryKind>,
    /// Number of the call stack; 0 if none.
    stack: u64,
}

/// Copies of one call site.
#[derive(Clone, Debug, Default)]
pub struct SiteCopies {
    /// From where; `None` if that is not known.
    pub stack: Option<Rc<CallStack>>,
    /// Sums of all.
    pub sums: CopySums,
}

/// Sums of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySums {
    /// Number of copy calls.
    pub calls: u64,
    /// Sum of the bytes moved.
    pub bytes: u64,
    /// Time spent in the calls, nanoseconds.
    pub ns: u64,
    /// Number of calls that returned when the transfer had ended.
    pub waits: u64,
    /// Start of the first, and end of the last.
    pub first_ns: u64,
    /// See [`Self::first_ns`].
    pub last_ns: u64,
}

impl CopySums {
    /// Adds the sums of others.
    pub fn add(&mut self, other: &Self) {
        self.first_ns = match self.calls {
            0 => other.first_ns,
            _ => self.first_ns.min(other.first_ns),
        };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.saturating_add(other.ns);
        self.waits = self.waits.saturating_add(other.waits);
    }
}

/// Call sites that are told apart; copies of others have none.
const MAX_SITES: usize = 1 << 16;

/// A copy with its direction and mode.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Meter that counts the copy.
    pub which: CopyFilter,
    /// The event of the copy call.
    pub copy: Copy,
}

impl Transfer {
    /// Throughput in bytes per second, if the call's duration is that of the transfer.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.copy.end_ns.saturating_sub(self.copy.start_ns);
        speed(self.which.mode, self.copy.bytes, ns)
    }
}

/// Throughput in bytes per second, if the call's duration is that of the transfer.
fn speed(mode: Mode, bytes: u64, ns: u64) -> Option<f64> {
    let is_known = mode == Mode::Sync && ns > 0;
    is_known.then(|| bytes as f64 * 1e9 / ns as f64)
}

/// How long after the end of its process a copy may arrive, as it comes through another ring
/// buffer.
const LATE_NS: u64 = REMEMBER_NS;

/// Ended processes beyond which those that ended a while ago are merged.
const MAX_ENDED: usize = 4096;
/// Process id of the merged meters.
pub const EARLIER: u32 = 0;

/// Copies of all processes, by direction and mode.
#[derive(Debug, Default)]
pub struct Transfers {
    meters: BTreeMap<CopyFilter, Meter>,
    sites: HashMap<CopySite, SiteCopies>,
    /// Names of processes, by process id.
    names: HashMap<u32, (String, Option<u32>)>,
    /// Processes that are traced from their start. Copies may arrive when the ledger has ended them.
    from_birth: HashSet<u32>,
    /// When processes ended, by process id.
    exits: HashMap<u32, u64>,
    /// Number of copies that returned an error.
    pub failed_calls: u64,
    /// Number of copies captured into a graph.
    pub captured: u64,
}

impl Transfers {
    /// Applies an event; returns the copy if it is one that counts. The location of an address
    /// comes from `ledger`, or from `place` if it is not in a known allocation.
    pub fn apply(
        &mut self,
        event: &Event,
        ledger: &Ledger,
        place: impl Fn(u32, u64) -> Option<AddressKind>,
    ) -> Option<Transfer> {
        match event {
            Event::Process(task) => {
                self.introduce(task.pid, &task.comm, Some(task.uid));
                if task.from_birth {
                    self.from_birth.insert(task.pid);
                }
            }
            Event::Exit(task) => {
                self.exits.insert(task.pid, task.time_ns);
                if self.exits.len() > MAX_ENDED {
                    self.merge_ended(task.time_ns);
                }
            }
            Event::Copy(copy) if copy.result != 0 => self.failed_calls += 1,
            Event::Copy(copy) if copy.captured => self.captured += u64::from(copy.begins_call()),
            Event::Copy(copy) => {
                let addresses = CopyEndpoints {
                    copy,
                    ledger,
                    place,
                };
                let direction = addresses.direction();
                let host_memory =
                    addresses.host_memory(direction, self.from_birth.contains(&copy.pid));
                return Some(self.copy(copy, direction, host_memory, ledger));
            }
            _ => {}
        }
        None
    }

    /// Sets the name and user of process `pid`.
    pub fn introduce(&mut self, pid: u32, comm: &str, uid: Option<u32>) {
        self.names.insert(pid, (comm.to_owned(), uid));
    }

    /// Name and user of a process, if known.
    pub fn name(&self, pid: u32) -> Option<(&str, Option<u32>)> {
        self.names.get(&pid).map(|(comm, uid)| (&**comm, *uid))
    }

    /// Whether process `pid` has ended; an id in use again is one of a live process from its first copy on.
    pub fn has_ended(&self, pid: u32) -> bool {
        pid == EARLIER || self.exits.contains_key(&pid)
    }

    /// Merges the meters of processes that ended a while ago. A copy made before the end of its process may
    /// arrive a little later.
    fn merge_ended(&mut self, now_ns: u64) {
        let old_ns = now_ns.saturating_sub(LATE_NS);
        let old = self.exits.extract_if(|_, ended_ns| *ended_ns <= old_ns);
        let old: HashMap<_, _> = old.collect();
        let merged = self
            .meters
            .extract_if(.., |which, _| old.contains_key(&which.pid));
        for (which, meter) in merged.collect::<Vec<_>>() {
            let pid = EARLIER;
            let earlier = self.meters.entry(CopyFilter { pid, ..which });
            earlier.or_default().add(&meter);
        }
        let merged = self.sites.extract_if(|site, _| old.contains_key(&site.pid));
        for (site, copies) in merged.collect::<Vec<_>>() {
            let (pid, stack) = (EARLIER, 0);
            let earlier = self.sites.entry(CopySite { pid, stack, ..site });
            earlier.or_default().sums.add(&copies.sums);
        }
        self.names.retain(|pid, _| !old.contains_key(pid));
        self.from_birth.retain(|pid| !old.contains_key(pid));
    }

    /// Copies by call site, in no particular order.
    pub fn sites(&self) -> impl Iterator<Item = (&CopySite, &SiteCopies)> {
        self.sites.iter()
    }

    /// The meters, by process, direction and mode. [`EARLIER`] stands for all ended processes that
    /// were merged.
    pub fn meters(&self) -> impl Iterator<Item = (&CopyFilter, &Meter)> {
        self.meters.iter()
    }

    /// Notes that a report has shown everything.
    pub fn mark_reported(&mut self) {
        for meter in self.meters.values_mut() {
            meter.bytes_reported = meter.bytes;
            meter.ns_reported = meter.ns;
        }
    }

    fn copy(
        &mut self,
        copy: &Copy,
        direction: Direction,
        host_memory: Option<MemoryKind>,
        ledger: &Ledger,
    ) -> Transfer {
        let transfer = Transfer {
            which: CopyFilter {
                pid: copy.pid,
                direction,
                mode: mode_of(copy.function.is_async, direction, copy.bytes),
            },
            copy: *copy,
        };
        if let Some(&ended_ns) = self.exits.get(&copy.pid)
            && copy.start_ns > ended_ns
        {
            // PID reuse: this is another process.
            self.exits.remove(&copy.pid);
        }
        let calls = u64::from(copy.begins_call());
        let ns = copy.end_ns.saturating_sub(copy.start_ns) * calls;
        self.enter(transfer.which, calls, copy.bytes, ns);
        // An asynchronous copy to pageable memory is none.
        let to_pageable =
            direction == Direction::DeviceToHost && host_memory == Some(MemoryKind::Pageable);
        let waits = transfer.which.mode == Mode::Sync || to_pageable;
        let site = CopySite {
            pid: copy.pid,
            row: copy.row,
            direction,
            host_memory,
            stack: copy.stack,
        };
        let is_new = !self.sites.contains_key(&site);
        let stack = match is_new && self.sites.len() >= MAX_SITES {
            true => 0,
            false => site.stack,
        };
        let copies = self.sites.entry(CopySite { stack, ..site }).or_default();
        if is_new {
            copies.stack = ledger.processes.stack(copy.pid, stack).cloned();
        }
        copies.sums.add(&CopySums {
            calls,
            bytes: copy.bytes,
            ns,
            waits: u64::from(waits) * calls,
            first_ns: copy.start_ns,
            last_ns: copy.end_ns,
        });
        transfer
    }

    /// Adds a copy that counts, of `bytes`, with a call of `ns` nanoseconds; no `calls` if it is a further one of
    /// a batch.
    pub fn enter(&mut self, which: CopyFilter, calls: u64, bytes: u64, ns: u64) {
        let meter = self.meters.entry(which).or_default();
        meter.calls += calls;
        meter.bytes = meter.bytes.saturating_add(bytes);
        meter.ns = meter.ns.saturating_add(ns);
        meter.sizes.add(bytes);
        let speed = speed(which.mode, bytes, ns).unwrap_or(0.0);
        meter.peak_bytes_per_second = meter.peak_bytes_per_second.max(speed);
    }
}

/// Meaning of the duration of a call that copies `bytes`.
pub(super) fn mode_of(is_async: bool, direction: Direction, bytes: u64) -> Mode {
    let to_device = matches!(direction, Direction::HostToDevice | Direction::HostToArray);
    let staged = to_device && bytes <= STAGED_BYTES;
    if is_async || !direction.crosses_link() || staged {
        Mode::Async
    } else {
        Mode::Sync
    }
}

mod direction;
#[cfg(test)]
mod tests;
