//! A call site: what it holds, since when, and from where, with the source lines around that.

use std::collections::HashMap;
use std::fmt::{self, Write};

use gpuprobe_model::stack::{Frame, Language};
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_report::memleak::{ProcessReport, SiteReport};
use gpuprobe_report::names::simplify;
use gpuprobe_report::words::{age, amount, plural, short_age, signed_size};
use gpuprobe_stacks::symbols::{SourceExcerpt, SourcePlace};

use super::SiteOnPage;
use super::process::word;
use super::style::verdict;

/// Allocations that are listed.
const LISTED: usize = 100;
/// Columns of the longest bar of the histogram.
const BAR: usize = 30;
/// Ends of the classes of the histogram of ages, seconds.
const AGES: [(u64, &str); 6] = [
    (1, "< 1s"),
    (10, "< 10s"),
    (60, "< 1m"),
    (600, "< 10m"),
    (3600, "< 1h"),
    (u64::MAX, ">= 1h"),
];

/// Lines that were read.
#[derive(Debug, Default)]
pub(crate) struct SourceTexts {
    /// Numbers and texts by place; none while they are asked for, and where the file cannot be read.
    known: HashMap<SourcePlace, Vec<(u32, String)>>,
}

impl SourceTexts {
    /// The places among `places` that were not asked for; they are from now on.
    pub(crate) fn want(&mut self, mut places: Vec<SourcePlace>) -> Vec<SourcePlace> {
        places.retain(|place| !self.known.contains_key(place));
        let wanted = places.iter().cloned();
        self.known.extend(wanted.map(|place| (place, Vec::new())));
        places
    }

    /// Lines that have arrived.
    pub(crate) fn add(&mut self, excerpt: SourceExcerpt) {
        self.known.insert(excerpt.place, excerpt.lines);
    }

    /// Writes the lines around the places of `site`, as far as they are known.
    fn write(&self, pid: u32, site: &SiteReport, out: &mut String) -> fmt::Result {
        for place in places(pid, site) {
            let Some(texts) = self.known.get(&place).filter(|texts| !texts.is_empty()) else {
                continue;
            };
            let title = format!("{}:{}", printable(&place.file), place.line);
            write_heading(&title, out)?;
            for (number, text) in texts {
                let (mark, tone) = match *number == place.line {
                    true => ('>', Tone::Heading),
                    false => (' ', Tone::Dim),
                };
                let text = format!("{mark} {number:>5}  {}", printable(text));
                writeln!(out, "{}", tone.paint(&text))?;
            }
        }
        Ok(())
    }
}

/// The lines of a call site: the one in its label, and that of the innermost Python frame.
pub(crate) fn places(pid: u32, site: &SiteReport) -> Vec<SourcePlace> {
    let labels = |frame: &&Frame| {
        let name = frame
            .file
            .as_deref()
            .and_then(|file| file.rsplit('/').next());
        let begin = name
            .zip(frame.line)
            .map(|(name, line)| format!("{name}:{line}"));
        let rest = begin.and_then(|begin| site.label.strip_prefix(&begin));
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_python = |frame: &&Frame| frame.language == Language::Python;
    let labelled = site.stack.iter().find(labels);
    let python = site.stack.iter().find(is_python);
    let frames = labelled.into_iter().chain(python);
    let places = frames.filter_map(|frame| {
        Some(SourcePlace {
            pid,
            file: frame.file.clone()?,
            line: frame.line?,
        })
    });
    let mut places: Vec<_> = places.collect();
    places.dedup();
    places
}

/// Everything about a call site, painted with tones.
pub(crate) fn text(
    (update, process, site): SiteOnPage<'_>,
    is_of_tensors: bool,
    sources: &SourceTexts,
) -> Result<String, fmt::Error> {
    let out = &mut String::new();
    writeln!(out, "{}", Tone::Heading.paint(&printable(&site.label)))?;
    write_facts(site, out)?;
    sources.write(process.pid, site, out)?;
    write_heading("call stack, innermost first", out)?;
    if site.stack.is_empty() {
        writeln!(out, "  unknown")?;
    }
    for frame in &site.stack {
        write_frame(frame, out)?;
    }
    if site.omitted_frames > 0 {
        let more = plural(site.omitted_frames, "more frame");
        writeln!(out, "  ... {more} (--depth)")?;
    }
    // Single tensors are in no report.
    if !is_of_tensors {
        write_allocations(process, site, update.now_ns, out)?;
    }
    Ok(std::mem::take(out))
}

fn write_heading(text: &str, out: &mut String) -> fmt::Result {
    writeln!(out, "\n{}", Tone::Heading.paint(text))
}

fn write_facts(site: &SiteReport, out: &mut String) -> fmt::Result {
    let (oldest_ns, newest_ns) = site.ages_ns;
    let held = amount(site.live.bytes(), site.live.allocations());
    write!(out, "holds {held}")?;
    if let Some(peak) = site.peak.exact() {
        write!(out, ", peak {}", size(peak))?;
    }
    if let Some(change) = site.change_bytes() {
        write!(out, ", {} since the last report", signed_size(change))?;
    }
    let allocated = amount(site.alloc_bytes, site.alloc_calls);
    let freed = amount(site.freed_bytes, site.free_calls);
    writeln!(out, "\nallocated {allocated}, freed {freed}")?;
    let (oldest, newest) = (age(oldest_ns), age(newest_ns));
    let (api, owner) = (&site.api, printable(&site.owner));
    writeln!(out, "oldest {oldest}, newest {newest}; by {api} of {owner}")?;
    let word = word(site);
    if let Some(judged) = site.judgement.as_ref().filter(|_| !word.is_empty()) {
        let stay = plural(judged.blocks, "allocation");
        let (bytes, frees) = (size(judged.bytes), plural(judged.frees, "free"));
        let word = verdict(word).paint(word);
        write!(out, "{word}: {stay} stay of {bytes}, {frees}")?;
        if let Some(rate) = judged.bytes_per_second {
            write!(out, ", {}/s for {}", size(rate as u64), age(judged.span_ns))?;
        }
        if judged.cycles > 0 {
            write!(out, ", {}", plural(u64::from(judged.cycles), "cycle"))?;
        }
        writeln!(out)?;
    }
    if site.variants > 1 {
        let stacks = plural(site.variants, "call stack");
        writeln!(out, "{stacks}, of which the largest is below")?;
    }
    Ok(())
}

/// Writes a frame, and its source line where that was read.
fn write_frame(frame: &Frame, out: &mut String) -> fmt::Result {
    let name = match frame.language.is_python() {
        true => Tone::Good.paint(&printable(&frame.function)),
        false => printable(&simplify(&frame.function)),
    };
    let place = match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", printable(file)),
        (Some(file), None) => printable(file),
        (None, _) => printable(&frame.module),
    };
    writeln!(out, "  {name}  {}", Tone::Dim.paint(&place))?;
    let mut source = frame.source.iter();
    source.try_for_each(|line| writeln!(out, "      {}", printable(line)))
}

/// Writes the allocations of the site that are listed, and their ages as a histogram.
fn write_allocations(
    process: &ProcessReport,
    site: &SiteReport,
    now_ns: u64,
    out: &mut String,
) -> fmt::Result {
    let threads = process.threads.iter();
    let all = threads.flat_map(|thread| thread.allocations.iter().map(move |one| (thread, one)));
    let here = all.filter(|(_, one)| one.site.is_some_and(|number| site.has_id(number)));
    let mut found: Vec<_> = here.collect();
    let held = site.live.allocations();
    if found.is_empty() && held > 0 {
        return write_heading("allocations are in the next report", out);
    }
    let which = match (found.len() as u64) < held {
        true => format!("the {} largest of {held} allocations", found.len()),
        false => plural(held, "allocation"),
    };
    write_heading(&format!("ages of {which}"), out)?;
    let age_of = |time_ns| now_ns.saturating_sub(time_ns);
    let mut counts = [0; AGES.len()];
    for (_, one) in &found {
        let seconds = age_of(one.time_ns) / 1_000_000_000;
        let class = AGES.iter().position(|(end, _)| seconds < *end);
        counts[class.unwrap_or(AGES.len() - 1)] += 1;
    }
    let most = counts.iter().max().copied().unwrap_or(0).max(1);
    for ((_, name), count) in AGES.iter().zip(counts) {
        let bar = "#".repeat((count * BAR).div_ceil(most));
        writeln!(out, "  {name:>6} {count:>8} {bar}")?;
    }
    write_heading(&format!("{which}, oldest first"), out)?;
    found.sort_by_key(|(_, one)| one.time_ns);
    for (thread, one) in found.iter().take(LISTED) {
        let (bytes, age) = (size(one.bytes), short_age(age_of(one.time_ns)));
        let comm = printable(thread.comm.as_deref().unwrap_or_default());
        let (address, kind) = (one.address, one.kind.name());
        writeln!(
            out,
            "  {address:#014x}  {bytes:>10}  {age:>5}  {kind}  {comm}"
        )?;
    }
    match found.len().checked_sub(LISTED) {
        Some(more @ 1..) => writeln!(out, "  ... {more} more"),
        _ => Ok(()),
    }
}
