//! How much is kept of traced processes: nothing fills our memory.
//!
//! What is live takes some 70 bytes an allocation. Whatever else grows with what a program does (call
//! sites, modules, variables, handles, mappings, graphs, frees that have not returned) is counted in
//! units of about as much. What is beyond the limit is left out, and counted as lost with its process.

use std::mem;

use hashbrown::HashMap;

use super::process::Process;
use gpuprobe_cuda::Op;
use gpuprobe_model::{Lost, UserLoss};

/// Units of all processes: 2.2 GiB.
const MAX_UNITS: usize = 1 << 25;
/// So near to the limit each change is measured; further away, each 64th of a process.
const MARGIN: usize = 1 << 20;
/// Processes that have a count of their losses each.
const MAX_LOSERS: usize = 1024;

/// Whether a call with this effect is dropped if there is no more room.
pub(super) fn takes_room(op: Op) -> bool {
    matches!(
        op,
        Op::Allocate
            | Op::HandleCreate
            | Op::HandleImport
            | Op::ShareOpen
            | Op::Symbol
            | Op::HandleRetain
            | Op::HandleOther
            | Op::Map
            | Op::MapHandle
            | Op::Reserve
            | Op::ModuleLoad
            | Op::ObjectCreate
            | Op::LibraryLoad
            | Op::GraphAllocate
            | Op::GraphFree
            | Op::GraphNode
            | Op::GraphBuild
    )
}

/// The limit on the ledger's memory, and what it has left out.
#[derive(Debug, Default)]
pub(super) struct LedgerLimits {
    /// Of all processes.
    pub(super) left_out: Lost,
    /// Units in use, and of the limit those that may not be used.
    units: usize,
    barred: usize,
    /// By user and process, if it is counted by itself: its name, and how much.
    lost: HashMap<(u32, Option<u32>), (Option<String>, Lost)>,
}

impl LedgerLimits {
    /// Applies `change` to a process within the limit; those of a file have none.
    pub(super) fn within<T>(
        &mut self,
        process: &mut Process,
        is_of_file: bool,
        change: impl FnOnce(&mut Process) -> T,
    ) -> T {
        if is_of_file {
            return change(process);
        }
        let used = self.units + self.barred;
        process.set_full(used >= MAX_UNITS);
        let done = change(process);
        process.unmeasured = (process.unmeasured + 1) % 64;
        if process.unmeasured == 0 || used + MARGIN >= MAX_UNITS {
            let units = process.kept();
            self.change(mem::replace(&mut process.units, units), units);
        }
        let left_out = process.take_all_left_out();
        if left_out != [0; 4] {
            self.lose(process, left_out);
        }
        done
    }

    /// Records that the use of a process changed from `before` to `now`.
    pub(super) fn change(&mut self, before: usize, now: usize) {
        self.units = self.units.saturating_sub(before) + now;
    }

    /// So much was left out of a process.
    #[cold]
    fn lose(&mut self, process: &Process, [memory, tensors, stacks, unknown_values]: [u64; 4]) {
        let left_out = Lost {
            memory,
            tensors,
            stacks,
            unknown_values,
            ..Lost::default()
        };
        self.left_out.merge(left_out);
        let Some(uid) = process.uid else {
            return;
        };
        let key = (uid, Some(process.pid));
        let is_full = self.lost.len() >= MAX_LOSERS && !self.lost.contains_key(&key);
        let key = if is_full { (uid, None) } else { key };
        let comm = process.comm.clone().filter(|_| !is_full);
        let (_, sum) = self.lost.entry(key).or_insert((comm, Lost::default()));
        sum.merge(left_out);
    }

    /// What was dropped, by process and key of [`gpuprobe_model::Lost`].
    pub(super) fn lost(&self) -> impl Iterator<Item = UserLoss> {
        let all = self.lost.iter().flat_map(|(&(uid, pid), (comm, lost))| {
            lost.by_name()
                .into_iter()
                .map(move |(what, count)| UserLoss {
                    uid,
                    pid,
                    comm: comm.clone(),
                    what,
                    count,
                })
        });
        all.filter(|loss| loss.count > 0)
    }
}

#[cfg(test)]
mod tests;
