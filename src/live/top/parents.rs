//! Which of the listed processes are children of which.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gpuprobe_os::proc;

/// Processes between a process and its first listed ancestor, at most.
const MAX_BETWEEN: usize = 64;

/// Parents of processes, each read once.
#[derive(Debug, Default)]
pub(super) struct Parents {
    listed: HashSet<u32>,
    found: Arc<HashMap<u32, u32>>,
}

impl Parents {
    /// The nearest listed ancestor of each listed process, if it has one.
    pub(super) fn of(&mut self, listed: impl Iterator<Item = u32>) -> Arc<HashMap<u32, u32>> {
        let listed: HashSet<u32> = listed.collect();
        if listed != self.listed {
            let ancestor = |pid| Some((pid, nearest(pid, &listed)?));
            self.found = Arc::new(listed.iter().copied().filter_map(ancestor).collect());
            self.listed = listed;
        }
        Arc::clone(&self.found)
    }
}

fn nearest(pid: u32, listed: &HashSet<u32>) -> Option<u32> {
    let mut next = pid;
    for _ in 0..MAX_BETWEEN {
        next = u32::try_from(proc::stat(next).ok()?.ppid).ok()?;
        if listed.contains(&next) {
            return Some(next);
        }
        if next <= 1 {
            return None;
        }
    }
    None
}
