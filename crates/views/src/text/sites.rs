//! Call sites and tensors of a process, for people.

use gpuprobe_cuda::{Framework, MemoryKind};
use gpuprobe_model::text::size;

use super::memory::write_allocations;
use super::page::{Page, commas};
use super::stacks::{LISTING, lines};
use crate::tables::memory::SiteRow;
use gpuprobe_report::memleak::{AllocatorReport, ProcessReport, SiteLists, SiteReport};
use gpuprobe_report::verdict::Judgement;
use gpuprobe_report::words::{amount, percent, plural};
use gpuprobe_report::{SiteNumber, View};

/// Columns before what is said of tensors.
const INDENT: usize = 18;

/// Call sites of a process, or of the tensors of a device in it.
#[derive(Clone, Copy)]
pub(super) struct SiteList<'a> {
    view: &'a View,
    process: &'a ProcessReport,
    /// Bytes that shares are fractions of.
    all_bytes: u64,
    is_tensors: bool,
    sites: &'a [SiteReport],
    lists: &'a SiteLists,
}

impl<'a> SiteList<'a> {
    /// Where a process called CUDA.
    pub(super) fn new(process: &'a ProcessReport, view: &'a View) -> Self {
        Self {
            view,
            process,
            all_bytes: process.live.gpu.bytes,
            is_tensors: false,
            sites: process.listed(),
            lists: &process.lists,
        }
    }

    fn of_tensors(
        process: &'a ProcessReport,
        tensors: &'a AllocatorReport,
        view: &'a View,
    ) -> Option<Self> {
        Some(Self {
            all_bytes: tensors.allocated_bytes,
            is_tensors: true,
            sites: tensors.lists.sites.as_deref()?,
            lists: &tensors.lists,
            ..Self::new(process, view)
        })
    }

    fn rows(&self, sites: &'a [SiteReport]) -> Vec<SiteRow<'a>> {
        let plain = [MemoryKind::Device, MemoryKind::Tensor];
        let mut kinds = sites.iter().flat_map(|site| &site.kinds);
        let has_kind = kinds.any(|kind| !plain.contains(kind));
        let row = |site| SiteRow {
            process: self.process,
            site,
            all_bytes: self.all_bytes,
            is_tensors: self.is_tensors,
            pid: None,
            has_kind,
        };
        sites.iter().map(row).collect()
    }

    /// Writes the table of the first `top` call sites, with their stacks if these are asked for.
    pub(super) fn write(&self, top: usize, page: &mut Page) {
        let rows = self.rows(&self.sites[..self.sites.len().min(top)]);
        let (view, layout) = (self.view, page.layout);
        page.detailed(SiteRow::columns(), &rows, |row| {
            let judgement = row.site.judgement.as_ref();
            let leaks = judgement.is_some_and(Judgement::is_leak);
            match leaks || view.shows_stacks() {
                true => lines(row.site, view, layout, LISTING - 1),
                false => Vec::new(),
            }
        });
    }

    /// Writes how many sites are not listed, and how to list them.
    pub(super) fn write_rest(&self, page: &mut Page) {
        if let Some(more) = self.lists.omitted {
            let sites = plural(more.sites, "more site");
            let amount = amount(more.bytes, more.allocations);
            page.note(format!("... {sites}, {amount} (--top all)"));
        }
        if let Some(filtered) = self.lists.filtered {
            let sites = plural(filtered.sites, "site");
            let amount = amount(filtered.bytes, filtered.allocations);
            page.note(format!("filtered out: {sites}, {amount}"));
        }
    }

    /// Writes everything about the site of this number.
    pub(super) fn write_one(&self, number: u32, page: &mut Page) {
        let Some(site) = self.sites.iter().find(|site| site.has_id(number)) else {
            let prefix = if self.is_tensors { "T" } else { "" };
            return page.line(format!("nothing is live at site {prefix}{number}"));
        };
        page.table(
            SiteRow::columns(),
            &self.rows(std::slice::from_ref(site)),
            0,
        );
        let allocated = amount(site.alloc_bytes, site.alloc_calls);
        let freed = amount(site.freed_bytes, site.free_calls);
        let peak = match site.peak.exact() {
            Some(peak) => size(peak),
            None => format!("{} to {}", size(site.peak.least), size(site.peak.most)),
        };
        page.line(format!(
            "   allocated {allocated}, freed {freed}, peak {peak}"
        ));
        page.lines(&lines(site, self.view, page.layout, LISTING - 3));
    }

    /// Writes every frame of the site of this number, if its stack was folded.
    fn write_whole_stack(&self, number: u32, page: &mut Page) {
        let site = self.sites.iter().find(|site| site.has_id(number));
        if let Some(site) = site.filter(|site| site.folded.is_some()) {
            page.part();
            page.head("the whole stack");
            let view = View {
                full_stacks: true,
                ..View::default()
            };
            page.lines(&lines(site, &view, page.layout, 0));
        }
    }
}

/// The site of this number, of tensors of a device or of the process itself, with its stack, its allocations, and the
/// whole stack where that was folded, in lines of so many columns, with the colours of [`gpuprobe_os::color`].
pub fn to_text(
    process: &ProcessReport,
    device: Option<u16>,
    number: u32,
    columns: usize,
) -> String {
    let (view, mut page) = (&View::default(), Page::painted(columns));
    let list = match device {
        None => Some(SiteList::new(process, view)),
        Some(device) => {
            let pools = process.allocators.iter();
            let mut pools = pools.filter(|pool| pool.device == device);
            pools.find_map(|pool| SiteList::of_tensors(process, pool, view))
        }
    };
    if let Some(list) = list {
        list.write_one(number, &mut page);
        if device.is_none() {
            write_allocations(process, Some(number), &mut page);
        }
        list.write_whole_stack(number, &mut page);
    }
    page.text
}

/// Writes what each device's allocator has handed out, and `top` call sites of each; nothing if there is none.
pub(super) fn write_tensors(process: &ProcessReport, view: &View, top: usize, page: &mut Page) {
    for tensors in &process.allocators {
        write_sums(tensors, page);
        let Some(list) = SiteList::of_tensors(process, tensors, view) else {
            continue;
        };
        if let Some(SiteNumber::Tensors(number)) = view.site {
            list.write_one(number, page);
            continue;
        }
        list.write(top, page);
        if top >= list.sites.len() {
            list.write_rest(page);
        }
    }
}

/// Writes the memory handed out, and how it lies in the memory reserved from CUDA.
fn write_sums(tensors: &AllocatorReport, page: &mut Page) {
    let (allocated, reserved) = (tensors.allocated_bytes, tensors.reserved_bytes);
    let share = match reserved {
        0 => String::new(),
        _ => format!(" ({} %)", percent(allocated as f64 / reserved as f64)),
    };
    let (allocated, segments) = (size(allocated), plural(tensors.segments, "segment"));
    let sum = format!(
        "allocated {allocated} of {} reserved{share}",
        size(reserved)
    );
    let (framework, device) = (tensors.framework, tensors.device);
    let name = format!("{} {}:{device}", framework.name(), framework.device());
    page.hanging(&format!("{name:INDENT$}"), &format!("{sum}, in {segments}"));
    let cached = tensors.cached_bytes() * u64::from(tensors.segments > 0);
    let largest = size(tensors.largest_free_bytes);
    let largest = format!("cached: largest free block {largest}");
    let is_pytorch = framework == Framework::PyTorch;
    let empty_cache = tensors.empty_cache_bytes * u64::from(cached > 0 && is_pytorch);
    let parts = [
        (cached, &*largest),
        (empty_cache, "would be given back by empty_cache()"),
        (
            tensors.pending_free_bytes,
            "freed, until a stream has passed (record_stream)",
        ),
        (
            tensors.private_pool_free_bytes,
            "free in private pools (CUDA graphs), not given back by empty_cache()",
        ),
        (tensors.pinned_by_small_bytes, &*pinned(tensors)),
        (tensors.before_bytes, "allocated before gpuprobe attached"),
        (tensors.between_bytes(), "allocated between windows"),
        (
            reserved.saturating_sub(tensors.segment_bytes),
            "in segments created before attach (fill level unknown)",
        ),
    ];
    for (bytes, said) in parts.iter().filter(|(bytes, _)| *bytes > 0) {
        page.hanging(&" ".repeat(INDENT), &format!("{} {said}", size(*bytes)));
    }
    if let Some(bytes) = tensors.line_bytes {
        let share = percent(bytes as f64 / tensors.allocated_bytes.max(1) as f64);
        let lines = format!(
            "lines are known of {} ({share} %): of what was allocated in windows; --tensors on has all",
            size(bytes)
        );
        page.hanging(&" ".repeat(INDENT), &lines);
    }
}

/// `held by segments with less than 5 % in use (pinned by 3 tensors at T7, T12)`.
fn pinned(tensors: &AllocatorReport) -> String {
    let by = plural(tensors.pinned_by_tensors, "tensor");
    let sites = tensors.pinned_by_sites.iter();
    let sites = commas(sites.map(|id| format!("T{id}")));
    let at = if sites.is_empty() { "" } else { " at " };
    format!("held by segments with less than 5 % in use (pinned by {by}{at}{sites})")
}
