//! Call sites and their stacks, for people.

mod stacks;

use stacks::StackDetail;
pub(crate) use stacks::folded;
use std::io::{self, Write};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::text::{printable, size};

use super::page::{Page, bar};
use super::table::{Column, ReportTable};
use crate::memleak::{Memleak, Omitted, Peak, ProcessReport, PytorchReport, SiteReport};
use crate::words::{amount, dim, plural, short_age, signed_size};
use crate::{View, verdict};

/// Blocks of the bar of a site that holds everything.
const BAR: usize = 10;

/// Lines that a site of a Python program takes at most, unless every frame is asked for.
const LISTING: usize = 12;

/// Writes the table of call sites, with their stacks if these are asked for.
pub(super) fn write_sites(
    process: &ProcessReport,
    sites: &[SiteReport],
    memleak: &Memleak,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_table(
        SiteListOwner::Cuda(process),
        sites,
        &memleak.view,
        page,
        out,
    )?;
    write_rest((process.omitted, process.filtered), sites, out)
}

/// Whose call sites are listed.
#[derive(Clone, Copy)]
pub(super) enum SiteListOwner<'a> {
    /// Where a process called CUDA.
    Cuda(&'a ProcessReport),
    /// Where tensors of a device were handed out in it.
    Tensors(&'a ProcessReport, &'a PytorchReport),
}

impl SiteListOwner<'_> {
    fn process(&self) -> &ProcessReport {
        match self {
            Self::Cuda(process) | Self::Tensors(process, _) => process,
        }
    }

    /// Bytes that shares are fractions of.
    fn all_bytes(&self) -> u64 {
        match self {
            Self::Cuda(process) => process.live.live_bytes,
            Self::Tensors(_, pytorch) => pytorch.allocated_bytes,
        }
    }

    /// Prefix of the numbers of sites.
    fn prefix(&self) -> &'static str {
        match self {
            Self::Cuda(_) => "",
            Self::Tensors(..) => "T",
        }
    }
}

/// Writes a table of call sites, with their stacks if these are asked for.
pub(super) fn write_table(
    held: SiteListOwner<'_>,
    sites: &[SiteReport],
    view: &View,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let listed: Vec<_> = sites.iter().filter(|site| has_memory(site)).collect();
    let lines = site_table(held, &listed).lines(page.columns);
    let stacks = StackDetail::of(sites, view, page);
    for (index, line) in lines.iter().enumerate() {
        writeln!(out, "{line}")?;
        let site = index
            .checked_sub(1)
            .and_then(|row| listed.get(row).copied());
        // Each row is followed by its stack.
        if let Some(site) = site.filter(|_| view.stacks_shown) {
            stacks.write(site, LISTING - 1, out)?;
        }
    }
    Ok(())
}

/// Whether a call site holds or held a byte; a static variable whose size the program did not ask for has none.
fn has_memory(site: &SiteReport) -> bool {
    site.live.bytes() > 0 || site.peak.most > 0
}

/// The table of call sites.
fn site_table(of: SiteListOwner<'_>, sites: &[&SiteReport]) -> ReportTable {
    let held = if of.process().exited {
        "NEVER FREED"
    } else {
        "HELD"
    };
    let columns = [
        Column::right("#"),
        Column::right(held),
        Column::right("%HELD"),
        Column::left("").needs_width(110),
        Column::right("CHANGE"),
        Column::right("PEAK").needs_width(110),
        Column::right("N"),
        Column::right("AGE"),
        Column::left("VERDICT")
            .needs_width(110)
            .painted(verdict::word_tone),
        Column::left("KIND"),
        Column::text("WHERE"),
        Column::text("VIA").needs_width(100),
    ];
    let mut table = ReportTable::new(0, &columns);
    let plain =
        |site: &SiteReport| matches!(site.kinds[..], [MemoryKind::Device | MemoryKind::Tensor]);
    let plain = sites.iter().copied().all(plain);
    for site in sites {
        table.row(site_cells(of, site, plain));
    }
    table
}

/// A row of the table; without the kind of memory if all are `plain`.
fn site_cells(of: SiteListOwner<'_>, site: &SiteReport, plain: bool) -> [String; 12] {
    let all = of.all_bytes().max(1);
    // Where a program gives sizes that do not add up, no part is more than all.
    let share = (site.live.live_bytes as f64 / all as f64).min(1.0);
    let of_gpu = |text: String| match site.live.live_bytes {
        0 => String::new(),
        _ => text,
    };
    let (oldest, newest) = (short_age(site.ages_ns.0), short_age(site.ages_ns.1));
    let kinds: Vec<_> = site.kinds.iter().map(|kind| kind.name()).collect();
    let change = site.change_bytes().filter(|_| !of.process().exited);
    [
        format!("{}{}", of.prefix(), site.id),
        size(site.live.bytes()),
        of_gpu(per_cent(share)),
        of_gpu(bar(share, BAR)),
        change.map_or(String::new(), signed_size),
        short_peak(site.peak),
        site.live.allocations().to_string(),
        if oldest == newest {
            oldest
        } else {
            format!("{oldest}..{newest}")
        },
        site.judgement
            .as_ref()
            .map_or(String::new(), |found| verdict::word(found).to_owned()),
        if plain {
            String::new()
        } else {
            kinds.join("+")
        },
        printable(&site.label),
        via(site),
    ]
}

/// `zeros_like > cudaMalloc and 1 other`.
fn via(site: &SiteReport) -> String {
    let others = match site.other_apis.len() {
        0 => String::new(),
        others => format!(" and {}", plural(others as u64, "other")),
    };
    printable(&site.via) + &others
}

/// `1.53 GiB`; `>=1.20 GiB` where it is not known how much it was.
fn short_peak(peak: Peak) -> String {
    let sign = if peak.exact().is_some() { "" } else { ">=" };
    format!("{sign}{}", size(peak.least))
}

/// `38` of 0.38; of less than half a per cent, `<1`.
pub(crate) fn per_cent(share: f64) -> String {
    if share > 0.0 && share < 0.005 {
        "<1".into()
    } else {
        format!("{:.0}", share * 100.0)
    }
}

/// Writes how many of the sites of a process are not listed, and how to list them.
pub(super) fn write_rest(
    (omitted, filtered): (Option<Omitted>, Option<Omitted>),
    sites: &[SiteReport],
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(Omitted {
        sites: more,
        allocations,
        bytes,
    }) = omitted
    {
        let (more, bytes) = (plural(more, "more site"), size(bytes));
        let allocations = plural(allocations, "allocation");
        let rest = format!("... {more}, {bytes} in {allocations} (--top all)");
        writeln!(out, "{}", dim(&rest))?;
    }
    if let Some(filtered) = filtered {
        let listed = sites.len() as u64;
        let all = listed + omitted.map_or(0, |left| left.sites) + filtered.sites;
        let all = plural(all, "site");
        let rest = amount(filtered.bytes, filtered.allocations);
        let rest = format!("{listed} of {all} shown; filtered out: {rest}");
        writeln!(out, "{}", dim(&rest))?;
    }
    Ok(())
}

/// Everything about one site.
pub(super) fn write_details(
    site: &SiteReport,
    held: SiteListOwner<'_>,
    sites: &[SiteReport],
    view: &View,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let SiteReport {
        alloc_bytes,
        alloc_calls,
        freed_bytes,
        free_calls,
        peak,
        ..
    } = *site;
    let (least, most) = (size(peak.least), size(peak.most));
    let parts = [
        format!("   allocated {}", amount(alloc_bytes, alloc_calls)),
        match free_calls {
            0 => "none freed".to_owned(),
            _ => format!("freed {}", amount(freed_bytes, free_calls)),
        },
        match peak.exact() {
            Some(_) => format!("peak {least}"),
            None => format!("peak {least} to {most}"),
        },
    ];
    let mut head = Vec::new();
    site_table(held, &[site]).write(page.columns, &mut head)?;
    page.list(&parts, "   ", &mut head)?;
    out.write_all(&head)?;
    let taken = head.iter().filter(|&&byte| byte == b'\n').count();
    let stacks = StackDetail::of(sites, view, page);
    stacks.write(site, LISTING.saturating_sub(taken), out)
}

/// Columns in front of a frame.
const FRAME_INDENT: usize = 6;
/// A frame gets no less, however narrow the page is.
const LEAST_FRAME: usize = 24;

/// Columns of a frame on a page of so many.
pub(crate) fn room(columns: Option<usize>) -> Option<usize> {
    columns.map(|columns| columns.saturating_sub(FRAME_INDENT).max(LEAST_FRAME))
}

/// The last line of a stack that does not reach the beginning of its thread.
const UNKNOWN_CALLER: &str = "... what called this is not known";
