//! Entries that are kept for a process, and those that there is no room for.

use super::super::limits::{Dropped, Full, LedgerUsage};
use super::{Process, VARIABLE_UNITS};

impl Process {
    /// Number of entries kept for the process.
    pub(crate) fn kept(&self) -> LedgerUsage {
        let tables = self.modules.len()
            + self.variables.len() * VARIABLE_UNITS
            + self.opened.len()
            + self.threads.len() * 2;
        let mut kept = LedgerUsage {
            allocations: self.live.len(),
            others: tables
                + self.live.frees_in_flight()
                + self.sites.kept()
                + self.imports.kept()
                + self.contexts.kept()
                + self.physical.kept()
                + self.pools.kept()
                + self.graphs.kept(),
        };
        for allocator in self.tensors.iter() {
            let of_tensors = allocator.blocks.kept();
            kept.allocations += of_tensors.allocations;
            kept.others += of_tensors.others + allocator.kept();
        }
        kept
    }

    /// Tables of the process that are full.
    pub(crate) fn full(&self) -> Full {
        self.full
    }

    pub(crate) fn set_full(&mut self, full: Full) {
        if self.full == full {
            return;
        }
        self.full = full;
        self.sites.is_full = full.others;
        self.live.superseded().is_full = full.others;
        self.physical.set_full(full.others);
        self.tensors.set_full(full);
    }

    /// Whether a free of an unknown allocation may be of one that was dropped.
    pub(crate) fn frees_left_out(&mut self) -> bool {
        let may = self.live_left_out > 0;
        self.live_left_out = self.live_left_out.saturating_sub(1);
        may
    }

    /// Number of calls and graph nodes dropped since the last call of this function.
    pub(crate) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out) + self.graphs.take_left_out()
    }

    /// Numbers of drops since the last call.
    pub(crate) fn take_all_left_out(&mut self) -> Dropped {
        let (mut tensors, mut stacks) = (0, self.sites.take_left_out());
        for blocks in self.tensors.blocks_mut() {
            tensors += blocks.take_left_out();
            stacks += blocks.sites.take_left_out();
        }
        Dropped {
            calls: self.take_left_out(),
            tensors,
            stacks,
        }
    }
}
