//! Call sites and their stacks, for people.

use std::io::{self, Write};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda;

use super::page::{Page, bar};
use super::python::{self, StackLength};
use super::table::{Column, ReportTable};
use crate::fold::{Folded, is_python};
use crate::memleak::{LeftOut, Memleak, Peak, ProcessReport, PytorchReport, SiteReport};
use crate::words::{amount, dim, plural, short_age, signed_size};
use crate::{View, names, verdict};

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
            .painted(verdict_tone),
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

/// Tone of a verdict in a table.
fn verdict_tone(word: &str) -> Option<Tone> {
    match word {
        "growing" | "growing per cycle" => Some(Tone::Bad),
        "growing?" | "freed late" => Some(Tone::Warning),
        "plateau" | "cache" | "one-off" => Some(Tone::Good),
        _ => None,
    }
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
    (omitted, filtered): (Option<LeftOut>, Option<LeftOut>),
    sites: &[SiteReport],
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(LeftOut {
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

/// How stacks are written.
struct StackDetail<'a> {
    view: &'a View,
    columns: Option<usize>,
    /// The program is Python's: what has no Python in it is folded too.
    is_python: bool,
}

impl<'a> StackDetail<'a> {
    fn of(sites: &[SiteReport], view: &'a View, page: &Page) -> Self {
        Self {
            view,
            columns: room(page.columns),
            is_python: sites.iter().any(|site| site.folded.is_some()),
        }
    }

    /// Writes the stack of a site, of a Python program in at most `max` lines.
    fn write(&self, site: &SiteReport, max: usize, out: &mut dyn Write) -> io::Result<()> {
        self.lines(site, max)
            .iter()
            .try_for_each(|line| writeln!(out, "      {line}"))
    }

    fn lines(&self, site: &SiteReport, max: usize) -> Vec<String> {
        let is_whole = self.view.full_stacks || self.view.stacks_native;
        match &site.folded {
            Some(folded) if !is_whole => {
                let cut = (!site.complete).then_some(UNKNOWN_CALLER);
                let room = StackLength {
                    columns: self.columns.unwrap_or(usize::MAX),
                    lines: max.saturating_sub(cut.iter().len()),
                    depth: self.view.depth,
                };
                let mut lines = python::lines(folded, site.variants, &room);
                lines.extend(cut.map(dim));
                lines
            }
            _ => {
                let lines = self.frames(site);
                match self.is_python && !is_whole && lines.len() > max {
                    true => folded_lines(&lines, max),
                    false => lines,
                }
            }
        }
    }

    /// A line for each frame.
    fn frames(&self, site: &SiteReport) -> Vec<String> {
        if site.stack.is_empty() && site.omitted_frames == 0 {
            return vec![dim("(no call stack)")];
        }
        let shown = match self.view.full_stacks {
            true => site.stack.len(),
            false => down_to_start(&site.stack, |frame| &frame.function),
        };
        let frames = &site.stack[..shown];
        let lines: Vec<_> = frames.iter().map(frame_line).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let mut lines = names::cut(&lines, self.columns);
        if site.omitted_frames > 0 {
            let more = plural(site.omitted_frames, "more frame");
            lines.push(dim(&format!("... {more}")));
        } else if !site.complete && shown == site.stack.len() {
            lines.push(dim(UNKNOWN_CALLER));
        }
        lines
    }
}

/// The lines of a folded stack that follow a row of a table, on a page of so many columns.
pub(crate) fn folded(folded: &Folded, view: &View, columns: Option<usize>) -> Vec<String> {
    let room = StackLength {
        columns: room(columns).unwrap_or(usize::MAX),
        lines: LISTING - 1,
        depth: view.depth,
    };
    python::lines(folded, 1, &room)
}

/// The last line of a stack that does not reach the beginning of its thread.
const UNKNOWN_CALLER: &str = "... what called this is not known";

/// The innermost and the outermost of the lines of a stack, `max` in all.
fn folded_lines(lines: &[String], max: usize) -> Vec<String> {
    let (inner, outer) = python::ends(lines.len(), None, max.max(1));
    let more = lines.len() - inner - outer;
    let fold = dim(&format!(
        "… {} (--full-stacks)",
        plural(more as u64, "more frame")
    ));
    let fold = std::iter::once(fold);
    let outermost = lines[lines.len() - outer..].iter().cloned();
    lines[..inner]
        .iter()
        .cloned()
        .chain(fold)
        .chain(outermost)
        .collect()
}

/// `function  file:line  (module) [inlined]`; of Python, `function  file:line  (Python)  source`.
fn frame_line(frame: &Frame) -> String {
    let is_python = is_python(frame);
    let mut line = match is_python {
        true => printable(&frame.function),
        false => printable(&names::simplify(&frame.function)),
    };
    if let Some(file) = &frame.file {
        line += &format!("  {}", printable(file));
        if let Some(number) = frame.line {
            line += &format!(":{number}");
        }
    }
    line += &match is_python {
        true => "  (Python)".to_owned(),
        false => format!("  ({})", printable(cuda::file_name(&frame.module))),
    };
    if frame.inlined {
        line += " [inlined]";
    }
    if let Some(source) = &frame.source {
        line += &format!("  {}", printable(source.replace('\t', " ").trim()));
    }
    line
}
