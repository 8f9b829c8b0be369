//! How much is kept of traced processes: nothing fills our memory.
//!
//! What is live takes some 70 bytes an allocation. Whatever else grows with what a program does (call
//! sites, modules, variables, handles, mappings, graphs, frees that have not returned) is counted in
//! units of about as much. What is beyond the limits is left out, and counted as lost with its process.

use hashbrown::HashMap;

use super::process::Process;
use gpuprobe_cuda::Op;
use gpuprobe_model::UserLoss;

/// Live allocations and tensors of all processes: 2.2 GiB.
const MAX_ALLOCATIONS: usize = 1 << 25;
/// Units of anything else: 64 MiB.
const MAX_OTHERS: usize = 1 << 20;
/// Changes of a process after which it is counted again, as long as there is room for
/// [`NEAR`] more: to count takes as long as a change.
const COUNT_EVERY: u32 = 32;
const NEAR: usize = 1 << 19;
/// Processes that have a count of their losses each.
const MAX_LOSERS: usize = 1024;

/// Memory use of a process, or of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LedgerUsage {
    pub(super) allocations: usize,
    /// In units of about 64 bytes.
    pub(super) others: usize,
}

/// Memory use of a process, as of its last count.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) kept: LedgerUsage,
    /// How often it has changed since then.
    changes: u32,
}

/// Of what no more is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Full {
    pub(super) allocations: bool,
    pub(super) others: bool,
}

impl Full {
    /// Whether a call with this effect is dropped.
    pub(super) fn refuses(self, op: Op) -> bool {
        if self == Self::default() {
            return false;
        }
        match op {
            Op::Allocate => self.allocations,
            Op::HandleCreate | Op::HandleImport | Op::ShareOpen | Op::Symbol => {
                self.allocations || self.others
            }
            Op::HandleRetain
            | Op::HandleOther
            | Op::Map
            | Op::MapHandle
            | Op::Reserve
            | Op::ModuleLoad
            | Op::LibraryLoad
            | Op::PoolCreate
            | Op::PoolOfDevice
            | Op::PoolSet
            | Op::GraphAllocate
            | Op::GraphFree
            | Op::GraphNode
            | Op::GraphBuild => self.others,
            _ => false,
        }
    }
}

/// A process and its user, if it is counted by itself, and what was left out of it.
type Loser = (u32, Option<u32>, &'static str);

/// Numbers of what was dropped for lack of room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Calls and graph nodes.
    pub calls: u64,
    /// Tensors.
    pub tensors: u64,
    /// Call stacks.
    pub stacks: u64,
}

/// Limits on the ledger's memory, and what they have left out.
#[derive(Debug)]
pub(super) struct LedgerLimits {
    /// Of all processes.
    pub(super) left_out: Dropped,
    most: LedgerUsage,
    all: LedgerUsage,
    /// By user, process and what: the process's name, and how much.
    lost: HashMap<Loser, (Option<String>, u64)>,
}

impl Default for LedgerLimits {
    fn default() -> Self {
        Self::of(LedgerUsage {
            allocations: MAX_ALLOCATIONS,
            others: MAX_OTHERS,
        })
    }
}

impl LedgerLimits {
    /// With so much for all together.
    pub(super) fn of(most: LedgerUsage) -> Self {
        Self {
            left_out: Dropped::default(),
            most,
            all: LedgerUsage::default(),
            lost: HashMap::new(),
        }
    }

    /// What there is no room for.
    fn full(&self) -> Full {
        Full {
            allocations: self.all.allocations >= self.most.allocations,
            others: self.all.others >= self.most.others,
        }
    }

    /// Applies `change` to a process within these limits; those of a file have none.
    pub(super) fn within<T>(
        &mut self,
        process: &mut Process,
        is_of_file: bool,
        change: impl FnOnce(&mut Process) -> T,
    ) -> T {
        if !is_of_file {
            process.set_full(self.full());
        }
        let done = change(process);
        if !is_of_file {
            self.account(process);
            let left_out = process.take_all_left_out();
            if left_out.calls + left_out.tensors + left_out.stacks > 0 {
                self.note_left_out(process, left_out);
            }
        }
        done
    }

    #[cold]
    fn note_left_out(&mut self, process: &Process, left_out: Dropped) {
        self.left_out.calls += left_out.calls;
        self.left_out.tensors += left_out.tensors;
        self.left_out.stacks += left_out.stacks;
        self.lose(process, "memory", left_out.calls);
        self.lose(process, "tensors", left_out.tensors);
        self.lose(process, "stacks", left_out.stacks);
    }

    /// Something that is kept of `process` has changed.
    fn account(&mut self, process: &mut Process) {
        process.account.changes += 1;
        if process.account.changes < COUNT_EVERY && !self.is_near() {
            return;
        }
        let (kept, changes) = (process.kept(), 0);
        self.change(process.account.kept, kept);
        process.account = Account { kept, changes };
    }

    /// Whether a limit may soon be reached.
    fn is_near(&self) -> bool {
        self.all.allocations + NEAR >= self.most.allocations
            || self.all.others + NEAR >= self.most.others
    }

    /// Records that the use of a process changed from `before` to `now`.
    pub(super) fn change(&mut self, before: LedgerUsage, now: LedgerUsage) {
        let all = &mut self.all;
        all.allocations = all.allocations.saturating_sub(before.allocations) + now.allocations;
        all.others = all.others.saturating_sub(before.others) + now.others;
    }

    /// So much of `what`, a key of [`gpuprobe_model::Lost`], was left out of a process.
    pub(super) fn lose(&mut self, process: &Process, what: &'static str, count: u64) {
        let Some(uid) = process.uid.filter(|_| count > 0) else {
            return;
        };
        let key = (uid, Some(process.pid), what);
        let is_full = self.lost.len() >= MAX_LOSERS && !self.lost.contains_key(&key);
        let key = if is_full { (uid, None, what) } else { key };
        let comm = key.1.and(process.comm.as_ref());
        let (_, sum) = self.lost.entry(key).or_insert((comm.cloned(), 0));
        *sum = sum.saturating_add(count);
    }

    /// Calls dropped, by process.
    pub(super) fn lost(&self) -> impl Iterator<Item = UserLoss> {
        self.lost
            .iter()
            .map(|((uid, pid, what), (comm, count))| UserLoss {
                uid: *uid,
                pid: *pid,
                comm: comm.clone(),
                what: (*what).to_owned(),
                count: *count,
            })
    }
}

#[cfg(test)]
mod tests;
