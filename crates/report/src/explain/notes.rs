//! Notes on memory held beyond call sites, and on memory cached by an allocator.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::Verdict;
use gpuprobe_model::text::size;

use super::words::seconds;
use super::{ProcessFacts, VerdictReport};
use crate::incidents::IncidentReport;
use crate::memleak::{ProcessReport, PytorchReport};
use crate::words::{Who, plural};

/// Bytes that nobody is to be bothered with.
const LITTLE: u64 = 16 << 20;
/// A pool is fragmented of which little pins at least this share.
const PINNED_SHARE: u64 = 10;

/// Verdicts on a process that are not about a call site.
pub(super) fn verdicts(found: &ProcessFacts<'_>, process: &ProcessReport) -> Vec<VerdictReport> {
    let mut all = Vec::new();
    all.extend(idle(found, process));
    all.extend(context(process));
    all.extend(contexts(process));
    all.extend(outside(process));
    all.extend(imported(process));
    all.extend(handles(process));
    for pool in &process.pytorch {
        all.extend(pooled(process, pool));
        all.extend(pinned(process, pool));
        all.extend(before(process, pool));
    }
    all
}

fn say(process: &ProcessReport, verdict: Verdict, bytes: u64, said: String) -> VerdictReport {
    VerdictReport::of_process(process.pid, verdict, bytes, said)
}

/// A request that was refused: the incident itself says who had the memory.
pub(super) fn out_of_memory(incident: &IncidentReport) -> VerdictReport {
    VerdictReport {
        label: Some(incident.label.clone()),
        ..VerdictReport::of_process(
            incident.pid,
            Verdict::OutOfMemory,
            incident.asked_bytes.unwrap_or(0),
            incident.headline(),
        )
    }
}

/// A process that has a context, and calls nothing: launches tell, if they are counted.
fn idle(all: &ProcessFacts<'_>, process: &ProcessReport) -> Option<VerdictReport> {
    let nvml = process.nvml.filter(|_| !process.traced)?;
    let watched = seconds(all.memleak.watched_ns);
    let has = format!("has {} on the GPU", size(nvml.used_bytes));
    // Of processes that are not traced, nothing is known about launches.
    let counted = all.cudatrace.filter(|_| all.memleak.host_wide);
    let launchers = counted.map(|launches| launches.processes.iter());
    let launches = launchers.map(|mut known| known.any(|one| one.pid == process.pid));
    let (verdict, said) = match launches {
        Some(false) => (
            Verdict::IdleContext,
            format!("{has} and has launched nothing for {watched}"),
        ),
        _ => (
            Verdict::Outside,
            format!("{has}, and has allocated nothing for {watched}"),
        ),
    };
    Some(say(process, verdict, nvml.used_bytes, said))
}

fn context(process: &ProcessReport) -> Option<VerdictReport> {
    let nvml = process.nvml.filter(|_| process.traced)?;
    let bytes = nvml.context_bytes?;
    let said = format!("context {}", size(bytes));
    Some(say(process, Verdict::Context, bytes, said))
}

fn outside(process: &ProcessReport) -> Option<VerdictReport> {
    let nvml = process.nvml.filter(|_| process.traced)?;
    let other = u64::try_from(nvml.other_bytes).ok()?;
    let bytes = other.saturating_sub(nvml.context_bytes.unwrap_or(0));
    let what = match process.from_start {
        true => "at no call site: code, what allocations are rounded up to, other APIs",
        false => "at no call site: from before gpuprobe attached, a context, or outside CUDA",
    };
    let said = format!("{} {what}", size(bytes));
    (bytes >= LITTLE).then(|| say(process, Verdict::Outside, bytes, said))
}

fn imported(process: &ProcessReport) -> Option<VerdictReport> {
    let (bytes, count) = (
        process.live.imported_bytes,
        process.live.imported_allocations,
    );
    let said = format!(
        "{} in {} of other processes",
        size(bytes),
        plural(count, "allocation")
    );
    let exporters = process.imported_from.iter();
    let from = exporters.map(|(exporter, sum)| {
        let who = Who {
            pid: exporter.pid,
            comm: exporter.comm.as_deref(),
            command: exporter.command.as_deref(),
            ..Who::default()
        };
        format!(
            "{} of them exported by PID {} {}",
            size(sum.bytes),
            who.pid,
            who.program()
        )
    });
    (count > 0).then(|| {
        let mut one = say(process, Verdict::Shared, bytes, said);
        one.allocations = count;
        one.evidence.extend(from);
        one
    })
}

/// Contexts that the program made besides those of its devices.
fn contexts(process: &ProcessReport) -> Option<VerdictReport> {
    let found = process.contexts.as_ref()?;
    let live = plural(found.blocks, "context");
    let freed = plural(found.frees, "other");
    if !found.verdict.is_growth() {
        let said = format!("{live} made by the program and not destroyed, {freed} destroyed");
        return Some(VerdictReport {
            allocations: found.blocks,
            ..say(process, Verdict::Context, 0, said)
        });
    }
    let said = format!(
        "{live} made and not destroyed in {}, no sign of levelling off; {freed} destroyed",
        seconds(found.span_ns)
    );
    Some(VerdictReport {
        confidence: found.confidence,
        allocations: found.blocks,
        since_ns: found.since_ns,
        grade: Verdict::ContextsLeft.severity(found.confidence),
        ..say(process, Verdict::ContextsLeft, 0, said)
    })
}

/// Physical memory behind handles, by who created these.
fn handles(process: &ProcessReport) -> Vec<VerdictReport> {
    let tells = !process.pytorch.is_empty();
    let sites = process.listed().iter();
    let vmm = sites.filter(|site| site.kinds == [MemoryKind::Vmm] && !(tells && site.is_pooled));
    let mut by_owner: Vec<(&str, u64, u64, u64)> = Vec::new();
    for site in vmm {
        let (bytes, count) = (site.live.live_bytes, site.live.live_allocations);
        match by_owner.iter_mut().find(|one| one.0 == site.owner) {
            Some(one) => {
                *one = (
                    one.0,
                    one.1.saturating_add(bytes),
                    one.2 + count,
                    one.3 + site.alloc_calls,
                );
            }
            None => by_owner.push((&site.owner, bytes, count, site.alloc_calls)),
        }
    }
    let said = by_owner.into_iter().map(|(owner, bytes, count, created)| {
        let handles = plural(count, "VMM handle");
        let said = format!(
            "{owner} holds {} as {handles}, of {created} created",
            size(bytes)
        );
        VerdictReport {
            owner: Some(owner.to_owned()),
            allocations: count,
            ..say(process, Verdict::Handles, bytes, said)
        }
    });
    said.collect()
}

/// Verdict on memory that the allocator caches.
fn pooled(process: &ProcessReport, pool: &PytorchReport) -> Option<VerdictReport> {
    let found = pool.pool.as_ref()?;
    let cached = pool.cached_bytes();
    let sites = pool.sites.as_deref().unwrap_or(&[]);
    let tensors_grow = sites
        .iter()
        .filter_map(|site| site.judgement.as_ref())
        .any(|judged| judged.verdict.is_growth());
    let keeps = format!(
        "PyTorch's allocator of cuda:{} keeps {} of {} for reuse",
        pool.device,
        size(cached),
        size(pool.reserved_bytes)
    );
    if tensors_grow || cached == 0 {
        return None;
    }
    let confidence = found.confidence;
    if found.is_leak() {
        let said = format!(
            "{keeps}: what it takes from CUDA grows, for {}, and what it hands out does not",
            seconds(found.span_ns)
        );
        return Some(VerdictReport {
            confidence,
            bytes_per_second: found.bytes_per_second,
            since_ns: found.since_ns,
            ..say(process, Verdict::Fragmentation, cached, said)
        });
    }
    let quiet = seconds(found.quiet_ns);
    let said = format!("{keeps}: what it has from CUDA has not grown for {quiet}");
    Some(VerdictReport {
        confidence,
        owner: Some("libtorch".to_owned()),
        ..say(process, Verdict::Cache, cached, said)
    })
}

fn pinned(process: &ProcessReport, pool: &PytorchReport) -> Option<VerdictReport> {
    let bytes = pool.pinned_by_small_bytes;
    let is_much = bytes >= LITTLE && bytes.saturating_mul(PINNED_SHARE) >= pool.reserved_bytes;
    let sites: Vec<_> = pool
        .pinned_by_sites
        .iter()
        .map(|site| format!("T{site}"))
        .collect();
    let said = format!(
        "{} are held by segments with less than 5 % in use: {} pin them, of {}; the largest request that \
         fits is {}",
        size(bytes),
        plural(pool.pinned_by_tensors, "tensor"),
        sites.join(", "),
        size(pool.largest_fit_bytes)
    );
    is_much.then(|| VerdictReport {
        site: pool.pinned_by_sites.first().copied(),
        tensors_of_device: Some(pool.device),
        allocations: pool.pinned_by_tensors,
        owner: Some("libtorch".to_owned()),
        ..say(process, Verdict::Fragmentation, bytes, said)
    })
}

fn before(process: &ProcessReport, pool: &PytorchReport) -> Option<VerdictReport> {
    let bytes = pool.before_bytes;
    let said = format!(
        "{} in tensors of cuda:{} from before gpuprobe attached",
        size(bytes),
        pool.device
    );
    (bytes >= LITTLE).then(|| say(process, Verdict::Outside, bytes, said))
}
