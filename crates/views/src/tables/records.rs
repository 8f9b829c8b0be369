//! GPU activity: single records, and the sums of a process as rows of one table.

use gpuprobe_cuda::names::without_version;
use gpuprobe_cuda::{kinds, nsys};
use gpuprobe_model::activity::ActivityRecord;
use gpuprobe_model::text::printable;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

use super::words;
use gpuprobe_report::activity::{DeviceSummary, MemorySummary, ProcessSummary, Times};
use gpuprobe_report::records::{PerRecordLine, wire};
use gpuprobe_report::work::{Work, WorkList};

/// Columns of single records, which are also the keys of a record in JSON.
pub(crate) const RECORD: &str = "kind pid tid start_ns end_ns name mangled detail device context stream \
    correlation bytes source destination address value result grid block graph_node external_id";

/// Fields that text has in front of the others, in a form of its own, or not at all.
const IN_FRONT: &str = "kind detail name start_ns end_ns pid mangled";

/// Fields of a record by name, without those that it does not have; what is no [`RECORD`] column is for text only.
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

    fn kind(self, kind: &'static str, detail: &'static str) -> Self {
        let detail = Some(detail).filter(|detail| !detail.is_empty());
        self.put("kind", kind).put("detail", detail)
    }

    /// A time, relative to the start of tracing.
    fn time(self, name: &'static str, ns: u64) -> Self {
        let time = (ns > 0).then(|| ns.saturating_sub(self.began_ns));
        self.put(name, time)
    }

    fn span(self, start_ns: u64, end_ns: u64) -> Self {
        self.time("start_ns", start_ns).time("end_ns", end_ns)
    }

    /// An id, if it is known.
    fn id(self, name: &'static str, id: u32) -> Self {
        self.put(name, wire::known(id))
    }

    /// Device, context and stream of the work.
    fn place(self, device: u32, context: u32, stream: u32) -> Self {
        let record = self.id("device", device).id("context", context);
        record.id("stream", stream)
    }

    /// Graph and graph node of the work.
    fn graph(self, graph: u32, node: u64) -> Self {
        let graph = wire::known(graph).filter(|graph| *graph > 0);
        let record = self.put("graph", graph);
        record.put("graph_node", (node > 0).then_some(node))
    }

    /// The object that a name, a marker or an overhead is about.
    fn object(self, object: &wire::Object) -> Self {
        let wire::Object { kind, a, b, c } = *object;
        let number = match kind {
            2 | 4 => b,
            5 => c,
            _ => a,
        };
        self.put("of", format!("{} {number}", nsys::OBJECTS.name(kind)))
    }

    /// The field of this name, as programs read it.
    pub(crate) fn words(&self, name: &str) -> String {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map_or(String::new(), |(_, value)| words(value))
    }

    /// `MEMCPY H2D [ 1000 - 2000 ] device 0, context 1, ...`, as CUPTI's sample has it.
    pub(crate) fn line(&self) -> String {
        let kind = self.words("kind").to_uppercase();
        let [detail, name, start, end] =
            ["detail", "name", "start_ns", "end_ns"].map(|name| printable(&self.words(name)));
        let name = match &*kind {
            _ if name.is_empty() => name,
            "CALL" => without_version(&name).to_owned(),
            _ => format!("\"{name}\""),
        };
        let times = match (&*start, &*end) {
            ("", _) => String::new(),
            (at, "") => format!("[ {at} ]"),
            (start, end) => format!("[ {start} - {end} ]"),
        };
        let rest = self.fields.iter();
        let rest = rest.filter(|(name, _)| !IN_FRONT.split(' ').any(|front| front == *name));
        let rest = rest.filter(|(name, value)| *name != "result" || *value != 0);
        let rest = rest.map(|(name, value)| {
            format!("{} {}", name.replace('_', " "), printable(&words(value)))
        });
        let parts = [
            kind,
            detail,
            name,
            times,
            rest.collect::<Vec<_>>().join(", "),
        ];
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for name in RECORD.split(' ') {
            for (_, value) in self.fields.iter().filter(|(field, _)| *field == name) {
                map.serialize_entry(name, value)?;
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

/// The fields of a record.
pub(crate) fn record(line: &PerRecordLine<'_>) -> Record {
    use ActivityRecord as One;
    let mangled = line.activity.name.as_deref();
    // The domain of a marker, or the program that allocated.
    let qualifier = line.activity.qualifier.as_deref();
    let memory = |kind: u32| kinds::of_cupti(kind).long;
    let record = Record {
        began_ns: line.began_ns,
        fields: Vec::with_capacity(16),
    };
    let record = record.put("pid", line.activity.pid).put("name", line.name);
    match &line.activity.record {
        One::Device(r) => record
            .kind("device", "")
            .id("device", r.device)
            .put("bytes", r.memory_bytes),
        One::Context(r) => record
            .kind("context", "")
            .id("context", r.context)
            .id("device", r.device)
            .put("stream", r.null_stream),
        One::Stream(r) => record
            .kind("stream", "")
            .id("stream", r.stream)
            .id("context", r.context)
            .put("correlation", r.correlation),
        One::Api(r) => record
            .kind("call", nsys::DOMAINS.name(r.domain))
            .span(r.start_ns, r.end_ns)
            .put("tid", r.tid)
            .put("correlation", r.correlation)
            .put("result", r.result),
        One::Kernel(r) => record
            .kind("kernel", "")
            .span(r.start_ns, r.end_ns)
            .place(r.device, r.context, r.stream)
            .put("mangled", mangled)
            .put("correlation", r.correlation)
            .put("grid", r.grid)
            .put("block", r.block)
            .graph(r.graph, r.graph_node),
        One::Memcpy(r) => record
            .kind("memcpy", nsys::direction(r.copy_kind).name())
            .span(r.start_ns, r.end_ns)
            .place(r.device, r.context, r.stream)
            .put("bytes", r.size_bytes)
            .put("correlation", r.correlation)
            .put("source", memory(r.source_kind.into()))
            .put("destination", memory(r.destination_kind.into()))
            .put("from_device", (r.peer != 0).then_some(r.source_device))
            .put("to_device", (r.peer != 0).then_some(r.destination_device))
            .graph(r.graph, r.graph_node),
        One::Memset(r) => record
            .kind("memset", "")
            .put("value", r.value)
            .span(r.start_ns, r.end_ns)
            .place(r.device, r.context, r.stream)
            .put("bytes", r.size_bytes)
            .put("correlation", r.correlation)
            .put("destination", memory(r.memory_kind.into()))
            .graph(r.graph, r.graph_node),
        One::Memory(r) => record
            .kind("memory", nsys::MEMORY_OPERATIONS.name(r.operation))
            .time("start_ns", r.time_ns)
            .place(r.device, r.context, r.stream)
            .put("destination", memory(r.memory_kind))
            .put("address", format!("{:#x}", r.address))
            .put("bytes", r.size_bytes)
            .put("correlation", r.correlation)
            .put("by", qualifier),
        One::MemoryPool(r) => record
            .kind("memory_pool", nsys::POOL_OPERATIONS.name(r.operation))
            .time("start_ns", r.time_ns)
            .id("device", r.device)
            .put("address", format!("{:#x}", r.address))
            .put("bytes", r.size_bytes)
            .put("used", r.utilized_bytes)
            .put("correlation", r.correlation),
        One::Sync(r) => record
            .kind("sync", nsys::WAITS.name(r.sync_type))
            .span(r.start_ns, r.end_ns)
            .id("context", r.context)
            .id("stream", r.stream)
            .id("event", r.event)
            .put("correlation", r.correlation)
            .put("result", r.result),
        One::GraphTrace(r) => record
            .kind("graph", "")
            .put("graph", r.graph)
            .span(r.start_ns, r.end_ns)
            .place(r.device, r.context, r.stream)
            .put("correlation", r.correlation),
        One::Overhead(r) => record
            .kind("overhead", nsys::OVERHEADS.name(r.overhead_kind))
            .span(r.start_ns, r.end_ns)
            .put("correlation", r.correlation)
            .object(&r.object),
        One::Name(r) => {
            let record = record.kind("name", nsys::OBJECTS.name(r.object.kind));
            record.object(&r.object)
        }
        One::Marker(r) => record
            .kind("marker", moment_of(r.flags))
            .time("start_ns", r.time_ns)
            .put("value", r.id)
            .object(&r.object)
            .put("domain", qualifier),
        One::ExternalCorrelation(r) => record
            .kind("external_correlation", "")
            .put("external_id", r.external_id)
            .put("correlation", r.correlation),
    }
}

/// Columns of sums; `kind` and `name` identify the row, and columns that its kind does not have are empty.
pub(crate) const SUMS: &str =
    "pid kind name count total_ns mean_ns min_ns max_ns bytes share median_ns p99_ns";

/// The sum of a process's records of one kind and name.
#[derive(Debug, Serialize)]
pub(crate) struct Sum {
    pid: u32,
    kind: &'static str,
    name: String,
    bytes: Option<u64>,
    share: Option<f64>,
    count: u64,
    total_ns: Option<u64>,
    #[serde(flatten)]
    times: Option<Times>,
}

impl Sum {
    fn new(pid: u32, kind: &'static str, work: Work) -> Self {
        let Work { group, name, .. } = &work;
        let name = match (kind, work.memories) {
            ("copy", Some((source, destination))) => {
                let mode = if name.is_empty() { "" } else { " " };
                format!("{group}{mode}{name} {source} to {destination}")
            }
            ("copy", None) => group.clone(),
            ("range", _) if !group.is_empty() => format!("{group}:{name}"),
            _ => name.clone(),
        };
        let has_bytes = ["copy", "memory", "memory_pool"].contains(&kind);
        Self {
            pid,
            kind,
            name,
            bytes: has_bytes.then_some(work.bytes),
            share: work.share,
            count: work.count,
            total_ns: work.ns,
            times: work.times,
        }
    }
}

/// The sums of a process.
pub(crate) fn sums(process: &ProcessSummary) -> Vec<Sum> {
    let mut sums = Vec::new();
    let mut add = |kind, all: Vec<Work>| {
        let pid = process.who.pid;
        sums.extend(all.into_iter().map(|work| Sum::new(pid, kind, work)));
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
    let (spent, shares) = (&device.work, &device.shares);
    let [kernels, copies, sets] = [&device.kernels, &device.copies, &device.sets].map(|t| t.count);
    let all = kernels + copies + sets;
    [
        ("busy", all, device.busy_ns, Some(device.busy_share)),
        (
            "busy_kernels",
            kernels,
            spent.kernel_ns,
            Some(shares.kernels),
        ),
        ("busy_copies", copies, spent.copy_ns, Some(shares.copies)),
        ("busy_sets", sets, spent.set_ns, Some(shares.sets)),
        ("busy_graphs", 0, spent.graph_ns, Some(shares.graphs)),
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
