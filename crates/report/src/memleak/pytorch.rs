//! What PyTorch's allocator has handed out on a device: from the engine to a report.

use serde::Serialize;

use super::groups::Groups;
use super::sites::{Holder, site_reports};
use super::{LeftOut, SiteReport};
use crate::owners::Owners;
use crate::{Options, Sources};
use gpuprobe_engine::verdict::Judgement;
use gpuprobe_engine::{Allocator, Process};

/// What PyTorch's allocator has handed out on one device of a process. All of it lies in memory that the
/// process has from CUDA, and is counted there.
#[derive(Clone, Debug, Serialize)]
pub struct PytorchReport {
    /// Device index as the process numbers it: `cuda:0` is 0.
    pub device: u16,
    /// Index on the host, as `nvidia-smi` shows it, if known.
    pub physical_index: Option<u32>,
    /// Bytes that are handed out, as PyTorch says: `torch.cuda.memory_allocated()`.
    pub allocated_bytes: u64,
    /// Bytes that it has from CUDA, as it says, less what it was seen to give back since it said so:
    /// `torch.cuda.memory_reserved()`.
    pub reserved_bytes: u64,
    /// The most that was seen to be handed out.
    pub peak_allocated_bytes: u64,
    /// The most that it was seen to have from CUDA.
    pub peak_reserved_bytes: u64,
    /// Of what was seen to be handed out, the bytes that were asked for; null if that is not known of all.
    pub requested_bytes: Option<u64>,
    /// Tensors that were seen to be handed out and are live: blocks of the allocator, to be exact.
    pub tensors: u64,
    /// Bytes that were handed out before gpuprobe came, and are live.
    pub before_bytes: u64,
    /// Nothing had been handed out when gpuprobe came.
    pub since_start: bool,
    /// Memory from CUDA that tensors were seen to be handed out of: allocations, and what is mapped without
    /// a gap.
    pub segments: u64,
    /// Its bytes.
    pub segment_bytes: u64,
    /// Bytes of the largest block in it that is free.
    pub largest_free_bytes: u64,
    /// Bytes of the largest request that it has room for.
    pub largest_fit_bytes: u64,
    /// Bytes of it that `torch.cuda.empty_cache()` would give back.
    pub empty_cache_bytes: u64,
    /// Bytes of it that are held by less than 5 % of them.
    pub pinned_by_small_bytes: u64,
    /// Tensors that hold these.
    pub pinned_by_tensors: u64,
    /// Their call sites, what holds most first.
    pub pinned_by_sites: Vec<u32>,
    /// Bytes of tensors that are in no memory that was seen to be allocated.
    pub outside_bytes: u64,
    /// How often a block was handed out.
    pub alloc_calls: u64,
    /// How often one was taken back.
    pub free_calls: u64,
    /// How often one that was not seen to be handed out.
    pub unknown_frees: u64,
    /// What the pool of all devices of the process does as a whole, as one call site, where that is said.
    #[serde(skip)]
    pub pool: Option<Judgement>,
    /// Call sites at which something was handed out that is live, largest first, if stacks are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Vec<SiteReport>>,
    /// Call sites that are left out by `--top`.
    #[serde(rename = "omitted_sites", skip_serializing_if = "Option::is_none")]
    pub omitted: Option<LeftOut>,
    /// Live tensors that are at no call site here, for the age or size that was asked for.
    #[serde(rename = "filtered_out", skip_serializing_if = "Option::is_none")]
    pub filtered: Option<LeftOut>,
}

impl PytorchReport {
    /// Bytes that PyTorch has from CUDA and keeps for later.
    pub fn cached_bytes(&self) -> u64 {
        self.reserved_bytes.saturating_sub(self.allocated_bytes)
    }
}

/// Reports of all devices of `process` on which PyTorch's allocator was heard of, and of those on which
/// TensorFlow's was.
pub(crate) fn reports(
    process: &Process,
    options: &Options,
    sources: Sources<'_>,
) -> (Vec<PytorchReport>, Vec<PytorchReport>) {
    let is_judged = options.explains && process.tensors.iter().next().is_some();
    let pool = is_judged.then(|| pool(process, options, sources)).flatten();
    let report = |allocator| PytorchReport {
        pool: pool.clone(),
        ..report(process, allocator, options, sources)
    };
    let of = |pytorch: bool| {
        let allocators = process.tensors.iter();
        let wanted = allocators.filter(move |one| one.is_pytorch() == pytorch);
        wanted.map(report).collect()
    };
    (of(true), of(false))
}

fn report(
    process: &Process,
    allocator: &Allocator,
    options: &Options,
    sources: Sources<'_>,
) -> PytorchReport {
    let by_lines = options.view.groups_by_lines();
    let groups = Groups::of(&allocator.blocks, by_lines, sources.symbols);
    let holder = Holder::Allocator(process, allocator);
    let (sites, omitted, filtered) = site_reports(holder, &groups, options, sources);
    let found = allocator.fragmentation(process);
    let live = allocator.blocks.totals.sums.gpu;
    let mut pinned_by_sites = Vec::new();
    for (number, _) in &found.pinned.sites {
        let id = groups.id(*number);
        if !pinned_by_sites.contains(&id) {
            pinned_by_sites.push(id);
        }
        if pinned_by_sites.len() == MAX_PINNING {
            break;
        }
    }
    PytorchReport {
        device: allocator.device,
        physical_index: process.identity.device(allocator.device).physical_index,
        allocated_bytes: allocator.allocated_bytes,
        reserved_bytes: allocator.reserved_bytes,
        peak_allocated_bytes: allocator.peak_allocated_bytes,
        peak_reserved_bytes: allocator.peak_reserved_bytes,
        requested_bytes: (allocator.requested.allocations == live.allocations)
            .then_some(allocator.requested.bytes),
        tensors: live.allocations,
        before_bytes: allocator.bytes_from_before(),
        since_start: allocator.since_start,
        segments: found.segments.len() as u64,
        segment_bytes: found.bytes(),
        largest_free_bytes: found.largest_free_bytes,
        largest_fit_bytes: found.largest_fit_bytes,
        empty_cache_bytes: found.unused_bytes,
        pinned_by_small_bytes: found.pinned.bytes,
        pinned_by_tensors: found.pinned.by.allocations,
        pinned_by_sites,
        outside_bytes: found.outside.bytes,
        alloc_calls: allocator.allocations,
        free_calls: allocator.frees,
        unknown_frees: allocator.unknown_frees,
        pool: None,
        sites: options.tells_sites().then_some(sites),
        omitted,
        filtered,
    }
}

/// What becomes of the memory that allocators take for pools, at all sites where they do.
fn pool(process: &Process, options: &Options, sources: Sources<'_>) -> Option<Judgement> {
    let mut owners = Owners::new(sources.symbols);
    let mut pooled = Vec::new();
    for (number, site) in (0..).zip(process.sites.iter()) {
        if owners.of_site(site).is_pooled {
            pooled.push(number);
        }
    }
    Holder::Process(process).judge(&pooled, options.now_ns)
}

/// Call sites that are named as holding much with little.
const MAX_PINNING: usize = 10;
