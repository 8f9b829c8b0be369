//! Limits on the sizes and ages in a block of allocations: enough to skip most blocks when only the
//! first few of many are needed.

use crate::Allocation;

/// Order in which allocations are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationOrder {
    /// Larger first; among equal sizes, older first.
    Size,
    /// Older first; among equal ages, larger first.
    Age,
}

/// Sort key: the allocation listed first has the highest rank.
pub(crate) type Rank = (u64, u64, u64);

impl AllocationOrder {
    pub(crate) fn rank(self, allocation: &Allocation) -> Rank {
        let Allocation {
            size_bytes,
            end_ns,
            address,
            ..
        } = *allocation;
        match self {
            Self::Size => (size_bytes, !end_ns, !address),
            Self::Age => (!end_ns, size_bytes, !address),
        }
    }
}

/// Limits of the allocations in a block. No allocation is beyond them. Unless [`Self::is_stale`],
/// some allocation is at each limit; otherwise it may have been freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Size of the largest allocation, and the complement of its time.
    first: (u64, u64),
    oldest_ns: u64,
    newest_ns: u64,
    is_stale: bool,
}

impl Bound {
    /// Limits of an empty block.
    pub(super) const EMPTY: Self = Self {
        first: (0, 0),
        oldest_ns: u64::MAX,
        newest_ns: 0,
        is_stale: false,
    };

    pub(super) fn of<'a>(allocations: impl Iterator<Item = &'a Allocation>) -> Self {
        let mut bound = Self::EMPTY;
        allocations.for_each(|allocation| bound.add(allocation));
        bound
    }

    pub(super) fn add(&mut self, new: &Allocation) {
        self.first = self.first.max(by_size(new));
        self.oldest_ns = self.oldest_ns.min(new.end_ns);
        self.newest_ns = self.newest_ns.max(new.end_ns);
    }

    /// Removes an allocation, which may have been at a limit. To find the new limit takes a scan of
    /// the block, which is left until it is needed.
    pub(super) fn remove(&mut self, gone: &Allocation) {
        let time = gone.end_ns;
        self.is_stale |=
            time == self.oldest_ns || time == self.newest_ns || by_size(gone) == self.first;
    }

    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// When the oldest and the newest were allocated, nanoseconds.
    pub(super) fn times_ns(&self) -> (u64, u64) {
        (self.oldest_ns, self.newest_ns)
    }

    /// No allocation in the block has a higher rank.
    pub(super) fn rank(&self, by: AllocationOrder) -> Rank {
        match by {
            AllocationOrder::Size => (self.first.0, self.first.1, u64::MAX),
            AllocationOrder::Age => (!self.oldest_ns, u64::MAX, u64::MAX),
        }
    }
}

fn by_size(allocation: &Allocation) -> (u64, u64) {
    (allocation.size_bytes, !allocation.end_ns)
}
