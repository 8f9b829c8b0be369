//! GPU activity: single records, and the sums of a process as rows of one table.

use gpuprobe_cuda::{kinds, nsys};
use gpuprobe_model::activity::ActivityRecord;
use gpuprobe_model::text::printable;
use serde::Serialize;
use serde::ser::Serializer;
use serde_json::Value;

use super::work::times;
use super::{Cell, Column, some, text, value, words};
use gpuprobe_report::activity::{DeviceSummary, MemorySummary, ProcessSummary};
use gpuprobe_report::records::{PerRecordLine, wire};
use gpuprobe_report::work::{Work, WorkList};

/// Columns of single records, which are also the keys of a record in JSON.
pub(crate) const RECORD: &str = "kind pid tid start_ns end_ns name mangled detail device context stream \
    correlation bytes source destination address value result grid block graph_node external_id";

/// Fields of a record by name, without those that it does not have.
#[derive(Debug)]
pub(crate) struct Record {
    began_ns: u64,
    fields: Vec<(&'static str, Value)>,
}

impl Record {
    fn put(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !value.is_null() {
            self.fields.push((name, value));
        }
        self
    }

    /// A time, relative to the start of tracing.
    fn time(self, name: &'static str, ns: u64) -> Self {
        let time = (ns > 0).then(|| ns.saturating_sub(self.began_ns));
        self.put(name, time)
    }

    /// An id, if it is known.
    fn id(self, name: &'static str, id: u32) -> Self {
        self.put(name, wire::known(id))
    }

    /// Device, context and stream of the work, and the call that it is of.
    fn place(self, device: u32, context: u32, stream: u32, correlation: u32) -> Self {
        let record = self.id("device", device).id("context", context);
        record.id("stream", stream).put("correlation", correlation)
    }

    /// Graph node of the work.
    fn node(self, node: u64) -> Self {
        self.put("graph_node", (node > 0).then_some(node))
    }

    /// `memcpy, H2D, pid 574, start ns 1000, end ns 2000, device 0, ...`.
    pub(crate) fn line(&self) -> String {
        let fields = self.fields.iter();
        let fields = fields.filter(|(name, _)| *name != "mangled");
        let fields = fields.map(|(name, value)| match (*name, printable(&words(value))) {
            ("kind" | "detail" | "name", value) => value,
            (name, value) => format!("{} {value}", name.replace('_', " ")),
        });
        fields.collect::<Vec<_>>().join(", ")
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields.iter().map(|(name, value)| (name, value)))
    }
}

/// Name of the `CUpti_ActivityFlag` of a marker.
fn moment_of(flags: u32) -> &'static str {
    use wire::marker::{END, INSTANTANEOUS, START};
    let all = [(INSTANTANEOUS, "mark"), (START, "start"), (END, "end")];
    let found = all.iter().find(|(flag, _)| flags & flag != 0);
    found.map_or("unknown", |(_, name)| name)
}

/// The fields of a record.
pub(crate) fn record(line: &PerRecordLine<'_>) -> Record {
    use ActivityRecord as One;
    let mangled = line.activity.name.as_deref();
    let memory = |kind: u32| kinds::of_cupti(kind).long;
    let of = |kind: &'static str, detail: &'static str| {
        let record = Record {
            began_ns: line.began_ns,
            fields: Vec::with_capacity(16),
        };
        let detail = Some(detail).filter(|detail| !detail.is_empty());
        let record = record.put("kind", kind).put("detail", detail);
        let record = record.put("pid", line.activity.pid).put("name", line.name);
        record.time("start_ns", line.activity.start_ns().unwrap_or(0))
    };
    match &line.activity.record {
        One::Device(r) => of("device", "")
            .id("device", r.device)
            .put("bytes", r.memory_bytes),
        One::Context(r) => of("context", "")
            .id("context", r.context)
            .id("device", r.device)
            .put("stream", r.null_stream),
        One::Stream(r) => of("stream", "")
            .id("stream", r.stream)
            .id("context", r.context)
            .put("correlation", r.correlation),
        One::Api(r) => of("call", nsys::DOMAINS.name(r.domain))
            .time("end_ns", r.end_ns)
            .put("tid", r.tid)
            .put("correlation", r.correlation)
            .put("result", r.result),
        One::Kernel(r) => of("kernel", "")
            .time("end_ns", r.end_ns)
            .place(r.device, r.context, r.stream, r.correlation)
            .put("mangled", mangled)
            .put("grid", r.grid)
            .put("block", r.block)
            .node(r.graph_node),
        One::Memcpy(r) => of("memcpy", nsys::direction(r.copy_kind).name())
            .time("end_ns", r.end_ns)
            .place(r.device, r.context, r.stream, r.correlation)
            .put("bytes", r.size_bytes)
            .put("source", memory(r.source_kind.into()))
            .put("destination", memory(r.destination_kind.into()))
            .node(r.graph_node),
        One::Memset(r) => of("memset", "")
            .put("value", r.value)
            .time("end_ns", r.end_ns)
            .place(r.device, r.context, r.stream, r.correlation)
            .put("bytes", r.size_bytes)
            .put("destination", memory(r.memory_kind.into()))
            .node(r.graph_node),
        One::Memory(r) => of("memory", nsys::MEMORY_OPERATIONS.name(r.operation))
            .place(r.device, r.context, r.stream, r.correlation)
            .put("destination", memory(r.memory_kind))
            .put("address", format!("{:#x}", r.address))
            .put("bytes", r.size_bytes),
        One::MemoryPool(r) => of("memory_pool", nsys::POOL_OPERATIONS.name(r.operation))
            .id("device", r.device)
            .put("address", format!("{:#x}", r.address))
            .put("bytes", r.size_bytes)
            .put("correlation", r.correlation),
        One::Sync(r) => of("sync", nsys::WAITS.name(r.sync_type))
            .time("end_ns", r.end_ns)
            .id("context", r.context)
            .id("stream", r.stream)
            .put("correlation", r.correlation)
            .put("result", r.result),
        One::GraphTrace(r) => of("graph", "").time("end_ns", r.end_ns).place(
            r.device,
            r.context,
            r.stream,
            r.correlation,
        ),
        One::Overhead(r) => of("overhead", nsys::OVERHEADS.name(r.overhead_kind))
            .time("end_ns", r.end_ns)
            .put("correlation", r.correlation),
        One::Name(r) => of("name", nsys::OBJECTS.name(r.object.kind)),
        One::Marker(r) => of("marker", moment_of(r.flags)).put("value", r.id),
        One::ExternalCorrelation(r) => of("external_correlation", "")
            .put("external_id", r.external_id)
            .put("correlation", r.correlation),
        One::Text(_) | One::CallbackName(_) => of("name", ""),
    }
}

/// The sum of the records of one kind and name of a process.
pub(crate) type Sum = (u32, &'static str, Work);

/// Columns of sums; `kind` and `name` identify the row, and columns that its kind does not have are empty.
pub(crate) const SUMS: &[Column<Sum>] = &[
    value("pid", |(pid, ..)| Cell::Count((*pid).into())),
    value("kind", |(_, kind, _)| text(*kind)),
    value("name", |(_, kind, work)| text(name(kind, work))),
    value("count", |(.., work)| Cell::Count(work.count)),
    value("total_ns", |(.., work)| some(work.ns, Cell::Ns)),
    value("mean_ns", |(.., work)| {
        times(work, |t| Cell::Share(t.mean_ns))
    }),
    value("min_ns", |(.., work)| times(work, |t| Cell::Ns(t.min_ns))),
    value("max_ns", |(.., work)| times(work, |t| Cell::Ns(t.max_ns))),
    value("bytes", |(_, kind, work)| {
        let has_bytes = ["copy", "memory", "memory_pool"].contains(kind);
        some(Some(work.bytes).filter(|_| has_bytes), Cell::Bytes)
    }),
    value("share", |(.., work)| some(work.share, Cell::Share)),
    value("median_ns", |(.., work)| {
        times(work, |t| Cell::Ns(t.median_ns))
    }),
    value("p99_ns", |(.., work)| times(work, |t| Cell::Ns(t.p99_ns))),
];

fn name(kind: &str, work: &Work) -> String {
    let Work { group, name, .. } = work;
    match (kind, work.memories) {
        ("copy", Some((source, destination))) => {
            let mode = if name.is_empty() { "" } else { " " };
            format!("{group}{mode}{name} {source} to {destination}")
        }
        ("copy", None) => group.clone(),
        ("range", _) if !group.is_empty() => format!("{group}:{name}"),
        _ => name.clone(),
    }
}

/// The sums of a process.
pub(crate) fn sums(process: &ProcessSummary) -> Vec<Sum> {
    let mut sums = Vec::new();
    let mut add = |kind, all: Vec<Work>| {
        sums.extend(all.into_iter().map(|work| (process.who.pid, kind, work)));
    };
    for (kind, work) in process.devices.iter().flat_map(of_device) {
        add(kind, vec![work]);
    }
    let list = |list| Work::of(list, process, None);
    let memory = |all: &[MemorySummary]| all.iter().map(of_memory).collect();
    add("kernel", list(WorkList::Kernels));
    add("copy", list(WorkList::Copies));
    add("sync", list(WorkList::Waits));
    add("overhead", list(WorkList::Overhead));
    add("memory", memory(&process.memory));
    add("memory_pool", memory(&process.memory_pools));
    add("call", list(WorkList::Calls));
    if process.graphs.count > 0 {
        let graphs = Work::timed("", "", &process.graphs, 0.0);
        let share = None;
        add("graph", vec![Work { share, ..graphs }]);
    }
    add("range", list(WorkList::Ranges));
    sums
}

fn of_memory(memory: &MemorySummary) -> Work {
    let name = format!("{} {}", memory.kind.unwrap_or(""), memory.operation);
    Work {
        name: name.trim_start().to_owned(),
        count: memory.count,
        bytes: memory.bytes,
        ..Work::default()
    }
}

fn of_device(device: &DeviceSummary) -> [(&'static str, Work); 6] {
    let (spent, share) = (&device.work, &device.shares);
    let [kernels, copies, sets] = [&device.kernels, &device.copies, &device.sets].map(|t| t.count);
    let all = kernels + copies + sets;
    [
        ("busy", all, device.busy_ns, Some(device.busy_share)),
        (
            "busy_kernels",
            kernels,
            spent.kernel_ns,
            Some(share.kernels),
        ),
        ("busy_copies", copies, spent.copy_ns, Some(share.copies)),
        ("busy_sets", sets, spent.set_ns, Some(share.sets)),
        ("busy_graphs", 0, spent.graph_ns, Some(share.graphs)),
        ("gap", device.gaps.count, device.gaps.total_ns, None),
    ]
    .map(|(kind, count, ns, share)| {
        let name = device
            .device
            .map_or("?".into(), |number| number.to_string());
        let work = Work {
            name,
            count,
            ns: Some(ns),
            share,
            ..Work::default()
        };
        (kind, work)
    })
}
