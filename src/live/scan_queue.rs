//! Queue of processes whose mappings are to be scanned for CUDA libraries.
//!
//! A scan can take long (a process may have a million mappings), and a process can cause any number
//! of them. So repeated requests for a process are merged, stopped processes come first, and the scans of
//! a running process are limited per second. Deferred requests are kept.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::host::budget::Budget;
use crate::probe::Notice;

/// Scans of one process per second, if each is short. Beyond, new libraries are probed up to a second
/// late, which takes a program that loads as many libraries that were never seen before.
const MAX_SCANS: u32 = 50;
/// Processes with a scan budget. At the limit, expired budgets are removed.
const MAX_LATELY: usize = 4096;

/// The pending and running scans.
#[derive(Debug, Default)]
pub(super) struct ScanQueue {
    /// The last notice per process id.
    asked: HashMap<u32, Notice>,
    /// Stopped processes, in order of their notices.
    held: VecDeque<u32>,
    /// Running processes, in order of their notices.
    others: VecDeque<u32>,
    /// Over budget or being scanned.
    deferred: Vec<u32>,
    /// Process ids of the scans that have begun and not ended.
    running: HashSet<u32>,
    /// Scan budget per process id.
    lately: HashMap<u32, Budget>,
}

impl ScanQueue {
    /// Queues a scan, or merges it with a pending one of the same process.
    pub(super) fn add(&mut self, notice: Notice) {
        let pid = notice.pid;
        let before = self.asked.insert(pid, notice);
        let was_held = before.is_some_and(|before| before.held);
        if let Some(merged) = self.asked.get_mut(&pid) {
            merged.held |= was_held;
            // The current program is the one of the last exec.
            merged.image = merged
                .image
                .or_else(|| before.and_then(|before| before.image));
        }
        if notice.held && !was_held {
            self.held.push_back(pid);
        } else if before.is_none() {
            self.others.push_back(pid);
        }
    }

    /// The next stopped process. One scan answers all its pending notices.
    pub(super) fn next_held(&mut self) -> Option<Notice> {
        let pid = self.held.pop_front()?;
        self.running.insert(pid);
        self.asked.remove(&pid)
    }

    /// The next running process that is within its budget.
    pub(super) fn next_running(&mut self, now: Instant) -> Option<Notice> {
        while let Some(pid) = self.others.pop_front() {
            if !self.asked.contains_key(&pid) {
                continue;
            }
            if !self.running.contains(&pid) && self.is_within_budget(pid, now) {
                self.running.insert(pid);
                return self.asked.remove(&pid);
            }
            self.deferred.push(pid);
        }
        None
    }

    /// Whether a running process is in the queue.
    pub(super) fn has_running(&self) -> bool {
        !self.others.is_empty()
    }

    fn is_within_budget(&mut self, pid: u32, now: Instant) -> bool {
        let lately = self.lately.get_mut(&pid);
        lately.is_none_or(|lately| lately.allows(now, MAX_SCANS))
    }

    /// Marks the scan of a process as ended. `in_vain` is its duration if it found no new function, and
    /// is charged to the process's budget.
    pub(super) fn ended(&mut self, pid: u32, in_vain: Option<Duration>, now: Instant) {
        self.running.remove(&pid);
        if let Some(took) = in_vain {
            if self.lately.len() >= MAX_LATELY {
                self.lately.retain(|_, lately| !lately.is_over(now));
            }
            let lately = self.lately.entry(pid).or_insert(Budget::new(now));
            lately.spend(took);
        }
        self.requeue();
    }

    /// Queues the deferred scans again.
    pub(super) fn requeue(&mut self) {
        self.others.extend(self.deferred.drain(..));
    }

    /// Whether a stopped process is in the queue.
    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a scan can begin now.
    #[cfg(test)]
    fn is_busy(&self) -> bool {
        self.has_held() || self.has_running()
    }

    /// Removes and returns the stopped processes, to resume them without a scan.
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
            held,
            image: None,
        }
    }

    /// The next stopped process, else the next running one.
    fn next(queue: &mut ScanQueue, now: Instant) -> Option<Notice> {
        queue.next_held().or_else(|| queue.next_running(now))
    }

    const CHEAP: Option<Duration> = Some(Duration::from_micros(10));

    #[test]
    fn repeated_notices_are_merged_into_one_scan() {
        let mut queue = ScanQueue::default();
        let now = Instant::now();
        for _ in 0..1000 {
            queue.add(notice(1, false));
        }
        queue.add(notice(2, false));
        queue.add(notice(3, true));
        queue.add(notice(2, true));
        queue.add(notice(3, false));
        let next = |queue: &mut ScanQueue| next(queue, now).map(|n| (n.pid, n.held));
        assert_eq!(next(&mut queue), Some((3, true)));
        assert_eq!(next(&mut queue), Some((2, true)));
        assert_eq!(next(&mut queue), Some((1, false)));
        assert_eq!(next(&mut queue), None);
        assert!(!queue.is_busy());
        // Files mapped during a scan may be in the part already scanned.
        queue.add(notice(1, false));
        assert_eq!(next(&mut queue), None);
        queue.ended(1, CHEAP, now);
        assert_eq!(next(&mut queue), Some((1, false)));
    }

    #[test]
    fn a_process_over_its_budget_is_deferred_and_not_lost() {
        let mut queue = ScanQueue::default();
        let start = Instant::now();
        for _ in 0..MAX_SCANS {
            queue.add(notice(1, false));
            assert!(next(&mut queue, start).is_some());
            queue.ended(1, CHEAP, start);
        }
        queue.add(notice(1, false));
        assert_eq!(next(&mut queue, start), None);
        assert!(!queue.is_busy(), "no scan can begin now");
        // Other processes are not deferred, nor is this one once it is stopped.
        queue.add(notice(2, false));
        assert_eq!(next(&mut queue, start), Some(notice(2, false)));
        queue.add(notice(1, true));
        assert_eq!(queue.next_held(), Some(notice(1, true)));
        queue.ended(1, None, start);
        queue.add(notice(1, false));
        queue.requeue();
        assert_eq!(next(&mut queue, start), None);
        queue.requeue();
        let later = start + Duration::from_millis(1001);
        assert_eq!(next(&mut queue, later), Some(notice(1, false)));
        assert_eq!(next(&mut queue, later), None);
    }

    #[test]
    fn many_processes_that_remap_constantly_delay_no_other() {
        const MANY: u32 = 300;
        let mut queue = ScanQueue::default();
        let now = Instant::now();
        for _ in 0..=MAX_SCANS {
            (0..MANY).for_each(|pid| queue.add(notice(pid, false)));
            while let Some(next) = queue.next_running(now) {
                queue.ended(next.pid, CHEAP, now);
            }
        }
        queue.add(notice(MANY, false));
        assert_eq!(queue.next_running(now), Some(notice(MANY, false)));
    }

    #[test]
    fn take_held_returns_the_stopped_processes() {
        let mut queue = ScanQueue::default();
        queue.add(notice(1, true));
        queue.add(notice(2, false));
        queue.add(notice(3, true));
        assert_eq!(queue.take_held(), [notice(1, true), notice(3, true)]);
        assert!(queue.take_held().is_empty());
    }
}
