//! The processes that live, and the stacks of those of which nothing else is known yet.

use std::rc::Rc;

use hashbrown::HashMap;

use super::process::Process;
use gpuprobe_cuda::KindSet;
use gpuprobe_model::stack::CallStack;

/// Stacks that wait for their process to be heard of.
const MAX_EARLY: usize = 65_536;

/// Living processes by their ids.
#[derive(Debug, Default)]
pub(super) struct Living {
    processes: HashMap<u32, Process>,
    counted: KindSet,
    /// Stacks of processes that have not been heard of otherwise.
    early: HashMap<u32, Vec<(u64, Rc<CallStack>)>>,
    early_count: usize,
}

impl Living {
    /// Nothing yet. The sums of processes will be of the kinds that are `counted`.
    pub(super) fn counting(counted: KindSet) -> Self {
        Self {
            counted,
            ..Self::default()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.values_mut()
    }

    /// Adds a process that lives.
    pub(super) fn put(&mut self, process: Process) {
        self.processes.insert(process.pid, process);
    }

    pub(super) fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// The process `pid`, which may be new.
    pub(super) fn enter(&mut self, pid: u32) -> &mut Process {
        let (early, early_count) = (&mut self.early, &mut self.early_count);
        self.processes.entry(pid).or_insert_with(|| {
            let mut process = Process::new(pid, self.counted);
            for (number, stack) in early.remove(&pid).into_iter().flatten() {
                *early_count = early_count.saturating_sub(1);
                process.sites.learn(number, stack);
            }
            process
        })
    }

    /// Remembers the stack of a process that is not known yet.
    pub(super) fn learn_early(&mut self, pid: u32, number: u64, stack: Rc<CallStack>) {
        // A process that is never heard of may be one that is not reported.
        if self.early_count >= MAX_EARLY {
            self.early.clear();
            self.early_count = 0;
        }
        self.early.entry(pid).or_default().push((number, stack));
        self.early_count += 1;
    }

    /// The stacks of `pid` that wait are of no use any more.
    pub(super) fn forget_early(&mut self, pid: u32) {
        if let Some(stacks) = self.early.remove(&pid) {
            self.early_count = self.early_count.saturating_sub(stacks.len());
        }
    }

    pub(super) fn remove(&mut self, pid: u32) -> Option<Process> {
        self.processes.remove(&pid)
    }
}
