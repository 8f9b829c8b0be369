//! The processes to look at, the most urgent first: those that are held, then the newest and the oldest in turn.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::probe::Notice;

/// Processes that wait for a look. Beyond, the oldest is dropped.
const MAX_PENDING: usize = 4096;
/// After a look in vain a process rests this many times as long as the look took: it can cause any number of them.
const REST: u32 = 4;
/// Processes whose rest is known. Beyond, those that are over are forgotten.
const MAX_RESTS: usize = 4096;

/// The pending looks, by process.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: HashMap<u32, Pending>,
    rests: HashMap<u32, Instant>,
    is_turn_of_newest: bool,
}

#[derive(Debug)]
struct Pending {
    /// What was noticed since the last look.
    notice: Notice,
    /// When it was noticed first, or the end of the rest.
    due: Instant,
}

impl Queue {
    /// Queues a look, or merges it with a pending one of the same process. Returns whether another look is dropped for
    /// it.
    pub(super) fn add(&mut self, notice: Notice, now: Instant) -> bool {
        let rest = self.rests.get(&notice.pid).filter(|_| !notice.held);
        let due = rest.map_or(now, |until| now.max(*until));
        let pending = self.pending.entry(notice.pid);
        let pending = pending.or_insert(Pending { notice, due });
        pending.due = pending.due.min(due);
        pending.notice.held |= notice.held;
        // The current program is the one of the last exec.
        pending.notice.image = notice.image.or(pending.notice.image);
        if self.pending.len() <= MAX_PENDING {
            return false;
        }
        let others = self.pending.values().filter(|it| !it.notice.held);
        let oldest = others.min_by_key(|it| it.due).map(|it| it.notice.pid);
        oldest.is_some_and(|pid| self.pending.remove(&pid).is_some())
    }

    /// The next look.
    pub(super) fn next(&mut self, now: Instant) -> Option<Notice> {
        self.is_turn_of_newest = !self.is_turn_of_newest;
        let held = self.pending.values().filter(|it| it.notice.held);
        let due = self.pending.values().filter(|it| it.due <= now);
        let next = held
            .min_by_key(|it| it.due)
            .or(match self.is_turn_of_newest {
                true => due.max_by_key(|it| it.due),
                false => due.min_by_key(|it| it.due),
            })?;
        let pid = next.notice.pid;
        Some(self.pending.remove(&pid)?.notice)
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pending.values().map(|it| it.due).min()
    }

    /// Lets a process rest after a look that took this long and found nothing.
    pub(super) fn rest(&mut self, pid: u32, took: Duration, now: Instant) {
        if self.rests.len() >= MAX_RESTS {
            self.rests.retain(|_, until| *until > now);
        }
        self.rests.insert(pid, now + took * REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(pid: u32, held: bool) -> Notice {
        Notice {
            pid,
            held,
            image: None,
        }
    }

    fn next(queue: &mut Queue, now: Instant) -> Option<(u32, bool)> {
        let notice = queue.next(now)?;
        Some((notice.pid, notice.held))
    }

    #[test]
    fn held_processes_are_first_then_the_newest_and_the_oldest() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        for (pid, held) in [
            (1, false),
            (2, false),
            (3, true),
            (4, false),
            (5, false),
            (2, true),
            (3, false),
            (1, false),
        ] {
            now += Duration::from_nanos(1);
            queue.add(notice(pid, held), now);
        }
        for expected in [(2, true), (3, true), (5, false), (1, false), (4, false)] {
            assert_eq!(next(&mut queue, now), Some(expected));
        }
        assert_eq!(next(&mut queue, now), None);
    }

    #[test]
    fn a_process_that_maps_files_all_the_time_rests_and_is_not_lost() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let took = Duration::from_millis(10);
        queue.rest(1, took, now);
        queue.add(notice(1, false), now);
        queue.add(notice(2, false), now);
        assert_eq!(next(&mut queue, now), Some((2, false)));
        assert_eq!(next(&mut queue, now), None);
        let rested = now + took * REST;
        assert_eq!(queue.due(), Some(rested));
        assert_eq!(next(&mut queue, rested), Some((1, false)));
        queue.rest(1, took, now);
        queue.add(notice(1, true), now);
        assert_eq!(next(&mut queue, now), Some((1, true)));
    }

    #[test]
    fn looks_that_are_dropped_are_counted() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let pids = 0..u32::try_from(MAX_PENDING).unwrap_or(u32::MAX) + 3;
        let dropped = pids.filter(|pid| queue.add(notice(*pid, *pid > 7), now));
        assert_eq!(dropped.count(), 3);
    }
}
