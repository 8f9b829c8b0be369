//! Figures of earlier reports, from which changes are computed.

use std::collections::{HashMap, HashSet, VecDeque};

use gpuprobe_engine::{Ledger, Process, Sites};

use crate::Report;
use crate::memleak::{Holder, NvmlUsage, ProcessReport};

/// Period over which the growth of a process is computed, nanoseconds.
const WINDOW_NS: u64 = 60_000_000_000;
/// Shorter periods are not used.
const LEAST_WINDOW_NS: u64 = 1_000_000_000;

/// Figures of the reports of a run so far.
#[derive(Debug, Default)]
pub struct History {
    processes: HashMap<u32, PastReport>,
    /// Whether a report was made.
    has_reported: bool,
}

/// Figures of a process in the last report.
#[derive(Debug, Default)]
struct PastReport {
    /// Distinguishes processes with the same PID.
    first_seen_ns: Option<u64>,
    bytes: u64,
    /// The call sites, if the report listed them.
    sites: Option<PastSites>,
    /// Times and bytes of GPU memory at earlier reports, within a minute.
    recent: VecDeque<(u64, u64)>,
    nvml: Option<(u64, NvmlUsage)>,
}

/// Live bytes and allocations of the call sites of a process.
#[derive(Debug, Default)]
struct PastSites {
    /// By their numbers.
    own: Vec<(u64, u64)>,
    /// The same for tensors, by device.
    tensors: HashMap<u16, Vec<(u64, u64)>>,
}

impl PastSites {
    fn of(process: &Process) -> Self {
        let allocators = process.tensors.iter();
        Self {
            own: sums(&process.sites),
            tensors: allocators
                .map(|allocator| (allocator.device, sums(&allocator.blocks.sites)))
                .collect(),
        }
    }
}

impl History {
    /// Stores the figures of `report`, which was made of `ledger` at `now_ns`.
    pub fn note(&mut self, ledger: &Ledger, report: &Report, now_ns: u64) {
        self.has_reported = true;
        let listed: HashMap<u32, &ProcessReport> = report
            .memleak
            .iter()
            .flat_map(|memleak| &memleak.processes)
            .filter(|process| !process.exited)
            .map(|process| (process.pid, process))
            .collect();
        for process in ledger.live_processes() {
            let past = self.processes.entry(process.pid).or_default();
            if past.first_seen_ns != process.first_seen_ns {
                *past = PastReport {
                    first_seen_ns: process.first_seen_ns,
                    ..PastReport::default()
                };
            }
            past.bytes = process.totals.sums.gpu.bytes;
            let listed = listed.get(&process.pid);
            let has_sites = listed.is_some_and(|listed| listed.has_details);
            past.sites = has_sites.then(|| PastSites::of(process));
            past.recent.push_back((now_ns, past.bytes));
            let is_old = |&(ns, _): &(u64, u64)| now_ns.saturating_sub(ns) > WINDOW_NS;
            while past.recent.front().is_some_and(is_old) {
                past.recent.pop_front();
            }
            if let Some(nvml) = listed.and_then(|listed| listed.nvml) {
                past.nvml = Some((now_ns, nvml));
            }
        }
        // Ended processes are reported once more at the end.
        let known = ledger.live_processes().chain(ledger.ended(true));
        let known: HashSet<u32> = known.map(|process| process.pid).collect();
        self.processes.retain(|pid, _| known.contains(pid));
    }

    fn past(&self, process: &Process) -> Option<&PastReport> {
        let past = self.processes.get(&process.pid)?;
        (past.first_seen_ns == process.first_seen_ns).then_some(past)
    }

    /// Change of the GPU memory of `process` since the last report, bytes; `None` if there was no
    /// report yet.
    pub(crate) fn change(&self, process: &Process) -> Option<i64> {
        let before = self.past(process).map_or(0, |past| past.bytes);
        let change = i128::from(process.totals.sums.gpu.bytes) - i128::from(before);
        self.has_reported.then(|| clamp(change))
    }

    /// Change of the live memory of the call site with this number: bytes and allocations; `None` if the last report
    /// did not list the call sites of the process.
    pub(crate) fn change_of_site(&self, holder: Holder<'_>, site: u32) -> Option<(i64, i64)> {
        let (Holder::Process(process) | Holder::Allocator(process, _)) = holder;
        let before = match self.past(process) {
            Some(past) => Some(past.sites.as_ref()?),
            None => None,
        };
        let (now, before) = match holder {
            Holder::Process(process) => (process.sites.get(site)?, before.map(|past| &past.own)),
            Holder::Allocator(_, allocator) => {
                let before = before.and_then(|past| past.tensors.get(&allocator.device));
                (allocator.blocks.sites.get(site)?, before)
            }
        };
        let now = now.live.all();
        let before = before.and_then(|sites| sites.get(site as usize));
        let (bytes, allocations) = before.copied().unwrap_or((0, 0));
        let difference = |now: u64, before: u64| clamp(i128::from(now) - i128::from(before));
        self.has_reported.then(|| {
            let bytes = difference(now.bytes, bytes);
            (bytes, difference(now.allocations, allocations))
        })
    }

    /// Growth of `process` in bytes per minute, over the last minute, or as long as it is known.
    pub(crate) fn per_minute(&self, process: &Process, now_ns: u64) -> Option<i64> {
        let (then_ns, before) = *self.past(process)?.recent.front()?;
        let for_ns = now_ns
            .checked_sub(then_ns)
            .filter(|&ns| ns >= LEAST_WINDOW_NS)?;
        let change = i128::from(process.totals.sums.gpu.bytes) - i128::from(before);
        Some(clamp(change * i128::from(WINDOW_NS) / i128::from(for_ns)))
    }

    /// The last figures from NVML for `process`, and their time.
    pub(crate) fn nvml(&self, process: &Process) -> Option<(u64, NvmlUsage)> {
        self.past(process)?.nvml
    }
}

/// Live bytes and allocations, by call site.
fn sums(sites: &Sites) -> Vec<(u64, u64)> {
    let live = sites.iter().map(|site| site.live.all());
    live.map(|all| (all.bytes, all.allocations)).collect()
}

fn clamp(change: i128) -> i64 {
    let least = i128::from(i64::MIN);
    i64::try_from(change.clamp(least, i128::from(i64::MAX))).unwrap_or_default()
}
