//! Who holds memory: from the ledger to a report.

use std::cmp::Reverse;

use super::sites::site_reports;
use super::threads::thread_reports;
use super::{DeviceReport, Kinds, LeftOut, Live, Memleak, Nvml, PoolReport, ProcessReport};
use crate::Options;
use gpuprobe_cuda::{FUNCTIONS, KindSet};
use gpuprobe_engine::pools::Pool;
use gpuprobe_engine::totals::Total;
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::Usage;
use gpuprobe_model::clock::Clock;
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_model::stack::Symbols;

/// Makes the report of what the ledger holds now.
pub(crate) fn build(
    ledger: &Ledger,
    clock: Option<&Clock>,
    options: &Options,
    usage: Option<&Usage>,
    symbols: &dyn Symbols,
) -> Memleak {
    let living = ledger.living().map(|p| (p, usage));
    let ended = ledger.ended(options.is_final).map(|p| (p, None));
    let mut processes: Vec<_> = living
        .chain(ended)
        .map(|(process, usage)| process_report(process, clock, options, usage, symbols))
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
    if options.is_final {
        let forgotten = ledger.forgotten();
        live.add(&forgotten.sums.into());
        for (&kind, &total) in &forgotten.kinds {
            kinds.add(kind, total);
        }
        for (number, device, total) in &forgotten.devices {
            let report = device_report(*number, device.clone(), *total);
            add_device(&mut devices, &report);
        }
    }
    Memleak {
        alloc_calls: counts.alloc_calls,
        free_calls: counts.free_calls,
        failed_calls: counts.failed_calls,
        unknown_frees: counts.unknown_frees,
        null_frees: counts.null_frees,
        live,
        group: options.group(),
        has_sites: options.lists_sites(),
        peak_bytes: ledger.peak_bytes(),
        kinds,
        devices,
        calls,
        processes,
    }
}

fn device_report(index: Option<u16>, device: DeviceIdentity, total: Total) -> DeviceReport {
    DeviceReport {
        device: index,
        physical_index: device.physical_index,
        uuid: device.uuid,
        bytes: total.bytes,
        allocations: total.allocations,
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

fn process_report(
    process: &Process,
    clock: Option<&Clock>,
    options: &Options,
    usage: Option<&Usage>,
    symbols: &dyn Symbols,
) -> ProcessReport {
    let (sites, omitted, filtered) = if options.lists_sites() {
        let (sites, omitted, filtered) = site_reports(process, clock, options, symbols);
        (Some(sites), omitted, filtered)
    } else {
        Default::default()
    };
    let what_there_is = |left: LeftOut| (left.allocations > 0).then_some(left);
    let identity = &process.identity;
    let devices = process.devices().into_iter().map(|(index, total)| {
        let device = index.map(|index| identity.device(index));
        device_report(index, device.unwrap_or_default(), total)
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
        threads: thread_reports(process, clock, options, symbols),
        sites,
        omitted: what_there_is(omitted),
        filtered: what_there_is(filtered),
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
