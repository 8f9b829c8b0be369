//! Makes a profile from the ledger.

use std::collections::HashSet;

use super::{Profile, ProfiledMemory, StackSample, Weight, shown};
use crate::function_name;
use crate::memleak::stack_of;
use gpuprobe_model::text::size;

use gpuprobe_engine::totals::{MemorySums, Total};
use gpuprobe_engine::{Allocator, CallSite, Ledger, Process};
use gpuprobe_model::stack::{Location, Symbolize};

/// Selects the memory of a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProfileWeight {
    /// Live memory of the profile: now, or at the peak.
    pub weight: Weight,
    /// Include host memory, too.
    pub host: bool,
    /// Include CUDA's own frames, too.
    pub full_stacks: bool,
    /// Memory from CUDA, or tensors.
    pub of: ProfiledMemory,
}

impl ProfileWeight {
    fn amount(&self, sums: &MemorySums) -> Total {
        let mut amount = sums.gpu;
        if self.host {
            amount.merge(sums.host);
        }
        amount
    }
}

/// Memory by call site, of all processes, including ended ones: live, and ever allocated. The
/// latter lacks processes that the ledger has dropped: they ended long ago and freed everything.
/// `time_ns` is the time of the profile, nanoseconds since 1970.
pub fn of_ledger(
    ledger: &Ledger,
    symbols: &dyn Symbolize,
    which: ProfileWeight,
    time_ns: Option<i64>,
) -> Profile {
    let processes = ledger.live_processes().chain(ledger.ended(true));
    of_processes(ledger, processes, symbols, which, time_ns)
}

/// [`of_ledger`] without ended processes.
pub fn of_living(
    ledger: &Ledger,
    symbols: &dyn Symbolize,
    which: ProfileWeight,
    time_ns: Option<i64>,
) -> Profile {
    of_processes(ledger, ledger.live_processes(), symbols, which, time_ns)
}

fn of_processes<'a>(
    ledger: &'a Ledger,
    processes: impl Iterator<Item = &'a Process>,
    symbols: &'a dyn Symbolize,
    which: ProfileWeight,
    time_ns: Option<i64>,
) -> Profile {
    let at_peak = which.weight == Weight::Peak;
    let mut besides = MemorySums::default();
    let mut samples = Vec::new();
    for process in processes {
        if which.of == ProfiledMemory::Tensors {
            samples.extend(of_tensors(process, symbols, which));
            continue;
        }
        let live = |site: &CallSite| match at_peak {
            true => ledger.at_peak(process, site),
            false => site.live,
        };
        for site in process.sites.iter() {
            besides.merge(which.weight.of(live(site), site.allocated));
        }
        samples.extend(of_process(process, process, symbols, which, live));
    }
    // Live processes are in no particular order.
    samples.sort_by_key(|sample| sample.pid);
    if which.host {
        besides.host = Total::default();
    }
    let left_out = [
        (besides.host, "of the host"),
        (besides.imported, "of others"),
    ];
    let left_out = left_out.iter().filter(|(total, _)| total.allocations > 0);
    Profile {
        samples,
        at_peak,
        time_ns,
        left_out: left_out
            .map(|(total, whose)| format!("{} {whose}", size(total.bytes)))
            .collect(),
        run: None,
        full_stacks: which.full_stacks,
    }
}

/// Tensors of allocators in `process`.
fn of_tensors(
    process: &Process,
    symbols: &dyn Symbolize,
    which: ProfileWeight,
) -> Vec<StackSample> {
    let of = |allocator: &Allocator| -> Vec<StackSample> {
        let live = |site: &CallSite| match which.weight {
            Weight::Peak => allocator.at_peak(site),
            Weight::End | Weight::Total => site.live,
        };
        of_process(process, &allocator.blocks, symbols, which, live).collect()
    };
    process.tensors.iter().flat_map(of).collect()
}

/// Memory at the sites of `holder`, which is `process` or an allocator in it.
fn of_process<'a>(
    process: &'a Process,
    holder: &'a Process,
    symbols: &'a dyn Symbolize,
    which: ProfileWeight,
    live: impl Fn(&CallSite) -> MemorySums + 'a,
) -> impl Iterator<Item = StackSample> + 'a {
    let name = process.comm.clone();
    let name: std::rc::Rc<str> = name
        .unwrap_or_else(|| format!("pid {}", process.pid))
        .into();
    holder.sites.iter().filter_map(move |site| {
        let total = which.amount(&site.allocated);
        let live = which.amount(&live(site));
        if total.allocations == 0 && live.allocations == 0 {
            return None;
        }
        let (frames, _) = stack_of(process.pid, site, symbols);
        let called = function_name(site.row, symbols);
        Some(StackSample {
            process: name.clone(),
            pid: process.pid,
            frames: shown(frames, &called, which.full_stacks),
            live,
            total,
        })
    })
}

/// The locations that [`of_ledger`] resolves, each once: process, location, and whether it is the
/// first of its stack.
pub fn needed_locations(ledger: &Ledger) -> Vec<(u32, Location, bool)> {
    let mut known = HashSet::new();
    let mut needed = Vec::new();
    for process in ledger.live_processes().chain(ledger.ended(true)) {
        let of_tensors = process.tensors.iter();
        let of_tensors = of_tensors.flat_map(|allocator| allocator.blocks.sites.iter());
        let sites = process.sites.iter().chain(of_tensors);
        let sites = sites.filter(|site| site.allocated.gpu.allocations > 0);
        for stack in sites.filter_map(|site| site.stack.as_deref()) {
            for (index, location) in stack.locations.iter().enumerate() {
                let one = (process.pid, *location, index == 0);
                if known.insert(one) {
                    needed.push(one);
                }
            }
        }
    }
    needed
}
