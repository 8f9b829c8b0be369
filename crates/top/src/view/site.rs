//! A call site: what it holds, since when, and from where.

use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::{AllocationReport, ProcessReport, SiteReport};
use gpuprobe_report::names::simplify;
use gpuprobe_report::words::{age, amount, plural, short_age, signed_size};
use ratatui_core::text::{Line, Span};

use super::look::Theme;
use super::process::word;
use super::sources::SourceTexts;

/// Allocations that are listed.
const LISTED: usize = 100;
/// Columns of the longest bar of the histogram.
const BAR: u64 = 30;
/// Ends of the classes of the histogram of ages, nanoseconds.
const AGES: [(u64, &str); 6] = [
    (1, "< 1s"),
    (10, "< 10s"),
    (60, "< 1m"),
    (600, "< 10m"),
    (3600, "< 1h"),
    (u64::MAX, ">= 1h"),
];

/// The call site of a process with this number; of tensors, with their device.
pub(crate) fn find(
    process: &ProcessReport,
    device: Option<u16>,
    number: u32,
) -> Option<&SiteReport> {
    let sites = match device {
        None => process.listed(),
        Some(device) => {
            let mut pools = process.pytorch.iter().chain(&process.tensorflow);
            pools.find(|pool| pool.device == device)?.sites.as_deref()?
        }
    };
    sites.iter().find(|site| site.has_id(number))
}

/// Everything about `site`, in lines.
pub(crate) fn lines(
    (process, device, site): (&ProcessReport, Option<u16>, &SiteReport),
    sources: &SourceTexts,
    now_ns: u64,
    theme: Theme,
) -> Vec<Line<'static>> {
    let heading = |text: &str| Line::styled(text.to_owned(), theme.tone(Tone::Heading));
    let mut lines = vec![heading(&printable(&site.label))];
    lines.extend(facts(site, theme));
    lines.extend(sources.lines(process.pid, site, theme));
    lines.push(Line::default());
    lines.push(heading("call stack, innermost first"));
    match site.stack.is_empty() {
        true => lines.push(Line::from("  unknown")),
        false => lines.extend(
            site.stack
                .iter()
                .flat_map(|frame| frame_lines(frame, theme)),
        ),
    }
    if site.omitted_frames > 0 {
        let more = plural(site.omitted_frames, "more frame");
        lines.push(Line::from(format!("  ... {more} (--depth)")));
    }
    // Single tensors are in no report.
    if device.is_none() {
        lines.push(Line::default());
        lines.extend(allocations(process, site, now_ns, theme));
    }
    lines
}

fn facts(site: &SiteReport, theme: Theme) -> Vec<Line<'static>> {
    let (oldest_ns, newest_ns) = site.ages_ns;
    let held = amount(site.live.bytes(), site.live.allocations());
    let peak = site
        .peak
        .exact()
        .map_or(String::new(), |peak| format!(", peak {}", size(peak)));
    let change = site.change_bytes().map_or(String::new(), |change| {
        format!(", {} since the last report", signed_size(change))
    });
    let mut lines = vec![
        Line::from(format!("holds {held}{peak}{change}")),
        Line::from(format!(
            "allocated {}, freed {}",
            amount(site.alloc_bytes, site.alloc_calls),
            amount(site.freed_bytes, site.free_calls)
        )),
        Line::from(format!(
            "oldest {}, newest {}; by {} of {}",
            age(oldest_ns),
            age(newest_ns),
            site.api,
            printable(&site.owner)
        )),
    ];
    let word = word(site);
    if let Some(judged) = site.judgement.as_ref().filter(|_| !word.is_empty()) {
        let rate = judged.bytes_per_second.map_or(String::new(), |rate| {
            format!(", {}/s for {}", size(rate as u64), age(judged.span_ns))
        });
        let cycles = match judged.cycles {
            0 => String::new(),
            cycles => format!(", {}", plural(u64::from(cycles), "cycle")),
        };
        let said = format!(
            ": {} stay of {}, {}{rate}{cycles}",
            plural(judged.blocks, "allocation"),
            size(judged.bytes),
            plural(judged.frees, "free")
        );
        let word = Span::styled(word, theme.verdict(word));
        lines.push(Line::from(vec![word, Span::raw(said)]));
    }
    if site.variants > 1 {
        let stacks = plural(site.variants, "call stack");
        lines.push(Line::from(format!(
            "{stacks}, of which the largest is below"
        )));
    }
    lines
}

/// A frame, and its source line where that was read.
fn frame_lines(frame: &Frame, theme: Theme) -> Vec<Line<'static>> {
    let is_python = frame.language.is_python();
    let name = match is_python {
        true => printable(&frame.function),
        false => printable(&simplify(&frame.function)),
    };
    let place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", printable(file)),
        (Some(file), None) => printable(file),
        (None, _) => printable(&frame.module),
    };
    let style = match is_python {
        true => theme.tone(Tone::Good),
        false => ratatui_core::style::Style::new(),
    };
    let mut lines = vec![Line::from(vec![
        Span::raw("  "),
        Span::styled(name, style),
        Span::raw("  "),
        Span::styled(place, theme.tone(Tone::Dim)),
    ])];
    if let Some(source) = &frame.source {
        lines.push(Line::from(format!("      {}", printable(source))));
    }
    lines
}

/// The allocations of the site that are listed, and their ages as a histogram.
fn allocations(
    process: &ProcessReport,
    site: &SiteReport,
    now_ns: u64,
    theme: Theme,
) -> Vec<Line<'static>> {
    let heading = |text: String| Line::styled(text, theme.tone(Tone::Heading));
    let threads = process.threads.iter();
    let all = threads.flat_map(|thread| thread.allocations.iter().map(move |one| (thread, one)));
    let is_here = |one: &AllocationReport| one.site.is_some_and(|number| site.has_id(number));
    let mut found: Vec<_> = all.filter(|(_, one)| is_here(one)).collect();
    let held = site.live.allocations();
    if found.is_empty() && held > 0 {
        return vec![heading("allocations are in the next report".into())];
    }
    let which = match (found.len() as u64) < held {
        true => format!("the {} largest of {held} allocations", found.len()),
        false => plural(held, "allocation"),
    };
    let mut lines = vec![heading(format!("ages of {which}"))];
    lines.extend(histogram(found.iter().map(|(_, one)| age_of(one, now_ns))));
    lines.push(Line::default());
    lines.push(heading(format!("{which}, oldest first")));
    found.sort_by_key(|(_, one)| one.time_ns);
    for (thread, one) in found.iter().take(LISTED) {
        let comm = thread.comm.as_deref().unwrap_or_default();
        lines.push(Line::from(format!(
            "  {:#014x}  {:>10}  {:>5}  {}  {}",
            one.address,
            size(one.bytes),
            short_age(age_of(one, now_ns)),
            one.kind.name(),
            printable(comm)
        )));
    }
    if let Some(more @ 1..) = found.len().checked_sub(LISTED) {
        lines.push(Line::from(format!("  ... {more} more")));
    }
    lines
}

fn age_of(one: &AllocationReport, now_ns: u64) -> u64 {
    now_ns.saturating_sub(one.time_ns)
}

/// Number of ages in each class, with a bar.
fn histogram(ages_ns: impl Iterator<Item = u64>) -> Vec<Line<'static>> {
    let mut counts = [0u64; AGES.len()];
    for age_ns in ages_ns {
        let class = AGES
            .iter()
            .position(|(end, _)| age_ns / 1_000_000_000 < *end);
        counts[class.unwrap_or(AGES.len() - 1)] += 1;
    }
    let most = counts.iter().max().copied().unwrap_or(0).max(1);
    let line = |((_, name), count): (&(u64, &str), u64)| {
        let bar = "#".repeat(usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0));
        Line::from(format!("  {name:>6} {count:>8} {bar}"))
    };
    AGES.iter().zip(counts).map(line).collect()
}
