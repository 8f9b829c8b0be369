//! Live memory of a recording: sums from its log, which has every call, and lists from its tables,
//! which number call sites as pages, profiles and the other analyses of the file do.

use super::{Memleak, ProcessReport, ThreadReport};

impl Memleak {
    /// This report, of a replayed log, with the call sites and allocations of `tables`, a report of
    /// the tables of the same recording.
    pub(crate) fn with_lists_of(mut self, tables: Self) -> Self {
        let mut others = tables.processes;
        for process in &mut self.processes {
            if let Some(at) = position(process, &others) {
                process.take_lists(others.swap_remove(at));
            }
        }
        // The log's account has the sums of ended processes that it does not list.
        self.processes.extend(others);
        self
    }
}

/// Index of `process` among `others`: process ids may be reused.
fn position(process: &ProcessReport, others: &[ProcessReport]) -> Option<usize> {
    let is_same = |other: &&ProcessReport| {
        (other.pid, other.exited, other.traced) == (process.pid, process.exited, process.traced)
    };
    let same = |others: &ProcessReport| is_same(&others) && others.peak_bytes == process.peak_bytes;
    others
        .iter()
        .position(same)
        .or_else(|| others.iter().position(|other| is_same(&other)))
}

impl ProcessReport {
    fn take_lists(&mut self, tables: Self) {
        let sums = std::mem::replace(&mut self.threads, tables.threads);
        for of_log in sums {
            match self
                .threads
                .iter_mut()
                .find(|thread| thread.tid == of_log.tid)
            {
                Some(thread) => thread.live = of_log.live,
                None => self.threads.push(ThreadReport {
                    allocations: Vec::new(),
                    ..of_log
                }),
            }
        }
        self.sites = tables.sites;
        self.functions = tables.functions;
        self.omitted = tables.omitted;
        self.filtered = tables.filtered;
    }
}
