//! Ended processes: the ones that reports still list, and sums over the others.

use std::collections::BTreeMap;

use super::process::Process;
use super::totals::{MemorySums, Total};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::identity::DeviceIdentity;

/// Ended processes without leaks that the final report lists.
const MAX_CLEAN_ENDED: usize = 1024;
/// Ended processes with leaks that the final report lists: the largest, and sums over the others.
const MAX_LEAKED_ENDED: usize = 4096;
/// Limit on the allocations of all listed processes, and tensors in them: a GB at most. Beyond it,
/// the oldest processes that a report has shown are reduced to sums. Processes that no report has
/// shown may hold twice as many, and the last one any number.
const MAX_ENDED_ALLOCATIONS: usize = 1 << 24;
/// Limit on whatever else is kept of all listed processes (call sites, modules, handles), in units of
/// about 64 bytes: 32 MiB. Beyond it, the processes with the smallest leaks are reduced to sums until
/// half of it is left, under the same conditions.
const MAX_ENDED_UNITS: usize = 1 << 19;

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
            let device = device.unwrap_or_default();
            let is_full = self.devices.len() >= MAX_FORGOTTEN_DEVICES;
            if is_full && self.sum_of(number, &device).is_none() {
                self.add_to(number, DeviceIdentity::default(), total);
            } else {
                self.add_to(number, device, total);
            }
        }
    }

    fn add_to(&mut self, number: Option<u16>, device: DeviceIdentity, total: Total) {
        match self.sum_of(number, &device) {
            Some(sum) => sum.merge(total),
            None => self.devices.push((number, device, total)),
        }
    }

    fn sum_of(&mut self, number: Option<u16>, device: &DeviceIdentity) -> Option<&mut Total> {
        let mut sums = self.devices.iter_mut();
        let found = sums.find(|(n, d, _)| *n == number && d == device);
        found.map(|(_, _, sum)| sum)
    }
}

/// An ended process, and whether a report has shown it.
#[derive(Debug)]
struct Ended {
    process: Process,
    /// Memory kept for it besides allocations, in units of about 64 bytes.
    units: usize,
    reported: bool,
}

impl Ended {
    /// Size of its live allocations at its end, bytes.
    fn leaked(&self) -> u64 {
        self.process.totals.sums.all().bytes
    }
}

/// Ended processes in the order of their ends.
#[derive(Debug, Default)]
pub(super) struct EndedProcesses {
    list: Vec<Ended>,
    /// Number of listed processes that hold nothing.
    clean: usize,
    /// Number of allocations that the listed processes hold, and of tensors in them.
    allocations: usize,
    /// Number of units that the listed processes take besides.
    units: usize,
    forgotten: Forgotten,
}

impl EndedProcesses {
    /// Adds `process`, which has just ended.
    pub(super) fn push(&mut self, process: Process) {
        let units = process.kept().others;
        self.clean += usize::from(process.holds_nothing());
        self.allocations += process.held();
        self.units += units;
        self.list.push(Ended {
            process,
            units,
            reported: false,
        });
    }

    #[cfg(test)]
    pub(super) fn allocations(&self) -> usize {
        self.allocations
    }

    /// Reduces processes to sums where there are too many, or where they hold too much.
    pub(super) fn forget_surplus(&mut self) {
        if self.allocations > MAX_ENDED_ALLOCATIONS {
            self.forget_large(MAX_ENDED_ALLOCATIONS);
        }
        if self.units > MAX_ENDED_UNITS {
            self.forget_small(MAX_ENDED_UNITS);
        }
        if self.clean > MAX_CLEAN_ENDED * 2 {
            self.forget_clean();
        }
        if self.list.len() - self.clean > MAX_LEAKED_ENDED * 2 {
            self.forget_leaked();
        }
    }

    /// The listed processes that no report has shown yet, or all of them.
    pub(super) fn listed(&self, all: bool) -> impl Iterator<Item = &Process> {
        let shown = move |ended: &&Ended| all || !ended.reported;
        self.list.iter().filter(shown).map(|ended| &ended.process)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.list.iter_mut().map(|ended| &mut ended.process)
    }

    /// Sums over the processes that are no longer listed.
    pub(super) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Notes that a report has shown all of them.
    pub(super) fn mark_reported(&mut self) {
        for ended in &mut self.list {
            ended.reported = true;
        }
    }

    /// Drops the processes that `surplus` returns true for; it gets their places, in order.
    fn forget(&mut self, mut surplus: impl FnMut(usize, &Ended) -> bool) {
        let mut place = 0;
        self.list.retain(|ended| {
            let drop = surplus(place, ended);
            place += 1;
            if drop {
                self.allocations -= ended.process.held();
                self.units -= ended.units;
                match ended.process.holds_nothing() {
                    true => self.clean -= 1,
                    false => self.forgotten.add(&ended.process),
                }
            }
            !drop
        });
    }

    /// Drops the smaller half of the ended processes with leaks.
    fn forget_leaked(&mut self) {
        let leaks = |ended: &Ended| !ended.process.holds_nothing();
        let of_leaking = self.list.iter().filter(|ended| leaks(ended));
        let mut sizes: Vec<_> = of_leaking.map(Ended::leaked).collect();
        sizes.sort_unstable();
        let mut surplus = sizes.len() - MAX_LEAKED_ENDED;
        let largest_dropped = sizes[surplus - 1];
        self.forget(|_, ended| {
            let drop = surplus > 0 && leaks(ended) && ended.leaked() <= largest_dropped;
            surplus -= usize::from(drop);
            drop
        });
    }

    /// Drops the oldest ended processes until the rest hold at most `most` allocations, or twice as
    /// many if no report has shown them.
    fn forget_large(&mut self, most: usize) {
        for (reported_only, most) in [(true, most), (false, 2 * most)] {
            let last = self.list.len().saturating_sub(1);
            let mut held = self.allocations;
            self.forget(|place, ended| {
                let holds = ended.process.held();
                let may = place < last && holds > 0 && (ended.reported || !reported_only);
                let drop = may && held > most;
                held -= if drop { holds } else { 0 };
                drop
            });
        }
    }

    /// Drops the processes with the smallest leaks, of those the oldest, until the rest take half of
    /// `most` units; if no report has shown them, only those beyond twice as many. The last one stays.
    fn forget_small(&mut self, most: usize) {
        for (reported_only, most, goal) in [(true, most, most / 2), (false, 2 * most, most)] {
            if self.units <= most {
                continue;
            }
            let last = self.list.len().saturating_sub(1);
            let may = |ended: &Ended| ended.units > 0 && (ended.reported || !reported_only);
            let mut places: Vec<_> = (0..last).filter(|&place| may(&self.list[place])).collect();
            places.sort_by_key(|place| self.list[*place].leaked());
            let mut drops = vec![false; self.list.len()];
            let mut left = self.units;
            for place in places {
                if left <= goal {
                    break;
                }
                left -= self.list[place].units;
                drops[place] = true;
            }
            self.forget(|place, _| drops[place]);
        }
    }

    /// Drops the older half of the ended processes without leaks.
    fn forget_clean(&mut self) {
        let mut surplus = self.clean - MAX_CLEAN_ENDED;
        self.forget(|_, ended| {
            let drop = surplus > 0 && ended.process.holds_nothing();
            surplus -= usize::from(drop);
            drop
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
