//! The profile of what the ledger knows.

use std::collections::HashSet;

use super::{Amount, Frame, Profile, Sample, Weight, shown};
use gpuprobe_model::text::size;

use gpuprobe_engine::totals::{Sums, Total};
use gpuprobe_engine::{Ledger, Process, Site};
use gpuprobe_model::stack::{Location, Symbols};

/// Memory of GPUs by call site, of all processes, the ended too: what is live now, or was when most
/// was, by `weight`, and what was ever allocated. Of the latter, that of processes is missing that the ledger has forgotten: they ended
/// long ago and freed everything.
pub fn of_ledger(
    ledger: &Ledger,
    symbols: &dyn Symbols,
    weight: Weight,
    full_stacks: bool,
    time_ns: Option<i64>,
) -> Profile {
    let at_peak = weight == Weight::Peak;
    let mut besides = Sums::default();
    let mut samples = Vec::new();
    for process in ledger.living().chain(ledger.ended(true)) {
        let live = |site: &Site| match at_peak {
            true => ledger.at_peak(process, site),
            false => site.live,
        };
        let sums = match at_peak {
            true => process
                .sites
                .iter()
                .fold(Sums::default(), |mut sums, site| {
                    sums.merge(live(site));
                    sums
                }),
            false => process.totals.sums,
        };
        besides.host.merge(sums.host);
        besides.imported.merge(sums.imported);
        samples.extend(of_process(process, symbols, full_stacks, live));
    }
    // Living processes are in no particular order.
    samples.sort_by_key(|sample| sample.pid);
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
    }
}

fn of_process<'a>(
    process: &'a Process,
    symbols: &'a dyn Symbols,
    full: bool,
    live: impl Fn(&Site) -> Sums + 'a,
) -> impl Iterator<Item = Sample> + 'a {
    let name = process.comm.clone();
    let name: std::rc::Rc<str> = name
        .unwrap_or_else(|| format!("pid {}", process.pid))
        .into();
    let sites = process.sites.iter();
    let sites = sites.filter(|site| site.allocated.gpu.allocations > 0);
    sites.map(move |site| {
        let stack = site.stack.as_deref();
        let frames = stack.map_or_else(Vec::new, |stack| stack.frames(process.pid, symbols));
        let called = gpuprobe_cuda::function(site.row).map_or("?", |function| function.symbol);
        Sample {
            process: name.clone(),
            pid: process.pid,
            frames: shown(frames.into_iter().map(Frame::from).collect(), called, full),
            live: live(site).gpu.into(),
            total: site.allocated.gpu.into(),
        }
    })
}

/// The locations whose frames [`of_ledger`] asks for, each once: process, location, and whether it
/// is the first of its stack.
pub fn needed_locations(ledger: &Ledger) -> Vec<(u32, Location, bool)> {
    let mut known = HashSet::new();
    let mut needed = Vec::new();
    for process in ledger.living().chain(ledger.ended(true)) {
        let sites = process.sites.iter();
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

impl From<Total> for Amount {
    fn from(total: Total) -> Self {
        Self {
            bytes: total.bytes,
            allocations: total.allocations,
        }
    }
}

impl From<gpuprobe_model::stack::Frame> for Frame {
    fn from(frame: gpuprobe_model::stack::Frame) -> Self {
        Self {
            function: frame.function.into(),
            module: frame.module.into(),
            file: frame.file.map(Into::into),
            line: frame.line,
            address: frame.address,
            inlined: frame.inlined,
        }
    }
}
