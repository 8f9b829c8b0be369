//! Launches of processes that have ended.

use std::collections::{HashSet, VecDeque};
use std::mem;

use super::{Launcher, Launches, MAX_NAMES};
use gpuprobe_model::abi::RawLaunchKey;

/// Limits on the ended processes, on the kernels of all processes, and on their names, that the final report lists;
/// beyond one of them, the oldest half of the ended processes are merged. Some hundred bytes each.
const MAX_ENDED: usize = 8192;
const MAX_KERNELS: usize = 1 << 18;
const MANY_NAMES: usize = MAX_NAMES / 2;
/// Process number that no process has, for the merged ones.
const EARLIER: u32 = 0;
const EARLIER_NAME: &str = "(ended processes)";

/// Processes that have ended.
#[derive(Debug, Default)]
pub(super) struct PastLaunches {
    /// Ended since the last call of [`Launches::take_ends`].
    pub(super) ending: Vec<u32>,
    /// Ended before that call: their counts are being read from the BPF map.
    being_read: Vec<u32>,
    /// Ended processes with final counts, oldest first.
    ended: VecDeque<u32>,
}

impl Launches {
    /// Whether processes have ended since the last call. If so, the caller should read their counts
    /// from the BPF map, to make room; they are taken as read at the next call.
    pub fn take_ends(&mut self) -> bool {
        let ending = mem::take(&mut self.past.ending);
        let read = mem::replace(&mut self.past.being_read, ending);
        if !read.is_empty() {
            self.retire(read);
        }
        !self.past.being_read.is_empty()
    }

    /// Drops processes with final counts that have launched nothing.
    fn retire(&mut self, read: Vec<u32>) {
        let counted = self.counted.keys().map(|key| key.process);
        let settled = self.settled.keys().map(|(process, ..)| *process);
        let with_launches: HashSet<_> = counted.chain(settled).collect();
        for process in read {
            match with_launches.contains(&process) {
                true => self.past.ended.push_back(process),
                false => drop(self.launchers.remove(&process)),
            }
        }
        let kernels = self.counted.len() + self.settled.len();
        if self.past.ended.len() > MAX_ENDED || kernels > MAX_KERNELS || self.names() > MANY_NAMES {
            self.merge_oldest();
        }
    }

    fn merge_oldest(&mut self) {
        let half = self.past.ended.len().div_ceil(2);
        let oldest: HashSet<_> = self.past.ended.drain(..half).collect();
        let counted = self
            .counted
            .extract_if(|key, _| oldest.contains(&key.process));
        let counted = counted.map(|(key, counted)| (key.row, counted));
        let settled = self.settled.extract_if(|key, _| oldest.contains(&key.0));
        let settled = settled.map(|((_, row, _), (_, counted))| (row, counted));
        let merged: Vec<_> = counted.chain(settled).collect();
        for (row, counted) in merged {
            let key = RawLaunchKey {
                handle: 0,
                process: EARLIER,
                row,
                epoch: 0,
            };
            let sum = self.settled.entry((EARLIER, row, None));
            sum.or_insert((key, Default::default())).1.add(&counted);
        }
        self.launchers
            .retain(|process, _| !oldest.contains(process));
        self.launchers.entry(EARLIER).or_insert(Launcher {
            comm: Some(EARLIER_NAME.to_owned()),
            exited: true,
            ..Launcher::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{kernel, key};
    use super::*;
    use crate::task;
    use gpuprobe_model::event::Event;

    fn end(process: u32) -> Event {
        Event::Exit(task(process >> 10, process, 0))
    }

    /// One tick of the event loop: once per second in the collector.
    fn tick(launches: &mut Launches, counts: &[RawLaunchKey]) {
        if launches.take_ends() {
            for key in counts {
                assert!(!launches.set_counts(*key, 7, 1), "the process has ended");
            }
        }
    }

    #[test]
    fn ended_processes_are_merged_and_no_launch_is_lost() {
        let mut launches = Launches::default();
        let processes = u64::try_from(MAX_ENDED + MAX_ENDED / 4).unwrap_or_default();
        let no_host_name = |_, _| None;
        let mut ended = Vec::new();
        for number in 1..=processes {
            let mut key = key(number, 0, "cuLaunchKernel");
            key.process = u32::try_from(number << 10).unwrap_or_default();
            launches.apply(&kernel(key, false, "_Z1av"), no_host_name);
            // The name of a function that is never launched.
            let mut asked = super::super::tests::key(1 << 40, 0, "cuModuleGetFunction");
            asked.process = key.process;
            launches.apply(&kernel(asked, true, "_Z1av"), no_host_name);
            launches.apply(&end(key.process), no_host_name);
            ended.push(key);
            if ended.len() == 16 {
                tick(&mut launches, &ended);
                ended.clear();
            }
        }
        tick(&mut launches, &[]);
        assert!(launches.launchers.len() <= MAX_ENDED + 1);
        // The last process has just been read.
        assert!(launches.counted.len() <= MAX_ENDED + 1);
        assert!(
            launches.names() <= 2 * MAX_ENDED + 2,
            "{}",
            launches.names()
        );
        let runs: u64 = launches.counted().map(|launch| launch.counted.runs).sum();
        let captured: u64 = launches
            .counted()
            .map(|launch| launch.counted.captured)
            .sum();
        assert_eq!((runs, captured), (7 * processes, processes));
        let earlier = launches.launchers.get(&EARLIER);
        assert_eq!(earlier.and_then(|e| e.comm.as_deref()), Some(EARLIER_NAME));
    }

    #[test]
    fn processes_without_launches_are_dropped() {
        let mut launches = Launches::default();
        for number in 1..10_000 {
            let task = task(number, number << 10, 0);
            launches.apply(&Event::Process(task), |_, _| None);
            launches.apply(&end(number << 10), |_, _| None);
            tick(&mut launches, &[]);
        }
        tick(&mut launches, &[]);
        assert!(launches.launchers.is_empty());
    }

    #[test]
    fn merged_processes_leave_their_sums() {
        let mut launches = Launches::default();
        let with = |handle, process| RawLaunchKey {
            process,
            ..key(handle, 0, "cuLaunchKernel")
        };
        for (handle, process, runs) in [(1, 1 << 10, 10), (2, 1 << 10, 20), (1, 2 << 10, 300)] {
            launches.apply(&kernel(with(handle, process), true, "_Z1av"), |_, _| None);
            launches.set_counts(with(handle, process), runs, 1);
        }
        // Of the second, the only kernel has a reused handle.
        launches.settle(with(1, 2 << 10));
        assert!(!launches.take_ends());
        launches.apply(&end(1 << 10), |_, _| None);
        launches.apply(&end(2 << 10), |_, _| None);
        assert!(launches.take_ends());
        assert!(!launches.take_ends());
        let mut ended: Vec<_> = launches.past.ended.iter().copied().collect();
        ended.sort_unstable();
        assert_eq!(ended, [1 << 10, 2 << 10]);
        launches.past.ended.extend([3 << 10, 4 << 10]);
        launches.merge_oldest();
        let all: Vec<_> = launches.counted().collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].key.process, all[0].counted.runs), (EARLIER, 330));
        let earlier = all[0].launcher.map(|one| (one.comm.as_deref(), one.exited));
        assert_eq!(earlier, Some((Some(EARLIER_NAME), true)));
        assert_eq!((launches.past.ended.len(), launches.names()), (2, 0));
        launches.mark_reported();
        assert_eq!(
            launches
                .counted()
                .map(|one| one.counted.runs_reported)
                .sum::<u64>(),
            330
        );
    }
}
