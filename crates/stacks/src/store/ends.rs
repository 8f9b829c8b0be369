//! Ends of processes.

use super::process::StackStoreProcess;
use super::{StackStore, keep_places};
use std::collections::HashSet;

impl StackStore {
    /// Removes the process with this id, and its paths: it makes no more calls.
    pub(super) fn drop_process(&mut self, pid: u32) -> Option<StackStoreProcess> {
        let mut old = self.processes.remove(&pid)?;
        let paths = std::mem::take(&mut old.paths);
        self.known = self.known.saturating_sub(paths.states().len());
        let states: HashSet<_> = paths.states().collect();
        self.updates
            .learnt
            .retain(|(state, _)| !states.contains(state));
        self.updates.forgotten.extend(states);
        Some(old)
    }

    /// Removes ended processes whose exit event was lost.
    pub fn sweep(&mut self, is_alive: impl Fn(u32) -> bool) {
        let pids = self.spaces.pids().chain(self.processes.keys().copied());
        let mut gone: HashSet<_> = pids.collect();
        gone.retain(|pid| !is_alive(*pid));
        // Calls of a process that has just ended may still be in the ring: removed at the second sweep.
        let before = std::mem::replace(&mut self.suspects, gone);
        let still: Vec<_> = self.suspects.intersection(&before).copied().collect();
        for pid in still {
            self.forget_space(pid);
        }
    }

    /// Removes the process or program `id`, which has ended.
    pub fn forget(&mut self, pid: u32, id: u32) {
        if let Some(earlier) = self.earlier.get_mut(&pid) {
            let ended = earlier.iter().filter(|process| process.id == id);
            for process in ended {
                keep_places(&mut self.last_places, pid, process);
                self.bytes.change(process.counted, 0);
            }
            earlier.retain(|process| process.id != id);
            self.python.lines.forget(id);
            if earlier.is_empty() {
                self.earlier.remove(&pid);
            }
        }
        if self.processes.get(&pid).is_some_and(|p| p.id == id) {
            self.python.lines.forget(id);
            self.forget_space(pid);
        }
    }

    fn forget_space(&mut self, pid: u32) {
        let earlier = self.earlier.remove(&pid).into_iter().flatten();
        for process in earlier.chain(self.drop_process(pid)) {
            keep_places(&mut self.last_places, pid, &process);
            self.bytes.change(process.counted, 0);
        }
        self.spaces.forget(pid);
        self.python.running.remove(&pid);
        self.looked.remove(&pid);
        self.updates.new_code.push(pid);
    }
}
