//! Figures of earlier reports, from which changes are computed.

use std::collections::{HashMap, HashSet, VecDeque};

use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::Total;

use crate::Report;
use crate::memleak::{Holder, NvmlUsage, ProcessReport};

/// Period over which the growth of a process is computed, nanoseconds.
const WINDOW_NS: u64 = 60_000_000_000;
/// Shorter periods are not used.
const LEAST_WINDOW_NS: u64 = 1_000_000_000;

/// Figures of the reports of a run so far.
#[derive(Debug, Default)]
pub struct History {
    processes: HashMap<ProcessKey, PastReport>,
    /// Whether a report was made.
    has_reported: bool,
}

/// Id of a process, and when it was first seen: several may have one id in turn.
type ProcessKey = (u32, Option<u64>);

fn key(process: &Process) -> ProcessKey {
    (process.pid, process.first_seen_ns)
}

/// Figures of a process in the last report.
#[derive(Debug, Default)]
struct PastReport {
    bytes: u64,
    /// Live memory of each call site, if the report listed them: of the process, and of tensors by device.
    sites: Option<HashMap<Option<u16>, Vec<Total>>>,
    /// Times and bytes of GPU memory at earlier reports, within a minute.
    recent: VecDeque<(u64, u64)>,
    nvml: Option<NvmlUsage>,
}

impl History {
    /// Stores the figures of `report`, which was made of `ledger` at `now_ns`.
    pub fn note(&mut self, ledger: &Ledger, report: &Report, now_ns: u64) {
        self.has_reported = true;
        let listed = report.memleak.iter();
        let listed: HashMap<u32, &ProcessReport> = listed
            .flat_map(|memleak| &memleak.processes)
            .filter(|process| !process.exited)
            .map(|process| (process.who.pid, process))
            .collect();
        for process in ledger.live_processes() {
            let past = self.processes.entry(key(process)).or_default();
            past.bytes = process.totals.sums.gpu.bytes;
            let listed = listed.get(&process.pid);
            let has_sites = listed.is_some_and(|listed| listed.has_details);
            past.sites = has_sites.then(|| Holder::all(process).map(live_by_site).collect());
            past.recent.push_back((now_ns, past.bytes));
            let is_old = |&(ns, _): &(u64, u64)| now_ns.saturating_sub(ns) > WINDOW_NS;
            while past.recent.front().is_some_and(is_old) {
                past.recent.pop_front();
            }
            past.nvml = listed.and_then(|listed| listed.nvml).or(past.nvml);
        }
        // Ended processes are reported once more at the end.
        let known: HashSet<_> = ledger.processes(true).map(key).collect();
        self.processes.retain(|key, _| known.contains(key));
    }

    fn past(&self, process: &Process) -> Option<&PastReport> {
        self.processes.get(&key(process))
    }

    /// Change of the GPU memory of `process` since the last report, bytes; `None` if there was no
    /// report yet.
    pub(crate) fn change(&self, process: &Process) -> Option<i64> {
        let before = self.past(process).map_or(0, |past| past.bytes);
        self.has_reported
            .then(|| difference(process.totals.sums.gpu.bytes, before))
    }

    /// Change of the live memory of these call sites: bytes and allocations; `None` if the last report
    /// did not list the call sites of the process.
    pub(crate) fn change_of_sites(&self, holder: Holder<'_>, sites: &[u32]) -> Option<(i64, i64)> {
        let before = match self.past(holder.process) {
            Some(past) => past.sites.as_ref()?.get(&device(holder)),
            None => None,
        };
        let (mut now, mut then) = (Total::default(), Total::default());
        for &number in sites {
            let site = holder.sites().sites.get(number);
            now.merge(site.map(|site| site.live.all()).unwrap_or_default());
            let past = before.and_then(|sites| sites.get(number as usize));
            then.merge(past.copied().unwrap_or_default());
        }
        self.has_reported.then(|| {
            let bytes = difference(now.bytes, then.bytes);
            (bytes, difference(now.allocations, then.allocations))
        })
    }

    /// Growth of `process`, bytes in the last minute, or since it is known if that is later.
    pub(crate) fn per_minute(&self, process: &Process, now_ns: u64) -> Option<i64> {
        let (then_ns, before) = *self.past(process)?.recent.front()?;
        now_ns
            .checked_sub(then_ns)
            .filter(|&ns| ns >= LEAST_WINDOW_NS)?;
        Some(difference(process.totals.sums.gpu.bytes, before))
    }

    /// The last figures from NVML for `process`.
    pub(crate) fn nvml(&self, process: &Process) -> Option<NvmlUsage> {
        self.past(process)?.nvml
    }
}

fn device(holder: Holder<'_>) -> Option<u16> {
    holder.allocator.map(|allocator| allocator.device)
}

fn live_by_site(holder: Holder<'_>) -> (Option<u16>, Vec<Total>) {
    let sites = holder.sites().sites.iter();
    (device(holder), sites.map(|site| site.live.all()).collect())
}

fn difference(now: u64, before: u64) -> i64 {
    match now.checked_sub(before) {
        Some(more) => 0i64.saturating_add_unsigned(more),
        None => 0i64.saturating_sub_unsigned(before - now),
    }
}
