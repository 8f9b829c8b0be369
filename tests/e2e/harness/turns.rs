//! Which tests run at the same time as which others.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A tracer of the whole system sees the programs of every test. Tests that are in each other's way
/// for that are in different groups, and only those of one group run at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Tests with a tracer of the whole system.
    Tracers,
    /// Tests that make more events than a tracer of the whole system could keep up with, one at a
    /// time.
    Alone,
}

const GROUPS: usize = 2;

/// How many tests of each group run, and wait to.
struct Turns {
    running: [usize; GROUPS],
    waiting: [usize; GROUPS],
}

impl Turns {
    fn may_run(&self, group: Group) -> bool {
        let own = self.running[group as usize];
        let all: usize = self.running.iter().sum();
        all == own && (group != Group::Alone || own == 0)
    }

    fn is_another_waiting(&self, group: Group) -> bool {
        let own = self.waiting[group as usize];
        self.waiting.iter().sum::<usize>() > own
    }
}

static TURNS: Mutex<Turns> = Mutex::new(Turns {
    running: [0; GROUPS],
    waiting: [0; GROUPS],
});
static CHANGED: Condvar = Condvar::new();

/// A test that fails does so while it does not hold this.
fn lock() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to run, until dropped.
pub(crate) struct Turn(Group);

impl Turn {
    /// Waits for the other groups to have none. Where another group waits too, those of this group
    /// who run are not joined, so that they come to an end.
    fn of(group: Group) -> Self {
        let own = group as usize;
        let mut turns = lock();
        let mut joins_nobody = turns.is_another_waiting(group);
        turns.waiting[own] += 1;
        loop {
            joins_nobody &= turns.running[own] > 0;
            if turns.may_run(group) && !joins_nobody {
                break;
            }
            turns = CHANGED.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns.waiting[own] -= 1;
        turns.running[own] += 1;
        Self(group)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock().running[self.0 as usize] -= 1;
        CHANGED.notify_all();
    }
}

/// To be held while a tracer of the whole system runs.
pub(crate) fn system_wide() -> Turn {
    Turn::of(Group::Tracers)
}

/// To be held while no other test may trace the whole system, nor keep the processors busy.
pub(crate) fn alone() -> Turn {
    Turn::of(Group::Alone)
}
