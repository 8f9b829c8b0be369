//! Report of the state of a framework's allocator on a device.

use serde::{Serialize, Serializer};

use super::sites::{Holder, SiteGroups, SiteLists, site_lists};
use crate::owners::Owners;
use crate::{Options, ReportSources};
use gpuprobe_cuda::Framework;
use gpuprobe_engine::verdict::Judgement;
use gpuprobe_engine::{Allocator, Process};

/// State of a framework's allocator on one device of a process. Its memory lies within memory that the
/// process has from CUDA, where it is counted. Those that report no sums have those of the blocks seen.
#[derive(Clone, Debug, Serialize)]
pub struct AllocatorReport {
    /// Whose it is: the key in JSON.
    #[serde(skip)]
    pub framework: Framework,
    /// Device index as the process numbers it: `cuda:0` is 0.
    pub device: u16,
    /// Index on the host, as `nvidia-smi` shows it, if known.
    pub physical_index: Option<u32>,
    /// Bytes allocated, as PyTorch reports: `torch.cuda.memory_allocated()`.
    pub allocated_bytes: u64,
    /// Bytes reserved from CUDA, as PyTorch reports, less the segments freed since the last report:
    /// `torch.cuda.memory_reserved()`.
    pub reserved_bytes: u64,
    /// Peak of the allocated bytes seen.
    pub peak_allocated_bytes: u64,
    /// Peak of the reserved bytes seen.
    pub peak_reserved_bytes: u64,
    /// Bytes requested for the live blocks seen; null if that is not known of all.
    pub requested_bytes: Option<u64>,
    /// Number of live tensors seen: blocks of the allocator, to be exact.
    pub tensors: u64,
    /// Bytes of live blocks allocated before tracing began.
    pub before_bytes: u64,
    /// With `--tensors census`, bytes of live blocks that were seen to be allocated, in a window: those that have a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_bytes: Option<u64>,
    /// Whether nothing had been allocated before tracing began.
    pub since_start: bool,
    /// Number of segments in which tensors were seen: allocations, and runs of mappings without a
    /// gap.
    pub segments: u64,
    /// Bytes of these segments.
    pub segment_bytes: u64,
    /// Bytes of the largest free block in them.
    pub largest_free_bytes: u64,
    /// Largest request in bytes that fits into one of them.
    pub largest_fit_bytes: u64,
    /// Bytes that `torch.cuda.empty_cache()` would return.
    pub empty_cache_bytes: u64,
    /// Bytes of blocks that the program has freed, and a stream may still use; as of when they were last looked for.
    pub pending_free_bytes: u64,
    /// Bytes of segments of private pools, such as those of CUDA graphs, as far as these were found.
    pub private_pool_bytes: u64,
    /// Free bytes in them, which `torch.cuda.empty_cache()` does not return.
    pub private_pool_free_bytes: u64,
    /// Bytes of segments less than 5 % in use.
    pub pinned_by_small_bytes: u64,
    /// Number of tensors in these segments.
    pub pinned_by_tensors: u64,
    /// Ids of the call sites of these tensors, by descending pinned bytes.
    pub pinned_by_sites: Vec<u32>,
    /// Bytes of tensors outside of all memory that was seen to be allocated.
    pub outside_bytes: u64,
    /// Number of blocks allocated.
    pub alloc_calls: u64,
    /// Number of blocks freed.
    pub free_calls: u64,
    /// Number of blocks freed that were not seen to be allocated.
    pub unknown_frees: u64,
    /// Verdict on the pools of all devices of the process, as one call site, if there is one.
    #[serde(skip)]
    pub pool: Option<Judgement>,
    /// The call sites of its tensors.
    #[serde(flatten)]
    pub lists: SiteLists,
}

impl AllocatorReport {
    /// Bytes reserved from CUDA and not allocated.
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.allocated_bytes)
    }

    /// Bytes of live blocks that were allocated between windows.
    pub fn between_bytes(&self) -> u64 {
        let known = self
            .line_bytes
            .map(|seen| seen.saturating_add(self.before_bytes));
        known.map_or(0, |known| self.allocated_bytes.saturating_sub(known))
    }
}

/// Lists of reports under the names of their frameworks: `"pytorch": [...], "xla": [...]`.
pub(super) fn by_framework<S: Serializer>(
    all: &[AllocatorReport],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let lists = all.chunk_by(|a, b| a.framework == b.framework);
    serializer.collect_map(lists.map(|list| (list[0].framework.key(), list)))
}

/// The report of an allocator of `process`.
pub(super) fn report(
    process: &Process,
    allocator: &Allocator,
    options: &Options,
    sources: ReportSources<'_>,
) -> Option<AllocatorReport> {
    // Its calls are not those of CUDA.
    let sources = ReportSources {
        trace: None,
        ..sources
    };
    let by_lines = options.view.groups_by_lines();
    let groups = SiteGroups::of(&allocator.blocks, by_lines, sources.symbols);
    let holder = Holder {
        process,
        allocator: Some(allocator),
    };
    let found = allocator.fragmentation(process);
    let live = allocator.blocks.totals.sums.gpu;
    let mut pinned_by_sites = Vec::new();
    for (number, _) in &found.pinned.sites {
        let id = groups.id(*number);
        if pinned_by_sites.len() < MAX_PINNING && !pinned_by_sites.contains(&id) {
            pinned_by_sites.push(id);
        }
    }
    Some(AllocatorReport {
        framework: allocator.framework()?,
        device: allocator.device,
        physical_index: process.identity.device(allocator.device).physical_index,
        allocated_bytes: allocator.allocated_bytes,
        reserved_bytes: allocator.reserved_bytes,
        peak_allocated_bytes: allocator.peak_allocated_bytes,
        peak_reserved_bytes: allocator.peak_reserved_bytes,
        requested_bytes: (allocator.requested.allocations == live.allocations)
            .then_some(allocator.requested.bytes),
        tensors: live.allocations,
        before_bytes: allocator.before_bytes(),
        line_bytes: allocator.seen_bytes(),
        since_start: allocator.since_start,
        segments: found.segments.len() as u64,
        segment_bytes: found.bytes(),
        largest_free_bytes: found.largest_free_bytes,
        largest_fit_bytes: found.largest_fit_bytes,
        empty_cache_bytes: found.unused_bytes,
        pending_free_bytes: found.pending.bytes,
        private_pool_bytes: found.private_bytes,
        private_pool_free_bytes: found.private_free_bytes,
        pinned_by_small_bytes: found.pinned.bytes,
        pinned_by_tensors: found.pinned.by.allocations,
        pinned_by_sites,
        outside_bytes: found.outside.bytes,
        alloc_calls: allocator.allocations,
        free_calls: allocator.frees,
        unknown_frees: allocator.unknown_frees,
        pool: pool(process, options, sources),
        lists: site_lists(holder, &groups, options, sources),
    })
}

/// Verdict on the memory that allocators take for their pools, over all sites.
fn pool(process: &Process, options: &Options, sources: ReportSources<'_>) -> Option<Judgement> {
    if !options.explains {
        return None;
    }
    let mut owners = Owners::new(sources.symbols);
    let sites = (0..).zip(process.sites.iter());
    let pooled: Vec<_> = sites
        .filter(|(_, site)| owners.of_stack(site.stack.as_deref()).is_pooled())
        .map(|(number, _)| number)
        .collect();
    Holder::own(process).judge(&pooled, options.now_ns)
}

/// Limit on the call sites listed for pinned segments.
const MAX_PINNING: usize = 10;
