//! Which process is looked at next.
//!
//! To look at a process takes as long as it likes: it may have a million mappings. And it may have
//! itself looked at as often as it likes. So several wishes to look at a process are one, what is
//! stopped until it was looked at comes first, users take turns however many processes they have, and
//! a process that is not stopped is looked at a limited number of times in a second. What is put off
//! is not forgotten.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::host::budget::Budget;
use crate::probe::Notice;

/// Looks at a process in a second, if they take little. Only what is probed after that is found up
/// to a second late: a program would have to load as many libraries that were never seen before.
const MAX_LOOKS: u32 = 50;
/// Processes of which it is remembered when they were looked at, before those are dropped of which
/// it does not matter any more.
const MAX_LATELY: usize = 4096;

/// What is still to be looked at.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// The last notice of each process.
    asked: HashMap<u32, Notice>,
    /// Those of them that are stopped, and those of each user that are not, in the order in which
    /// they asked.
    held: VecDeque<u32>,
    others: HashMap<u32, VecDeque<u32>>,
    /// Those that were looked at too often, and those that are being looked at, with their users.
    put_off: Vec<(u32, u32)>,
    being_looked_at: HashSet<u32>,
    lately: HashMap<u32, Budget>,
}

impl Looks {
    /// Takes in what the kernel side has noticed.
    pub(super) fn add(&mut self, notice: Notice) {
        let pid = notice.pid;
        let before = self.asked.insert(pid, notice);
        let was_held = before.is_some_and(|before| before.held);
        if let Some(merged) = self.asked.get_mut(&pid) {
            merged.held |= was_held;
            // What it runs now is what it began to run last.
            merged.image = merged
                .image
                .or_else(|| before.and_then(|before| before.image));
        }
        if notice.held && !was_held {
            self.held.push_back(pid);
        } else if before.is_none() {
            self.wait(notice.uid, pid);
        }
    }

    fn wait(&mut self, uid: u32, pid: u32) {
        self.others.entry(uid).or_default().push_back(pid);
    }

    /// The next of those that are stopped. All that it has asked for is answered by one look.
    pub(super) fn next_held(&mut self) -> Option<Notice> {
        let pid = self.held.pop_front()?;
        self.being_looked_at.insert(pid);
        self.asked.remove(&pid)
    }

    /// The next of those of a user that are not stopped.
    pub(super) fn next_of(&mut self, uid: u32, now: Instant) -> Option<Notice> {
        while let Some(pid) = self.others.get_mut(&uid)?.pop_front() {
            if !self.asked.contains_key(&pid) {
                continue;
            }
            if !self.being_looked_at.contains(&pid) && self.may_look(pid, now) {
                self.being_looked_at.insert(pid);
                return self.asked.remove(&pid);
            }
            self.put_off.push((uid, pid));
        }
        self.others.remove(&uid);
        None
    }

    /// The users who have processes that are not stopped and wait.
    pub(super) fn users(&self) -> impl Iterator<Item = u32> {
        self.others.keys().copied()
    }

    fn may_look(&mut self, pid: u32, now: Instant) -> bool {
        let lately = self.lately.get_mut(&pid);
        lately.is_none_or(|lately| lately.allows(now, MAX_LOOKS))
    }

    /// The look at a process has ended; if nothing new was found, it took so long in vain.
    pub(super) fn ended(&mut self, pid: u32, in_vain: Option<Duration>, now: Instant) {
        self.being_looked_at.remove(&pid);
        if let Some(took) = in_vain {
            if self.lately.len() >= MAX_LATELY {
                self.lately.retain(|_, lately| !lately.is_over(now));
            }
            let lately = self.lately.entry(pid).or_insert(Budget::new(now));
            lately.spend(took);
        }
        self.ask_again();
    }

    /// What was put off is asked for again.
    pub(super) fn ask_again(&mut self) {
        for (uid, pid) in std::mem::take(&mut self.put_off) {
            self.wait(uid, pid);
        }
    }

    /// Whether there is anything that need not be put off.
    pub(super) fn is_busy(&self) -> bool {
        !self.held.is_empty() || !self.others.is_empty()
    }

    /// Those that are stopped: nobody will look at them any more.
    pub(super) fn take_held(&mut self) -> Vec<Notice> {
        let held = std::mem::take(&mut self.held);
        held.iter()
            .filter_map(|pid| self.asked.remove(pid))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(pid: u32, held: bool) -> Notice {
        Notice {
            pid,
            uid: 0,
            held,
            image: None,
        }
    }

    /// The next of those that are stopped, and then of the only user.
    fn next(looks: &mut Looks, now: Instant) -> Option<Notice> {
        looks.next_held().or_else(|| looks.next_of(0, now))
    }

    const CHEAP: Option<Duration> = Some(Duration::from_micros(10));

    #[test]
    fn many_wishes_are_one_look() {
        let mut looks = Looks::default();
        let now = Instant::now();
        for _ in 0..1000 {
            looks.add(notice(1, false));
        }
        looks.add(notice(2, false));
        looks.add(notice(3, true));
        looks.add(notice(2, true));
        looks.add(notice(3, false));
        let next = |looks: &mut Looks| next(looks, now).map(|n| (n.pid, n.held));
        assert_eq!(next(&mut looks), Some((3, true)));
        assert_eq!(next(&mut looks), Some((2, true)));
        assert_eq!(next(&mut looks), Some((1, false)));
        assert_eq!(next(&mut looks), None);
        assert!(!looks.is_busy());
        // What it maps while it is being looked at may be where that look has been.
        looks.add(notice(1, false));
        assert_eq!(next(&mut looks), None);
        looks.ended(1, CHEAP, now);
        assert_eq!(next(&mut looks), Some((1, false)));
    }

    #[test]
    fn who_asks_too_often_waits_and_is_not_forgotten() {
        let mut looks = Looks::default();
        let start = Instant::now();
        for _ in 0..MAX_LOOKS {
            looks.add(notice(1, false));
            assert!(next(&mut looks, start).is_some());
            looks.ended(1, CHEAP, start);
        }
        looks.add(notice(1, false));
        assert_eq!(next(&mut looks, start), None);
        assert!(!looks.is_busy(), "there is nothing to be done now");
        // Others do not wait for it; and it does not wait once it is stopped.
        looks.add(notice(2, false));
        assert_eq!(next(&mut looks, start), Some(notice(2, false)));
        looks.add(notice(1, true));
        assert_eq!(looks.next_held(), Some(notice(1, true)));
        looks.ended(1, None, start);
        looks.add(notice(1, false));
        looks.ask_again();
        assert_eq!(next(&mut looks, start), None);
        looks.ask_again();
        let later = start + Duration::from_millis(1001);
        assert_eq!(next(&mut looks, later), Some(notice(1, false)));
        assert_eq!(next(&mut looks, later), None);
    }

    #[test]
    fn a_user_waits_for_no_other() {
        let mut looks = Looks::default();
        let now = Instant::now();
        for pid in 1..10_000 {
            looks.add(notice(pid, false));
        }
        let other = Notice {
            uid: 7,
            ..notice(10_000, false)
        };
        looks.add(other);
        let mut users: Vec<_> = looks.users().collect();
        users.sort_unstable();
        assert_eq!(users, [0, 7]);
        assert_eq!(looks.next_of(7, now), Some(other));
        assert_eq!(looks.next_of(7, now), None);
        assert_eq!(looks.users().collect::<Vec<_>>(), [0]);
        assert_eq!(looks.next_of(0, now), Some(notice(1, false)));
    }

    #[test]
    fn what_is_stopped_when_we_end_goes_on() {
        let mut looks = Looks::default();
        looks.add(notice(1, true));
        looks.add(notice(2, false));
        looks.add(notice(3, true));
        assert_eq!(looks.take_held(), [notice(1, true), notice(3, true)]);
        assert!(looks.take_held().is_empty());
    }
}
