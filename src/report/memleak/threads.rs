//! Live allocations by thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{AllocationReport, LeftOut, Live, ThreadReport};
use crate::api::{self, Belongs};
use crate::clock::Clock;
use crate::report::{Options, Sort};
use crate::state::{Allocation, Process};

/// A traced process chooses the sizes, so their sum may not fit.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The threads that allocated what is live.
pub(super) fn thread_reports(
    process: &Process,
    clock: &Clock,
    options: &Options,
) -> Vec<ThreadReport> {
    let mut threads: Vec<_> = process
        .threads()
        .iter()
        .zip(largest_by_thread(process, options))
        .filter(|(thread, _)| !thread.live.is_empty())
        .map(|(thread, of_thread)| {
            let live = Live::from(thread.live);
            let (filtered, largest) = (of_thread.filtered, of_thread.first);
            let shown_bytes = sum(largest.iter().map(|a| a.size_bytes));
            let listed_bytes = live.bytes().saturating_sub(filtered.bytes);
            let listed_allocations = live.allocations().saturating_sub(filtered.allocations);
            let report = ThreadReport {
                tid: thread.tid,
                comm: thread.comm.clone(),
                live,
                omitted_allocations: listed_allocations.saturating_sub(largest.len() as u64),
                omitted_bytes: listed_bytes.saturating_sub(shown_bytes),
                filtered: (filtered.allocations > 0).then_some(filtered),
                allocations: largest
                    .iter()
                    .map(|a| allocation_report(process, a, clock, options.lists_sites()))
                    .collect(),
            };
            (of_thread.oldest_ns, report)
        })
        .collect();
    threads.sort_by_key(|(oldest_ns, thread)| {
        let live = &thread.live;
        let first = match options.view.sort {
            Sort::Bytes => (0, Reverse(0)),
            Sort::Count => (0, Reverse(live.allocations())),
            Sort::Age => (*oldest_ns, Reverse(0)),
        };
        let (gpu, all) = (Reverse(live.live_bytes), Reverse(live.bytes()));
        (first, gpu, all, thread.tid)
    });
    threads.into_iter().map(|(_, report)| report).collect()
}

/// What comes first has the highest.
type Rank = (u64, u64, u64);

fn rank(allocation: &Allocation, sort: Sort) -> Rank {
    let Allocation {
        size_bytes,
        end_ns,
        address,
        ..
    } = *allocation;
    match sort {
        // The larger; of equal ones the older.
        Sort::Bytes | Sort::Count => (size_bytes, !end_ns, !address),
        Sort::Age => (!end_ns, size_bytes, !address),
    }
}

/// An allocation in the order of its rank.
#[derive(Clone, Copy)]
struct Ranked<'a>(Rank, &'a Allocation);

impl PartialEq for Ranked<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
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
        self.0.cmp(&other.0)
    }
}

/// What of a thread's allocations is listed.
struct OfThread<'a> {
    /// Those that come first, in order.
    first: Vec<&'a Allocation>,
    filtered: LeftOut,
    oldest_ns: u64,
}

fn largest_by_thread<'a>(process: &'a Process, options: &Options) -> Vec<OfThread<'a>> {
    #[derive(Clone)]
    struct Found<'a> {
        heap: BinaryHeap<Reverse<Ranked<'a>>>,
        filtered: LeftOut,
        oldest_ns: u64,
    }
    let nothing = Found {
        heap: BinaryHeap::new(),
        filtered: LeftOut::default(),
        oldest_ns: u64::MAX,
    };
    let mut threads = vec![nothing; process.threads().len()];
    let top = options.top.unwrap_or(usize::MAX);
    for allocation in process.allocations() {
        let thread = &mut threads[Process::thread_index(allocation)];
        if !options.view.includes(allocation, options.now_ns) {
            thread.filtered.add(allocation.size_bytes);
            continue;
        }
        thread.oldest_ns = thread.oldest_ns.min(allocation.end_ns);
        let ranked = Ranked(rank(allocation, options.view.sort), allocation);
        let heap = &mut thread.heap;
        if heap.len() < top {
            heap.push(Reverse(ranked));
        } else if let Some(mut last) = heap.peek_mut()
            && ranked > last.0
        {
            *last = Reverse(ranked);
        }
    }
    let sorted = |heap: BinaryHeap<Reverse<Ranked<'a>>>| {
        let sorted = heap.into_sorted_vec().into_iter();
        sorted.map(|reversed| reversed.0.1).collect()
    };
    threads
        .into_iter()
        .map(|found| OfThread {
            first: sorted(found.heap),
            filtered: found.filtered,
            oldest_ns: found.oldest_ns,
        })
        .collect()
}

fn allocation_report(
    process: &Process,
    allocation: &Allocation,
    clock: &Clock,
    has_site: bool,
) -> AllocationReport {
    let physical = process.physical_of(allocation);
    let at_host = allocation.belongs() == Belongs::Host;
    AllocationReport {
        address: physical.map_or(allocation.address, |p| p.address.unwrap_or(0)),
        bytes: allocation.size_bytes,
        device: process.device(allocation).filter(|_| !at_host),
        kind: allocation.kind(),
        at_host,
        api: api::function(allocation.row).map_or("", |f| f.symbol),
        time: clock.wall(allocation.end_ns),
        computed: allocation.kind().is_computed(),
        name: process.name_of(allocation).map(str::to_owned),
        handle: physical.map(|p| p.handle),
        mapped_bytes: physical.map(|p| p.mapped_bytes),
        site: has_site.then_some(allocation.site),
        pool: process.pool_of(allocation).and_then(|p| p.handle),
    }
}
