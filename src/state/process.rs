//! One traced process: its threads and what they hold.

use std::collections::HashMap;

use super::live::{Allocation, Freed, LiveSet};
use crate::event::{Call, Task};

/// A thread that has called a traced function.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Thread id.
    pub tid: u32,
    /// Name, if the kernel side could send it.
    pub comm: Option<String>,
    /// Bytes that the thread allocated and that are live.
    pub live_bytes: u64,
    /// Their number.
    pub live_allocations: u64,
    exited: bool,
}

/// A process that has called a traced function.
#[derive(Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// User id, if the kernel side could send it.
    pub uid: Option<u32>,
    /// Name, if the kernel side could send it.
    pub comm: Option<String>,
    /// The process has ended or runs another program: what is live here was never freed.
    pub exited: bool,
    /// Bytes allocated and not freed.
    pub live_bytes: u64,
    /// The most that `live_bytes` has been.
    pub peak_bytes: u64,
    single_gpu: bool,
    live: LiveSet,
    threads: Vec<Thread>,
    /// Indices into `threads` of living threads, by tid.
    by_tid: HashMap<u32, u32>,
    /// Indices into `threads` that may be used again.
    vacant: Vec<u32>,
}

impl Process {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            uid: None,
            comm: None,
            exited: false,
            live_bytes: 0,
            peak_bytes: 0,
            single_gpu: false,
            live: LiveSet::default(),
            threads: Vec::new(),
            by_tid: HashMap::new(),
            vacant: Vec::new(),
        }
    }

    /// Number of live allocations.
    pub fn live_allocations(&self) -> usize {
        self.live.len()
    }

    /// The live allocations, in no particular order.
    pub fn allocations(&self) -> impl ExactSizeIterator<Item = &Allocation> {
        self.live.iter()
    }

    /// Threads with their indices, including those that hold nothing.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Index into [`Self::threads`] of the thread that made `allocation`.
    pub fn thread_index(allocation: &Allocation) -> usize {
        allocation.thread as usize
    }

    /// The device of `allocation`: what the calls said, else 0 if there is no other.
    pub fn device(&self, allocation: &Allocation) -> Option<u16> {
        allocation.device().or(self.single_gpu.then_some(0))
    }

    pub(super) fn introduce(&mut self, task: &Task, single_gpu: bool) {
        self.uid = Some(task.uid);
        self.comm = Some(task.comm.clone());
        self.single_gpu |= single_gpu;
    }

    pub(super) fn introduce_thread(&mut self, task: &Task) {
        let index = self.thread(task.tid);
        self.threads[index as usize].comm = Some(task.comm.clone());
    }

    pub(super) fn end_thread(&mut self, tid: u32) {
        if let Some(index) = self.by_tid.remove(&tid) {
            self.threads[index as usize].exited = true;
            self.vacate_if_done(index);
        }
    }

    /// Enters a successful allocation. Returns it, and the one that held the same address and has
    /// therefore been freed, though its free has not returned yet.
    pub(super) fn allocate(&mut self, call: &Call) -> (Allocation, Option<Allocation>) {
        let thread = self.thread(call.tid);
        let allocation = Allocation::new(
            call.address,
            call.size_bytes,
            call.end_ns,
            thread,
            call.row,
            call.device,
        );
        let gave_way = self.live.insert(allocation);
        if let Some(old) = &gave_way {
            self.subtract(old);
        }
        let owner = &mut self.threads[thread as usize];
        owner.live_bytes = owner.live_bytes.saturating_add(call.size_bytes);
        owner.live_allocations += 1;
        self.live_bytes = self.live_bytes.saturating_add(call.size_bytes);
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        (allocation, gave_way)
    }

    /// Enters a successful free.
    pub(super) fn free(&mut self, call: &Call) -> Freed {
        let freed = self.live.free(call.address, call.start_ns);
        if let Freed::Live(allocation) = &freed {
            self.subtract(allocation);
        }
        freed
    }

    fn subtract(&mut self, gone: &Allocation) {
        self.live_bytes = self.live_bytes.saturating_sub(gone.size_bytes);
        let owner = &mut self.threads[gone.thread as usize];
        owner.live_bytes = owner.live_bytes.saturating_sub(gone.size_bytes);
        owner.live_allocations = owner.live_allocations.saturating_sub(1);
        self.vacate_if_done(gone.thread);
    }

    /// Index of the living thread `tid`, which may be new.
    fn thread(&mut self, tid: u32) -> u32 {
        if let Some(&index) = self.by_tid.get(&tid) {
            return index;
        }
        let fresh = Thread {
            tid,
            comm: None,
            live_bytes: 0,
            live_allocations: 0,
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

    fn vacate_if_done(&mut self, index: u32) {
        let thread = &self.threads[index as usize];
        if thread.exited && thread.live_allocations == 0 {
            self.vacant.push(index);
        }
    }
}
