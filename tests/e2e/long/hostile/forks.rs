//! The kernel lets no process fork while it reads a page for a breakpoint.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::mounts::{LEFT_ALONE, OF_ROOTS, Served, USER, says};
use super::watch::Watched;
use super::{Attacker, StopOnDrop};
use crate::harness::child::Guarded;
use crate::harness::{Backend, Setup, Workload, alone};

/// Time limit of a fork and the child's exit.
const LIMIT: Duration = Duration::from_secs(1);

/// Time that a shell takes to start and to fork, at most [`LIMIT`]: nothing kills it while it waits in the kernel.
fn time_of_fork() -> Duration {
    let start = Instant::now();
    let mut shell = Command::new("sh").args(["-c", "(:); :"]).spawn().unwrap();
    while start.elapsed() < LIMIT && shell.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    start.elapsed()
}

/// Forks until told to stop. Returns the longest time; when that is too long, `server` is killed, without which
/// the host's processes go on waiting.
fn watch_forks(server: Guarded, stop: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) && longest < LIMIT {
        longest = longest.max(time_of_fork());
    }
    drop(server);
    longest
}

#[test]
fn root_forks_do_not_wait_for_a_hanging_file_system() {
    let _alone = alone();
    let served = Served::new();
    let mut attacker = served.start(&OF_ROOTS, USER, false);
    let victim = Workload::start(Backend::Shared);
    let mut watched = Watched::start(Setup::everything(), victim);
    watched.go_on();
    // Whoever attaches to the file from now on, or removes a breakpoint, waits for a page.
    attacker.say("drop");
    attacker.say("stop");
    let Attacker { child, talk: _talk } = attacker;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stopped = StopOnDrop(&stop);
        let forks = scope.spawn(|| watch_forks(child, &stop));
        (0..3).for_each(|_| watched.go_on());
        let (_, said) = watched.end();
        drop(stopped);
        let longest = forks.join().unwrap();
        assert!(longest < LIMIT, "{longest:?}: {said:#?}");
        assert!(says(&said, LEFT_ALONE), "{said:#?}");
    });
}
