//! Who holds memory: from the ledger to a report.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{
    AllocationReport, DeviceReport, Kinds, Live, Memleak, Nvml, PoolReport, ProcessReport,
    ThreadReport,
};
use crate::api::{self, Belongs, FUNCTIONS, KindSet};
use crate::clock::Clock;
use crate::report::{Options, Usage};
use crate::state::pools::Pool;
use crate::state::{Allocation, Ledger, Process};

/// Makes the report of what the ledger holds now.
pub(in crate::report) fn build(
    ledger: &Ledger,
    clock: &Clock,
    options: &Options,
    usage: Option<&Usage>,
) -> Memleak {
    let living = ledger.living().map(|p| (p, usage));
    let ended = ledger.ended(options.is_final).map(|p| (p, None));
    let mut processes: Vec<_> = living
        .chain(ended)
        .map(|(process, usage)| process_report(process, clock, options.top, usage))
        .collect();
    processes.sort_by_key(|p| (Reverse(p.live.live_bytes), Reverse(p.live.bytes()), p.pid));
    let counts = ledger.counts();
    let calls = FUNCTIONS
        .iter()
        .zip(&counts.by_row)
        .filter(|(function, calls)| function.op.allocates() && **calls > 0)
        .map(|(function, &calls)| (function.symbol, calls))
        .collect();
    let mut live = Live::default();
    let mut kinds = Kinds::default();
    let mut devices = Vec::new();
    for process in &processes {
        live.add(&process.live);
        for &(kind, total) in &process.kinds.0 {
            kinds.add(kind, total);
        }
        for device in &process.devices {
            add_device(&mut devices, device);
        }
    }
    Memleak {
        alloc_calls: counts.alloc_calls,
        free_calls: counts.free_calls,
        failed_calls: counts.failed_calls,
        unknown_frees: counts.unknown_frees,
        null_frees: counts.null_frees,
        live,
        peak_bytes: ledger.peak_bytes(),
        kinds,
        devices,
        calls,
        processes,
    }
}

/// Adds up the devices of all processes. Where the UUID is not known, all that can be gone by is
/// the number that the process has for it.
fn add_device(devices: &mut Vec<DeviceReport>, device: &DeviceReport) {
    let same = |d: &&mut DeviceReport| {
        if device.uuid.is_some() || d.uuid.is_some() {
            d.uuid == device.uuid
        } else {
            d.device == device.device
        }
    };
    match devices.iter_mut().find(same) {
        Some(sum) => {
            sum.bytes = sum.bytes.saturating_add(device.bytes);
            sum.allocations += device.allocations;
        }
        None => devices.push(DeviceReport {
            device: device.physical_index.map_or(device.device, |_| None),
            ..device.clone()
        }),
    }
}

/// A traced process chooses the sizes, so their sum may not fit.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn process_report(
    process: &Process,
    clock: &Clock,
    top: Option<usize>,
    usage: Option<&Usage>,
) -> ProcessReport {
    let identity = &process.identity;
    let devices = process.devices().into_iter().map(|(index, total)| {
        let device = index.map(|index| identity.device(index));
        let device = device.unwrap_or_default();
        DeviceReport {
            device: index,
            physical_index: device.physical_index,
            uuid: device.uuid,
            bytes: total.bytes,
            allocations: total.allocations,
        }
    });
    // With some kinds left out, nothing would add up.
    let usage = usage.filter(|_| process.counted() == KindSet::ALL);
    let nvml = usage.and_then(|usage| {
        let used = usage.processes.get(&process.pid)?;
        let context = |gpu: u32| usage.contexts.get(&gpu).copied();
        Some(Nvml::of(process, used, context))
    });
    ProcessReport {
        pid: process.pid,
        uid: process.uid,
        comm: process.comm.clone(),
        exited: process.exited,
        container_pid: identity.container_pid,
        cgroup: identity.cgroup.clone(),
        container: identity.container.clone(),
        live: process.totals.sums.into(),
        peak_bytes: process.peak_bytes,
        kinds: Kinds(process.totals.kinds().collect()),
        devices: devices.collect(),
        reserved_address_bytes: process.physical.reserved_bytes(),
        modules: process.modules() as u64,
        pools: process.pools.iter().map(pool_report).collect(),
        nvml,
        threads: thread_reports(process, clock, top),
    }
}

fn pool_report(pool: &Pool) -> PoolReport {
    PoolReport {
        pool: pool.handle,
        device: pool.device(),
        used_bytes: pool.used.bytes,
        used_allocations: pool.used.allocations,
        reserved_bytes: pool.reserved_bytes,
    }
}

fn thread_reports(process: &Process, clock: &Clock, top: Option<usize>) -> Vec<ThreadReport> {
    let mut threads: Vec<_> = process
        .threads()
        .iter()
        .zip(largest_by_thread(process, top))
        .filter(|(thread, _)| !thread.live.is_empty())
        .map(|(thread, largest)| {
            let live = Live::from(thread.live);
            let shown_bytes = sum(largest.iter().map(|a| a.size_bytes));
            ThreadReport {
                tid: thread.tid,
                comm: thread.comm.clone(),
                live,
                omitted_allocations: live.allocations() - largest.len() as u64,
                omitted_bytes: live.bytes().saturating_sub(shown_bytes),
                allocations: largest
                    .iter()
                    .map(|a| allocation_report(process, a, clock))
                    .collect(),
            }
        })
        .collect();
    threads.sort_by_key(|t| (Reverse(t.live.live_bytes), Reverse(t.live.bytes()), t.tid));
    threads
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
        pool: process.pool_of(allocation).and_then(|p| p.handle),
    }
}
