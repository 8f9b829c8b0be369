//! Threads of a process.

use super::super::totals::MemorySums;
use super::{Process, TracedThread};
use gpuprobe_model::event::Task;

impl Process {
    pub(crate) fn introduce_thread(&mut self, task: &Task) {
        let index = self.thread(task.tid);
        self.threads[index as usize].comm = Some(task.comm.clone());
    }

    pub(crate) fn end_thread(&mut self, tid: u32) {
        if let Some(index) = self.by_tid.remove(&tid) {
            self.threads[index as usize].exited = true;
            self.vacate_if_done(index);
        }
    }

    /// The live thread `tid`, if known.
    pub(crate) fn thread_mut(&mut self, tid: u32) -> Option<&mut TracedThread> {
        let index = *self.by_tid.get(&tid)?;
        self.threads.get_mut(index as usize)
    }

    /// Index of the live thread `tid`, which may be new.
    pub(crate) fn thread(&mut self, tid: u32) -> u32 {
        if let Some(&index) = self.by_tid.get(&tid) {
            return index;
        }
        let fresh = TracedThread {
            tid,
            comm: None,
            live: MemorySums::default(),
            held: 0,
            exited: false,
        };
        let index = if let Some(index) = self.vacant.pop() {
            self.threads[index as usize] = fresh;
            index
        } else {
            self.threads.push(fresh);
            // A process has fewer than 2^22 threads at a time.
            u32::try_from(self.threads.len() - 1).unwrap_or(u32::MAX)
        };
        self.by_tid.insert(tid, index);
        index
    }

    pub(super) fn vacate_if_done(&mut self, index: u32) {
        let thread = &self.threads[index as usize];
        if thread.exited && thread.held == 0 {
            self.vacant.push(index);
        }
    }
}
