//! Lists over the processes of a report, in the order in which every format has them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::{GpuMemory, Total};

use crate::SortBy;
use crate::memleak::{
    AllocationReport, GpuShare, LiveByKind, Memleak, ProcessReport, SiteReport, ThreadReport,
};

impl ProcessReport {
    /// Whether it is in lists of processes: not if it ended and left nothing.
    pub fn is_listed(&self) -> bool {
        !self.exited || !self.live.is_empty()
    }
}

impl LiveByKind {
    /// The kinds that have memory, largest first.
    pub fn largest_first(&self) -> Vec<(MemoryKind, Total)> {
        let mut kinds: Vec<_> = self.0.clone().into_iter().collect();
        kinds.retain(|(_, total)| total.bytes > 0);
        kinds.sort_by_key(|(_, total)| Reverse(total.bytes));
        kinds
    }
}

/// The call sites of all processes, largest first or as `sort` says; without those of the host's memory unless it
/// `has_host`.
pub fn sites(
    memleak: &Memleak,
    sort: SortBy,
    has_host: bool,
) -> Vec<(&ProcessReport, &SiteReport)> {
    let is_host = |kind: &MemoryKind| kind.belongs() == Belongs::Host;
    let all = memleak.processes.iter().flat_map(|process| {
        let sites = process.lists.sites.iter().flatten();
        sites.map(move |site| (process, site))
    });
    let mut all: Vec<_> = all
        .filter(|(_, site)| has_host || !site.kinds.iter().all(is_host))
        .collect();
    all.sort_by_key(|(_, site)| {
        let all = site.live.all();
        let first = sort.first(all.allocations, u64::MAX - site.ages_ns.0);
        (first, Reverse(all.bytes), Reverse(all.allocations))
    });
    all
}

/// An allocation of a report, with its process, thread and call site.
#[derive(Clone, Copy, Debug)]
pub struct AllocationRow<'a> {
    /// The process that holds it.
    pub process: &'a ProcessReport,
    /// The thread that made it.
    pub thread: &'a ThreadReport,
    /// The allocation.
    pub allocation: &'a AllocationReport,
    /// Its call site, if it is listed.
    pub site: Option<&'a SiteReport>,
    /// When it was made, nanoseconds from the first memory event of a file.
    pub since_first_ns: i64,
}

impl<'a> AllocationRow<'a> {
    /// The allocations of a process, thread by thread.
    pub fn of_process(process: &'a ProcessReport) -> impl Iterator<Item = Self> {
        let sites = process.lists.sites.iter().flatten();
        let sites: HashMap<_, _> = sites.map(|site| (site.id, site)).collect();
        let threads = process.threads.iter();
        let all = threads.flat_map(|thread| thread.allocations.iter().map(move |a| (thread, a)));
        all.map(move |(thread, allocation)| Self {
            process,
            thread,
            allocation,
            site: allocation.site.and_then(|site| sites.get(&site).copied()),
            since_first_ns: 0,
        })
    }

    /// The allocations of a file, largest first or as `sort` says; `first_ns` is the time of its first memory event.
    pub fn of_file(memleak: &'a Memleak, sort: SortBy, host: bool, first_ns: u64) -> Vec<Self> {
        let rows = memleak.processes.iter().flat_map(Self::of_process);
        let mut rows: Vec<_> = rows.filter(|row| host || !row.allocation.at_host).collect();
        for row in &mut rows {
            row.since_first_ns = row.allocation.time_ns.wrapping_sub(first_ns).cast_signed();
        }
        rows.sort_by_key(|row| {
            let (bytes, time_ns) = (row.allocation.bytes, row.allocation.time_ns);
            let first = if sort == SortBy::Age { time_ns } else { 0 };
            (first, Reverse(bytes), time_ns, row.allocation.address)
        });
        rows
    }
}

/// A GPU, and the processes with memory on it, largest first.
#[derive(Debug, Default)]
pub struct GpuUsers<'a> {
    /// Index on the host; `None` for processes of which it is not known.
    pub index: Option<u32>,
    /// Its memory according to NVML.
    pub memory: Option<&'a GpuMemory>,
    /// Bytes of traced live memory.
    pub live_bytes: u64,
    /// The processes, and what each has of it.
    pub users: Vec<(&'a ProcessReport, GpuShare)>,
}

/// The GPUs of the host in their order, then the unknown one. A process that ended and left nothing is not listed.
pub fn gpus(memleak: &Memleak) -> Vec<GpuUsers<'_>> {
    let mut gpus: BTreeMap<u32, GpuUsers<'_>> = BTreeMap::new();
    for gpu in &memleak.gpus {
        let users = gpus.entry(gpu.index).or_default();
        (users.index, users.memory) = (Some(gpu.index), Some(gpu));
    }
    for process in memleak.processes.iter().filter(|p| p.is_listed()) {
        for share in &process.gpus {
            let gpu = gpus.entry(share.index.unwrap_or(u32::MAX)).or_default();
            gpu.index = share.index;
            gpu.live_bytes = gpu.live_bytes.saturating_add(share.live_bytes);
            gpu.users.push((process, *share));
        }
    }
    let mut gpus: Vec<_> = gpus.into_values().collect();
    for gpu in &mut gpus {
        gpu.users.sort_by_key(|(process, share)| {
            let most = share.used_bytes.unwrap_or(0).max(share.live_bytes);
            (Reverse(most), process.who.pid)
        });
    }
    gpus
}
