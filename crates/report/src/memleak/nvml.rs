//! Breakdown of the memory use that NVML and `nvidia-smi` report for a process.

use serde::Serialize;

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::Process;
use gpuprobe_engine::totals::Total;

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
    /// Breakdown for a process with `tracked_bytes` and this `usage` on each GPU. `context` returns
    /// the size of a context on a GPU.
    pub(super) fn of(
        tracked_bytes: u64,
        usage: &[(u32, u64)],
        context: impl Fn(u32) -> Option<u64>,
    ) -> Self {
        let used_bytes = usage
            .iter()
            .fold(0u64, |sum, (_, b)| sum.saturating_add(*b));
        let other_bytes = i128::from(used_bytes) - i128::from(tracked_bytes);
        let other_bytes = i64::try_from(other_bytes).unwrap_or(i64::MIN);
        let contexts = usage.iter().map(|&(gpu, _)| context(gpu)).sum();
        let rest = u64::try_from(other_bytes).ok();
        Self {
            used_bytes,
            tracked_bytes,
            other_bytes,
            context_bytes: Option::zip(contexts, rest).map(|(c, rest): (u64, _)| c.min(rest)),
        }
    }
}

/// GPU memory of `process` that is certain to be on a GPU, bytes.
pub(crate) fn tracked(process: &Process) -> u64 {
    let managed = process.totals.kinds();
    let managed = managed.filter(|(kind, _)| *kind == MemoryKind::Managed);
    let managed = managed.map(|(_, Total { bytes, .. })| bytes).sum();
    process.totals.sums.gpu.bytes.saturating_sub(managed)
}
