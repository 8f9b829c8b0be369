//! Ended processes: the ones that reports still list, and sums over the others.

use std::collections::BTreeMap;

use super::process::Process;
use super::totals::{MemorySums, Total};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::identity::DeviceIdentity;

/// Limit on the size of all listed processes. Beyond it, processes are reduced to sums until half of it is
/// left, but for the last one: first those that a report has shown, and of these those with the smallest leaks.
const MAX_SIZE: usize = 1 << 24;
/// Size of a process. An allocation, or a tensor, counts 1 (64 bytes): at most 4,096 processes, or a GiB of
/// allocations.
const OF_PROCESS: usize = 1 << 12;
/// Size of a unit (about 64 bytes) of anything else, such as call sites and modules: at most 32 MiB.
const OF_UNIT: usize = 1 << 5;

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
    list: Vec<Ended>,
    /// Size of the listed processes together.
    size: usize,
    pub(super) forgotten: Forgotten,
}

impl EndedProcesses {
    /// Adds `process`, which has just ended.
    pub(super) fn push(&mut self, process: Process) {
        let kept = process.kept();
        let size = OF_PROCESS + kept.allocations + kept.others * OF_UNIT;
        self.size += size;
        self.list.push(Ended {
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

    /// Reduces processes to sums where they take too much.
    pub(super) fn forget_surplus(&mut self) {
        self.shrink(MAX_SIZE);
    }

    /// Reduces processes to sums until the listed ones take half of `most`, if they take more than that.
    fn shrink(&mut self, most: usize) {
        if self.size <= most {
            return;
        }
        let (_, old) = self.list.split_last().unzip();
        let mut places: Vec<_> = (0..).zip(old.unwrap_or_default()).collect();
        let leak = |ended: &Ended| ended.process.totals.sums.all().bytes;
        places.sort_by_key(|(_, ended)| (!ended.reported, leak(ended)));
        let mut drops = vec![false; self.list.len()];
        for (place, ended) in places {
            if self.size <= most / 2 {
                break;
            }
            self.size -= ended.size;
            self.forgotten.add(&ended.process);
            drops[place] = true;
        }
        let mut drops = drops.into_iter();
        self.list.retain(|_| drops.next() == Some(false));
    }
}

#[cfg(test)]
mod tests;
