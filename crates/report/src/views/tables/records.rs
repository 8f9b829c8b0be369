//! GPU activity: single records, and the sums of a process as rows of one table.

use std::borrow::Cow;

use gpuprobe_cuda::{kinds, names, nsys};
use gpuprobe_model::activity::{Activity, ActivityRecord};
use gpuprobe_model::text::printable;
use gpuprobe_wire as wire;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::work::Work;
use super::{Cell, Column};
use crate::activity::{DeviceSummary, MemorySummary, ProcessSummary, Times};

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct PerRecordLine<'a> {
    /// The record from CUPTI.
    pub activity: &'a Activity,
    /// Name in the record; demangled if it is of a kernel.
    pub name: Option<&'a str>,
    /// Name (comm) of the process, if known.
    pub comm: Option<&'a str>,
    /// When tracing began, `CLOCK_MONOTONIC` nanoseconds; times are relative to it.
    pub began_ns: u64,
}

/// Columns of single records, which are also the keys of a record in JSON.
pub(crate) const RECORD: [&str; 22] = [
    "kind",
    "pid",
    "tid",
    "start_ns",
    "end_ns",
    "name",
    "mangled",
    "detail",
    "device",
    "context",
    "stream",
    "correlation",
    "bytes",
    "source",
    "destination",
    "address",
    "value",
    "result",
    "grid",
    "block",
    "graph_node",
    "external_id",
];

/// Fields that text has in front of the others, in a form of its own, or not at all.
const IN_FRONT: [&str; 7] = [
    "kind", "detail", "name", "start_ns", "end_ns", "pid", "mangled",
];

/// Fields of a record by name, without those that it does not have; what is no [`RECORD`] column is for text only.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    began_ns: u64,
    cells: Vec<(&'static str, Cell<'a>)>,
}

impl<'a> Fields<'a> {
    fn put(mut self, name: &'static str, cell: Cell<'a>) -> Self {
        if !matches!(cell, Cell::None) {
            self.cells.push((name, cell));
        }
        self
    }

    fn text(self, name: &'static str, text: impl Into<Cow<'a, str>>) -> Self {
        self.put(name, Cell::text(text))
    }

    fn count(self, name: &'static str, number: impl Into<u64>) -> Self {
        self.put(name, Cell::Count(number.into()))
    }

    /// A number that is there unless it is 0.
    fn nonzero(self, name: &'static str, number: u64) -> Self {
        let number = Some(number).filter(|number| *number > 0);
        self.put(name, Cell::of(number, Cell::Count))
    }

    /// An id, if it is known.
    fn id(self, name: &'static str, id: u32) -> Self {
        let id = wire::known(id);
        self.put(name, Cell::of(id, |id| Cell::Count(id.into())))
    }

    /// A time, relative to the start of tracing.
    fn time(self, name: &'static str, ns: u64) -> Self {
        let known = Some(ns).filter(|ns| *ns > 0);
        let time = Cell::of(known, |ns| Cell::Count(ns.saturating_sub(self.began_ns)));
        self.put(name, time)
    }

    fn span(self, start_ns: u64, end_ns: u64) -> Self {
        self.time("start_ns", start_ns).time("end_ns", end_ns)
    }

    /// Device, context and stream of the work.
    fn place(self, device: u32, context: u32, stream: u32) -> Self {
        let fields = self.id("device", device).id("context", context);
        fields.id("stream", stream)
    }

    /// Graph and graph node of the work.
    fn graph(self, graph: u32, node: u64) -> Self {
        let graph = wire::known(graph).unwrap_or(0);
        let fields = self.nonzero("graph", graph.into());
        fields.nonzero("graph_node", node)
    }

    /// The object that a name, a marker or an overhead is about.
    fn object(self, object: &wire::Object) -> Self {
        let wire::Object { kind, a, b, c } = *object;
        let number = match kind {
            2 | 4 => b,
            5 => c,
            _ => a,
        };
        self.text("of", format!("{} {number}", nsys::OBJECTS.name(kind)))
    }

    pub(crate) fn get(&self, name: &str) -> &Cell<'_> {
        let found = self.cells.iter().find(|(field, _)| *field == name);
        found.map_or(&Cell::None, |(_, cell)| cell)
    }

    /// `MEMCPY H2D [ 1000 - 2000 ] device 0, context 1, ...`, as CUPTI's sample has it.
    pub(crate) fn line(&self) -> String {
        let mut line = self.get("kind").value().to_ascii_uppercase();
        let detail = self.get("detail").value();
        if !detail.is_empty() {
            line += &format!(" {detail}");
        }
        match self.get("name") {
            Cell::Function(name) => {
                line += &format!(" {}", printable(names::without_version(name)));
            }
            Cell::None => {}
            name => line += &format!(" \"{}\"", name.shown()),
        }
        match (self.get("start_ns"), self.get("end_ns")) {
            (Cell::None, _) => {}
            (at, Cell::None) => line += &format!(" [ {} ]", at.value()),
            (start, end) => line += &format!(" [ {} - {} ]", start.value(), end.value()),
        }
        let rest = self
            .cells
            .iter()
            .filter(|(name, _)| !IN_FRONT.contains(name));
        let rest = rest.map(|(name, cell)| (name, cell.shown()));
        let rest = rest.filter(|(_, shown)| !shown.is_empty());
        let rest: Vec<_> = rest
            .map(|(name, shown)| format!("{} {shown}", name.replace('_', " ")))
            .collect();
        line + " " + &rest.join(", ")
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for name in RECORD {
            match self.get(name) {
                Cell::None => {}
                cell => map.serialize_entry(name, cell)?,
            }
        }
        map.end()
    }
}

/// Name of the `CUpti_ActivityFlag` of a marker.
fn moment_of(flags: u32) -> &'static str {
    match flags {
        flags if flags & wire::marker::INSTANTANEOUS != 0 => "mark",
        flags if flags & wire::marker::START != 0 => "start",
        flags if flags & wire::marker::END != 0 => "end",
        _ => "unknown",
    }
}

impl<'a> PerRecordLine<'a> {
    pub(crate) fn fields(&self) -> Fields<'a> {
        let fields = Fields {
            began_ns: self.began_ns,
            cells: Vec::with_capacity(RECORD.len()),
        };
        let pid = self.activity.pid;
        let name = match self.activity.record {
            ActivityRecord::Api(_) => Cell::of(self.name, |name| Cell::Function(name.into())),
            _ => Cell::of(self.name, Cell::text),
        };
        // The domain of a marker, or the program that allocated.
        let qualifier = Cell::of(self.activity.qualifier.as_deref(), Cell::text);
        let memory = |kind: u32| kinds::of_cupti(kind).long;
        let fields = fields.count("pid", pid).put("name", name);
        match &self.activity.record {
            ActivityRecord::Device(r) => fields
                .text("kind", "device")
                .id("device", r.device)
                .count("bytes", r.memory_bytes)
                .text(
                    "capability",
                    format!("{}.{}", r.capability_major, r.capability_minor),
                )
                .count("multiprocessors", r.multiprocessors)
                .count("clock_MHz", r.clock_khz / 1000)
                .count("bandwidth_GB/s", r.memory_bandwidth / 1_000_000),
            ActivityRecord::Context(r) => fields
                .text("kind", "context")
                .id("context", r.context)
                .id("device", r.device)
                .count("stream", r.null_stream)
                .text("API", nsys::COMPUTE_APIS.name(r.compute_api))
                .id("part_of", r.parent_context),
            ActivityRecord::Stream(r) => fields
                .text("kind", "stream")
                .id("stream", r.stream)
                .id("context", r.context)
                .text("priority", r.priority.to_string())
                .count("correlation", r.correlation),
            ActivityRecord::Api(r) => fields
                .text("kind", "call")
                .text("detail", nsys::DOMAINS.name(r.domain))
                .span(r.start_ns, r.end_ns)
                .count("process", pid)
                .count("tid", r.tid)
                .count("correlation", r.correlation)
                .put("result", Cell::Rare(r.result.into())),
            ActivityRecord::Kernel(r) => fields
                .text("kind", "kernel")
                .span(r.start_ns, r.end_ns)
                .place(r.device, r.context, r.stream)
                .put(
                    "mangled",
                    Cell::of(self.activity.name.as_deref(), Cell::text),
                )
                .count("correlation", r.correlation)
                .put("grid", Cell::Shape(r.grid))
                .put("block", Cell::Shape(r.block))
                .graph(r.graph, r.graph_node),
            ActivityRecord::Memcpy(r) => {
                let fields = fields
                    .text("kind", "memcpy")
                    .text("detail", nsys::direction(r.copy_kind).name())
                    .span(r.start_ns, r.end_ns)
                    .place(r.device, r.context, r.stream)
                    .count("bytes", r.size_bytes)
                    .count("correlation", r.correlation)
                    .count("call", r.runtime_correlation)
                    .text("source", memory(r.source_kind.into()))
                    .text("destination", memory(r.destination_kind.into()))
                    .graph(r.graph, r.graph_node);
                match r.peer {
                    0 => fields,
                    _ => fields
                        .count("from_device", r.source_device)
                        .count("to_device", r.destination_device),
                }
            }
            ActivityRecord::Memset(r) => fields
                .text("kind", "memset")
                .count("value", r.value)
                .span(r.start_ns, r.end_ns)
                .place(r.device, r.context, r.stream)
                .count("bytes", r.size_bytes)
                .count("correlation", r.correlation)
                .text("destination", memory(r.memory_kind.into()))
                .graph(r.graph, r.graph_node),
            ActivityRecord::Memory(r) => fields
                .text("kind", "memory")
                .text("detail", nsys::MEMORY_OPERATIONS.name(r.operation))
                .time("start_ns", r.time_ns)
                .place(r.device, r.context, r.stream)
                .text("destination", memory(r.memory_kind))
                .put("address", Cell::Address(r.address))
                .count("bytes", r.size_bytes)
                .count("correlation", r.correlation)
                .put("by", qualifier),
            ActivityRecord::MemoryPool(r) => fields
                .text("kind", "memory_pool")
                .text("detail", nsys::POOL_OPERATIONS.name(r.operation))
                .time("start_ns", r.time_ns)
                .id("device", r.device)
                .put("address", Cell::Address(r.address))
                .count("bytes", r.size_bytes)
                .count("used", r.utilized_bytes)
                .count("correlation", r.correlation),
            ActivityRecord::Sync(r) => fields
                .text("kind", "sync")
                .text("detail", nsys::WAITS.name(r.sync_type))
                .span(r.start_ns, r.end_ns)
                .id("context", r.context)
                .id("stream", r.stream)
                .id("event", r.event)
                .count("correlation", r.correlation)
                .put("result", Cell::Rare(r.result.into())),
            ActivityRecord::GraphTrace(r) => fields
                .text("kind", "graph")
                .count("graph", r.graph)
                .span(r.start_ns, r.end_ns)
                .place(r.device, r.context, r.stream)
                .count("correlation", r.correlation),
            ActivityRecord::Overhead(r) => fields
                .text("kind", "overhead")
                .text("detail", nsys::OVERHEADS.name(r.overhead_kind))
                .span(r.start_ns, r.end_ns)
                .count("correlation", r.correlation)
                .object(&r.object),
            ActivityRecord::Name(r) => fields
                .text("kind", "name")
                .text("detail", nsys::OBJECTS.name(r.object.kind))
                .object(&r.object),
            ActivityRecord::Marker(r) => fields
                .text("kind", "marker")
                .text("detail", moment_of(r.flags))
                .time("start_ns", r.time_ns)
                .count("value", r.id)
                .object(&r.object)
                .put("domain", qualifier),
            ActivityRecord::ExternalCorrelation(r) => fields
                .text("kind", "external_correlation")
                .count("external_id", r.external_id)
                .count("external_kind", r.external_kind)
                .count("correlation", r.correlation),
        }
    }
}

/// The sum of a process's records of one kind and name.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pid: u32,
    kind: &'static str,
    name: String,
    count: u64,
    total_ns: Option<u64>,
    times: Option<Times>,
    bytes: Option<u64>,
    share: Option<f64>,
}

fn of_times(sum: &Sum, cell: fn(&Times) -> Cell<'static>) -> Cell<'_> {
    sum.times.as_ref().map_or(Cell::None, cell)
}

/// Sums; `kind` and `name` identify the row, and columns that its kind does not have are empty.
pub(crate) const SUMS: &[Column<Sum>] = &[
    Column::value("pid", |s| Cell::Count(s.pid.into())),
    Column::value("kind", |s| Cell::text(s.kind)),
    Column::value("name", |s| Cell::text(&*s.name)),
    Column::value("count", |s| Cell::Count(s.count)),
    Column::value("total_ns", |s| Cell::of(s.total_ns, Cell::Ns)),
    Column::value("mean_ns", |s| of_times(s, |t| Cell::Number(t.mean_ns))),
    Column::value("min_ns", |s| of_times(s, |t| Cell::Ns(t.min_ns))),
    Column::value("max_ns", |s| of_times(s, |t| Cell::Ns(t.max_ns))),
    Column::value("bytes", |s| Cell::of(s.bytes, Cell::Bytes)),
    Column::value("share", |s| Cell::of(s.share, Cell::Share)),
    Column::value("median_ns", |s| of_times(s, |t| Cell::Ns(t.median_ns))),
    Column::value("p99_ns", |s| of_times(s, |t| Cell::Ns(t.p99_ns))),
];

/// The sums of a process.
pub(crate) fn sums(process: &ProcessSummary) -> Vec<Sum> {
    let work = |kind| move |work: Work<'_>| of_work(kind, work);
    let graphs = Some(&process.graphs).filter(|graphs| graphs.count > 0);
    let graphs = graphs.map(|graphs| Sum {
        kind: "graph",
        count: graphs.count,
        total_ns: Some(graphs.total_ns),
        times: Some(graphs.clone()),
        ..Sum::default()
    });
    let of_process = process.devices.iter().flat_map(of_device);
    let mut sums: Vec<_> = of_process
        .chain(Work::kernels(process).map(work("kernel")))
        .chain(Work::copies(process, None).map(work("copy")))
        .chain(Work::waits(process).map(work("sync")))
        .chain(Work::overhead(process).map(work("overhead")))
        .chain(process.memory.iter().map(|one| of_memory("memory", one)))
        .chain(
            process
                .memory_pools
                .iter()
                .map(|one| of_memory("memory_pool", one)),
        )
        .chain(Work::calls(process).map(work("call")))
        .chain(graphs)
        .chain(Work::ranges(process).map(work("range")))
        .collect();
    for sum in &mut sums {
        sum.pid = process.pid;
    }
    sums
}

fn of_work(kind: &'static str, work: Work<'_>) -> Sum {
    let name = match (kind, work.memories) {
        ("copy", Some((source, destination))) => {
            let mode = if work.name.is_empty() { "" } else { " " };
            format!(
                "{}{mode}{} {source} to {destination}",
                work.group, work.name
            )
        }
        ("copy", None) => work.group.to_owned(),
        ("range", _) if !work.group.is_empty() => format!("{}:{}", work.group, work.name),
        _ => work.name.to_owned(),
    };
    Sum {
        kind,
        name,
        count: work.count,
        total_ns: work.ns,
        bytes: (kind == "copy").then_some(work.bytes),
        share: work.share,
        times: work.times,
        ..Sum::default()
    }
}

fn of_memory(kind: &'static str, memory: &MemorySummary) -> Sum {
    let name = format!("{} {}", memory.kind.unwrap_or(""), memory.operation);
    Sum {
        kind,
        name: name.trim_start().to_owned(),
        count: memory.count,
        bytes: Some(memory.bytes),
        ..Sum::default()
    }
}

fn of_device(device: &DeviceSummary) -> [Sum; 6] {
    let (work, shares) = (&device.work, &device.shares);
    let [kernels, copies, sets] = [&device.kernels, &device.copies, &device.sets];
    let all = kernels.count + copies.count + sets.count;
    [
        ("busy", all, device.busy_ns, Some(device.busy_share)),
        (
            "busy_kernels",
            kernels.count,
            work.kernel_ns,
            Some(shares.kernels),
        ),
        (
            "busy_copies",
            copies.count,
            work.copy_ns,
            Some(shares.copies),
        ),
        ("busy_sets", sets.count, work.set_ns, Some(shares.sets)),
        ("busy_graphs", 0, work.graph_ns, Some(shares.graphs)),
        ("gap", device.gaps.count, device.gaps.total_ns, None),
    ]
    .map(|(kind, count, ns, share)| Sum {
        kind,
        name: device
            .device
            .map_or("?".into(), |number| number.to_string()),
        count,
        total_ns: Some(ns),
        share,
        ..Sum::default()
    })
}
