//! When a GPU ran kernels, copies, memory sets and graphs, and when any of them.

use super::busy::{Busy, Sums};

/// What a GPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A memory set.
    Set,
    /// A graph that is told as a whole.
    Graph,
}

const KINDS: usize = 4;

/// Where each kind of work runs, and where any.
#[derive(Clone, Debug, Default)]
pub struct ByWork {
    any: Busy,
    kinds: [Busy; KINDS],
}

/// Time with work of each kind. Together it is more than that with any where they overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// With anything running, nanoseconds.
    pub any_ns: u64,
    /// With a kernel, nanoseconds.
    pub kernel_ns: u64,
    /// With a copy, nanoseconds.
    pub copy_ns: u64,
    /// With a memory set, nanoseconds.
    pub set_ns: u64,
    /// With a graph that is told as a whole, nanoseconds.
    pub graph_ns: u64,
}

impl Spent {
    /// What was spent since `before`.
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
    /// Adds work from `start_ns` to `end_ns`.
    pub fn add(&mut self, work: Work, start_ns: u64, end_ns: u64) {
        self.any.add(start_ns, end_ns);
        self.kinds[work as usize].add(start_ns, end_ns);
    }

    /// Work of any kind: its time, and the gaps in which there was none.
    pub fn sums(&self) -> Sums {
        self.any.sums()
    }

    /// Time by kind of work.
    pub fn spent(&self) -> Spent {
        let [kernel_ns, copy_ns, set_ns, graph_ns] =
            self.kinds.each_ref().map(|kind| kind.sums().busy_ns);
        Spent {
            any_ns: self.any.sums().busy_ns,
            kernel_ns,
            copy_ns,
            set_ns,
            graph_ns,
        }
    }

    /// Records that came too late to be counted as a whole.
    pub fn late(&self) -> u64 {
        self.any.late
    }

    /// It is one of `count` GPUs of its process.
    pub(super) fn shares_with(&mut self, count: usize) {
        self.each(|busy| busy.shares_with(count * (KINDS + 1)));
    }

    /// Adds everything up: little comes any more.
    pub(super) fn settle_all(&mut self) {
        self.each(Busy::settle_all);
    }

    /// Sorts in what came.
    pub(super) fn sort_in(&mut self) {
        self.each(Busy::sort_in);
    }

    fn each(&mut self, what: impl FnMut(&mut Busy)) {
        std::iter::once(&mut self.any)
            .chain(&mut self.kinds)
            .for_each(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Work; KINDS] = [Work::Kernel, Work::Copy, Work::Set, Work::Graph];

    proptest! {
        /// Moment by moment, whatever overlaps, in any order, and asked in between.
        #[test]
        fn as_moment_by_moment(
            work in prop::collection::vec((0..KINDS, 0u64..200, 0u64..30), 0..60),
            asked in prop::collection::vec(any::<bool>(), 60),
        ) {
            let mut by_work = ByWork::default();
            for (&(kind, start, length), asked) in work.iter().zip(asked) {
                by_work.add(ALL[kind], start, start + length);
                if asked {
                    by_work.sort_in();
                }
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
            prop_assert_eq!(by_work.late(), 0);
            by_work.settle_all();
            prop_assert_eq!(by_work.spent(), expected);
        }
    }
}
