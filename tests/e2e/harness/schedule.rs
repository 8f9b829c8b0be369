//! Scheduling of tests that must not run concurrently.

use std::fs::{File, TryLockError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A host-wide tracer sees the programs of every test. Tests that disturb each other through that
/// are in different groups, and only the tests of one group run at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Tests with a host-wide tracer.
    Tracers,
    /// Tests with more events than a host-wide tracer can keep up with, one at a time.
    Alone,
}

const GROUPS: usize = 2;

/// Running and waiting tests of each group.
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

/// No test panics while it holds this lock.
fn lock() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locked by tests of every process: another checkout's tests disturb these in the same way.
const HOST_LOCK: &str = "/dev/shm/gpuprobe-tests.lock";

/// Locks [`HOST_LOCK`], shared between tests with a host-wide tracer.
#[allow(clippy::print_stderr)]
fn lock_host(group: Group) -> File {
    let file = File::create(HOST_LOCK).expect("/dev/shm can be written to");
    let tried = match group {
        Group::Tracers => file.try_lock_shared(),
        Group::Alone => file.try_lock(),
    };
    if matches!(tried, Err(TryLockError::WouldBlock)) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        eprintln!("{name} waits for tests of another process ({HOST_LOCK})");
        let locked = match group {
            Group::Tracers => file.lock_shared(),
            Group::Alone => file.lock(),
        };
        locked.expect("the lock can be taken");
    }
    file
}

/// The permission to run, until dropped.
pub(crate) struct Turn {
    group: Group,
    host: Option<File>,
}

impl Turn {
    /// Waits until no other group runs. If another group is waiting, no further test of this group
    /// starts, so that the running ones drain.
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
        drop(turns);
        let mut turn = Self { group, host: None };
        turn.host = Some(lock_host(group));
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // First, so that the next test here does not find it locked.
        self.host = None;
        lock().running[self.group as usize] -= 1;
        CHANGED.notify_all();
    }
}

/// A permit for tests with a host-wide tracer.
pub(crate) fn host_wide() -> Turn {
    Turn::of(Group::Tracers)
}

/// A permit for tests that need all processors, or that no host-wide tracer may see.
pub(crate) fn alone() -> Turn {
    Turn::of(Group::Alone)
}
