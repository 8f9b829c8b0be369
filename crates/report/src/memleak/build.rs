//! Builds the report of live memory from the ledger.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::groups::SiteGroups;
use super::nvml::tracked;
use super::pytorch;
use super::sites::{Holder, site_reports};
use super::threads::thread_reports;
use super::{
    DeviceReport, GpuShare, LiveByKind, LiveMemory, Memleak, NvmlUsage, PoolReport, ProcessReport,
    untraced,
};
use crate::metrics::ScrapeScope;
use crate::owners::{self, BytesByOwner, OwnerReport, UNKNOWN};
use crate::{Options, ReportSources};
use gpuprobe_cuda::{FUNCTIONS, KindSet};
use gpuprobe_engine::pools::PoolAccount;
use gpuprobe_engine::totals::Total;
use gpuprobe_engine::verdict::{self, Judgement};
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::identity::DeviceIdentity;

/// Builds the report of the memory that the ledger holds now.
pub(crate) fn build(
    ledger: &Ledger,
    options: &Options,
    sources: ReportSources<'_>,
    scope: Option<&ScrapeScope>,
) -> Memleak {
    let all = ledger
        .live_processes()
        .chain(ledger.ended(options.is_final));
    let mut processes: Vec<_> = all
        .map(|process| process_report(process, options, sources, scope))
        .collect();
    let untraced = untraced::reports(sources.usage, options);
    let listed: HashSet<u32> = processes.iter().map(|process| process.pid).collect();
    processes.extend(untraced.filter(|process| !listed.contains(&process.pid)));
    processes.sort_by_key(|p| {
        let used = p.nvml.map_or(0, |nvml| nvml.used_bytes);
        let (gpu, all) = (Reverse(p.live.live_bytes), Reverse(p.live.bytes()));
        (gpu, all, Reverse(used), p.pid)
    });
    let counts = &ledger.counts;
    let calls = FUNCTIONS
        .iter()
        .zip(&counts.by_row)
        .filter(|(function, calls)| function.op.allocates() && **calls > 0)
        .map(|(function, &calls)| (function.symbol, calls))
        .collect();
    let (live, kinds, devices) = sums(&processes, ledger, options);
    Memleak {
        alloc_calls: counts.alloc_calls,
        free_calls: counts.free_calls,
        failed_calls: counts.failed_calls,
        unknown_frees: counts.unknown_frees,
        null_frees: counts.null_frees,
        live,
        group: options.group(),
        host_wide: options.host_wide,
        view: options.view,
        host_name: sources.usage.and_then(|usage| usage.host.clone()),
        top: options.top,
        has_stacks: options.stacks,
        watched_ns: u64::try_from(options.since_start.as_nanos()).unwrap_or(u64::MAX),
        gpus: sources.usage.map_or(Vec::new(), |usage| usage.gpus.clone()),
        peak_bytes: ledger.peak_bytes(),
        kinds,
        devices,
        owners: owners_of(&processes, ledger, options),
        calls,
        processes,
    }
}

/// Sums of live memory of all listed processes, also by kind and by device.
fn sums(
    processes: &[ProcessReport],
    ledger: &Ledger,
    options: &Options,
) -> (LiveMemory, LiveByKind, Vec<DeviceReport>) {
    let mut live = LiveMemory::default();
    let mut kinds = LiveByKind::default();
    let mut devices = Vec::new();
    for process in processes {
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
    (live, kinds, devices)
}

/// Owners of the live memory of all listed processes.
fn owners_of(processes: &[ProcessReport], ledger: &Ledger, options: &Options) -> Vec<OwnerReport> {
    let forgotten = ledger.forgotten().sums.gpu;
    let forgotten = OwnerReport {
        owner: UNKNOWN.to_owned(),
        bytes: forgotten.bytes,
        allocations: forgotten.allocations,
    };
    let is_shown = options.is_final && forgotten.allocations > 0;
    let known = processes.iter().flat_map(|process| &process.owners);
    owners::merge_by_owner(known.chain(is_shown.then_some(&forgotten)))
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

/// Sums up the devices of all processes. If the UUID is unknown, devices are matched by the
/// process's device index.
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
    options: &Options,
    sources: ReportSources<'_>,
    scope: Option<&ScrapeScope>,
) -> ProcessReport {
    let options = &options.of_process(process.pid);
    let mut report = sums_of(process, options, sources);
    if options.lists(process, scope) {
        add_details(&mut report, process, options, sources);
    }
    report
}

/// A process and what it holds in all.
fn sums_of(process: &Process, options: &Options, sources: ReportSources<'_>) -> ProcessReport {
    let ReportSources { clock, history, .. } = sources;
    let identity = &process.identity;
    let devices = devices_of(process);
    let (nvml, nvml_age_ns) = nvml_of(process, options, sources);
    let used = sources
        .usage
        .filter(|_| !process.exited)
        .and_then(|usage| usage.processes.get(&process.pid));
    let age = |ns: u64| options.now_ns.saturating_sub(ns);
    ProcessReport {
        pid: process.pid,
        uid: process.uid,
        user: identity.user.clone(),
        comm: process.comm.clone(),
        command: identity.command.clone(),
        exited: process.exited,
        traced: true,
        from_start: process.from_birth,
        traced_seconds: traced_ns(process, options) as f64 / 1e9,
        change_bytes: history.and_then(|history| history.change(process)),
        change_bytes_per_minute: history
            .filter(|_| !process.exited)
            .and_then(|history| history.per_minute(process, options.now_ns)),
        peak_time: clock.zip(process.peak_ns).map(|(clock, ns)| clock.wall(ns)),
        peak_age_ns: process.peak_ns.map(age),
        ended_age_ns: process.ended_ns.map(age),
        gpus: gpu_shares(&devices, used.map_or(&[][..], Vec::as_slice)),
        nvml_age_ns,
        container_pid: identity.container_pid,
        cgroup: identity.cgroup.clone(),
        container: identity.container.clone(),
        live: process.totals.sums.into(),
        peak_bytes: process.peak_bytes,
        kinds: LiveByKind(process.totals.kinds().collect()),
        device_kinds: process.device_kinds(),
        devices,
        reserved_address_bytes: process.physical.reserved_bytes(),
        modules: process.modules() as u64,
        nvml,
        contexts: judge_contexts(process, options),
        ..ProcessReport::default()
    }
}

/// Adds what the memory of a process consists of.
fn add_details(
    report: &mut ProcessReport,
    process: &Process,
    options: &Options,
    sources: ReportSources<'_>,
) {
    let ReportSources { clock, symbols, .. } = sources;
    report.has_details = true;
    let groups = SiteGroups::of(process, options.view.groups_by_lines(), symbols);
    let (sites, omitted, filtered) =
        site_reports(Holder::Process(process), &groups, options, sources);
    (report.omitted, report.filtered) = (omitted, filtered);
    match options.lists_sites() {
        true => report.sites = Some(sites),
        false => report.functions = sites,
    }
    let BytesByOwner { owners, pools } = owners::held(process, symbols);
    (report.owners, report.framework_pools) = (owners, pools);
    report.pools = process.pools.iter().map(pool_report).collect();
    report.threads = thread_reports(process, clock, options, (&groups, symbols));
    report.imported_from = process.imported_from();
    report.add_tensors(pytorch::reports(process, options, sources));
}

fn devices_of(process: &Process) -> Vec<DeviceReport> {
    let devices = process.devices().into_iter().map(|(index, total)| {
        let device = index.map(|index| process.identity.device(index));
        device_report(index, device.unwrap_or_default(), total)
    });
    devices.collect()
}

/// Verdict on the contexts that a process creates, if there are any.
fn judge_contexts(process: &Process, options: &Options) -> Option<Judgement> {
    if !options.explains || process.made_contexts() == 0 {
        return None;
    }
    verdict::judge(&process.contexts_shape(options.now_ns))
}

/// How long the process was traced, nanoseconds.
fn traced_ns(process: &Process, options: &Options) -> u64 {
    match process.first_seen_ns.filter(|_| process.from_birth) {
        Some(first_ns) => process
            .ended_ns
            .unwrap_or(options.now_ns)
            .saturating_sub(first_ns),
        None => u64::try_from(options.since_start.as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Memory use of `process` from NVML; for one that has ended, the last figures and their age.
fn nvml_of(
    process: &Process,
    options: &Options,
    sources: ReportSources<'_>,
) -> (Option<NvmlUsage>, Option<u64>) {
    // With some kinds excluded, the figures would not add up.
    if process.counted() != KindSet::ALL {
        return (None, None);
    }
    if process.exited {
        let last = sources.history.and_then(|history| history.nvml(process));
        let age = |(ns, nvml)| (nvml, options.now_ns.saturating_sub(ns));
        return last.map(age).unzip();
    }
    let now = sources.usage.and_then(|usage| {
        let used = usage.processes.get(&process.pid)?;
        let context = |gpu: u32| usage.contexts.get(&gpu).copied();
        Some(NvmlUsage::of(tracked(process), used, context))
    });
    (now, None)
}

/// Memory of a process on each GPU of the host: as traced, and as NVML reports.
pub(super) fn gpu_shares(devices: &[DeviceReport], used: &[(u32, u64)]) -> Vec<GpuShare> {
    let mut shares: Vec<GpuShare> = Vec::new();
    for &(index, bytes) in used {
        shares.push(GpuShare {
            index: Some(index),
            used_bytes: Some(bytes),
            live_bytes: 0,
        });
    }
    for device in devices {
        let index = device.physical_index.or(device.device.map(u32::from));
        match shares.iter_mut().find(|share| share.index == index) {
            Some(share) => share.live_bytes = share.live_bytes.saturating_add(device.bytes),
            None => shares.push(GpuShare {
                index,
                used_bytes: None,
                live_bytes: device.bytes,
            }),
        }
    }
    shares.sort_by_key(|share| share.index.unwrap_or(u32::MAX));
    shares
}

fn pool_report(pool: &PoolAccount) -> PoolReport {
    PoolReport {
        pool: pool.handle,
        device: pool.device(),
        used_bytes: pool.used.bytes,
        used_allocations: pool.used.allocations,
        reserved_bytes: pool.reserved_bytes,
    }
}
