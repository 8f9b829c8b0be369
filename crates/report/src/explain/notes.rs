//! Notes on memory held beyond call sites, and on memory cached by an allocator.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::verdict::Verdict;
use gpuprobe_model::Total;
use gpuprobe_model::text::size;

use super::{VerdictReport, seconds};
use crate::Report;
use crate::cudatrace::Cudatrace;
use crate::memleak::{Memleak, ProcessReport, PytorchReport};
use crate::words::{Who, plural};

/// Bytes that nobody is to be bothered with.
const LITTLE: u64 = 16 << 20;
/// A pool is fragmented of which little pins at least this share.
const PINNED_SHARE: u64 = 10;

/// Verdicts on a process that are not about a call site.
pub(super) fn verdicts(
    report: &Report,
    memleak: &Memleak,
    process: &ProcessReport,
) -> Vec<VerdictReport> {
    let mut all = of_nvml(report, memleak, process);
    all.extend(contexts(process));
    all.extend(imported(process));
    all.extend(handles(process));
    for pool in &process.pytorch {
        all.extend(pooled(process, pool));
        all.extend(pinned(process, pool));
        let before = size(pool.before_bytes);
        let device = pool.device;
        let said = format!("{before} in tensors of cuda:{device} from before gpuprobe attached");
        let one = say(process, Verdict::Outside, pool.before_bytes, said);
        all.extend((pool.before_bytes >= LITTLE).then_some(one));
    }
    // The incident itself says who had the memory.
    let refused = report.incidents.iter().filter(|one| one.pid == process.pid);
    all.extend(refused.map(|incident| {
        let bytes = incident.asked_bytes.unwrap_or(0);
        VerdictReport {
            label: Some(incident.label.clone()),
            ..say(process, Verdict::OutOfMemory, bytes, incident.headline())
        }
    }));
    all
}

fn say(process: &ProcessReport, verdict: Verdict, bytes: u64, said: String) -> VerdictReport {
    VerdictReport::of_process(process, verdict, bytes, said)
}

/// What NVML reports beyond call sites; of a process that is not traced, everything.
fn of_nvml(report: &Report, memleak: &Memleak, process: &ProcessReport) -> Vec<VerdictReport> {
    let Some(nvml) = process.nvml else {
        return Vec::new();
    };
    if !process.traced {
        let watched = seconds(memleak.options.since_start_ns());
        let has = format!("has {} on the GPU", size(nvml.used_bytes));
        // Of processes that are not traced, nothing is known about launches.
        let launches = report
            .cudatrace
            .as_ref()
            .filter(|_| memleak.options.host_wide);
        let has_launched = |known: &Cudatrace| known.processes.iter().any(|p| p.pid == process.pid);
        let (verdict, said) = match launches.map(has_launched) {
            Some(false) => (
                Verdict::IdleContext,
                format!("{has} and has launched nothing for {watched}"),
            ),
            _ => (
                Verdict::Outside,
                format!("{has}, and has allocated nothing for {watched}"),
            ),
        };
        return vec![say(process, verdict, nvml.used_bytes, said)];
    }
    let context = nvml.context_bytes.map(|bytes| {
        let said = format!("context {}", size(bytes));
        say(process, Verdict::Context, bytes, said)
    });
    let context_bytes = nvml.context_bytes.unwrap_or(0);
    let other = u64::try_from(nvml.other_bytes).unwrap_or(0);
    let bytes = other.saturating_sub(context_bytes);
    let outside = (bytes >= LITTLE).then(|| {
        let what = match process.from_start {
            true => "code, what allocations are rounded up to, other APIs",
            false => "from before gpuprobe attached, a context, or outside CUDA",
        };
        let said = format!("{} at no call site: {what}", size(bytes));
        say(process, Verdict::Outside, bytes, said)
    });
    context.into_iter().chain(outside).collect()
}

fn imported(process: &ProcessReport) -> Option<VerdictReport> {
    let bytes = process.live.imported_bytes;
    let count = process.live.imported_allocations;
    let allocations = plural(count, "allocation");
    let said = format!("{} in {allocations} of other processes", size(bytes));
    let mut one = VerdictReport {
        allocations: count,
        ..say(process, Verdict::Shared, bytes, said)
    };
    for (exporter, sum) in &process.imported_from {
        let who = Who {
            comm: exporter.comm.as_deref(),
            command: exporter.command.as_deref(),
            ..Who::default()
        };
        let (bytes, pid) = (size(sum.bytes), exporter.pid);
        let program = who.program();
        one.evidence
            .push(format!("{bytes} of them exported by PID {pid} {program}"));
    }
    (count > 0).then_some(one)
}

/// Contexts that the program made besides those of its devices.
fn contexts(process: &ProcessReport) -> Option<VerdictReport> {
    let found = process.contexts.as_ref()?;
    let live = plural(found.blocks, "context");
    let freed = plural(found.frees, "other");
    let span = seconds(found.span_ns);
    let one = match found.verdict.is_growth() {
        true => VerdictReport {
            confidence: found.confidence,
            since_ns: found.since_ns,
            grade: Verdict::ContextsLeft.severity(found.confidence),
            ..say(
                process,
                Verdict::ContextsLeft,
                0,
                format!(
                    "{live} made and not destroyed in {span}, no sign of levelling off; {freed} destroyed"
                ),
            )
        },
        false => say(
            process,
            Verdict::Context,
            0,
            format!("{live} made by the program and not destroyed, {freed} destroyed"),
        ),
    };
    Some(VerdictReport {
        allocations: found.blocks,
        ..one
    })
}

/// Physical memory behind handles, by who created these.
fn handles(process: &ProcessReport) -> Vec<VerdictReport> {
    let tells = !process.pytorch.is_empty();
    let sites = process.listed().iter();
    let vmm = sites.filter(|site| site.kinds == [MemoryKind::Vmm] && !(tells && site.is_pooled));
    let mut by_owner: Vec<(&str, Total, u64)> = Vec::new();
    for site in vmm {
        let live = Total {
            bytes: site.live.live_bytes,
            allocations: site.live.live_allocations,
        };
        match by_owner.iter_mut().find(|one| one.0 == site.owner) {
            Some((_, sum, created)) => {
                sum.merge(live);
                *created += site.alloc_calls;
            }
            None => by_owner.push((&site.owner, live, site.alloc_calls)),
        }
    }
    let said = by_owner.into_iter().map(|(owner, live, created)| {
        let (bytes, handles) = (size(live.bytes), plural(live.allocations, "VMM handle"));
        let said = format!("{owner} holds {bytes} as {handles}, of {created} created");
        VerdictReport {
            owner: Some(owner.to_owned()),
            allocations: live.allocations,
            ..say(process, Verdict::Handles, live.bytes, said)
        }
    });
    said.collect()
}

/// Verdict on memory that the allocator caches.
fn pooled(process: &ProcessReport, pool: &PytorchReport) -> Option<VerdictReport> {
    let found = pool.pool.as_ref()?;
    let cached = pool.cached_bytes();
    let sites = pool.sites.iter().flatten();
    let mut judged = sites.filter_map(|site| site.judgement.as_ref());
    if cached == 0 || judged.any(|judged| judged.verdict.is_growth()) {
        return None;
    }
    let keeps = format!(
        "PyTorch's allocator of cuda:{} keeps {} of {} for reuse",
        pool.device,
        size(cached),
        size(pool.reserved_bytes)
    );
    if found.is_leak() {
        let span = seconds(found.span_ns);
        let said = format!(
            "{keeps}: what it takes from CUDA grows, for {span}, and what it hands out does not"
        );
        return Some(VerdictReport {
            confidence: found.confidence,
            bytes_per_second: found.bytes_per_second,
            since_ns: found.since_ns,
            ..say(process, Verdict::Fragmentation, cached, said)
        });
    }
    let quiet = seconds(found.quiet_ns);
    let said = format!("{keeps}: what it has from CUDA has not grown for {quiet}");
    Some(VerdictReport {
        confidence: found.confidence,
        owner: Some("libtorch".to_owned()),
        ..say(process, Verdict::Cache, cached, said)
    })
}

fn pinned(process: &ProcessReport, pool: &PytorchReport) -> Option<VerdictReport> {
    let bytes = pool.pinned_by_small_bytes;
    let is_much = bytes >= LITTLE && bytes.saturating_mul(PINNED_SHARE) >= pool.reserved_bytes;
    let sites = pool.pinned_by_sites.iter().map(|site| format!("T{site}"));
    let sites: Vec<_> = sites.collect();
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
