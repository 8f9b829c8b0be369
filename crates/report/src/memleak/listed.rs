//! Call sites of a report while it is being built.

use std::cmp::Reverse;

use super::peak::Peak;
use crate::SortBy;
use gpuprobe_cuda::MemoryKind;
use gpuprobe_engine::totals::MemorySums;
use gpuprobe_engine::{Allocation, CallSite};

/// A call site, or several that are grouped.
pub(super) struct Listed<'a> {
    /// Id of the site in reports.
    pub(super) id: u32,
    /// Numbers of the grouped sites in the engine.
    pub(super) members: Vec<u32>,
    /// The site with the most live bytes, and these bytes.
    pub(super) site: &'a CallSite,
    most_bytes: u64,
    /// Rows of the allocating functions of sites with listed memory.
    pub(super) rows: Vec<u16>,
    /// Number of sites with listed memory.
    pub(super) variants: u64,
    /// Memory that is listed.
    pub(super) live: MemorySums,
    /// Memory ever allocated at the sites, and the part that was freed.
    pub(super) allocated: MemorySums,
    pub(super) freed: MemorySums,
    pub(super) peak: Peak,
    pub(super) oldest_ns: u64,
    pub(super) newest_ns: u64,
    pub(super) kinds: Vec<MemoryKind>,
}

impl<'a> Listed<'a> {
    /// The site with `number` in the engine, with no memory listed yet.
    pub(super) fn new(number: u32, site: &'a CallSite) -> Self {
        Self {
            id: number,
            members: vec![number],
            site,
            most_bytes: 0,
            rows: Vec::new(),
            variants: 0,
            live: MemorySums::default(),
            allocated: site.allocated,
            freed: site.freed,
            peak: Peak::of(site.peak_bytes, site.live.all().bytes),
            oldest_ns: u64::MAX,
            newest_ns: 0,
            kinds: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, allocation: &Allocation) {
        self.live.add(allocation);
        self.oldest_ns = self.oldest_ns.min(allocation.end_ns);
        self.newest_ns = self.newest_ns.max(allocation.end_ns);
        if let Err(place) = self.kinds.binary_search(&allocation.kind()) {
            self.kinds.insert(place, allocation.kind());
        }
    }

    /// Ends the listing of allocations of this one site.
    pub(super) fn count(&mut self) {
        self.variants = 1;
        self.rows = vec![self.site.row];
        self.most_bytes = self.live.all().bytes;
    }

    /// Adds another, later site to the group.
    pub(super) fn merge(&mut self, mut other: Self) {
        // Among sites without live memory, the first one is kept.
        if (other.variants, other.most_bytes) > (self.variants.min(1), self.most_bytes) {
            (self.site, self.most_bytes) = (other.site, other.most_bytes);
        }
        self.id = self.id.min(other.id);
        self.members.append(&mut other.members);
        self.variants += other.variants;
        self.live.merge(other.live);
        self.allocated.merge(other.allocated);
        self.freed.merge(other.freed);
        self.peak.merge(other.peak);
        self.oldest_ns = self.oldest_ns.min(other.oldest_ns);
        self.newest_ns = self.newest_ns.max(other.newest_ns);
        self.kinds.extend(other.kinds);
        self.kinds.sort_unstable();
        self.kinds.dedup();
        self.rows.extend(other.rows);
        self.rows.sort_unstable();
        self.rows.dedup();
    }

    /// Sort key of the site.
    pub(super) fn key(&self, sort: SortBy) -> impl Ord + use<> {
        let (gpu, all) = (Reverse(self.live.gpu.bytes), Reverse(self.live.all().bytes));
        let first = sort.first(self.live.all().allocations, self.oldest_ns);
        (first, gpu, all, self.oldest_ns, self.id)
    }
}
