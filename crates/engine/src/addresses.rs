//! Where addresses of device memory are: an index by range over what the ledger has live, and what
//! was live a moment ago. The ledger keeps it only for those who ask, as copies do.
//!
//! Copies and frees come through different rings: a block is remembered for a while after its end,
//! for copies that were made before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashMap;

use super::Change;
use super::allocation::{Allocation, key};
use super::process::Process;
use gpuprobe_cuda::{AddressSpace, Belongs};
use gpuprobe_model::event::Call;

/// Where an address of a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// In memory of the host.
    Host,
    /// In memory of a GPU: of this one, as CUDA numbers them in the process, if that is known.
    Device(Option<u16>),
}

/// How long after its end a block is remembered.
pub(super) const REMEMBER_NS: u64 = 5_000_000_000;
/// Ended blocks at most, some 90 bytes each.
const MAX_PAST: usize = 1 << 19;
/// Ended blocks of about the same size that are looked at for an address.
const MAX_STEPS: usize = 64;

/// A block that has ended: its size class, where it began, and when.
type PastKey = (u8, u64, u64);

/// The rest of it.
#[derive(Clone, Copy, Debug)]
struct PastBlocks {
    size_bytes: u64,
    until_ns: u64,
    at: AddressKind,
}

/// The blocks of a process.
#[derive(Debug, Default)]
struct BlockRanges {
    /// Where those begin that are live. What else there is to say of them is in the live set.
    live: BTreeSet<u64>,
    past: BTreeMap<PastKey, PastBlocks>,
    /// A bit for every size class that `past` has or had.
    classes: u64,
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    by_pid: HashMap<u32, BlockRanges>,
    /// Ends of past blocks, with their processes, oldest first.
    ends: VecDeque<(u64, u32, PastKey)>,
    newest_ns: u64,
}

/// Blocks of 2^n to 2^(n+1) - 1 bytes are in class n.
fn class(size_bytes: u64) -> u8 {
    size_bytes.checked_ilog2().unwrap_or(0) as u8
}

/// Where a block of this class that has `address` begins at least.
fn first_start(class: u8, address: u64) -> u64 {
    address.saturating_sub(u64::MAX >> (63 - class))
}

fn is_indexed(allocation: &Allocation) -> bool {
    allocation.space() == AddressSpace::Device && allocation.kind().is_at_device()
}

/// Where a block is, of which the kind says that it is a device's, unless its pool is the host's.
fn address_kind(allocation: &Allocation) -> AddressKind {
    match allocation.belongs() {
        Belongs::Host => AddressKind::Host,
        _ => AddressKind::Device(allocation.device()),
    }
}

impl BlockRanges {
    /// `gone` was live until then. Returns the key of the past block, if it is new.
    fn end(&mut self, gone: &Allocation, until_ns: u64) -> Option<PastKey> {
        self.live.remove(&gone.address);
        let (class, at) = (class(gone.size_bytes), address_kind(gone));
        let past = PastBlocks {
            size_bytes: gone.size_bytes,
            until_ns,
            at,
        };
        let key = (class, gone.address, gone.end_ns);
        // A program that is given the same block again and again costs no memory for that.
        if let Some(before) = self.same_before(key, &past)
            && let Some(before) = self.past.get_mut(&before)
        {
            before.until_ns = before.until_ns.max(until_ns);
            return None;
        }
        self.classes |= 1 << class;
        self.past.insert(key, past).is_none().then_some(key)
    }

    /// The same block, of before, if nothing else was known to be there in between.
    fn same_before(&self, (class, start, since_ns): PastKey, past: &PastBlocks) -> Option<PastKey> {
        let same_start = (class, start, 0)..(class, start, since_ns);
        let (&key, before) = self.past.range(same_start).next_back()?;
        if (before.size_bytes, before.at) != (past.size_bytes, past.at) {
            return None;
        }
        let last = start.saturating_add(past.size_bytes.saturating_sub(1));
        for class in self.classes() {
            let window = (class, first_start(class, start), 0)..=(class, last, u64::MAX);
            for (steps, (other, block)) in self.past.range(window).rev().enumerate() {
                let is_there = other.1.saturating_add(block.size_bytes) > start;
                let is_later = *other != key && block.until_ns > before.until_ns;
                if steps >= MAX_STEPS || (is_there && is_later) {
                    return None;
                }
            }
        }
        Some(key)
    }

    fn classes(&self) -> impl Iterator<Item = u8> {
        let all = self.classes;
        (0..64u8).filter(move |class| all & (1 << class) != 0)
    }

    /// Past blocks that have `address`: since when, and the rest.
    fn past_at(&self, address: u64) -> impl Iterator<Item = (u64, &PastBlocks)> {
        self.classes().flat_map(move |class| {
            let window = (class, first_start(class, address), 0)..=(class, address, u64::MAX);
            let blocks = self.past.range(window).rev().take(MAX_STEPS);
            let has = move |start: u64, past: &PastBlocks| address - start < past.size_bytes;
            blocks.filter_map(move |(&(_, start, since_ns), past)| {
                has(start, past).then_some((since_ns, past))
            })
        })
    }
}

impl AddressIndex {
    /// A successful call of its process did this.
    pub(super) fn apply(&mut self, call: &Call, changes: &[Change]) {
        self.newest_ns = self.newest_ns.max(call.end_ns);
        for change in changes {
            match change {
                Change::Allocated(new) if is_indexed(&new.allocation) => {
                    let ranges = self.by_pid.entry(call.pid).or_default();
                    ranges.live.insert(new.allocation.address);
                }
                // From its entry on, what is freed may be another's.
                Change::Freed(gone) => self.end(call.pid, &gone.allocation, call.start_ns),
                Change::Superseded(old) => self.end(call.pid, &old.allocation, call.end_ns),
                _ => {}
            }
        }
        self.forget_old();
    }

    fn end(&mut self, pid: u32, gone: &Allocation, until_ns: u64) {
        if is_indexed(gone)
            && let Some(ranges) = self.by_pid.get_mut(&pid)
            && let Some(key) = ranges.end(gone, until_ns)
        {
            self.ends.push_back((until_ns, pid, key));
        }
    }

    /// `process` has ended, at `time_ns` if that is known.
    pub(super) fn end_process(&mut self, process: &Process, time_ns: Option<u64>) {
        self.newest_ns = self.newest_ns.max(time_ns.unwrap_or(0));
        let until_ns = time_ns.unwrap_or(self.newest_ns);
        let Some(ranges) = self.by_pid.get_mut(&process.pid) else {
            return;
        };
        for start in std::mem::take(&mut ranges.live) {
            if let Some(gone) = process.live.get(key(AddressSpace::Device, start)) {
                self.end(process.pid, gone, until_ns);
            }
        }
        self.forget_old();
    }

    /// Where `address` of `pid` was at that time. `process` is the one that has the id now.
    pub(super) fn find(
        &self,
        pid: u32,
        process: Option<&Process>,
        address: u64,
        at_ns: u64,
    ) -> Option<AddressKind> {
        let ranges = self.by_pid.get(&pid)?;
        let below = ranges.live.range(..=address).next_back();
        let live = below
            .zip(process)
            .and_then(|(&start, process)| process.live.get(key(AddressSpace::Device, start)))
            .filter(|live| address - live.address < live.size_bytes);
        if let Some(live) = live.filter(|live| live.end_ns <= at_ns) {
            return Some(address_kind(live));
        }
        let mut found = live.map(|_| AddressKind::Device(None));
        for (since_ns, past) in ranges.past_at(address) {
            if at_ns >= past.until_ns {
                continue;
            }
            if since_ns <= at_ns {
                return Some(past.at);
            }
            // It was there later: before, too, it was an address of a device.
            found = Some(AddressKind::Device(None));
        }
        found
    }

    /// Forgets blocks that ended long ago, and the oldest of too many.
    fn forget_old(&mut self) {
        let old_ns = self.newest_ns.saturating_sub(REMEMBER_NS);
        while let Some(&(until_ns, pid, key)) = self.ends.front()
            && (self.ends.len() > MAX_PAST || until_ns <= old_ns)
        {
            self.ends.pop_front();
            let Some(ranges) = self.by_pid.get_mut(&pid) else {
                continue;
            };
            // The same block may have ended again since.
            match ranges.past.get(&key) {
                Some(past) if past.until_ns > until_ns => {
                    self.ends.push_back((past.until_ns, pid, key));
                }
                _ => drop(ranges.past.remove(&key)),
            }
            if ranges.past.is_empty() && ranges.live.is_empty() {
                self.by_pid.remove(&pid);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn past_blocks(&self) -> usize {
        self.by_pid.values().map(|ranges| ranges.past.len()).sum()
    }
}

#[cfg(test)]
mod tests;
