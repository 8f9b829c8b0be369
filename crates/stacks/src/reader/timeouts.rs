//! How long to wait for memory of processes, which a process can make endless: userfaultfd, and files on a
//! file system (FUSE) that it has mapped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum wait at once, and per second for all processes together: reports are due.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// Minimum wait: reading takes some microseconds.
const MIN_WAIT: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
/// How long the processes of a user are left alone after one of them has let us wait in vain; four times as long
/// each further time.
const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How long the processes of a user may be read, and in which part of the time besides.
const AT_ONCE: Duration = Duration::from_secs(2);
const SHARE: u32 = 10;
/// Users that are told apart; more are one.
const MAX_USERS: usize = 4096;
const OTHERS: u32 = u32::MAX;

/// Time spent on reading processes, by user.
#[derive(Debug)]
pub(super) struct InspectTimeouts {
    begun: Instant,
    users: HashMap<u32, UserPatience>,
    /// Time spent since then.
    second: Instant,
    spent: Duration,
}

#[derive(Debug, Default)]
struct UserPatience {
    took: Duration,
    hung: u32,
    paused_until: Option<Instant>,
}

impl InspectTimeouts {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            users: HashMap::new(),
            second: now,
            spent: Duration::ZERO,
        }
    }

    fn user(&mut self, uid: u32) -> &mut UserPatience {
        let is_known = self.users.contains_key(&uid) || self.users.len() < MAX_USERS;
        self.users
            .entry(if is_known { uid } else { OTHERS })
            .or_default()
    }

    /// How long to wait for memory of a process of user `uid`; `None` if it is not to be read.
    pub(super) fn left(&mut self, uid: u32, now: Instant) -> Option<Duration> {
        if now.duration_since(self.second) > SECOND {
            (self.second, self.spent) = (now, Duration::ZERO);
        }
        let left = MAX_WAIT.saturating_sub(self.spent).max(MIN_WAIT);
        let allowed = AT_ONCE + now.duration_since(self.begun) / SHARE;
        let user = self.user(uid);
        let is_paused = user.paused_until.is_some_and(|until| now < until);
        (!is_paused && user.took < allowed).then_some(left)
    }

    /// Reading has taken this long.
    pub(super) fn took(&mut self, uid: u32, time: Duration) {
        self.spent += time;
        self.user(uid).took += time;
    }

    /// Nothing was read in time. Returns how long processes of the user are left alone.
    pub(super) fn in_vain(&mut self, uid: u32, now: Instant) -> Duration {
        let user = self.user(uid);
        let pause = PAUSE
            .saturating_mul(4u32.saturating_pow(user.hung))
            .min(LONGEST_PAUSE);
        user.hung += 1;
        user.paused_until = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_whose_process_hangs_is_left_alone_and_others_are_not() {
        let start = Instant::now();
        let mut timeouts = InspectTimeouts::new(start);
        assert_eq!(timeouts.left(1000, start), Some(MAX_WAIT));
        timeouts.took(1000, MAX_WAIT);
        assert_eq!(timeouts.in_vain(1000, start), PAUSE);
        assert_eq!(timeouts.left(1000, start + PAUSE / 2), None);
        assert_eq!(timeouts.left(1001, start + PAUSE / 2), Some(MAX_WAIT));
        let later = start + PAUSE;
        assert_eq!(timeouts.left(1000, later), Some(MAX_WAIT));
        assert_eq!(timeouts.in_vain(1000, later), 4 * PAUSE);
        for _ in 0..100 {
            timeouts.in_vain(1000, later);
        }
        assert_eq!(timeouts.in_vain(1000, later), LONGEST_PAUSE);
    }

    #[test]
    fn many_users_together_take_little_more_than_one() {
        let start = Instant::now();
        let mut timeouts = InspectTimeouts::new(start);
        let mut waited = Duration::ZERO;
        for uid in 0..8 {
            let time = timeouts.left(uid, start).unwrap_or_default();
            timeouts.took(uid, time);
            waited += time;
        }
        assert_eq!(waited, MAX_WAIT + 7 * MIN_WAIT);
        assert_eq!(timeouts.left(9, start + SECOND), Some(MIN_WAIT));
        let later = start + 2 * SECOND;
        assert_eq!(timeouts.left(9, later), Some(MAX_WAIT));
    }

    #[test]
    fn slow_answers_are_limited_to_a_part_of_the_time() {
        let start = Instant::now();
        let mut timeouts = InspectTimeouts::new(start);
        timeouts.took(1000, AT_ONCE);
        assert_eq!(timeouts.left(1000, start), None);
        assert!(timeouts.left(1001, start).is_some());
        assert!(timeouts.left(1000, start + SECOND).is_some());
        // A tenth of the time is given back.
        timeouts.took(1000, SECOND / 5);
        assert_eq!(timeouts.left(1000, start + SECOND), None);
        assert!(timeouts.left(1000, start + 3 * SECOND).is_some());
    }

    #[test]
    fn the_number_of_users_is_bounded() {
        let start = Instant::now();
        let mut timeouts = InspectTimeouts::new(start);
        for uid in 0..100_000 {
            timeouts.took(uid, Duration::ZERO);
        }
        assert_eq!(timeouts.users.len(), MAX_USERS + 1);
    }
}
