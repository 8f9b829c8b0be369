//! The process table: live processes, and call stacks that arrived before any other event of their
//! process.

use std::rc::Rc;

use hashbrown::DefaultHashBuilder;
use indexmap::IndexMap;

use super::process::Process;
use gpuprobe_cuda::KindSet;
use gpuprobe_model::stack::CallStack;

/// Stacks kept for processes that are not known yet.
const MAX_EARLY: usize = 65_536;

/// Live processes by process id.
#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    processes: IndexMap<u32, Process, DefaultHashBuilder>,
    /// Index of the process that was changed last: a hint, as the next change is often to the same one.
    last: usize,
    counted: KindSet,
    /// Stacks of processes that are not known yet.
    early: Vec<(u32, u64, Rc<CallStack>)>,
    /// Number of changes so far, of all processes.
    changes: u64,
}

impl ProcessTable {
    /// An empty table. The sums of its processes cover the memory kinds `counted`.
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

    pub(super) fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    /// The process `pid`, which may be new, to be changed.
    #[inline]
    pub(super) fn enter(&mut self, pid: u32) -> &mut Process {
        self.changes += 1;
        let last = self.processes.get_index(self.last);
        if last.is_none_or(|(of, _)| *of != pid) {
            self.last = self.find(pid);
        }
        let process = &mut self.processes[self.last];
        process.version = self.changes;
        process
    }

    /// Where in the table the process `pid` is, which may be new.
    #[cold]
    fn find(&mut self, pid: u32) -> usize {
        let early = &mut self.early;
        let entry = self.processes.entry(pid);
        let index = entry.index();
        entry.or_insert_with(|| {
            let mut process = Process::new(pid, self.counted);
            for (_, number, stack) in early.extract_if(.., |(of, ..)| *of == pid) {
                process.sites.learn(number, stack);
            }
            process
        });
        index
    }

    /// Keeps the stack of a process that is not known yet.
    pub(super) fn keep_early_stack(&mut self, pid: u32, number: u64, stack: Rc<CallStack>) {
        // The stacks of a process that is never seen may be of one that is filtered out.
        if self.early.len() >= MAX_EARLY {
            self.early.clear();
        }
        self.early.push((pid, number, stack));
    }

    /// The stack with this number, of a process that is live, or that has ended or is not known yet.
    pub(super) fn stack(&self, pid: u32, number: u64) -> Option<&Rc<CallStack>> {
        let early = || {
            let found = self
                .early
                .iter()
                .find(|one| (one.0, one.1) == (pid, number));
            found.map(|(.., stack)| stack)
        };
        let live = self
            .get(pid)
            .and_then(|process| process.sites.stack(number));
        live.or_else(early)
    }

    /// Drops the stacks kept for `pid`.
    pub(super) fn drop_early_stacks(&mut self, pid: u32) {
        self.early.retain(|(of, ..)| *of != pid);
    }

    /// Forgets the processes that hold nothing.
    pub(super) fn keep_holders(&mut self) {
        self.processes.retain(|_, process| process.held() > 0);
    }

    pub(super) fn remove(&mut self, pid: u32) -> Option<Process> {
        self.processes.swap_remove(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(address: u64) -> Rc<CallStack> {
        Rc::new(CallStack {
            locations: vec![gpuprobe_model::stack::Location {
                address,
                module: None,
                offset: address,
            }],
            is_complete: true,
        })
    }

    #[test]
    fn stacks_may_arrive_before_their_process() {
        let mut table = ProcessTable::default();
        for number in 1..=3 {
            table.keep_early_stack(7, number, stack(number));
        }
        table.keep_early_stack(8, 1, stack(1));
        table.drop_early_stacks(8);
        assert_eq!(table.early.len(), 3);
        assert_eq!(
            (table.stack(7, 2), table.stack(8, 1)),
            (Some(&stack(2)), None)
        );
        let process = table.enter(7);
        assert_eq!((process.pid, process.version), (7, 1));
        assert_eq!(process.sites.stack(3), Some(&stack(3)));
        assert_eq!(table.enter(8).sites.stack(1), None);
        assert!(table.early.is_empty());
        assert_eq!([8, 7, 7].map(|pid| table.enter(pid).version), [3, 4, 5]);
        assert_eq!(table.get_mut(7).map(|process| process.version), Some(5));
        assert!(table.get_mut(9).is_none());
    }

    #[test]
    fn stacks_of_processes_that_never_come_are_bounded() {
        let mut table = ProcessTable::default();
        for number in 0..MAX_EARLY as u64 {
            table.keep_early_stack(7, number, stack(1));
        }
        assert_eq!(table.early.len(), MAX_EARLY);
        table.keep_early_stack(8, 1, stack(1));
        assert_eq!(table.early.len(), 1);
    }
}
