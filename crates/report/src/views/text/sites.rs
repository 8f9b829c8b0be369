//! Call sites, for people.

use std::io::{self, Write};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::text::size;

use super::page::Page;
use super::stacks::{LISTING, StackDetail};
use super::table;
use crate::View;
use crate::memleak::{Omitted, ProcessReport, PytorchReport, SiteReport};
use crate::views::tables::memory::SiteRow;
use crate::words::{amount, plural};

/// Call sites of a process, or of the tensors of a device in it.
#[derive(Clone, Copy)]
pub(super) struct SiteList<'a> {
    process: &'a ProcessReport,
    /// Bytes that shares are fractions of.
    all_bytes: u64,
    is_tensors: bool,
    pub(super) sites: &'a [SiteReport],
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

    /// Where tensors of a device were handed out, if sites are known.
    pub(super) fn of_tensors(
        process: &'a ProcessReport,
        tensors: &'a PytorchReport,
    ) -> Option<Self> {
        Some(Self {
            process,
            all_bytes: tensors.allocated_bytes,
            is_tensors: true,
            sites: tensors.sites.as_deref()?,
            omitted: tensors.omitted,
            filtered: tensors.filtered,
        })
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
            has_process: false,
            has_kind,
        };
        sites.iter().map(row).collect()
    }

    /// Writes the table of the first `top` call sites, with their stacks if these are asked for.
    pub(super) fn write(&self, top: usize, view: &View, page: &mut Page<'_>) -> io::Result<()> {
        let rows = self.rows(&self.sites[..self.sites.len().min(top)]);
        if !view.full_stacks && !view.stacks_shown {
            return page.table(SiteRow::COLUMNS, &rows, 0);
        }
        let stacks = self.stacks(view, page);
        let lines = table::lines(SiteRow::COLUMNS, &rows, 0, page.layout);
        // The first line has the headings.
        let stacks = rows.iter().map(|row| stacks.lines(row.site, LISTING - 1));
        let stacks = std::iter::once(Vec::new()).chain(stacks);
        let mut lines = lines.into_iter().zip(stacks);
        lines.try_for_each(|(line, stack)| write_lines([line].iter().chain(&stack), page))
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
            let (all, rest) = (
                plural(all, "site"),
                amount(filtered.bytes, filtered.allocations),
            );
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
        let site = self.sites.iter().find(|site| site.has_id(number));
        let Some(site) = site else {
            let prefix = if self.is_tensors { "T" } else { "" };
            return writeln!(page, "nothing is live at site {prefix}{number}");
        };
        page.table(SiteRow::COLUMNS, &self.rows(std::slice::from_ref(site)), 0)?;
        let (least, most) = (size(site.peak.least), size(site.peak.most));
        let allocated = amount(site.alloc_bytes, site.alloc_calls);
        let freed = match site.free_calls {
            0 => "none freed".to_owned(),
            _ => format!("freed {}", amount(site.freed_bytes, site.free_calls)),
        };
        let peak = match site.peak.exact() {
            Some(_) => least,
            None => format!("{least} to {most}"),
        };
        writeln!(page, "   allocated {allocated}, {freed}, peak {peak}")?;
        let stack = self.stacks(view, page).lines(site, LISTING - 3);
        write_lines(&stack, page)
    }
}

pub(super) fn write_lines<'a>(
    lines: impl IntoIterator<Item = &'a String>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let mut lines = lines.into_iter();
    lines.try_for_each(|line| writeln!(page, "{line}"))
}
