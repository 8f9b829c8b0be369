//! Where addresses of device memory are: an index by range over what the ledger has live, and what
//! was live a moment ago. The ledger keeps it only for those who ask, as copies do.
//!
//! Copies and frees come through different rings: the last blocks that ended are remembered, for copies that were
//! made before.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::Change;
use super::allocation::{Allocation, key};
use super::process::Process;
use gpuprobe_cuda::{AddressSpace, Belongs};
use gpuprobe_model::event::Call;

/// Where an address of a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// In memory of the host; in a known block, page-locked.
    Host,
    /// In memory of a GPU: of this one, as CUDA numbers them in the process, if that is known.
    Device(Option<u16>),
}

/// How long after its end a block is remembered, at least.
pub(super) const REMEMBER_NS: u64 = 5_000_000_000;
/// Ended blocks of a process at most, in each generation.
const MAX_PAST: usize = 1 << 16;
/// Starts of ended blocks, at or before an address, that are looked at for it.
const MAX_STEPS: usize = 64;

/// A block that has ended.
#[derive(Clone, Copy, Debug)]
struct PastBlock {
    size_bytes: u64,
    until_ns: u64,
    at: AddressKind,
}

/// The blocks of a process.
#[derive(Debug, Default)]
struct Blocks {
    /// Where those begin that are live, by address. What else there is to say of them is in the live set.
    live: BTreeMap<u64, AddressSpace>,
    /// Blocks that have ended, by start and time of their allocation: those since that time, and those before.
    past: [BTreeMap<(u64, u64), PastBlock>; 2],
    past_since_ns: u64,
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct AddressIndex {
    by_pid: HashMap<u32, Blocks>,
    /// End of the latest call.
    newest_ns: u64,
}

fn is_indexed(allocation: &Allocation) -> bool {
    use AddressSpace::{Device, Pinned, Registered};
    matches!(allocation.space(), Device | Pinned | Registered) && allocation.kind().has_place()
}

/// Where a block is, of which the kind says that it is a device's, unless its pool is the host's.
fn address_kind(allocation: &Allocation) -> AddressKind {
    match allocation.belongs() {
        Belongs::Host => AddressKind::Host,
        _ => AddressKind::Device(allocation.device()),
    }
}

impl Blocks {
    /// `gone` was live until then.
    fn end(&mut self, gone: &Allocation, until_ns: u64) {
        if !is_indexed(gone) {
            return;
        }
        self.live.remove(&gone.address);
        let ended = PastBlock {
            size_bytes: gone.size_bytes,
            until_ns,
            at: address_kind(gone),
        };
        self.past[0].insert((gone.address, gone.end_ns), ended);
    }

    /// Forgets blocks that ended long ago.
    fn forget_old(&mut self, now_ns: u64) {
        let age_ns = now_ns.saturating_sub(self.past_since_ns);
        if age_ns >= REMEMBER_NS || self.past[0].len() >= MAX_PAST {
            self.past[1] = std::mem::take(&mut self.past[0]);
            self.past_since_ns = now_ns;
        }
        if age_ns >= 2 * REMEMBER_NS {
            self.past[1].clear();
        }
    }
}

impl AddressIndex {
    /// A successful call of its process did this.
    pub(super) fn apply(&mut self, call: &Call, changes: &[Change]) {
        self.newest_ns = self.newest_ns.max(call.end_ns);
        let blocks = self.by_pid.entry(call.pid).or_default();
        for change in changes {
            match change {
                Change::Allocated(new) if is_indexed(&new.allocation) => {
                    let new = &new.allocation;
                    blocks.live.insert(new.address, new.space());
                }
                // From its entry on, what is freed may be another's.
                Change::Freed(gone) => blocks.end(&gone.allocation, call.start_ns),
                Change::Superseded(old) => blocks.end(&old.allocation, call.end_ns),
                _ => {}
            }
        }
        blocks.forget_old(call.end_ns);
    }

    /// `process` has ended, at `time_ns` if that is known.
    pub(super) fn end_process(&mut self, process: &Process, time_ns: Option<u64>) {
        let Some(blocks) = self.by_pid.get_mut(&process.pid) else {
            return;
        };
        let until_ns = time_ns.unwrap_or(self.newest_ns);
        for (start, space) in std::mem::take(&mut blocks.live) {
            if let Some(gone) = process.live.get(key(space, start)) {
                blocks.end(gone, until_ns);
            }
        }
        self.by_pid.retain(|_, blocks| {
            blocks.forget_old(until_ns);
            !(blocks.live.is_empty() && blocks.past.iter().all(BTreeMap::is_empty))
        });
    }

    /// Where `address` of `pid` was at that time. `process` is the one that has the id now.
    pub(super) fn find(
        &self,
        pid: u32,
        process: Option<&Process>,
        address: u64,
        at_ns: u64,
    ) -> Option<AddressKind> {
        let blocks = self.by_pid.get(&pid)?;
        let below = blocks.live.range(..=address).next_back();
        let live = below
            .zip(process)
            .and_then(|((&start, &space), process)| process.live.get(key(space, start)))
            .filter(|live| address - live.address < live.size_bytes);
        if let Some(live) = live.filter(|live| live.end_ns <= at_ns) {
            return Some(address_kind(live));
        }
        // Where a block was later, it was an address of the same side before, too.
        let side = |at| match at {
            AddressKind::Device(_) => AddressKind::Device(None),
            AddressKind::Host => AddressKind::Host,
        };
        let mut found = live.map(|live| side(address_kind(live)));
        for generation in &blocks.past {
            let mut bound = (address, u64::MAX);
            for _ in 0..MAX_STEPS {
                let Some((&(start, _), _)) = generation.range(..bound).next_back() else {
                    break;
                };
                let has = |past: &&PastBlock| address - start < past.size_bytes;
                let mut before = generation.range((start, 0)..=(start, at_ns));
                let then = before.next_back().map(|(_, past)| past).filter(has);
                if let Some(past) = then.filter(|past| at_ns < past.until_ns) {
                    return Some(past.at);
                }
                let mut after = generation.range((start, at_ns)..=(start, u64::MAX));
                let later = after.next_back().map(|(_, past)| past).filter(has);
                let later = later.filter(|past| at_ns < past.until_ns);
                found = later.map(|past| side(past.at)).or(found);
                bound = (start, 0);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
