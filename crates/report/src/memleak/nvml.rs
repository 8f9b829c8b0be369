//! Breakdown of the memory use that NVML and `nvidia-smi` report for a process.

use serde::Serialize;

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::Process;
use gpuprobe_model::GpuUsage;

/// Memory use of a process according to NVML, and how much of it is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NvmlUsage {
    /// Bytes that the process uses on all GPUs.
    pub used_bytes: u64,
    /// Bytes of it that the ledger knows. Managed memory is excluded: `used_bytes` includes only
    /// the part that is resident on a GPU.
    pub tracked_bytes: u64,
    /// The rest: allocated before tracing began, contexts, code, rounding of allocations, and other
    /// APIs. Negative if some tracked memory is not on a GPU.
    pub other_bytes: i64,
    /// Approximate part of the rest that contexts take: the minimum of the rest over processes
    /// traced from their start. `None` if there was none.
    pub context_bytes: Option<u64>,
}

impl NvmlUsage {
    /// Breakdown of the use of process `pid`, of which `tracked_bytes` are known; `None` if `usage` has no such process.
    pub(super) fn of(pid: u32, tracked_bytes: u64, usage: &GpuUsage) -> Option<Self> {
        let used = usage.processes.get(&pid)?;
        let used_bytes = used
            .iter()
            .fold(0, |sum: u64, (_, b)| sum.saturating_add(*b));
        let other_bytes = i128::from(used_bytes) - i128::from(tracked_bytes);
        let rest = used_bytes.checked_sub(tracked_bytes);
        let contexts = used.iter().map(|(gpu, _)| usage.contexts.get(gpu).copied());
        let contexts: Option<u64> = contexts.sum();
        Some(Self {
            used_bytes,
            tracked_bytes,
            other_bytes: i64::try_from(other_bytes).unwrap_or(i64::MIN),
            context_bytes: contexts
                .zip(rest)
                .map(|(contexts, rest)| contexts.min(rest)),
        })
    }
}

/// GPU memory of `process` that is certain to be on a GPU, bytes.
pub(crate) fn tracked(process: &Process) -> u64 {
    let kinds = process.totals.kinds();
    let managed = kinds.filter(|(kind, _)| *kind == MemoryKind::Managed);
    let managed = managed.map(|(_, total)| total.bytes).sum();
    process.totals.sums.gpu.bytes.saturating_sub(managed)
}
