//! Builds the report of live memory from the ledger.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::sites::{Holder, SiteGroups, SiteLists, site_lists};
use super::threads::thread_reports;
use super::{
    DeviceReport, GpuShare, LiveByKind, Memleak, NvmlUsage, PoolReport, ProcessReport, allocator,
    handles,
};
use crate::owners::{self, UNKNOWN};
use crate::words::Who;
use crate::{Options, ReportSources};
use gpuprobe_cuda::{FUNCTIONS, KindSet};
use gpuprobe_engine::imports::Exporter;
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_engine::verdict;
use gpuprobe_engine::{Ledger, Process};
use gpuprobe_model::GpuUsage;
use gpuprobe_model::stack::{Location, ModuleId, Symbolize};
use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::owners::{CodeRole, PYTHON, role};

/// Builds the report of the memory that the ledger holds now.
pub fn build(ledger: &Ledger, options: &Options, sources: ReportSources<'_>) -> Memleak {
    let processes = ledger.processes(options.is_final);
    let processes = processes.map(|process| process_report(process, options, sources));
    let mut processes: Vec<_> = processes.collect();
    let usage = sources.usage.into_iter();
    let untraced = usage.flat_map(|usage| untraced(usage, options));
    let listed: HashSet<u32> = processes.iter().map(|process| process.who.pid).collect();
    processes.extend(untraced.filter(|process| !listed.contains(&process.who.pid)));
    processes.sort_by_key(|p| {
        let used = p.nvml.map_or(0, |nvml| nvml.used_bytes);
        let (gpu, all) = (Reverse(p.live.gpu.bytes), Reverse(p.live.all().bytes));
        (gpu, all, Reverse(used), p.who.pid)
    });
    let counts = &ledger.counts;
    let calls = FUNCTIONS
        .iter()
        .zip(&counts.by_row)
        .filter(|(function, calls)| function.op.allocates() && **calls > 0)
        .map(|(function, &calls)| (function.symbol, calls))
        .collect();
    let mut memleak = Memleak {
        alloc_calls: counts.alloc_calls,
        free_calls: counts.free_calls,
        failed_calls: counts.failed_calls,
        unknown_frees: counts.unknown_frees,
        null_frees: counts.null_frees,
        live: MemorySums::default(),
        options: *options,
        host_name: sources.usage.and_then(|usage| usage.host.clone()),
        gpus: sources.usage.map_or(Vec::new(), |usage| usage.gpus.clone()),
        peak_bytes: ledger.peak_bytes,
        kinds: LiveByKind::default(),
        devices: Vec::new(),
        owners: Vec::new(),
        calls,
        processes,
    };
    add_up(&mut memleak, ledger, options);
    memleak
}

/// Adds up the memory of all listed processes, and, in the last report, of those forgotten.
fn add_up(memleak: &mut Memleak, ledger: &Ledger, options: &Options) {
    let forgotten = ledger.forgotten();
    let rest = ProcessReport {
        live: forgotten.sums,
        kinds: LiveByKind(forgotten.kinds.clone()),
        devices: (forgotten.devices.iter())
            .map(|(number, identity, live)| DeviceReport {
                device: *number,
                identity: identity.clone(),
                live: *live,
            })
            .collect(),
        owners: owners::merge_by_owner([(UNKNOWN.to_owned(), forgotten.sums.gpu)].into_iter()),
        ..ProcessReport::default()
    };
    let rest = options.is_final.then_some(&rest);
    let mut owners = Vec::new();
    for process in memleak.processes.iter().chain(rest) {
        memleak.live.merge(process.live);
        for (kind, total) in &process.kinds.0 {
            memleak.kinds.0.entry(*kind).or_default().merge(*total);
        }
        for device in &process.devices {
            add_device(&mut memleak.devices, device);
        }
        let owned = process.owners.iter();
        owners.extend(owned.map(|one| (one.owner.clone(), one.live)));
    }
    memleak.owners = owners::merge_by_owner(owners.into_iter());
}

/// Sums up the devices of all processes. If the UUID is unknown, devices are matched by the
/// process's device index.
fn add_device(devices: &mut Vec<DeviceReport>, device: &DeviceReport) {
    let identity = &device.identity;
    let same = |d: &&mut DeviceReport| {
        let is_known = identity.uuid.is_some() || d.device == device.device;
        d.identity.uuid == identity.uuid && is_known
    };
    match devices.iter_mut().find(same) {
        Some(sum) => sum.live.merge(device.live),
        None => devices.push(DeviceReport {
            device: device.device.filter(|_| identity.physical_index.is_none()),
            ..device.clone()
        }),
    }
}

fn process_report(
    process: &Process,
    options: &Options,
    sources: ReportSources<'_>,
) -> ProcessReport {
    let options = &options.of_process(process.pid);
    let ReportSources { clock, history, .. } = sources;
    let identity = &process.identity;
    let devices = process.devices().into_iter();
    let devices = devices.map(|(index, live)| DeviceReport {
        device: index,
        identity: index.map_or_else(Default::default, |index| identity.device(index)),
        live,
    });
    let devices: Vec<_> = devices.collect();
    let usage = sources.usage.filter(|_| !process.exited);
    let used = usage.and_then(|usage| usage.processes.get(&process.pid));
    let age = |ns: u64| options.now_ns.saturating_sub(ns);
    let who = Who::of(process.pid, process.uid, process.comm.as_deref(), identity);
    let mut report = ProcessReport {
        exited: process.exited,
        checkpointed: process.checkpointed(),
        traced: true,
        from_start: process.from_birth,
        interpreter: (options.explains)
            .then(|| interpreter(process, sources.symbols))
            .flatten(),
        traced_from_ms: sources
            .usage
            .and_then(|usage| usage.late_ms.get(&process.pid).copied()),
        traced_seconds: traced_ns(process, options) as f64 / 1e9,
        change_bytes: history.and_then(|history| history.change(process)),
        change_bytes_per_minute: history
            .filter(|_| !process.exited)
            .and_then(|history| history.per_minute(process, options.now_ns)),
        peak_time: clock.zip(process.peak_ns).map(|(clock, ns)| clock.wall(ns)),
        peak_age_ns: process.peak_ns.map(age),
        gpus: gpu_shares(&devices, used.map_or(&[], Vec::as_slice)),
        live: process.totals.sums,
        peak_bytes: process.peak_bytes,
        kinds: LiveByKind(process.totals.kinds().collect()),
        device_kinds: process.device_kinds(),
        devices,
        reserved_address_bytes: process.physical.reserved_bytes,
        modules: process.modules(),
        nvml: nvml_of(process, sources),
        ..ProcessReport::new(who, identity)
    };
    // Scrapes are about live processes.
    let is_scraped_late = process.exited && sources.scope.is_some();
    if report.checkpointed.is_some() {
        // What is elsewhere is held by no call site.
        report.lists.sites = options.lists_sites().then(Vec::new);
        let groups = SiteGroups::of(process, options.view.groups_by_lines(), sources.symbols);
        report.threads = thread_reports(process, &groups, options, sources);
    } else if options.lists(process.pid, sources.scope) && !is_scraped_late {
        add_details(&mut report, process, options, sources);
    }
    report
}

/// The interpreter that runs `process`: it is on a call stack, or the command.
fn interpreter(process: &Process, symbols: &dyn Symbolize) -> Option<&'static str> {
    let mut known = HashMap::new();
    let mut is_python = |location: &Location| match location.module {
        Some(ModuleId::PYTHON) => true,
        Some(module) => *known.entry(module).or_insert_with(|| {
            let path = symbols.module(location).unwrap_or_default();
            role(&path) == CodeRole::Owner(PYTHON.into())
        }),
        None => false,
    };
    let sites = Holder::all(process).flat_map(|one| one.sites().sites.iter());
    let mut stacks = sites.filter_map(|site| site.stack.as_deref());
    let command = process.identity.command.as_deref();
    let command = command.or(process.comm.as_deref());
    let program = command.and_then(|command| command.split(' ').next());
    let is_command = file_name(program.unwrap_or("")).starts_with("python");
    (is_command || stacks.any(|stack| stack.locations.iter().any(&mut is_python)))
        .then_some("Python")
}

/// Adds what the memory of a process consists of.
fn add_details(
    report: &mut ProcessReport,
    process: &Process,
    options: &Options,
    sources: ReportSources<'_>,
) {
    report.has_details = true;
    let groups = SiteGroups::of(process, options.view.groups_by_lines(), sources.symbols);
    report.lists = site_lists(Holder::own(process), &groups, options, sources);
    (report.owners, report.framework_pools) = owners::held(process, sources.symbols);
    let pools = process.pools.iter().map(|pool| PoolReport {
        pool: pool.handle,
        device: pool.device(),
        used_bytes: pool.used.bytes,
        used_allocations: pool.used.allocations,
        reserved_bytes: pool.reserved_bytes,
    });
    report.pools = pools.collect();
    let imported = process.imported_from().into_iter();
    let who = |of: &Exporter| Who {
        pid: of.pid,
        comm: of.comm.clone(),
        command: of.command.clone(),
        ..Who::default()
    };
    report.handles = handles::handle_reports(process, options, sources);
    let now_ns = process.ended_ns.unwrap_or(options.now_ns);
    let outside = process.outside.shape(now_ns);
    report.outside = outside.as_ref().and_then(verdict::judge_outside);
    report.imported_from = imported.map(|(of, sum)| (who(&of), sum)).collect();
    report.threads = thread_reports(process, &groups, options, sources);
    let allocators = process.tensors.iter();
    let reports = allocators.filter_map(|one| allocator::report(process, one, options, sources));
    report.allocators = reports.collect();
    let traced = report.allocators.iter().map(|one| one.framework);
    // Their blocks are traced.
    let pools = &mut report.framework_pools;
    pools.retain(|name| !traced.clone().any(|one| owners::is_pool_of(name, one)));
    let dropped = process.tensors.dropped().iter();
    report.frameworks_not_recorded = dropped.map(|framework| framework.name()).collect();
}

/// How long the process was traced, nanoseconds.
fn traced_ns(process: &Process, options: &Options) -> u64 {
    let first_ns = process.first_seen_ns.filter(|_| process.from_birth);
    let end_ns = process.ended_ns.unwrap_or(options.now_ns);
    first_ns.map_or(options.since_start_ns(), |first_ns| {
        end_ns.saturating_sub(first_ns)
    })
}

/// Memory use of `process` from NVML; for one that has ended, the last figures.
fn nvml_of(process: &Process, sources: ReportSources<'_>) -> Option<NvmlUsage> {
    // With some kinds excluded, the figures would not add up.
    if process.counted != KindSet::ALL {
        return None;
    }
    if process.exited {
        return sources.history?.nvml(process);
    }
    let mut usage = NvmlUsage::of(process.pid, process.tracked_bytes(), sources.usage?)?;
    for allocator in process.tensors.iter() {
        let bytes = allocator.unseen_bytes(process);
        if bytes > 0 {
            let is_first = usage.segment_bytes == 0;
            let of = allocator.framework();
            usage.segments_of = of.filter(|_| is_first || usage.segments_of == of);
            usage.segment_bytes = usage.segment_bytes.saturating_add(bytes);
        }
    }
    Some(usage)
}

/// Reports of processes that use a GPU and have not been traced.
fn untraced(usage: &GpuUsage, options: &Options) -> impl Iterator<Item = ProcessReport> {
    usage.untraced.iter().map(|(&pid, process)| {
        let used = usage.processes.get(&pid);
        let (uid, comm) = (Some(process.uid), Some(&*process.comm));
        let who = Who::of(pid, uid, comm, &process.identity);
        ProcessReport {
            gpus: gpu_shares(&[], used.map_or(&[], Vec::as_slice)),
            nvml: NvmlUsage::of(pid, 0, usage),
            traced_from_ms: usage.late_ms.get(&pid).copied(),
            lists: SiteLists {
                sites: options.lists_sites().then(Vec::new),
                ..SiteLists::default()
            },
            ..ProcessReport::new(who, &process.identity)
        }
    })
}

/// Memory of a process on each GPU of the host: as traced, and as NVML reports.
fn gpu_shares(devices: &[DeviceReport], used: &[(u32, u64)]) -> Vec<GpuShare> {
    let used = used.iter().map(|&(index, bytes)| GpuShare {
        index: Some(index),
        used_bytes: Some(bytes),
        live_bytes: 0,
    });
    let mut shares: Vec<_> = used.collect();
    for device in devices {
        let on_host = device.identity.physical_index;
        let index = on_host.or(device.device.map(u32::from));
        let bytes = device.live.bytes;
        match shares.iter_mut().find(|share| share.index == index) {
            Some(share) => share.live_bytes = share.live_bytes.saturating_add(bytes),
            None => shares.push(GpuShare {
                index,
                live_bytes: bytes,
                ..GpuShare::default()
            }),
        }
    }
    shares.sort_by_key(|share| share.index.unwrap_or(u32::MAX));
    shares
}
