//! Live allocations by thread.

use std::cmp::Reverse;

use super::groups::SiteGroups;
use super::{AllocationReport, LeftOut, LiveMemory, ThreadReport};
use crate::{Options, SortBy, function_name};
use gpuprobe_cuda::Belongs;
use gpuprobe_engine::{Allocation, Process, TopN};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::stack::Symbolize;

/// A saturating sum: a traced process chooses the sizes.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The threads with live allocations.
pub(super) fn thread_reports(
    process: &Process,
    clock: Option<&WallClock>,
    options: &Options,
    (groups, symbols): (&SiteGroups, &dyn Symbolize),
) -> Vec<ThreadReport> {
    let mut threads: Vec<_> = process
        .threads()
        .iter()
        .zip(first_by_thread(process, options))
        .filter(|(thread, _)| !thread.live.is_empty())
        .map(|(thread, of_thread)| {
            let live = LiveMemory::from(thread.live);
            let (filtered, largest) = (of_thread.filtered, of_thread.first);
            let shown_bytes = sum(largest.iter().map(|a| a.size_bytes));
            let listed_bytes = live.bytes().saturating_sub(filtered.bytes);
            let listed_allocations = live.allocations().saturating_sub(filtered.allocations);
            let report = ThreadReport {
                tid: (thread.tid != 0).then_some(thread.tid),
                comm: thread.comm.clone(),
                live,
                omitted_allocations: listed_allocations.saturating_sub(largest.len() as u64),
                omitted_bytes: listed_bytes.saturating_sub(shown_bytes),
                filtered: (filtered.allocations > 0).then_some(filtered),
                allocations: largest
                    .iter()
                    .map(|a| allocation_report(process, a, clock, options, (groups, symbols)))
                    .collect(),
            };
            (of_thread.oldest_ns, report)
        })
        .collect();
    threads.sort_by_key(|(oldest_ns, thread)| {
        let live = &thread.live;
        let first = match options.view.sort {
            SortBy::Bytes => (0, Reverse(0)),
            SortBy::Count => (0, Reverse(live.allocations())),
            SortBy::Age => (*oldest_ns, Reverse(0)),
        };
        let (gpu, all) = (Reverse(live.live_bytes), Reverse(live.bytes()));
        (first, gpu, all, thread.tid)
    });
    threads.into_iter().map(|(_, report)| report).collect()
}

/// Listed allocations of a thread.
struct OfThread<'a> {
    /// The first allocations, in order.
    first: Vec<&'a Allocation>,
    filtered: LeftOut,
    oldest_ns: u64,
}

/// Limit on the listed allocations per thread.
fn top(options: &Options) -> usize {
    let top = options.top.unwrap_or(usize::MAX);
    if options.allocations { top } else { 0 }
}

fn first_by_thread<'a>(process: &'a Process, options: &Options) -> Vec<OfThread<'a>> {
    if !options.view.includes_all() {
        return filtered_by_thread(process, options);
    }
    let top = top(options);
    let by = options.view.sort.of_allocations();
    // Even if none is listed, the oldest is needed.
    let firsts = process.first_by_thread(top.max(1), by);
    let of_thread = |mut first: Vec<&'a Allocation>| {
        // The first is the oldest only if sorted by age; the value is not used otherwise.
        let oldest_ns = first.first().map_or(u64::MAX, |first| first.end_ns);
        first.truncate(top);
        OfThread {
            first,
            filtered: LeftOut::default(),
            oldest_ns,
        }
    };
    firsts.into_iter().map(of_thread).collect()
}

/// The same with age or size filters: scans every allocation.
fn filtered_by_thread<'a>(process: &'a Process, options: &Options) -> Vec<OfThread<'a>> {
    let first = TopN::new(top(options), options.view.sort.of_allocations());
    let nothing = (first, LeftOut::default(), u64::MAX);
    let mut threads = vec![nothing; process.threads().len()];
    for allocation in process.allocations() {
        let (first, filtered, oldest_ns) = &mut threads[Process::thread_index(allocation)];
        if options.view.includes(allocation, options.now_ns) {
            *oldest_ns = allocation.end_ns.min(*oldest_ns);
            first.offer(allocation);
        } else {
            filtered.add(allocation.size_bytes);
        }
    }
    let of_thread = |(first, filtered, oldest_ns): (TopN<'a>, _, _)| OfThread {
        first: first.into_sorted(),
        filtered,
        oldest_ns,
    };
    threads.into_iter().map(of_thread).collect()
}

fn allocation_report(
    process: &Process,
    allocation: &Allocation,
    clock: Option<&WallClock>,
    options: &Options,
    (groups, symbols): (&SiteGroups, &dyn Symbolize),
) -> AllocationReport {
    let physical = process.physical_of(allocation);
    let at_host = allocation.belongs() == Belongs::Host;
    AllocationReport {
        address: physical.map_or(allocation.address, |p| p.address.unwrap_or(0)),
        bytes: allocation.size_bytes,
        device: process.device(allocation).filter(|_| !at_host),
        kind: allocation.kind(),
        at_host,
        api: function_name(allocation.row, symbols),
        time: clock.map(|clock| clock.wall(allocation.end_ns)),
        time_ns: allocation.end_ns,
        computed: allocation.kind().is_computed(),
        name: process.name_of(allocation).map(str::to_owned),
        handle: physical.map(|p| p.handle),
        mapped_bytes: physical.map(|p| p.mapped_bytes),
        site: options.lists_sites().then(|| groups.id(allocation.site)),
        pool: process.pool_of(allocation).and_then(|p| p.handle),
    }
}
