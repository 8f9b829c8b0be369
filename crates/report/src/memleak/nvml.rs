//! Where the number of `nvidia-smi` comes from.

use serde::Serialize;

use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::Process;
use gpuprobe_engine::totals::Total;

/// What NVML says that a process uses, and how much of it is accounted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nvml {
    /// Bytes that the process uses on all GPUs.
    pub used_bytes: u64,
    /// Of these, what the ledger knows. Managed memory is left out: only what is at a GPU at the
    /// moment is part of the former.
    pub tracked_bytes: u64,
    /// The rest: allocated before tracing began, contexts, code, what allocations are rounded up
    /// to, and other APIs. Negative if something tracked is not at a GPU.
    pub other_bytes: i64,
    /// About what of the rest contexts take: the least that a process which was traced from its
    /// start was seen to have besides its own. `None` if there was none.
    pub context_bytes: Option<u64>,
}

impl Nvml {
    /// For a process of which `tracked_bytes` are known, and which uses that much on each GPU.
    /// `contexts` says what a context takes on a GPU.
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

/// GPU memory of `process` that is certain to be at a GPU.
pub(crate) fn tracked(process: &Process) -> u64 {
    let managed = process.totals.kinds();
    let managed = managed.filter(|(kind, _)| *kind == MemoryKind::Managed);
    let managed = managed.map(|(_, Total { bytes, .. })| bytes).sum();
    process.totals.sums.gpu.bytes.saturating_sub(managed)
}
