//! Memory: call sites, allocations, processes, kinds, growth and stacks.

use std::cmp::Reverse;
use std::collections::HashMap;

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::totals::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_stacks::cuda::file_name;

use super::{Cell, Column};
use crate::analysis::diff::StackGrowth;
use crate::fold::{is_python, place};
use crate::memleak::{
    AllocationReport, GpuShare, Memleak, Peak, ProcessReport, SiteReport, ThreadReport,
};
use crate::words::{plural, short_age};
use crate::{SortBy, fold, micros, names, verdict};

/// A call site of a process, or of the tensors of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteRow<'a> {
    pub(crate) process: &'a ProcessReport,
    pub(crate) site: &'a SiteReport,
    /// Bytes that its share is of.
    pub(crate) all_bytes: u64,
    /// Whether it is of tensors.
    pub(crate) is_tensors: bool,
    /// Whether text has the process and kinds of memory: not where all have the same.
    pub(crate) has_process: bool,
    pub(crate) has_kind: bool,
}

impl<'a> SiteRow<'a> {
    /// The call sites of all processes, largest first or as `sort` says.
    pub(crate) fn all(memleak: &'a Memleak, sort: SortBy, has_host: bool) -> Vec<Self> {
        let is_host = |kind: &MemoryKind| kind.belongs() == Belongs::Host;
        let of_process = |process: &'a ProcessReport| {
            let sites = process.sites.iter().flatten();
            sites.map(move |site| Self {
                process,
                site,
                all_bytes: memleak.live.live_bytes,
                is_tensors: false,
                has_process: memleak.processes.len() > 1,
                has_kind: true,
            })
        };
        let all = memleak.processes.iter().flat_map(of_process);
        let mut all: Vec<_> = all
            .filter(|row| has_host || !row.site.kinds.iter().all(is_host))
            .collect();
        all.sort_by_key(|row| {
            let (bytes, count) = (row.site.live.bytes(), row.site.live.allocations());
            let first = sort.first(count, u64::MAX - row.site.ages_ns.0);
            (first, Reverse(bytes), Reverse(count))
        });
        all
    }

    fn held(&self, exited: bool) -> Cell<'static> {
        match self.process.exited == exited {
            true => Cell::Bytes(self.site.live.bytes()),
            false => Cell::None,
        }
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
        Cell::of(self.site.judgement.as_ref(), |judgement| {
            let word = verdict::word(judgement);
            let tone = match word {
                "growing" | "growing per cycle" => Some(Tone::Bad),
                "growing?" | "freed late" => Some(Tone::Warning),
                "plateau" | "cache" | "one-off" => Some(Tone::Good),
                _ => None,
            };
            Cell::Toned(word, tone)
        })
    }

    /// `zeros_like > cudaMalloc and 1 other`.
    fn via(&self) -> String {
        match self.site.other_apis.len() as u64 {
            0 => self.site.via.clone(),
            others => format!("{} and {}", self.site.via, plural(others, "other")),
        }
    }
}

/// `1.53 GiB`; `>=1.20 GiB` where it is not known how much it was.
fn peak(peak: Peak) -> String {
    let sign = if peak.exact().is_some() { "" } else { ">=" };
    format!("{sign}{}", size(peak.least))
}

/// Names of kinds of memory, joined.
fn kinds(kinds: &[MemoryKind], with: &str) -> String {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    names.join(with)
}

/// The function that allocated memory of a kind; empty if unknown.
fn operation<'a>(api: &'a str, kind: &str) -> &'a str {
    if api == kind { "" } else { api }
}

/// A call stack on one line, innermost frame first.
fn stack(frames: &[Frame]) -> String {
    let place = |frame: &Frame| match (frame.module.as_str(), &frame.file, frame.line) {
        ("", Some(file), Some(line)) => format!("{file}:{line}"),
        ("", Some(file), None) => file.clone(),
        ("", None, _) => "python".into(),
        (module, _, _) => module.to_owned(),
    };
    let frames = frames.iter();
    let frames = frames.map(|frame| format!("[{}] ({})", frame.function, place(frame)));
    frames.collect::<Vec<_>>().join(" -> ")
}

impl<'a> SiteRow<'a> {
    pub(crate) const COLUMNS: &'a [Column<Self>] = &[
        Column::text("PID", 0, |r| match r.has_process {
            true => Cell::Count(r.process.pid.into()),
            false => Cell::None,
        }),
        Column::text("#", 0, |r| {
            let prefix = if r.is_tensors { "T" } else { "" };
            Cell::Words(format!("{prefix}{}", r.site.id))
        }),
        Column::value("bytes", |r| Cell::Bytes(r.site.live.bytes())),
        Column::text("HELD", 0, |r| r.held(false)),
        Column::text("NEVER FREED", 0, |r| r.held(true)),
        Column::text("%HELD", 1, |r| Cell::of(r.share(), Cell::Share)),
        Column::text("", 8, |r| Cell::of(r.share(), Cell::Bar)),
        Column::text("CHANGE", 2, |r| {
            let change = r.site.change_bytes().filter(|_| !r.process.exited);
            Cell::of(change, Cell::Change)
        }),
        Column::text("PEAK", 7, |r| Cell::Words(peak(r.site.peak))),
        Column::both("allocations", "N", 3, |r| {
            Cell::Count(r.site.live.allocations())
        }),
        Column::text("AGE", 4, |r| Cell::Words(r.age())),
        Column::text("VERDICT", 0, SiteRow::verdict),
        Column::text("KIND", 5, |r| match r.has_kind {
            true => Cell::text(kinds(&r.site.kinds, "+")),
            false => Cell::None,
        }),
        Column::value("kind", |r| Cell::text(kinds(&r.site.kinds, " and "))),
        Column::value("operation", |r| {
            Cell::text(operation(&r.site.api, &kinds(&r.site.kinds, " and ")))
        }),
        Column::value("call_stack", |r| Cell::text(stack(&r.site.stack))),
        Column::value("pid", |r| Cell::Count(r.process.pid.into())),
        Column::<Self>::text("WHERE", 0, |r| Cell::text(&*r.site.label)).min_width(36),
        Column::<Self>::text("VIA", 6, |r| Cell::text(r.via())).min_width(20),
    ];
}

/// An allocation of a report, with its process and thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationRow<'a> {
    pub(crate) process: &'a ProcessReport,
    pub(crate) thread: &'a ThreadReport,
    pub(crate) allocation: &'a AllocationReport,
    pub(crate) site: Option<&'a SiteReport>,
    /// When it was made, nanoseconds from the first memory event of a file.
    pub(crate) since_first_ns: i64,
}

impl<'a> AllocationRow<'a> {
    /// The allocations of a process, thread by thread; `first_ns` is the time of the first memory event.
    pub(crate) fn all(process: &'a ProcessReport, first_ns: u64) -> impl Iterator<Item = Self> {
        let sites = process.sites.iter().flatten();
        let sites: HashMap<_, _> = sites.map(|site| (site.id, site)).collect();
        let threads = process.threads.iter();
        let all = threads.flat_map(|thread| thread.allocations.iter().map(move |a| (thread, a)));
        all.map(move |(thread, allocation)| Self {
            process,
            thread,
            allocation,
            site: allocation.site.and_then(|site| sites.get(&site).copied()),
            since_first_ns: allocation.time_ns.wrapping_sub(first_ns).cast_signed(),
        })
    }

    fn place(&self) -> String {
        match self.allocation.device {
            _ if self.allocation.at_host => "host".into(),
            Some(device) => device.to_string(),
            None => "?".into(),
        }
    }

    fn thread(&self) -> String {
        let tid = self.thread.tid.map_or("?".into(), |tid| tid.to_string());
        format!("{}:{tid}", self.thread.comm.as_deref().unwrap_or("?"))
    }

    /// Its name, and what is special about its size.
    fn notes(&self) -> String {
        let allocation = self.allocation;
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
}

impl<'a> AllocationRow<'a> {
    const PID: Column<Self> = Column::value("pid", |r| Cell::Count(r.process.pid.into()));
    const TID: Column<Self> = Column::value("tid", |r| {
        Cell::of(r.thread.tid, |tid| Cell::Count(tid.into()))
    });
    const ADDRESS: Column<Self> = Column::both("address", "ADDRESS", 0, |r| {
        Cell::Address(r.allocation.address)
    });
    const BYTES: Column<Self> =
        Column::both("bytes", "SIZE", 0, |r| Cell::Bytes(r.allocation.bytes));
    const DEVICE: Column<Self> = Column::value("device", |r| {
        Cell::of(r.allocation.device, |device| Cell::Count(device.into()))
    });
    const KIND: Column<Self> =
        Column::both("kind", "KIND", 0, |r| Cell::text(r.allocation.kind.name()));

    /// Of files, and of text.
    pub(crate) const COLUMNS: &'a [Column<Self>] = &[
        Self::PID,
        Self::TID,
        Self::DEVICE,
        Self::ADDRESS,
        Column::value("start_time", |r| Cell::Words(r.since_first_ns.to_string())),
        Self::BYTES,
        Column::text("GPU", 0, |r| Cell::Words(r.place())),
        Self::KIND,
        Column::text("SITE", 0, |r| {
            Cell::of(r.allocation.site, |id| Cell::Count(id.into()))
        }),
        Column::text("THREAD", 0, |r| Cell::text(r.thread())),
        Column::value("operation", |r| {
            Cell::text(operation(&r.allocation.api, r.allocation.kind.name()))
        }),
        Column::value("var_name", |r| {
            Cell::of(r.allocation.name.as_deref(), Cell::text)
        }),
        Column::value("trace", |r| {
            Cell::text(r.site.and_then(|site| site.trace).unwrap_or("invalid"))
        }),
        Column::value("call_stack", |r| {
            Cell::text(r.site.map_or(String::new(), |site| stack(&site.stack)))
        }),
        Column::<Self>::text("NAME", 0, |r| Cell::text(r.notes())).min_width(16),
    ];

    /// Of a live run.
    pub(crate) const LIVE: &'a [Column<Self>] = &[
        Self::PID,
        Column::value("uid", |r| {
            Cell::of(r.process.uid, |uid| Cell::Count(uid.into()))
        }),
        Column::value("comm", |r| Cell::of(r.process.comm.as_deref(), Cell::text)),
        Column::value("exited", |r| Cell::Words(r.process.exited.to_string())),
        Self::TID,
        Column::value("thread", |r| Cell::of(r.thread.comm.as_deref(), Cell::text)),
        Self::ADDRESS,
        Self::BYTES,
        Self::DEVICE,
        Self::KIND,
        Column::value("api", |r| Cell::text(&*r.allocation.api)),
        Column::value("time", |r| Cell::text(micros(r.allocation.time.as_ref()))),
        Column::value("name", |r| {
            Cell::of(r.allocation.name.as_deref(), Cell::text)
        }),
        Column::value("handle", |r| Cell::of(r.allocation.handle, Cell::Address)),
    ];

    /// Further columns if call sites are known. A stack has functions, innermost first, separated by semicolons;
    /// Python frames with file and line.
    pub(crate) const SITES: &'a [Column<Self>] = &[
        Column::value("site", |r| {
            Cell::of(r.allocation.site, |id| Cell::Count(id.into()))
        }),
        Column::value("stack", |r| {
            Cell::of(r.site, |site| {
                let functions = site.stack.iter().map(fold::text);
                Cell::text(functions.collect::<Vec<_>>().join(";"))
            })
        }),
    ];
}

/// A process in a list of all; on a GPU, if it is listed by GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessLine<'a> {
    pub(crate) process: &'a ProcessReport,
    pub(crate) share: Option<GpuShare>,
}

impl ProcessLine<'_> {
    /// A figure of the process as a whole.
    fn whole(&self, cell: fn(&ProcessReport) -> Cell<'static>) -> Cell<'static> {
        match self.share {
            None => cell(self.process),
            Some(_) => Cell::None,
        }
    }

    /// The call site that holds most.
    fn top_site(&self) -> &str {
        let sites = self.process.listed().iter();
        match sites.max_by_key(|site| site.live.live_bytes) {
            _ if !self.process.traced => "(before attach)",
            Some(site) => &site.label,
            None => "",
        }
    }
}

/// A size, where there is any.
fn some(bytes: u64) -> Cell<'static> {
    Cell::of(Some(bytes).filter(|bytes| *bytes > 0), Cell::Bytes)
}

impl<'a> ProcessLine<'a> {
    pub(crate) const COLUMNS: &'a [Column<Self>] = &[
        Column::text("PID", 0, |r| Cell::Count(r.process.pid.into())),
        Column::text("USER", 1, |r| Cell::text(r.process.who().user())),
        Column::text("GPU", 1, |r| {
            let index =
                |share: &GpuShare| share.index.map_or("?".into(), |index| index.to_string());
            let gpus: Vec<_> = r.process.gpus.iter().map(index).collect();
            Cell::text(if r.share.is_none() {
                gpus.join(",")
            } else {
                String::new()
            })
        }),
        Column::text("HELD", 0, |r| r.whole(|p| some(p.live.live_bytes))),
        Column::text("CHANGE", 2, |r| {
            r.whole(|p| Cell::of(p.change_bytes, Cell::Change))
        }),
        Column::text("PEAK", 4, |r| r.whole(|p| some(p.peak_bytes))),
        Column::text("N", 3, |r| r.whole(|p| Cell::Rare(p.live.live_allocations))),
        Column::text("HOST MEMORY", 2, |r| r.whole(|p| some(p.live.host_bytes))),
        Column::text("NVIDIA-SMI", 0, |r| {
            let used = match &r.share {
                Some(share) => share.used_bytes,
                None => r.process.nvml.map(|nvml| nvml.used_bytes),
            };
            Cell::of(used, Cell::Bytes)
        }),
        Column::text("TRACED", 0, |r| {
            Cell::of(r.share, |share| some(share.live_bytes))
        }),
        Column::text("BEFORE+CTX", 3, |r| {
            let rest = |share: GpuShare| share.used_bytes?.checked_sub(share.live_bytes);
            Cell::of(r.share.and_then(rest), Cell::Bytes)
        }),
        Column::text("PER MIN", 0, |r| {
            let change = r
                .process
                .change_bytes_per_minute
                .filter(|_| r.share.is_some());
            Cell::of(change, Cell::Change)
        }),
        Column::text("CONTAINER", 2, |r| {
            let id = r.process.container.as_deref().unwrap_or("");
            Cell::text(id.get(..12).unwrap_or(id))
        }),
        Column::<Self>::text("COMMAND", 0, |r| {
            let ended = if r.process.exited { " (ended)" } else { "" };
            Cell::text(r.process.who().program() + ended)
        })
        .min_width(12),
        Column::<Self>::text("TOP SITE", 0, |r| Cell::text(r.top_site())).min_width(14),
    ];
}

/// Memory of one kind.
pub(crate) const KINDS: &[Column<(MemoryKind, Total)>] = &[
    Column::text("HELD", 0, |(_, total)| Cell::Bytes(total.bytes)),
    Column::text("N", 0, |(_, total)| Cell::Count(total.allocations)),
    Column::text("OF", 0, |(kind, _)| {
        Cell::text(match kind.belongs() {
            Belongs::Gpu => "GPU",
            Belongs::Host => "host",
            Belongs::Elsewhere => "others",
        })
    }),
    Column::text("KIND", 0, |(kind, _)| Cell::text(kind.name())),
];

/// A call site in two runs, in the comparison of this name.
pub(crate) type GrowthRow<'a> = (&'static str, &'a StackGrowth);

/// Growth of call sites.
pub(crate) const fn growth<'a>() -> [Column<GrowthRow<'a>>; 10] {
    [
        Column::value("analysis", |(analysis, _)| Cell::text(*analysis)),
        Column::value("delta", |(_, grown)| Cell::Words(grown.delta().to_string())),
        Column::text("CHANGE", 0, |(_, grown)| Cell::Words(signed(grown.delta()))),
        Column::value("before", |(_, grown)| Cell::Bytes(grown.bytes[0])),
        Column::value("after", |(_, grown)| Cell::Bytes(grown.bytes[1])),
        Column::value("call_stack", |(_, grown)| {
            Cell::text(grown.stack.join(" -> "))
        }),
        Column::text("ALLOCATIONS", 0, |(_, grown)| {
            let [before, after] = grown.allocations;
            Cell::Words(format!("{before} -> {after}"))
        }),
        Column::value("allocations_before", |(_, grown)| {
            Cell::Count(grown.allocations[0])
        }),
        Column::value("allocations_after", |(_, grown)| {
            Cell::Count(grown.allocations[1])
        }),
        Column::<GrowthRow<'a>>::both("label", "WHERE", 0, |(_, grown)| Cell::text(&*grown.label))
            .min_width(24),
    ]
}

/// A signed size: `+4.00 MiB`.
pub(crate) fn signed(bytes: i128) -> String {
    let sign = if bytes < 0 { '-' } else { '+' };
    let bytes = u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", size(bytes))
}

/// Frames of a stack, without headings: where, which function, and its source or module.
pub(crate) const FRAMES: &[Column<Frame>] = &[
    Column::<Frame>::text("", 0, |frame| match &frame.file {
        Some(file) => Cell::text(place(file, frame.line)),
        None => Cell::text(file_name(&frame.module)),
    })
    .min_width(12),
    Column::<Frame>::text("", 0, |frame| {
        let inlined = if frame.inlined { " [inlined]" } else { "" };
        let function = match is_python(frame) {
            true => frame.function.clone(),
            false => names::simplify(&printable(&frame.function)),
        };
        Cell::text(function + inlined)
    })
    .min_width(12),
    Column::<Frame>::text("", 1, |frame| match (&frame.source, &frame.file) {
        (Some(source), _) => Cell::text(source.replace('\t', " ").trim().to_owned()),
        (None, Some(_)) if !is_python(frame) => Cell::text(file_name(&frame.module)),
        (None, _) => Cell::None,
    })
    .min_width(10),
];
