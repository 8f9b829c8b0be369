//! What copies moved, and how fast.
//!
//! The duration of a synchronous copy between host and device is the time of the transfer, and
//! gives a throughput. An asynchronous call only enqueues, and so do copies within a device and
//! memory sets; a small synchronous copy to the device may return when the bytes are staged.
//! Their bytes are counted, per second of wall-clock time, and no throughput is claimed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::addresses::{REMEMBER_NS, Whereabouts};
use super::ledger::Ledger;
use gpuprobe_cuda::{Direction, Told};
use gpuprobe_model::event::{Copy, Event};

/// Synchronous copies to the device of up to this many bytes from pageable memory return once they
/// are staged (CUDA's documentation of API synchronisation behaviour).
const STAGED_BYTES: u64 = 64 * 1024;

/// What the duration of a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// The time of the transfer.
    Sync,
    /// The time of enqueueing or staging.
    Async,
}

impl Mode {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
        }
    }
}

/// Copies of one kind by one process.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// Calls.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time spent in the calls, nanoseconds.
    pub ns: u64,
    /// The fastest call, bytes per second.
    pub peak_bytes_per_second: f64,
    /// `bytes` when the last report was made.
    pub bytes_reported: u64,
    /// `ns` when the last report was made.
    pub ns_reported: u64,
    /// Calls by size: slot n counts those of 2^(n-1) to 2^n - 1 bytes.
    pub sizes: [u64; 65],
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            calls: 0,
            bytes: 0,
            ns: 0,
            peak_bytes_per_second: 0.0,
            bytes_reported: 0,
            ns_reported: 0,
            sizes: [0; 65],
        }
    }
}

impl Meter {
    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.saturating_add(other.ns);
        self.peak_bytes_per_second = self.peak_bytes_per_second.max(other.peak_bytes_per_second);
        self.bytes_reported = self.bytes_reported.saturating_add(other.bytes_reported);
        self.ns_reported = self.ns_reported.saturating_add(other.ns_reported);
        for (sum, size) in self.sizes.iter_mut().zip(other.sizes) {
            *sum = sum.saturating_add(size);
        }
    }
}

/// Which copies a [`Meter`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Which {
    /// Process id.
    pub pid: u32,
    /// Between which memories.
    pub direction: Direction,
    /// What the durations mean.
    pub mode: Mode,
}

/// A copy, understood.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What kind.
    pub which: Which,
    /// The call.
    pub copy: Copy,
}

impl Transfer {
    /// Bytes per second, if the call's duration is that of the transfer.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ns = self.copy.end_ns.saturating_sub(self.copy.start_ns);
        speed(self.which.mode, self.copy.bytes, ns)
    }
}

/// Bytes per second of a copy, if its call's duration is that of the transfer.
fn speed(mode: Mode, bytes: u64, ns: u64) -> Option<f64> {
    let is_known = mode == Mode::Sync && ns > 0;
    is_known.then(|| bytes as f64 * 1e9 / ns as f64)
}

/// How much later than the end of its process a copy may come: through another ring.
const LATE_NS: u64 = REMEMBER_NS;

/// Meters, of half a KiB each, beyond which those of ended processes are put together.
const MAX_METERS: usize = 16_384;
/// Ended processes that make it worth looking for theirs.
const MANY_ENDED: usize = 1024;
/// The process id that stands for them.
pub const EARLIER: u32 = 0;

/// Whose copies these are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Name of the process.
    pub comm: String,
    /// Its user, if known.
    pub uid: Option<u32>,
}

/// All copies.
#[derive(Debug, Default)]
pub struct Transfers {
    meters: BTreeMap<Which, Meter>,
    /// What processes are called, by their ids.
    names: HashMap<u32, Name>,
    /// When processes ended.
    exits: HashMap<u32, u64>,
    /// When their meters were last put together.
    put_together_ns: u64,
    newest_ns: u64,
    /// Copies that returned an error.
    pub failed_calls: u64,
    /// Copies that went into a graph.
    pub captured: u64,
}

impl Transfers {
    /// Enters an event; returns the copy if it is one that counts. Where addresses are, `ledger`
    /// knows, and `place` for what is not allocated.
    pub fn apply(
        &mut self,
        event: &Event,
        ledger: &Ledger,
        place: impl Fn(u32, u64) -> Option<Whereabouts>,
    ) -> Option<Transfer> {
        match event {
            Event::Process(task) => self.introduce(task.pid, &task.comm, Some(task.uid)),
            Event::Exit(task) => {
                self.newest_ns = self.newest_ns.max(task.time_ns);
                self.exits.insert(task.pid, task.time_ns);
                self.put_together();
            }
            Event::Copy(copy) if copy.result != 0 => self.failed_calls += 1,
            Event::Copy(copy) if copy.captured => self.captured += 1,
            Event::Copy(copy) => {
                let addresses = Addresses {
                    copy,
                    ledger,
                    place,
                };
                return Some(self.copy(copy, addresses.direction()));
            }
            _ => {}
        }
        None
    }

    /// Process `pid` is called `comm` and is of user `uid`.
    pub fn introduce(&mut self, pid: u32, comm: &str, uid: Option<u32>) {
        let comm = comm.to_owned();
        self.names.insert(pid, Name { comm, uid });
    }

    /// What a process is called.
    pub fn name(&self, pid: u32) -> Option<&Name> {
        self.names.get(&pid)
    }

    /// Puts the meters of processes that ended a while ago together, if there are very many. Copies
    /// that were made before an end may come a little after it.
    fn put_together(&mut self) {
        let old_ns = self.newest_ns.saturating_sub(LATE_NS);
        if self.exits.len() < MANY_ENDED || self.put_together_ns > old_ns {
            return;
        }
        self.put_together_ns = self.newest_ns;
        if self.meters.len() <= MAX_METERS {
            // Most processes copy nothing.
            let with_meters: HashSet<_> = self.meters.keys().map(|which| which.pid).collect();
            self.forget(|pid, ended_ns| ended_ns <= old_ns && !with_meters.contains(&pid));
            return;
        }
        let mut earlier: BTreeMap<Which, Meter> = BTreeMap::new();
        let exits = &self.exits;
        let has_ended = |pid| exits.get(&pid).is_some_and(|&ended_ns| ended_ns <= old_ns);
        self.meters.retain(|which, meter| {
            let is_old = has_ended(which.pid);
            if is_old {
                let which = Which {
                    pid: EARLIER,
                    ..*which
                };
                earlier.entry(which).or_default().add(meter);
            }
            !is_old
        });
        for (which, meter) in earlier {
            self.meters.entry(which).or_default().add(&meter);
        }
        self.forget(|_, ended_ns| ended_ns <= old_ns);
    }

    /// Forgets ended processes.
    fn forget(&mut self, is_old: impl Fn(u32, u64) -> bool) {
        let names = &mut self.names;
        for (pid, _) in self
            .exits
            .extract_if(|pid, ended_ns| is_old(*pid, *ended_ns))
        {
            names.remove(&pid);
        }
    }

    /// The meters, by process, direction and mode. Process [`EARLIER`] is all ended ones for which
    /// there was no room.
    pub fn meters(&self) -> impl Iterator<Item = (&Which, &Meter)> {
        self.meters.iter()
    }

    /// Notes that everything has been shown.
    pub fn mark_reported(&mut self) {
        for meter in self.meters.values_mut() {
            meter.bytes_reported = meter.bytes;
            meter.ns_reported = meter.ns;
        }
    }

    fn copy(&mut self, copy: &Copy, direction: Direction) -> Transfer {
        self.newest_ns = self.newest_ns.max(copy.end_ns);
        let transfer = Transfer {
            which: Which {
                pid: copy.pid,
                direction,
                mode: mode_of(copy.function.is_async, direction, copy.bytes),
            },
            copy: *copy,
        };
        if let Some(&ended_ns) = self.exits.get(&copy.pid)
            && copy.start_ns > ended_ns
        {
            // Another process has its id.
            self.exits.remove(&copy.pid);
        }
        let ns = copy.end_ns.saturating_sub(copy.start_ns);
        self.enter(transfer.which, copy.bytes, ns);
        transfer
    }

    /// Enters a copy that counts, of so many bytes, whose call took so many nanoseconds.
    pub fn enter(&mut self, which: Which, bytes: u64, ns: u64) {
        let meter = self.meters.entry(which).or_default();
        meter.calls += 1;
        meter.bytes = meter.bytes.saturating_add(bytes);
        meter.ns = meter.ns.saturating_add(ns);
        meter.sizes[64 - bytes.leading_zeros() as usize] += 1;
        let speed = speed(which.mode, bytes, ns).unwrap_or(0.0);
        meter.peak_bytes_per_second = meter.peak_bytes_per_second.max(speed);
    }
}

/// Where a copy goes from and to.
struct Addresses<'a, P> {
    copy: &'a Copy,
    ledger: &'a Ledger,
    place: P,
}

impl<P: Fn(u32, u64) -> Option<Whereabouts>> Addresses<'_, P> {
    /// Where `address` is, if anybody knows.
    fn find(&self, address: u64) -> Option<Whereabouts> {
        let known = self.known(address);
        known.or_else(|| (self.place)(self.copy.pid, address))
    }

    fn known(&self, address: u64) -> Option<Whereabouts> {
        let Copy { pid, start_ns, .. } = *self.copy;
        self.ledger.find_address(pid, address, start_ns)
    }

    /// The device that memory at `address` is on, if what was allocated tells.
    fn device(&self, address: u64) -> Option<u16> {
        match self.known(address) {
            Some(Whereabouts::Device(device)) => device,
            Some(Whereabouts::Host) | None => None,
        }
    }

    fn direction(&self) -> Direction {
        let Copy {
            source,
            destination,
            kind,
            ..
        } = *self.copy;
        let by_addresses = || between(self.find(source), self.find(destination));
        let told = match self.copy.function.direction {
            Told::Always(direction) => direction,
            Told::ByAddresses => by_addresses(),
            // cudaMemcpyKind
            Told::ByKind => match kind {
                0 => Direction::HostToHost,
                1 => Direction::HostToDevice,
                2 => Direction::DeviceToHost,
                3 => Direction::DeviceToDevice,
                4 => by_addresses(),
                _ => Direction::Unknown,
            },
            Told::ByTypes => self.by_types(),
        };
        match (told, self.device(source), self.device(destination)) {
            (Direction::DeviceToDevice, Some(from), Some(to)) if from != to => {
                Direction::PeerToPeer
            }
            (told, ..) => told,
        }
    }

    /// By `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified, where the addresses tell.
    fn by_types(&self) -> Direction {
        const ARRAY: u16 = 3;
        let place = |kind: u16, address| match kind {
            1 => Some(Whereabouts::Host),
            2 => Some(Whereabouts::Device(None)),
            4 => self.find(address),
            _ => None,
        };
        let source_type = u16::try_from(self.copy.kind).unwrap_or(0);
        let destination_type = self.copy.destination_type;
        let source = place(source_type, self.copy.source);
        let destination = place(destination_type, self.copy.destination);
        match (source_type == ARRAY, destination_type == ARRAY) {
            (true, true) => Direction::ArrayToArray,
            (true, false) => match destination {
                Some(Whereabouts::Host) => Direction::ArrayToHost,
                Some(Whereabouts::Device(_)) => Direction::ArrayToDevice,
                None => Direction::Unknown,
            },
            (false, true) => match source {
                Some(Whereabouts::Host) => Direction::HostToArray,
                Some(Whereabouts::Device(_)) => Direction::DeviceToArray,
                None => Direction::Unknown,
            },
            (false, false) => between(source, destination),
        }
    }
}

fn between(source: Option<Whereabouts>, destination: Option<Whereabouts>) -> Direction {
    use Whereabouts::{Device, Host};
    match (source, destination) {
        (Some(Host), Some(Host)) => Direction::HostToHost,
        (Some(Host), Some(Device(_))) => Direction::HostToDevice,
        (Some(Device(_)), Some(Host)) => Direction::DeviceToHost,
        (Some(Device(_)), Some(Device(_))) => Direction::DeviceToDevice,
        (None, _) | (_, None) => Direction::Unknown,
    }
}

/// What the duration of a call means that copies `bytes`.
pub(super) fn mode_of(is_async: bool, direction: Direction, bytes: u64) -> Mode {
    let to_device = matches!(direction, Direction::HostToDevice | Direction::HostToArray);
    let staged = to_device && bytes <= STAGED_BYTES;
    if is_async || !direction.crosses_link() || staged {
        Mode::Async
    } else {
        Mode::Sync
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
