//! Ended processes: the ones that reports still list, and sums over the others.

use std::collections::{BTreeMap, VecDeque};

use super::process::Process;
use super::totals::{MemorySums, Total};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::identity::DeviceIdentity;

/// Limit on the size of all listed processes, in units of 64 bytes: 256 MiB. Beyond it, the oldest are reduced to
/// sums, but for the last one.
pub(super) const MAX_SIZE: usize = 1 << 22;
/// Size of a process without what is kept of it: at most 8,192 are listed.
const OF_PROCESS: usize = 1 << 9;

/// Devices for which sums of ended processes are kept separately; further devices are counted by
/// device index only.
const MAX_FORGOTTEN_DEVICES: usize = 1024;

/// Sums over ended processes that are no longer listed.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// Memory that they had not freed.
    pub sums: MemorySums,
    /// The same by memory kind.
    pub kinds: BTreeMap<MemoryKind, Total>,
    /// GPU memory by device index within the process, and the physical device.
    pub devices: Vec<(Option<u16>, DeviceIdentity, Total)>,
}

impl Forgotten {
    fn add(&mut self, process: &Process) {
        self.sums.merge(process.totals.sums);
        for (kind, total) in process.totals.kinds() {
            self.kinds.entry(kind).or_default().merge(total);
        }
        for (number, total) in process.devices() {
            let device = number.map(|n| process.identity.device(n));
            let mut device = device.unwrap_or_default();
            if self.devices.len() >= MAX_FORGOTTEN_DEVICES && self.place(number, &device).is_none()
            {
                device = DeviceIdentity::default();
            }
            match self.place(number, &device) {
                Some(place) => self.devices[place].2.merge(total),
                None => self.devices.push((number, device, total)),
            }
        }
    }

    fn place(&self, number: Option<u16>, device: &DeviceIdentity) -> Option<usize> {
        let mut devices = self.devices.iter();
        devices.position(|(n, d, _)| *n == number && d == device)
    }
}

/// An ended process, and whether a report has shown it.
#[derive(Debug)]
struct Ended {
    process: Process,
    size: usize,
    reported: bool,
}

/// Ended processes in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct EndedProcesses {
    list: VecDeque<Ended>,
    /// Size of the listed processes together.
    size: usize,
    pub(super) forgotten: Forgotten,
}

impl EndedProcesses {
    /// Adds `process`, which has just ended.
    pub(super) fn push(&mut self, process: Process) {
        let size = OF_PROCESS + process.kept();
        self.size += size;
        self.list.push_back(Ended {
            process,
            size,
            reported: false,
        });
    }

    /// The listed processes that no report has shown yet, or all of them.
    pub(super) fn listed(&self, all: bool) -> impl Iterator<Item = &Process> {
        let shown = move |ended: &&Ended| all || !ended.reported;
        self.list.iter().filter(shown).map(|ended| &ended.process)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.list.iter_mut().map(|ended| &mut ended.process)
    }

    /// Notes that a report has shown all of them.
    pub(super) fn mark_reported(&mut self) {
        for ended in &mut self.list {
            ended.reported = true;
        }
    }

    /// Reduces the oldest processes to sums while the listed ones take more than `most`.
    pub(super) fn shrink(&mut self, most: usize) {
        while self.size > most
            && self.list.len() > 1
            && let Some(oldest) = self.list.pop_front()
        {
            self.size -= oldest.size;
            self.forgotten.add(&oldest.process);
        }
    }
}

#[cfg(test)]
mod tests;
