//! Who holds memory: from the ledger to a report.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{AllocationReport, Memleak, Options, ProcessReport, ThreadReport};
use crate::api::{self, FUNCTIONS, Op};
use crate::clock::Clock;
use crate::state::{Allocation, Ledger, Process};

/// Makes the report of what the ledger holds now.
pub(super) fn build(ledger: &Ledger, clock: &Clock, options: &Options) -> Memleak {
    let mut processes: Vec<_> = ledger
        .living()
        .chain(ledger.ended(options.is_final))
        .map(|process| process_report(process, clock, options.top))
        .collect();
    processes.sort_by_key(|p| (Reverse(p.live_bytes), p.pid));
    let counts = ledger.counts();
    let calls = FUNCTIONS
        .iter()
        .zip(&counts.by_row)
        .filter(|(function, calls)| function.op == Op::Allocate && **calls > 0)
        .map(|(function, &calls)| (function.symbol, calls))
        .collect();
    Memleak {
        alloc_calls: counts.alloc_calls,
        free_calls: counts.free_calls,
        failed_calls: counts.failed_calls,
        unknown_frees: counts.unknown_frees,
        null_frees: counts.null_frees,
        live_bytes: sum(processes.iter().map(|p| p.live_bytes)),
        live_allocations: sum(processes.iter().map(|p| p.live_allocations)),
        peak_bytes: ledger.peak_bytes(),
        calls,
        processes,
    }
}

/// A traced process chooses the sizes, so their sum may not fit.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn process_report(process: &Process, clock: &Clock, top: Option<usize>) -> ProcessReport {
    let mut threads: Vec<_> = process
        .threads()
        .iter()
        .zip(largest_by_thread(process, top))
        .filter(|(thread, _)| thread.live_allocations > 0)
        .map(|(thread, largest)| {
            let shown_bytes = sum(largest.iter().map(|a| a.size_bytes));
            ThreadReport {
                tid: thread.tid,
                comm: thread.comm.clone(),
                live_bytes: thread.live_bytes,
                live_allocations: thread.live_allocations,
                omitted_allocations: thread.live_allocations - largest.len() as u64,
                omitted_bytes: thread.live_bytes.saturating_sub(shown_bytes),
                allocations: largest
                    .iter()
                    .map(|a| allocation_report(process, a, clock))
                    .collect(),
            }
        })
        .collect();
    threads.sort_by_key(|t| (Reverse(t.live_bytes), t.tid));
    ProcessReport {
        pid: process.pid,
        uid: process.uid,
        comm: process.comm.clone(),
        exited: process.exited,
        live_bytes: process.live_bytes,
        live_allocations: process.live_allocations() as u64,
        peak_bytes: process.peak_bytes,
        threads,
    }
}

/// Larger first; of equal ones the older.
type Rank = (u64, Reverse<u64>, Reverse<u64>);

fn rank(allocation: &Allocation) -> Rank {
    let Allocation {
        size_bytes,
        end_ns,
        address,
        ..
    } = *allocation;
    (size_bytes, Reverse(end_ns), Reverse(address))
}

/// An allocation in the order of its rank.
#[derive(Clone, Copy)]
struct Ranked<'a>(&'a Allocation);

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        rank(self.0) == rank(other.0)
    }
}

impl Eq for Ranked<'_> {}

impl PartialOrd for Ranked<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        rank(self.0).cmp(&rank(other.0))
    }
}

/// The `top` largest allocations of each thread, largest first.
fn largest_by_thread(process: &Process, top: Option<usize>) -> Vec<Vec<&Allocation>> {
    let mut heaps = vec![BinaryHeap::new(); process.threads().len()];
    let top = top.unwrap_or(usize::MAX);
    for allocation in process.allocations() {
        let heap = &mut heaps[Process::thread_index(allocation)];
        if heap.len() < top {
            heap.push(Reverse(Ranked(allocation)));
        } else if let Some(mut smallest) = heap.peek_mut()
            && Ranked(allocation) > smallest.0
        {
            *smallest = Reverse(Ranked(allocation));
        }
    }
    heaps
        .into_iter()
        .map(|heap| heap.into_sorted_vec().into_iter().map(|r| r.0.0).collect())
        .collect()
}

fn allocation_report(
    process: &Process,
    allocation: &Allocation,
    clock: &Clock,
) -> AllocationReport {
    let function = api::function(allocation.row);
    AllocationReport {
        address: allocation.address,
        bytes: allocation.size_bytes,
        device: process.device(allocation),
        kind: function.map_or("", |f| f.kind.name()),
        api: function.map_or("", |f| f.symbol),
        time: clock.wall(allocation.end_ns),
    }
}
