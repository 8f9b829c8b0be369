//! Busy time of a GPU by kind of work: kernels, copies, memory sets and graphs, and all of them
//! together.

use serde::Serialize;

use super::busy::Busy;

/// Kind of work that a GPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A run of a kernel.
    Kernel,
    /// A copy between memories.
    Copy,
    /// A memset operation on the GPU.
    Set,
    /// A graph launch that CUPTI reports as a whole.
    Graph,
}

const KINDS: usize = 4;

/// Busy intervals by kind of work, and of any kind.
#[derive(Clone, Debug, Default)]
pub struct ByWork {
    /// Work of any kind, and the gaps without work.
    pub any: Busy,
    /// While there is one kind, its intervals are those of `any`.
    kinds: [Busy; KINDS],
    first: Option<WorkKind>,
    is_mixed: bool,
}

/// Busy time by kind of work. The kinds add up to more than `any_ns` where they overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Time with work of any kind, nanoseconds; reports have it apart.
    #[serde(skip)]
    pub any_ns: u64,
    /// Time with a kernel running, nanoseconds.
    pub kernel_ns: u64,
    /// Time with a copy running, nanoseconds.
    pub copy_ns: u64,
    /// Time with a memory set running, nanoseconds.
    pub set_ns: u64,
    /// Time with a graph running that CUPTI reports as a whole, nanoseconds.
    pub graph_ns: u64,
}

impl Spent {
    /// The busy time added since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            any_ns: self.any_ns.saturating_sub(before.any_ns),
            kernel_ns: self.kernel_ns.saturating_sub(before.kernel_ns),
            copy_ns: self.copy_ns.saturating_sub(before.copy_ns),
            set_ns: self.set_ns.saturating_sub(before.set_ns),
            graph_ns: self.graph_ns.saturating_sub(before.graph_ns),
        }
    }
}

impl ByWork {
    /// Adds work that ran from `start_ns` to `end_ns`.
    pub fn add(&mut self, work: WorkKind, start_ns: u64, end_ns: u64) {
        let first = *self.first.get_or_insert(work);
        if work != first && !self.is_mixed {
            self.kinds[first as usize] = self.any.clone();
            self.is_mixed = true;
        }
        self.any.add(start_ns, end_ns);
        if self.is_mixed {
            self.kinds[work as usize].add(start_ns, end_ns);
        }
    }

    /// Busy time by kind of work, nanoseconds.
    pub fn spent(&self) -> Spent {
        let any_ns = self.any.sums().busy_ns;
        let mut kinds = self.kinds.each_ref().map(|kind| kind.sums().busy_ns);
        if let (Some(only), false) = (self.first, self.is_mixed) {
            kinds[only as usize] = any_ns;
        }
        let [kernel_ns, copy_ns, set_ns, graph_ns] = kinds;
        Spent {
            any_ns,
            kernel_ns,
            copy_ns,
            set_ns,
            graph_ns,
        }
    }

    /// Folds every interval into the sums, as few more will arrive.
    pub(super) fn settle_all(&mut self) {
        self.any.settle_all();
        self.kinds.iter_mut().for_each(Busy::settle_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [WorkKind; KINDS] = [
        WorkKind::Kernel,
        WorkKind::Copy,
        WorkKind::Set,
        WorkKind::Graph,
    ];

    proptest! {
        /// Compares with a count of nanoseconds: any order, any overlap, queried in between.
        #[test]
        fn busy_time_matches_a_count_of_nanoseconds(
            work in prop::collection::vec((0..KINDS, 0u64..200, 0u64..30), 0..60),
        ) {
            let mut by_work = ByWork::default();
            for &(kind, start, length) in &work {
                by_work.add(ALL[kind], start, start + length);
            }
            let moments = |wanted: Option<usize>| {
                let runs = |t: &u64| work.iter().any(|&(kind, start, length)| {
                    wanted.is_none_or(|wanted| wanted == kind) && (start..start + length).contains(t)
                });
                (0..240).filter(runs).count() as u64
            };
            let expected = Spent {
                any_ns: moments(None),
                kernel_ns: moments(Some(0)),
                copy_ns: moments(Some(1)),
                set_ns: moments(Some(2)),
                graph_ns: moments(Some(3)),
            };
            prop_assert_eq!(by_work.spent(), expected);
            prop_assert_eq!(by_work.any.late, 0);
            by_work.settle_all();
            prop_assert_eq!(by_work.spent(), expected);
        }
    }
}
