//! Call sites and tensors of a process, for people.

use std::io::{self, Write};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::text::size;

use super::page::Page;
use super::stacks::{LISTING, StackDetail};
use crate::tables::memory::SiteRow;
use gpuprobe_report::View;
use gpuprobe_report::memleak::{Omitted, ProcessReport, PytorchReport, SiteReport};
use gpuprobe_report::words::{amount, percent, plural};

/// Columns before what is said of tensors.
const INDENT: usize = 18;

/// Call sites of a process, or of the tensors of a device in it.
#[derive(Clone, Copy)]
pub(super) struct SiteList<'a> {
    process: &'a ProcessReport,
    /// Bytes that shares are fractions of.
    all_bytes: u64,
    is_tensors: bool,
    sites: &'a [SiteReport],
    omitted: Option<Omitted>,
    filtered: Option<Omitted>,
}

impl<'a> SiteList<'a> {
    /// Where a process called CUDA.
    pub(super) fn new(process: &'a ProcessReport) -> Self {
        Self {
            process,
            all_bytes: process.live.live_bytes,
            is_tensors: false,
            sites: process.listed(),
            omitted: process.omitted,
            filtered: process.filtered,
        }
    }

    fn rows(&self, sites: &'a [SiteReport]) -> Vec<SiteRow<'a>> {
        let is_plain =
            |site: &SiteReport| matches!(site.kinds[..], [MemoryKind::Device | MemoryKind::Tensor]);
        let has_kind = !sites.iter().all(is_plain);
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
    pub(super) fn write(&self, top: usize, view: &View, page: &mut Page<'_>) -> io::Result<()> {
        let rows = self.rows(&self.sites[..self.sites.len().min(top)]);
        let stacks = self.stacks(view, page);
        let has_stacks = view.full_stacks || view.stacks_shown;
        page.detailed(SiteRow::columns(), &rows, |row| match has_stacks {
            true => stacks.lines(row.site, LISTING - 1),
            false => Vec::new(),
        })
    }

    fn stacks<'v>(&self, view: &'v View, page: &Page<'_>) -> StackDetail<'v> {
        StackDetail {
            view,
            layout: page.layout,
            is_python: self.sites.iter().any(|site| site.folded.is_some()),
        }
    }

    /// Writes how many sites are not listed, and how to list them.
    pub(super) fn write_rest(&self, page: &mut Page<'_>) -> io::Result<()> {
        if let Some(more) = self.omitted {
            let sites = plural(more.sites, "more site");
            let amount = amount(more.bytes, more.allocations);
            page.note(&format!("... {sites}, {amount} (--top all)"))?;
        }
        if let Some(filtered) = self.filtered {
            let listed = self.sites.len() as u64;
            let all = listed + self.omitted.map_or(0, |left| left.sites) + filtered.sites;
            let rest = amount(filtered.bytes, filtered.allocations);
            let all = plural(all, "site");
            page.note(&format!("{listed} of {all} shown; filtered out: {rest}"))?;
        }
        Ok(())
    }

    /// Writes everything about the site of this number.
    pub(super) fn write_one(
        &self,
        number: u32,
        view: &View,
        page: &mut Page<'_>,
    ) -> io::Result<()> {
        let Some(site) = self.sites.iter().find(|site| site.has_id(number)) else {
            let prefix = if self.is_tensors { "T" } else { "" };
            return writeln!(page, "nothing is live at site {prefix}{number}");
        };
        page.table(
            SiteRow::columns(),
            &self.rows(std::slice::from_ref(site)),
            0,
        )?;
        let allocated = amount(site.alloc_bytes, site.alloc_calls);
        let freed = amount(site.freed_bytes, site.free_calls);
        let peak = match site.peak.exact() {
            Some(peak) => size(peak),
            None => format!("{} to {}", size(site.peak.least), size(site.peak.most)),
        };
        writeln!(page, "   allocated {allocated}, freed {freed}, peak {peak}")?;
        page.lines(&self.stacks(view, page).lines(site, LISTING - 3))
    }
}

/// Writes what each device's allocator has handed out, and `top` call sites of each; nothing if there is none.
pub(super) fn write_tensors(
    process: &ProcessReport,
    view: &View,
    top: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let pytorch = process.pytorch.iter().map(|one| ("PyTorch cuda", one));
    let tensorflow = process.tensorflow.iter();
    for (name, tensors) in pytorch.chain(tensorflow.map(|one| ("TensorFlow GPU", one))) {
        write_sums(name, tensors, page)?;
        let Some(sites) = tensors.sites.as_deref() else {
            continue;
        };
        let list = SiteList {
            process,
            all_bytes: tensors.allocated_bytes,
            is_tensors: true,
            sites,
            omitted: tensors.omitted,
            filtered: tensors.filtered,
        };
        if let Some(number) = view.tensor_site {
            list.write_one(number, view, page)?;
            continue;
        }
        list.write(top, view, page)?;
        if top >= sites.len() {
            list.write_rest(page)?;
        }
    }
    Ok(())
}

/// Writes the memory handed out, and how it lies in the memory reserved from CUDA.
fn write_sums(name: &str, tensors: &PytorchReport, page: &mut Page<'_>) -> io::Result<()> {
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
    let name = format!("{name}:{}", tensors.device);
    page.hanging(&format!("{name:INDENT$}"), &format!("{sum}, in {segments}"))?;
    let cached = match tensors.segments {
        0 => 0,
        _ => tensors.cached_bytes(),
    };
    let largest = size(tensors.largest_free_bytes);
    let largest = format!("cached: largest free block {largest}");
    let is_pytorch = name.starts_with("PyTorch");
    let empty_cache = tensors.empty_cache_bytes * u64::from(cached > 0 && is_pytorch);
    let parts = [
        (cached, &*largest),
        (empty_cache, "would be given back by empty_cache()"),
        (tensors.pinned_by_small_bytes, &*pinned(tensors)),
        (tensors.before_bytes, "allocated before gpuprobe attached"),
        (
            reserved.saturating_sub(tensors.segment_bytes),
            "in segments from before: how full these are is not known",
        ),
    ];
    for (bytes, said) in parts.iter().filter(|(bytes, _)| *bytes > 0) {
        page.hanging(&" ".repeat(INDENT), &format!("{} {said}", size(*bytes)))?;
    }
    Ok(())
}

/// `held by segments with less than 5 % in use (3 tensors pin them: sites T7, T12)`.
fn pinned(tensors: &PytorchReport) -> String {
    let sites = tensors
        .pinned_by_sites
        .iter()
        .filter(|_| tensors.sites.is_some());
    let sites: Vec<_> = sites.map(|id| format!("T{id}")).collect();
    let by = plural(tensors.pinned_by_tensors, "tensor");
    let at = if sites.is_empty() { "" } else { " at " };
    let sites = sites.join(", ");
    format!("held by segments with less than 5 % in use (pinned by {by}{at}{sites})")
}
