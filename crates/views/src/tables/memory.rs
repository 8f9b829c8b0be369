//! Memory: call sites, allocations, processes, kinds, growth and stacks.

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};

use super::{Cell, Column, both, bytes, count, cut, known, rare, shown, some, text, value};
use gpuprobe_report::analysis::diff::StackGrowth;
use gpuprobe_report::fold::{self, file_name, place};
use gpuprobe_report::lists::{self, AllocationRow};
use gpuprobe_report::memleak::{GpuShare, Memleak, Peak, ProcessReport, SiteReport};
use gpuprobe_report::words::{plural, short_age, signed_size};
use gpuprobe_report::{SortBy, micros, names, verdict};

/// A call site of a process, or of the tensors of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteRow<'a> {
    pub(crate) process: &'a ProcessReport,
    pub(crate) site: &'a SiteReport,
    /// Bytes that its share is of.
    pub(crate) all_bytes: u64,
    /// Whether it is of tensors.
    pub(crate) is_tensors: bool,
    /// Process id, in lists of several processes.
    pub(crate) pid: Option<u32>,
    /// Whether text has kinds of memory: not where all have the same.
    pub(crate) has_kind: bool,
}

impl<'a> SiteRow<'a> {
    /// The call sites of all processes.
    pub(crate) fn all(memleak: &'a Memleak, sort: SortBy, has_host: bool) -> Vec<Self> {
        let row = |(process, site): (&'a ProcessReport, _)| Self {
            process,
            site,
            all_bytes: memleak.live.live_bytes,
            is_tensors: false,
            pid: Some(process.pid).filter(|_| memleak.processes.len() > 1),
            has_kind: true,
        };
        lists::sites(memleak, sort, has_host)
            .into_iter()
            .map(row)
            .collect()
    }

    fn held(&self, exited: bool) -> Cell<'static> {
        bytes(Some(self.site.live.bytes()).filter(|_| self.process.exited == exited))
    }

    /// Its part of the GPU's memory. Where a program gives sizes that do not add up, no part is more than all.
    fn share(&self) -> Option<f64> {
        let bytes = Some(self.site.live.live_bytes).filter(|bytes| *bytes > 0)?;
        Some((bytes as f64 / self.all_bytes.max(1) as f64).min(1.0))
    }

    fn age(&self) -> String {
        let (oldest, newest) = self.site.ages_ns;
        let (oldest, newest) = (short_age(oldest), short_age(newest));
        match oldest == newest {
            true => oldest,
            false => format!("{oldest}..{newest}"),
        }
    }

    fn verdict(&self) -> Cell<'static> {
        let word = self.site.judgement.as_ref().map(verdict::word);
        some(word, |word| Cell::Toned(word, verdict::word_tone(word)))
    }

    /// `zeros_like > cudaMalloc and 1 other`.
    fn via(&self) -> String {
        match self.site.other_apis.len() as u64 {
            0 => self.site.via.clone(),
            others => format!("{} and {}", self.site.via, plural(others, "other")),
        }
    }

    fn change(&self) -> Option<i64> {
        let change = self.site.change_bytes();
        change.filter(|_| !self.process.exited)
    }

    fn kinds(&self, with: &str) -> String {
        let names: Vec<_> = self.site.kinds.iter().map(|kind| kind.name()).collect();
        names.join(with)
    }
}

/// `1.53 GiB`; `>=1.20 GiB` where it is not known how much it was.
fn peak(peak: Peak) -> Cell<'static> {
    let sign = if peak.exact().is_some() { "" } else { ">=" };
    Cell::Words(format!("{sign}{}", size(peak.least)))
}

/// The function that allocated memory of a kind; empty if unknown.
fn operation<'a>(api: &'a str, kind: &str) -> Cell<'a> {
    text(if api == kind { "" } else { api })
}

/// A call stack on one line, innermost frame first.
fn stack(frames: &[Frame]) -> Cell<'static> {
    let place = |frame: &Frame| match (frame.module.as_str(), &frame.file, frame.line) {
        ("", Some(file), Some(line)) => format!("{file}:{line}"),
        ("", Some(file), None) => file.clone(),
        ("", None, _) => "python".into(),
        (module, _, _) => module.to_owned(),
    };
    let frames = frames.iter();
    let frames = frames.map(|frame| format!("[{}] ({})", frame.function, place(frame)));
    text(frames.collect::<Vec<_>>().join(" -> "))
}

impl<'a> SiteRow<'a> {
    pub(crate) fn columns() -> &'a [Column<Self>] {
        &const {
            [
                shown("PID", 0, |r| count(r.pid)),
                shown("#", 0, |r| {
                    let prefix = if r.is_tensors { "T" } else { "" };
                    Cell::Words(format!("{prefix}{}", r.site.id))
                }),
                value("bytes", |r| bytes(r.site.live.bytes())),
                shown("HELD", 0, |r| r.held(false)),
                shown("NEVER FREED", 0, |r| r.held(true)),
                shown("%HELD", 1, |r| some(r.share(), Cell::Share)),
                shown("", 8, |r| some(r.share(), Cell::Bar)),
                shown("CHANGE", 2, |r| some(r.change(), Cell::Change)),
                shown("PEAK", 7, |r| peak(r.site.peak)),
                both("allocations", "N", 3, |r| count(r.site.live.allocations())),
                shown("AGE", 4, |r| Cell::Words(r.age())),
                shown("VERDICT", 0, SiteRow::verdict),
                shown("KIND", 5, |r| match r.has_kind {
                    true => text(r.kinds("+")),
                    false => Cell::None,
                }),
                value("kind", |r| text(r.kinds(" and "))),
                value("operation", |r| operation(&r.site.api, &r.kinds(" and "))),
                value("call_stack", |r| stack(&r.site.stack)),
                value("pid", |r| count(r.process.pid)),
                cut(36, shown("WHERE", 0, |r| text(&*r.site.label))),
                cut(20, shown("VIA", 6, |r| text(r.via()))),
            ]
        }
    }
}

fn gpu(r: &AllocationRow<'_>) -> String {
    match r.allocation.device {
        _ if r.allocation.at_host => "host".into(),
        Some(device) => device.to_string(),
        None => "?".into(),
    }
}

fn thread(r: &AllocationRow<'_>) -> String {
    let tid = r.thread.tid.map_or("?".into(), |tid| tid.to_string());
    format!("{}:{tid}", r.thread.comm.as_deref().unwrap_or("?"))
}

/// The name of an allocation, and what is special about its size.
fn notes(r: &AllocationRow<'_>) -> String {
    let allocation = r.allocation;
    let unknown = allocation.kind == MemoryKind::Static && allocation.bytes == 0;
    let notes = [
        (true, allocation.name.as_deref().unwrap_or("")),
        (allocation.computed, "(computed)"),
        (unknown, "(size unknown)"),
        (allocation.mapped_bytes == Some(0), "(not mapped)"),
    ];
    let notes = notes
        .into_iter()
        .filter(|(holds, note)| *holds && !note.is_empty());
    notes.map(|(_, note)| note).collect::<Vec<_>>().join(" ")
}

/// Allocations of files, and in text.
pub(crate) fn allocations<'a>() -> &'a [Column<AllocationRow<'a>>] {
    &const {
        [
            value("pid", |r| count(r.process.pid)),
            value("tid", |r| count(r.thread.tid)),
            value("device", |r| count(r.allocation.device)),
            both("address", "ADDRESS", 0, |r| {
                Cell::Address(r.allocation.address)
            }),
            value("start_time", |r| Cell::Words(r.since_first_ns.to_string())),
            both("bytes", "SIZE", 0, |r| bytes(r.allocation.bytes)),
            shown("GPU", 0, |r| Cell::Words(gpu(r))),
            both("kind", "KIND", 0, |r| text(r.allocation.kind.name())),
            shown("SITE", 0, |r| count(r.allocation.site)),
            shown("THREAD", 0, |r| text(thread(r))),
            value("operation", |r| {
                operation(&r.allocation.api, r.allocation.kind.name())
            }),
            value("var_name", |r| known(&r.allocation.name)),
            value("trace", |r| {
                text(r.site.and_then(|site| site.trace).unwrap_or("invalid"))
            }),
            value("call_stack", |r| {
                stack(r.site.map_or(&[], |site| &site.stack))
            }),
            cut(16, shown("NAME", 0, |r| text(notes(r)))),
        ]
    }
}

/// Allocations of a live run.
pub(crate) fn live<'a>() -> &'a [Column<AllocationRow<'a>>] {
    &const {
        [
            value("pid", |r| count(r.process.pid)),
            value("uid", |r| count(r.process.uid)),
            value("comm", |r| known(&r.process.comm)),
            value("exited", |r| Cell::Words(r.process.exited.to_string())),
            value("tid", |r| count(r.thread.tid)),
            value("thread", |r| known(&r.thread.comm)),
            value("address", |r| Cell::Address(r.allocation.address)),
            value("bytes", |r| bytes(r.allocation.bytes)),
            value("device", |r| count(r.allocation.device)),
            value("kind", |r| text(r.allocation.kind.name())),
            value("api", |r| text(&*r.allocation.api)),
            value("time", |r| text(micros(r.allocation.time.as_ref()))),
            value("name", |r| known(&r.allocation.name)),
            value("handle", |r| some(r.allocation.handle, Cell::Address)),
        ]
    }
}

/// Further columns if call sites are known. A stack has functions, innermost first, separated by semicolons; Python
/// frames with file and line.
pub(crate) fn live_sites<'a>() -> &'a [Column<AllocationRow<'a>>] {
    &const {
        [
            value("site", |r| count(r.allocation.site)),
            value("stack", |r| {
                let functions = r.site.iter().flat_map(|site| &site.stack).map(fold::text);
                text(functions.collect::<Vec<_>>().join(";"))
            }),
        ]
    }
}

/// A process in a list of all; on a GPU, if it is listed by GPU.
pub(crate) type ProcessLine<'a> = (&'a ProcessReport, Option<GpuShare>);

/// A size of a process as a whole, where there is any.
fn whole((_, share): &ProcessLine<'_>, size: u64) -> Cell<'static> {
    bytes(Some(size).filter(|bytes| *bytes > 0 && share.is_none()))
}

/// The call site that holds most.
fn top_site(process: &ProcessReport) -> &str {
    match process.largest_site() {
        _ if !process.traced => "(before attach)",
        Some(site) => &site.label,
        None => "",
    }
}

/// Processes, and what each has of a GPU.
pub(crate) fn processes<'a>() -> &'a [Column<ProcessLine<'a>>] {
    &const {
        [
            shown("PID", 0, |(p, _)| count(p.pid)),
            shown("USER", 1, |(p, _)| text(p.who().user())),
            shown("GPU", 1, |(p, share)| {
                let index =
                    |one: &GpuShare| one.index.map_or("?".into(), |index| index.to_string());
                let gpus = p.gpus.iter().filter(|_| share.is_none()).map(index);
                text(gpus.collect::<Vec<_>>().join(","))
            }),
            shown("HELD", 0, |r| whole(r, r.0.live.live_bytes)),
            shown("CHANGE", 2, |(p, share)| {
                some(p.change_bytes.filter(|_| share.is_none()), Cell::Change)
            }),
            shown("PEAK", 4, |r| whole(r, r.0.peak_bytes)),
            shown("N", 3, |(p, share)| {
                rare(Some(p.live.live_allocations).filter(|_| share.is_none()))
            }),
            shown("HOST MEMORY", 2, |r| whole(r, r.0.live.host_bytes)),
            shown("NVIDIA-SMI", 0, |(p, share)| match share {
                Some(share) => bytes(share.used_bytes),
                None => bytes(p.nvml.map(|nvml| nvml.used_bytes)),
            }),
            shown("TRACED", 0, |(_, share)| {
                bytes(
                    share
                        .map(|share| share.live_bytes)
                        .filter(|bytes| *bytes > 0),
                )
            }),
            shown("BEFORE+CTX", 3, |(_, share)| {
                let rest = |share: GpuShare| share.used_bytes?.checked_sub(share.live_bytes);
                bytes(share.and_then(rest))
            }),
            shown("PER MIN", 0, |(p, share)| {
                some(
                    p.change_bytes_per_minute.filter(|_| share.is_some()),
                    Cell::Change,
                )
            }),
            shown("CONTAINER", 2, |(p, _)| {
                let id = p.container.as_deref().unwrap_or("");
                text(id.get(..12).unwrap_or(id))
            }),
            cut(
                12,
                shown("COMMAND", 0, |(p, _)| {
                    let ended = if p.exited { " (ended)" } else { "" };
                    text(p.who().program() + ended)
                }),
            ),
            cut(14, shown("TOP SITE", 0, |(p, _)| text(top_site(p)))),
        ]
    }
}

/// Memory of one kind.
pub(crate) const KINDS: &[Column<(MemoryKind, Total)>] = &[
    shown("HELD", 0, |(_, total)| bytes(total.bytes)),
    shown("N", 0, |(_, total)| count(total.allocations)),
    shown("OF", 0, |(kind, _)| {
        text(match kind.belongs() {
            Belongs::Gpu => "GPU",
            Belongs::Host => "host",
            Belongs::Elsewhere => "others",
        })
    }),
    shown("KIND", 0, |(kind, _)| text(kind.name())),
];

/// A call site in two runs, in the comparison of this name.
pub(crate) type GrowthRow<'a> = (&'static str, &'a StackGrowth);

/// Growth of call sites.
pub(crate) fn growth<'a>() -> &'a [Column<GrowthRow<'a>>] {
    &const {
        [
            value("analysis", |(analysis, _)| text(*analysis)),
            value("delta", |(_, grown)| Cell::Words(grown.delta().to_string())),
            shown("CHANGE", 0, |(_, grown)| {
                Cell::Words(signed_size(grown.delta()))
            }),
            value("before", |(_, grown)| bytes(grown.bytes[0])),
            value("after", |(_, grown)| bytes(grown.bytes[1])),
            value("call_stack", |(_, grown)| text(grown.stack.join(" -> "))),
            shown("ALLOCATIONS", 0, |(_, grown)| {
                let [before, after] = grown.allocations;
                Cell::Words(format!("{before} -> {after}"))
            }),
            value("allocations_before", |(_, grown)| {
                count(grown.allocations[0])
            }),
            value("allocations_after", |(_, grown)| {
                count(grown.allocations[1])
            }),
            cut(
                24,
                both("label", "WHERE", 0, |(_, grown)| text(&*grown.label)),
            ),
        ]
    }
}

/// Frames of a stack, without headings: where, which function, and its source or module.
pub(crate) const FRAMES: &[Column<Frame>] = &[
    cut(
        12,
        shown("", 0, |frame| match &frame.file {
            Some(file) => text(place(file, frame.line)),
            None => text(file_name(&frame.module)),
        }),
    ),
    cut(
        12,
        shown("", 0, |frame| {
            let inlined = if frame.inlined { " [inlined]" } else { "" };
            let function = match frame.language.is_python() {
                true => frame.function.clone(),
                false => names::simplify(&printable(&frame.function)),
            };
            text(function + inlined)
        }),
    ),
    cut(
        10,
        shown("", 1, |frame| match (&frame.source, &frame.file) {
            (Some(source), _) => text(source.replace('\t', " ").trim().to_owned()),
            (None, Some(_)) if !frame.language.is_python() => text(file_name(&frame.module)),
            (None, _) => Cell::None,
        }),
    ),
];
