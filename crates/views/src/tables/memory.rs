//! Memory: call sites, allocations, processes, kinds, growth and stacks.

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};

use super::{Cell, Column, both, count, known, shown, some, text, value};
use gpuprobe_analysis::diff::StackGrowth;
use gpuprobe_report::fold::{self, file_name, place};
use gpuprobe_report::label::python_name;
use gpuprobe_report::lists::{self, AllocationRow};
use gpuprobe_report::memleak::{GpuShare, Memleak, Peak, ProcessReport, SiteReport};
use gpuprobe_report::verdict::{Judgement, Verdict};
use gpuprobe_report::words::{short_age, signed_size};
use gpuprobe_report::{SortBy, micros, names};

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
            all_bytes: memleak.live.gpu.bytes,
            is_tensors: false,
            pid: Some(process.who.pid).filter(|_| memleak.processes.len() > 1),
            has_kind: true,
        };
        let sites = lists::sites(memleak, sort, has_host).into_iter();
        sites.map(row).collect()
    }

    fn held(&self, exited: bool) -> Cell<'static> {
        match self.process.exited == exited {
            true => Cell::Bytes(self.site.live.all().bytes),
            false => Cell::None,
        }
    }

    /// Its part of the GPU's memory. Where a program gives sizes that do not add up, no part is more than all.
    fn share(&self) -> Option<f64> {
        let bytes = Some(self.site.live.gpu.bytes).filter(|bytes| *bytes > 0)?;
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
        let judgement = self.site.judgement.as_ref();
        // That something was never freed, the heading says.
        let shown = judgement.map(Judgement::shown);
        let shown = shown.filter(|shown| *shown != Verdict::NeverFreed);
        some(shown, Cell::Verdict)
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
                value("bytes", |r| Cell::Bytes(r.site.live.all().bytes)),
                shown("HELD", 0, |r| r.held(false)),
                shown("NEVER FREED", 0, |r| r.held(true)),
                shown("%", 8, |r| some(r.share(), Cell::Share)),
                shown("", 9, |r| some(r.share(), Cell::Bar)),
                shown("CHANGE", 2, |r| some(r.change(), Cell::Change)),
                shown("PEAK", 7, |r| peak(r.site.peak)),
                both("allocations", "N", 3, |r| {
                    Cell::Count(r.site.live.all().allocations)
                }),
                shown("AGE", 4, |r| Cell::Words(r.age())),
                shown("VERDICT", 0, SiteRow::verdict),
                shown("KIND", 5, |r| match r.has_kind {
                    true => text(r.kinds("+")),
                    false => Cell::None,
                }),
                value("kind", |r| text(r.kinds(" and "))),
                value("operation", |r| operation(&r.site.api, &r.kinds(" and "))),
                value("call_stack", |r| stack(&r.site.stack)),
                value("pid", |r| Cell::Count(r.process.who.pid.into())),
                shown("WHERE", 0, |r: &Self| Cell::Path(&r.site.label)).cut(36),
                shown("VIA", 6, |r: &Self| text(&*r.site.via)).cut(20),
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
    let note = match allocation.kind {
        MemoryKind::Static if allocation.bytes == 0 => " (size unknown)",
        _ if allocation.computed => " (computed)",
        _ if allocation.mapped_bytes == Some(0) => " (not mapped)",
        _ => "",
    };
    let name = allocation.name.as_deref().unwrap_or("");
    format!("{name}{note}").trim_start().to_owned()
}

/// Allocations of files, and in text.
pub(crate) fn allocations<'a>() -> &'a [Column<AllocationRow<'a>>] {
    &const {
        [
            value("pid", |r| Cell::Count(r.process.who.pid.into())),
            value("tid", |r| count(r.thread.tid)),
            value("device", |r| count(r.allocation.device)),
            both("address", "ADDRESS", 0, |r| {
                Cell::Address(r.allocation.address)
            }),
            value("start_time", |r| Cell::Words(r.since_first_ns.to_string())),
            both("bytes", "SIZE", 0, |r| Cell::Bytes(r.allocation.bytes)),
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
            shown("NAME", 0, |r| text(notes(r))).cut(16),
        ]
    }
}

/// Allocations of a live run.
pub(crate) fn live<'a>() -> &'a [Column<AllocationRow<'a>>] {
    &const {
        [
            value("pid", |r| Cell::Count(r.process.who.pid.into())),
            value("uid", |r| count(r.process.who.uid)),
            value("comm", |r| known(&r.process.who.comm)),
            value("exited", |r| Cell::Words(r.process.exited.to_string())),
            value("tid", |r| count(r.thread.tid)),
            value("thread", |r| known(&r.thread.comm)),
            value("address", |r| Cell::Address(r.allocation.address)),
            value("bytes", |r| Cell::Bytes(r.allocation.bytes)),
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

/// What a process has as a whole, in a list without GPUs.
fn whole<'a, T>((_, share): &ProcessLine<'_>, value: T, cell: fn(T) -> Cell<'a>) -> Cell<'a> {
    match share {
        None => cell(value),
        Some(_) => Cell::None,
    }
}

/// A size, where there is any.
fn held(bytes: u64) -> Cell<'static> {
    match bytes {
        0 => Cell::None,
        bytes => Cell::Bytes(bytes),
    }
}

fn change(bytes: Option<i64>) -> Cell<'static> {
    some(bytes, Cell::Change)
}

fn gpus(p: &ProcessReport) -> Cell<'static> {
    let index = |one: &GpuShare| one.index.map_or("?".into(), |index| index.to_string());
    text(p.gpus.iter().map(index).collect::<Vec<_>>().join(","))
}

/// What NVML says that a process uses of a GPU, but is not traced.
fn rest(share: GpuShare) -> Option<u64> {
    share.used_bytes?.checked_sub(share.live_bytes)
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
            shown("PID", 0, |(p, _)| Cell::Count(p.who.pid.into())),
            shown("USER", 1, |(p, _)| text(p.who.user())),
            shown("GPU", 1, |r| whole(r, r.0, gpus)),
            shown("HELD", 0, |r| whole(r, r.0.live.gpu.bytes, held)),
            shown("CHANGE", 2, |r| whole(r, r.0.change_bytes, change)),
            shown("PEAK", 4, |r| whole(r, r.0.peak_bytes, held)),
            shown("N", 3, |r| whole(r, r.0.live.gpu.allocations, Cell::Rare)),
            shown("HOST MEMORY", 2, |r| whole(r, r.0.live.host.bytes, held)),
            shown("NVIDIA-SMI", 0, |(p, share)| match share {
                Some(share) => some(share.used_bytes, Cell::Bytes),
                None => some(p.nvml.map(|nvml| nvml.used_bytes), Cell::Bytes),
            }),
            shown("TRACED", 0, |(_, share)| {
                share.map_or(Cell::None, |share| held(share.live_bytes))
            }),
            shown("BEFORE+CTX", 3, |(_, share)| {
                some(share.and_then(rest), Cell::Bytes)
            }),
            shown("LAST MIN", 0, |(p, share)| {
                change(share.and(p.change_bytes_per_minute))
            }),
            shown("CONTAINER", 2, |(p, _)| {
                let id = p.container.as_deref().unwrap_or("");
                text(id.get(..12).unwrap_or(id))
            }),
            shown("COMMAND", 0, |(p, _): &ProcessLine<'_>| text(p.program())).cut(12),
            shown("TOP SITE", 0, |(p, _): &ProcessLine<'_>| {
                Cell::Path(top_site(p))
            })
            .cut(14),
        ]
    }
}

/// Memory of one kind.
pub(crate) const KINDS: &[Column<(MemoryKind, Total)>] = &[
    shown("HELD", 0, |(_, total)| Cell::Bytes(total.bytes)),
    shown("N", 0, |(_, total)| Cell::Count(total.allocations)),
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
            value("delta", |(_, g)| Cell::Words(g.delta().to_string())),
            shown("CHANGE", 0, |(_, g)| Cell::Words(signed_size(g.delta()))),
            value("before", |(_, g)| Cell::Bytes(g.bytes[0])),
            value("after", |(_, g)| Cell::Bytes(g.bytes[1])),
            value("call_stack", |(_, g)| text(g.stack.join(" -> "))),
            shown("ALLOCATIONS", 0, |(_, g)| {
                let [before, after] = g.allocations;
                Cell::Words(format!("{before} -> {after}"))
            }),
            value("allocations_before", |(_, g)| Cell::Count(g.allocations[0])),
            value("allocations_after", |(_, g)| Cell::Count(g.allocations[1])),
            both("label", "WHERE", 0, |(_, g): &GrowthRow<'_>| {
                text(&*g.label)
            })
            .cut(24),
        ]
    }
}

/// Frames of a stack, without headings: where, which function, and its source or module.
pub(crate) const FRAMES: &[Column<Frame>] = &[
    shown("", 0, |frame| text(frame_place(frame))).cut(12),
    shown("", 0, |frame| text(frame_function(frame))).cut(12),
    shown("", 1, |frame: &Frame| match (&frame.source, &frame.file) {
        (Some(source), _) => text(source.replace('\t', " ").trim().to_owned()),
        (None, Some(_)) if !frame.language.is_python() => text(file_name(&frame.module)),
        (None, _) => Cell::None,
    })
    .cut(10),
];

/// `pool.h:17`, or the module.
pub(crate) fn frame_place(frame: &Frame) -> String {
    match &frame.file {
        Some(file) => place(file, frame.line),
        None => file_name(&frame.module).to_owned(),
    }
}

fn frame_function(frame: &Frame) -> String {
    let inlined = if frame.inlined { " [inlined]" } else { "" };
    match frame.language.is_python() {
        true => python_name(&frame.function),
        false => names::simplify(&printable(&frame.function)) + inlined,
    }
}
