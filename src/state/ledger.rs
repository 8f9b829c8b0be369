//! Who holds which memory.
//!
//! Allocations are keyed by process and address, so that a free from any thread finds them. A
//! free takes away the allocation that lived when the free was *entered*, never a newer one: the
//! driver may hand a freed address to another thread before the free has returned.

use std::collections::HashMap;

use super::live::{Allocation, Freed};
use super::process::Process;
use crate::api::FUNCTIONS;
use crate::event::{Call, Event, Task};

/// What was called, over all processes since the start.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Successful allocating calls.
    pub alloc_calls: u64,
    /// Successful frees of something; a free of a null pointer does nothing and is not counted.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Of the frees, those of memory that was not seen to be allocated.
    pub unknown_frees: u64,
    /// Frees of a null pointer.
    pub null_frees: u64,
    /// Successful calls by row of the function table.
    pub by_row: Vec<u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            alloc_calls: 0,
            free_calls: 0,
            failed_calls: 0,
            unknown_frees: 0,
            null_frees: 0,
            by_row: vec![0; FUNCTIONS.len()],
        }
    }
}

/// Ended processes without leaks that are still listed in the final report. Those with leaks are
/// all kept.
const MAX_CLEAN_ENDED: usize = 1024;

/// An ended process, and whether a report has shown it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) process: Process,
    pub(super) reported: bool,
}

/// What a call did to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This is live now.
    Allocated(Allocation),
    /// This is no longer.
    Freed(Allocation),
    /// This is no longer, for its address was handed out again; its free has not returned yet.
    GaveWay(Allocation),
    /// What was freed here was not seen to be allocated.
    UnknownFree(u64),
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    living: HashMap<u32, Process>,
    ended: Vec<Ended>,
    clean_ended: usize,
    counts: Counts,
    live_bytes: u64,
    peak_bytes: u64,
    /// What calls did, if anybody wants to know.
    outcomes: Option<Vec<Outcome>>,
}

impl Ledger {
    /// From now on, [`Self::take_outcomes`] tells what calls do.
    pub fn watch(&mut self) {
        self.outcomes = Some(Vec::new());
    }

    /// What was done since this was last asked, in order.
    pub fn take_outcomes(&mut self) -> Vec<Outcome> {
        self.outcomes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    fn report(&mut self, outcome: Outcome) {
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.push(outcome);
        }
    }

    /// Enters an event. `single_gpu` says of a process id whether that process can see one GPU
    /// only; it is asked once for each process.
    pub fn apply(&mut self, event: &Event, single_gpu: impl FnOnce(u32) -> bool) {
        match event {
            Event::Call(call) => self.call(call),
            Event::Process(task) => {
                let known = self.living.get(&task.pid).is_some_and(|p| p.uid.is_some());
                let single_gpu = !known && single_gpu(task.pid);
                self.process(task.pid).introduce(task, single_gpu);
            }
            Event::Thread(task) => self.process(task.pid).introduce_thread(task),
            Event::ThreadExit(task) => {
                if let Some(process) = self.living.get_mut(&task.pid) {
                    process.end_thread(task.tid);
                }
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            Event::Kernel(_) | Event::Copy(_) => {}
        }
    }

    /// What was called so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The most bytes that living processes held together.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// Living processes, in no particular order.
    pub fn living(&self) -> impl Iterator<Item = &Process> {
        self.living.values()
    }

    /// Ended processes in the order of their ends: those that no report has shown yet, or all.
    pub fn ended(&self, all: bool) -> impl Iterator<Item = &Process> {
        let shown = move |ended: &&Ended| all || !ended.reported;
        self.ended.iter().filter(shown).map(|ended| &ended.process)
    }

    /// Notes that the ended processes have been shown.
    pub fn mark_reported(&mut self) {
        for ended in &mut self.ended {
            ended.reported = true;
        }
    }

    /// Ends `pid`, whose end was not seen.
    pub fn end_unseen(&mut self, pid: u32) {
        if let Some(process) = self.living.remove(&pid) {
            self.retire(process);
        }
    }

    fn call(&mut self, call: &Call) {
        if call.result != 0 {
            self.counts.failed_calls += 1;
            return;
        }
        if let Some(count) = self.counts.by_row.get_mut(usize::from(call.row)) {
            *count += 1;
        }
        if call.is_allocation() {
            self.counts.alloc_calls += 1;
            if call.address != 0 {
                let (allocation, gave_way) = self.process(call.pid).allocate(call);
                if let Some(old) = gave_way {
                    self.live_bytes = self.live_bytes.saturating_sub(old.size_bytes);
                    self.report(Outcome::GaveWay(old));
                }
                self.report(Outcome::Allocated(allocation));
                self.live_bytes = self.live_bytes.saturating_add(call.size_bytes);
                self.peak_bytes = self.peak_bytes.max(self.live_bytes);
            }
        } else if call.address == 0 {
            self.counts.null_frees += 1;
        } else {
            self.counts.free_calls += 1;
            match self.process(call.pid).free(call) {
                Freed::Live(allocation) => {
                    self.live_bytes = self.live_bytes.saturating_sub(allocation.size_bytes);
                    self.report(Outcome::Freed(allocation));
                }
                Freed::Superseded => {}
                Freed::Unknown => {
                    self.counts.unknown_frees += 1;
                    self.report(Outcome::UnknownFree(call.address));
                }
            }
        }
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        self.living.entry(pid).or_insert_with(|| Process::new(pid))
    }

    fn end(&mut self, task: &Task) {
        if let Some(process) = self.living.remove(&task.pid) {
            self.retire(process);
        }
    }

    fn retire(&mut self, mut process: Process) {
        process.exited = true;
        self.live_bytes = self.live_bytes.saturating_sub(process.live_bytes);
        if process.live_allocations() == 0 {
            self.clean_ended += 1;
        }
        self.ended.push(Ended {
            process,
            reported: false,
        });
        if self.clean_ended > MAX_CLEAN_ENDED * 2 {
            self.forget_clean_ended();
        }
    }

    /// Drops the older half of the ended processes that leaked nothing.
    fn forget_clean_ended(&mut self) {
        let mut surplus = self.clean_ended - MAX_CLEAN_ENDED;
        self.clean_ended = MAX_CLEAN_ENDED;
        self.ended.retain(|ended| {
            let drop = surplus > 0 && ended.process.live_allocations() == 0;
            surplus -= usize::from(drop);
            !drop
        });
    }
}
