//! Single records as rows of a table, for programs.

use std::fmt::Display;

use serde::Serialize;

use super::lines::{Line, marker};
use gpuprobe_cuda::{kinds, nsys};
use gpuprobe_model::activity::Record;
use gpuprobe_model::text::hex;
use gpuprobe_wire as wire;

impl Line<'_> {
    /// Its columns.
    pub(crate) fn columns(&self) -> Columns<'_> {
        let activity = self.activity;
        let mut columns = Columns {
            kind: kind(&activity.record),
            pid: activity.pid,
            name: self.name,
            ..Columns::default()
        };
        let time = |ns: u64| (ns != 0).then(|| self.at(ns));
        let mut timed = |start_ns: u64, end_ns: u64| {
            columns.start_ns = time(start_ns);
            columns.end_ns = time(end_ns);
        };
        match &activity.record {
            Record::Device(r) => {
                columns.device = wire::known(r.device);
                columns.bytes = Some(r.memory_bytes);
            }
            Record::Context(r) => {
                (columns.device, columns.context) = (wire::known(r.device), wire::known(r.context));
                columns.stream = Some(r.null_stream.into());
            }
            Record::Stream(r) => {
                (columns.context, columns.stream) = (wire::known(r.context), wire::known(r.stream));
                columns.correlation = Some(r.correlation);
            }
            Record::Api(r) => {
                timed(r.start_ns, r.end_ns);
                columns.tid = Some(r.tid);
                columns.detail = Some(nsys::DOMAINS.name(r.domain));
                (columns.correlation, columns.result) = (Some(r.correlation), Some(r.result));
            }
            Record::Kernel(r) => {
                timed(r.start_ns, r.end_ns);
                columns.mangled = activity.name.as_deref();
                columns.on(r.device, r.context, r.stream, r.correlation);
                (columns.grid, columns.block) = (Some(r.grid), Some(r.block));
                columns.graph_node = (r.graph_node != 0).then_some(r.graph_node);
            }
            Record::Memcpy(r) => {
                timed(r.start_ns, r.end_ns);
                columns.detail = Some(nsys::direction(r.copy_kind).name());
                columns.on(r.device, r.context, r.stream, r.correlation);
                columns.bytes = Some(r.size_bytes);
                columns.source = Some(kinds::of_cupti(r.source_kind.into()).long);
                columns.destination = Some(kinds::of_cupti(r.destination_kind.into()).long);
                columns.graph_node = (r.graph_node != 0).then_some(r.graph_node);
            }
            Record::Memset(r) => {
                timed(r.start_ns, r.end_ns);
                columns.on(r.device, r.context, r.stream, r.correlation);
                (columns.bytes, columns.value) = (Some(r.size_bytes), Some(r.value));
                columns.destination = Some(kinds::of_cupti(r.memory_kind.into()).long);
                columns.graph_node = (r.graph_node != 0).then_some(r.graph_node);
            }
            Record::Memory(r) => {
                timed(r.time_ns, 0);
                columns.detail = Some(nsys::MEMORY_OPERATIONS.name(r.operation));
                columns.on(r.device, r.context, r.stream, r.correlation);
                (columns.bytes, columns.address) = (Some(r.size_bytes), Some(Hex(r.address)));
                columns.destination = Some(kinds::of_cupti(r.memory_kind).long);
            }
            Record::MemoryPool(r) => {
                timed(r.time_ns, 0);
                columns.detail = Some(nsys::POOL_OPERATIONS.name(r.operation));
                (columns.device, columns.correlation) =
                    (wire::known(r.device), Some(r.correlation));
                (columns.bytes, columns.address) = (Some(r.size_bytes), Some(Hex(r.address)));
            }
            Record::Sync(r) => {
                timed(r.start_ns, r.end_ns);
                columns.detail = Some(nsys::WAITS.name(r.sync_type));
                (columns.context, columns.stream) = (wire::known(r.context), wire::known(r.stream));
                (columns.correlation, columns.result) = (Some(r.correlation), Some(r.result));
            }
            Record::GraphTrace(r) => {
                timed(r.start_ns, r.end_ns);
                columns.on(r.device, r.context, r.stream, r.correlation);
            }
            Record::Overhead(r) => {
                timed(r.start_ns, r.end_ns);
                columns.detail = Some(nsys::OVERHEADS.name(r.overhead_kind));
                columns.correlation = Some(r.correlation);
            }
            Record::Name(r) => columns.detail = Some(nsys::OBJECTS.name(r.object.kind)),
            Record::Marker(r) => {
                timed(r.time_ns, 0);
                columns.detail = Some(marker(r.flags));
                columns.value = Some(r.id);
            }
            Record::ExternalCorrelation(r) => {
                columns.correlation = Some(r.correlation);
                columns.external_id = Some(r.external_id);
            }
        }
        columns
    }
}

fn kind(record: &Record) -> &'static str {
    match record {
        Record::Device(_) => "device",
        Record::Context(_) => "context",
        Record::Stream(_) => "stream",
        Record::Api(_) => "call",
        Record::Kernel(_) => "kernel",
        Record::Memcpy(_) => "memcpy",
        Record::Memset(_) => "memset",
        Record::Memory(_) => "memory",
        Record::MemoryPool(_) => "memory_pool",
        Record::Sync(_) => "sync",
        Record::GraphTrace(_) => "graph",
        Record::Overhead(_) => "overhead",
        Record::Name(_) => "name",
        Record::Marker(_) => "marker",
        Record::ExternalCorrelation(_) => "external_correlation",
    }
}

/// An address.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Hex(#[serde(serialize_with = "hex")] u64);

/// A record as a row of a table; what its kind does not have is left out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Columns<'a> {
    /// What it is.
    kind: &'static str,
    /// Process id.
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    /// From the start of the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mangled: Option<&'a str>,
    /// Which of its kind: a direction, an operation, a domain ...
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<Hex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graph_node: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<u64>,
}

/// The names of [`Columns::row`].
pub(crate) const HEADER: &[&str] = &[
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

impl Columns<'_> {
    fn on(&mut self, device: u32, context: u32, stream: u32, correlation: u32) {
        (self.device, self.context) = (wire::known(device), wire::known(context));
        (self.stream, self.correlation) = (wire::known(stream), Some(correlation));
    }

    /// In the order of [`HEADER`].
    pub(crate) fn row(&self) -> [String; HEADER.len()] {
        fn text(value: Option<impl Display>) -> String {
            value.map_or_else(String::new, |value| value.to_string())
        }
        let shape = |shape: Option<[u32; 3]>| text(shape.map(|[x, y, z]| format!("{x}x{y}x{z}")));
        [
            self.kind.to_owned(),
            self.pid.to_string(),
            text(self.tid),
            text(self.start_ns),
            text(self.end_ns),
            text(self.name),
            text(self.mangled),
            text(self.detail),
            text(self.device),
            text(self.context),
            text(self.stream),
            text(self.correlation),
            text(self.bytes),
            text(self.source),
            text(self.destination),
            text(self.address.map(|Hex(address)| format!("{address:#x}"))),
            text(self.value),
            text(self.result),
            shape(self.grid),
            shape(self.block),
            text(self.graph_node),
            text(self.external_id),
        ]
    }
}
