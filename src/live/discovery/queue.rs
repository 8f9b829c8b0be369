//! The processes to look at, the most urgent first: those that are held, then the newest.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::probe::Notice;

/// Processes that wait for a first look. Beyond, the oldest is dropped.
const MAX_NEW: usize = 4096;
/// Looks that are begun. Each has a descriptor.
const MAX_BEGUN: usize = 256;
/// After a look in vain a process rests this many times as long as the look took: it can cause any number of them.
const REST: u32 = 4;
/// Processes whose rest is known. Beyond, those that are over are forgotten.
const MAX_RESTS: usize = 4096;
/// How long a process waits whose last look is not complete.
const PAUSE: Duration = Duration::from_millis(20);

/// The pending looks; `L` is one that has read the beginning of a long list.
#[derive(Debug)]
pub(super) struct Queue<L> {
    /// What was noticed of each process, since its last look.
    notices: HashMap<u32, Notice>,
    held: VecDeque<u32>,
    /// In order of their notices.
    new: VecDeque<u32>,
    /// Processes that rest, until then.
    again: BTreeSet<(Instant, u32)>,
    rests: HashMap<u32, Instant>,
    begun: VecDeque<(u32, L)>,
    /// New processes, processes that have rested, and begun looks take turns.
    turn: u32,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<L> {
    /// Look at a process.
    Begin(Notice),
    /// Continue a look.
    Continue(L),
}

impl<L> Default for Queue<L> {
    fn default() -> Self {
        Self {
            notices: HashMap::new(),
            held: VecDeque::new(),
            new: VecDeque::new(),
            again: BTreeSet::new(),
            rests: HashMap::new(),
            begun: VecDeque::new(),
            turn: 0,
        }
    }
}

impl<L> Queue<L> {
    /// Queues a look, or merges it with a pending one of the same process. Returns the number of looks that are
    /// dropped for it.
    pub(super) fn add(&mut self, notice: Notice, now: Instant) -> u64 {
        let pid = notice.pid;
        let before = self.notices.get(&pid).copied();
        let was_held = before.is_some_and(|before| before.held);
        let merged = Notice {
            pid,
            held: notice.held || was_held,
            // The current program is the one of the last exec.
            image: notice
                .image
                .or_else(|| before.and_then(|before| before.image)),
        };
        self.notices.insert(pid, merged);
        if notice.held && !was_held {
            self.held.push_back(pid);
        } else if before.is_none() {
            match self.rests.get(&pid).filter(|until| **until > now) {
                Some(until) => drop(self.again.insert((*until, pid))),
                None => self.new.push_back(pid),
            }
        }
        self.drop_oldest()
    }

    fn drop_oldest(&mut self) -> u64 {
        if self.new.len() <= MAX_NEW {
            return 0;
        }
        let oldest = self.new.pop_front();
        let is_waiting = |pid: &u32| self.notices.get(pid).is_some_and(|it| !it.held);
        let dropped = oldest.filter(is_waiting);
        let dropped = dropped.and_then(|pid| self.notices.remove(&pid));
        dropped.is_some().into()
    }

    /// The next look.
    pub(super) fn next(&mut self, now: Instant) -> Option<Next<L>> {
        while let Some(pid) = self.held.pop_front() {
            if let Some(notice) = self.notices.remove(&pid) {
                return Some(Next::Begin(notice));
            }
        }
        self.turn = self.turn.wrapping_add(1);
        (0..3).find_map(|other| match self.turn.wrapping_add(other) % 3 {
            0 => self.next_begun(),
            1 => self.next_new(now),
            _ => self.next_rested(now),
        })
    }

    fn next_begun(&mut self) -> Option<Next<L>> {
        let (_, look) = self.begun.pop_front()?;
        Some(Next::Continue(look))
    }

    fn next_new(&mut self, now: Instant) -> Option<Next<L>> {
        while let Some(pid) = self.new.pop_back() {
            if let Some(notice) = self.take(pid, now) {
                return Some(Next::Begin(notice));
            }
        }
        None
    }

    fn next_rested(&mut self, now: Instant) -> Option<Next<L>> {
        while self.again.first().is_some_and(|(until, _)| *until <= now) {
            let (_, pid) = self.again.pop_first()?;
            if let Some(notice) = self.take(pid, now) {
                return Some(Next::Begin(notice));
            }
        }
        None
    }

    /// The notice of a process, if no look at it is begun.
    fn take(&mut self, pid: u32, now: Instant) -> Option<Notice> {
        if self.begun.iter().any(|(begun, _)| *begun == pid) {
            self.again.insert((now + PAUSE, pid));
            return None;
        }
        self.notices.remove(&pid)
    }

    /// When the next process has rested.
    pub(super) fn due(&self) -> Option<Instant> {
        self.again.first().map(|(until, _)| *until)
    }

    /// Keeps a look that is to be continued. Returns it if there are too many.
    pub(super) fn keep(&mut self, pid: u32, look: L) -> Option<L> {
        if self.begun.len() >= MAX_BEGUN {
            return Some(look);
        }
        self.begun.push_back((pid, look));
        None
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

    fn next(queue: &mut Queue<u32>, now: Instant) -> Option<(u32, bool)> {
        match queue.next(now)? {
            Next::Begin(notice) => Some((notice.pid, notice.held)),
            Next::Continue(pid) => Some((pid, false)),
        }
    }

    #[test]
    fn held_processes_are_first_then_the_newest() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for _ in 0..1000 {
            queue.add(notice(1, false), now);
        }
        for (pid, held) in [(2, false), (3, true), (4, false), (2, true), (3, false)] {
            queue.add(notice(pid, held), now);
        }
        let order = [(3, true), (2, true), (4, false), (1, false)];
        for expected in order {
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
        let due = queue.due().into_iter();
        assert!(due.clone().all(|due| due == now + took * REST));
        let later = due.max().unwrap_or(now);
        assert_eq!(next(&mut queue, later), Some((1, false)));
        queue.rest(1, took, now);
        queue.add(notice(1, true), now);
        assert_eq!(next(&mut queue, now), Some((1, true)));
    }

    #[test]
    fn a_look_that_is_begun_and_new_processes_take_turns() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        assert_eq!(queue.keep(1, 1), None);
        queue.add(notice(1, false), now);
        queue.add(notice(2, false), now);
        assert_eq!(next(&mut queue, now), Some((2, false)));
        assert_eq!(queue.next(now), Some(Next::Continue(1)));
        assert_eq!(queue.keep(1, 1), None);
        assert_eq!(queue.next(now), Some(Next::Continue(1)));
        // What it has mapped meanwhile may be in the part that was read.
        assert_eq!(next(&mut queue, now), Some((1, false)));
    }

    #[test]
    fn looks_that_are_dropped_are_counted() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let pids = 0..u32::try_from(MAX_NEW).unwrap_or(u32::MAX) + 3;
        let dropped: u64 = pids.map(|pid| queue.add(notice(pid, false), now)).sum();
        assert_eq!(dropped, 3);
        assert!((0..MAX_BEGUN).all(|_| queue.keep(7, 7).is_none()));
        assert_eq!(queue.keep(7, 7), Some(7));
    }
}
