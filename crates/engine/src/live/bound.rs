//! What is known of a block of allocations without looking at them: enough to pass over most blocks
//! when the first few of many are wanted.

use crate::Allocation;

/// By what allocations are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The larger first; of equal ones the older.
    Size,
    /// The older first; of equal ones the larger.
    Age,
}

/// What comes first has the highest.
pub(crate) type Rank = (u64, u64, u64);

impl By {
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

/// Limits of what a block holds. Nothing in it is beyond them. Something in it is at each of them,
/// unless it is [`Self::is_stale`]: what was there has been freed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Size of the first by size, and the complement of its time.
    first: (u64, u64),
    oldest_ns: u64,
    newest_ns: u64,
    is_stale: bool,
}

impl Bound {
    /// Of nothing.
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

    /// What is gone may have been at a limit. To find the next one then takes a look at all; that
    /// can wait until it is asked for.
    pub(super) fn remove(&mut self, gone: &Allocation) {
        let time = gone.end_ns;
        self.is_stale |=
            time == self.oldest_ns || time == self.newest_ns || by_size(gone) == self.first;
    }

    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// When the oldest and the newest were allocated.
    pub(super) fn times_ns(&self) -> (u64, u64) {
        (self.oldest_ns, self.newest_ns)
    }

    /// Nothing in the block has a higher rank.
    pub(super) fn rank(&self, by: By) -> Rank {
        match by {
            By::Size => (self.first.0, self.first.1, u64::MAX),
            By::Age => (!self.oldest_ns, u64::MAX, u64::MAX),
        }
    }
}

fn by_size(allocation: &Allocation) -> (u64, u64) {
    (allocation.size_bytes, !allocation.end_ns)
}
