//! Single records, for people and for programs.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

use serde::Serialize;

use super::names;
use crate::activity::{Activity, Record, wire};
use crate::report::hex;
use crate::state::activity::process::direction_of;

/// A record that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The record.
    pub activity: &'a Activity,
    /// Of a kernel, the name as its source has it; else as the record has it.
    pub name: Option<&'a str>,
    /// Name of the process, if known.
    pub comm: Option<&'a str>,
    /// When the trace began, `CLOCK_MONOTONIC` nanoseconds: times are from then on.
    pub began_ns: u64,
}

/// A name that a traced program has chosen: control characters must not reach the terminal.
struct Shown<'a>(Option<&'a str>);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.unwrap_or("?");
        if name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return f.write_str(name);
        }
        for c in name.chars() {
            if c.is_control() {
                write!(f, "{}", c.escape_default())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// From when to when, as the trace has it.
struct Span(u64, u64);

impl Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[ {} - {} ]", self.0, self.1)
    }
}

/// Where on the GPU.
struct Where(u32, u32, u32);

impl Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "device {}, context {}, stream {}",
            self.0, self.1, self.2
        )
    }
}

/// What a name, a marker or an overhead is about.
struct Object<'a>(&'a wire::Object);

impl Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire::Object { kind, a, b, c } = *self.0;
        let number = match kind {
            2 | 4 => b,
            5 => c,
            _ => a,
        };
        write!(f, "{} {number}", names::object(kind))
    }
}

/// The end of a line about something that belongs to a graph.
struct Graph(u32, u64);

impl Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(0 | wire::UNKNOWN_ID, _) => Ok(()),
            Self(graph, 0) => write!(f, ", graph {graph}"),
            Self(graph, node) => write!(f, ", graph {graph}, node {node}"),
        }
    }
}

impl Line<'_> {
    fn at(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.began_ns)
    }

    fn span(&self, start_ns: u64, end_ns: u64) -> Span {
        Span(self.at(start_ns), self.at(end_ns))
    }

    /// Writes it for people.
    ///
    /// # Errors
    /// Those of `out`.
    pub(in crate::report) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let name = Shown(self.name);
        let qualifier = self.activity.qualifier.as_deref();
        match &self.activity.record {
            Record::Device(d) => writeln!(
                out,
                "DEVICE {name} ({}), capability {}.{}, global memory (bandwidth {} GB/s, size {} \
                 MB), multiprocessors {}, clock {} MHz",
                d.device,
                d.capability_major,
                d.capability_minor,
                d.memory_bandwidth / 1_000_000,
                d.memory_bytes >> 20,
                d.multiprocessors,
                d.clock_khz / 1000,
            ),
            Record::Context(c) => {
                let (number, device) = (c.context, c.device);
                let api = names::compute_api(c.compute_api);
                write!(
                    out,
                    "CONTEXT {number}, device {device}, compute API {api}, "
                )?;
                match c.parent_context {
                    wire::UNKNOWN_ID => writeln!(out, "NULL stream {}", c.null_stream),
                    parent => writeln!(out, "NULL stream {}, part of {parent}", c.null_stream),
                }
            }
            Record::Stream(s) => {
                let (stream, context, priority) = (s.stream, s.context, s.priority);
                writeln!(
                    out,
                    "STREAM {stream}, context {context}, priority {priority}"
                )
            }
            Record::Api(call) => {
                let domain = match call.domain {
                    1 => "DRIVER_API",
                    2 => "RUNTIME_API",
                    _ => "INTERNAL_API",
                };
                let span = self.span(call.start_ns, call.end_ns);
                let (pid, tid) = (self.activity.pid, call.tid);
                let correlation = call.correlation;
                match self.name {
                    Some(name) => {
                        let name = Shown(Some(names::function(name)));
                        write!(out, "{domain} {name} ")?;
                    }
                    None => write!(out, "{domain} function {} ", call.cbid)?,
                }
                write!(
                    out,
                    "{span} process {pid}, thread {tid}, correlation {correlation}"
                )?;
                match call.result {
                    0 => writeln!(out),
                    error => writeln!(out, ", error {error}"),
                }
            }
            Record::Kernel(k) => {
                let span = self.span(k.start_ns, k.end_ns);
                let place = Where(k.device, k.context, k.stream);
                let graph = Graph(k.graph, k.graph_node);
                let correlation = k.correlation;
                writeln!(
                    out,
                    "KERNEL \"{name}\" {span} {place}, correlation {correlation}{graph}"
                )
            }
            Record::Memcpy(c) => {
                let kind = names::copy(c.copy_kind);
                let span = self.span(c.start_ns, c.end_ns);
                let place = Where(c.device, c.context, c.stream);
                write!(
                    out,
                    "MEMCPY{} {kind} {span} {place}",
                    if c.peer != 0 { "2" } else { "" }
                )?;
                if c.peer != 0 {
                    let (from, to) = (c.source_device, c.destination_device);
                    write!(out, ", from device {from} to device {to}")?;
                }
                let (size, graph) = (c.size_bytes, Graph(c.graph, c.graph_node));
                let (correlation, of_runtime) = (c.correlation, c.runtime_correlation);
                writeln!(
                    out,
                    ", size {size}, correlation {correlation}/{of_runtime}{graph}"
                )
            }
            Record::Memset(s) => {
                let span = self.span(s.start_ns, s.end_ns);
                let place = Where(s.device, s.context, s.stream);
                let (value, size, correlation) = (s.value, s.size_bytes, s.correlation);
                let graph = Graph(s.graph, s.graph_node);
                writeln!(
                    out,
                    "MEMSET value={value} {span} {place}, size {size}, correlation \
                     {correlation}{graph}"
                )
            }
            Record::Memory(m) => {
                let operation = names::memory_operation(m.operation).to_uppercase();
                let (at, kind) = (self.at(m.time_ns), names::memory(m.memory_kind));
                let place = Where(m.device, m.context, m.stream);
                let (address, size, correlation) = (m.address, m.size_bytes, m.correlation);
                write!(
                    out,
                    "MEMORY {operation} {kind} [ {at} ] {place}, address {address:#x}, size \
                     {size}, correlation {correlation}"
                )?;
                if let Some(variable) = self.name {
                    write!(out, ", variable {}", Shown(Some(variable)))?;
                }
                match qualifier {
                    Some(source) => writeln!(out, ", by {}", Shown(Some(source))),
                    None => writeln!(out),
                }
            }
            Record::MemoryPool(p) => {
                let operation = names::pool_operation(p.operation).to_uppercase();
                let (at, device) = (self.at(p.time_ns), p.device);
                let (address, size, used) = (p.address, p.size_bytes, p.utilized_bytes);
                writeln!(
                    out,
                    "MEMORY_POOL {operation} [ {at} ] device {device}, address {address:#x}, size \
                     {size}, used {used}, correlation {}",
                    p.correlation
                )
            }
            Record::Sync(s) => {
                let kind = names::wait(s.sync_type).to_uppercase();
                let span = self.span(s.start_ns, s.end_ns);
                write!(out, "SYNC {kind} {span} context {}", s.context)?;
                if s.stream != wire::UNKNOWN_ID {
                    write!(out, ", stream {}", s.stream)?;
                }
                if s.event != wire::UNKNOWN_ID {
                    write!(out, ", event {}", s.event)?;
                }
                writeln!(out, ", correlation {}", s.correlation)
            }
            Record::GraphTrace(g) => {
                let span = self.span(g.start_ns, g.end_ns);
                let place = Where(g.device, g.context, g.stream);
                writeln!(
                    out,
                    "GRAPH {} {span} {place}, correlation {}",
                    g.graph, g.correlation
                )
            }
            Record::Overhead(o) => {
                let kind = names::overhead(o.overhead_kind).to_uppercase();
                let span = self.span(o.start_ns, o.end_ns);
                writeln!(out, "OVERHEAD {kind} {span} {}", Object(&o.object))
            }
            Record::Name(n) => writeln!(out, "NAME \"{name}\" {}", Object(&n.object)),
            Record::Marker(m) => {
                let (at, object) = (self.at(m.time_ns), Object(&m.object));
                let what = marker(m.flags).to_uppercase();
                write!(
                    out,
                    "MARKER {what} \"{name}\" [ {at} ] id {}, {object}",
                    m.id
                )?;
                match qualifier {
                    Some(domain) => writeln!(out, ", domain {}", Shown(Some(domain))),
                    None => writeln!(out),
                }
            }
            Record::ExternalCorrelation(e) => writeln!(
                out,
                "EXTERNAL_CORRELATION {} kind {}, correlation {}",
                e.external_id, e.external_kind, e.correlation
            ),
        }
    }

    /// Its columns.
    pub(in crate::report) fn columns(&self) -> Columns<'_> {
        let activity = self.activity;
        let mut columns = Columns {
            kind: kind(&activity.record),
            pid: activity.pid,
            name: self.name,
            ..Columns::default()
        };
        let time = |ns: u64| (ns != 0).then(|| self.at(ns));
        let known = |id: u32| (id != wire::UNKNOWN_ID).then_some(id);
        let mut timed = |start_ns: u64, end_ns: u64| {
            columns.start_ns = time(start_ns);
            columns.end_ns = time(end_ns);
        };
        match &activity.record {
            Record::Device(r) => {
                columns.device = known(r.device);
                columns.bytes = Some(r.memory_bytes);
            }
            Record::Context(r) => {
                (columns.device, columns.context) = (known(r.device), known(r.context));
                columns.stream = Some(r.null_stream.into());
            }
            Record::Stream(r) => {
                (columns.context, columns.stream) = (known(r.context), known(r.stream));
                columns.correlation = Some(r.correlation);
            }
            Record::Api(r) => {
                timed(r.start_ns, r.end_ns);
                columns.tid = Some(r.tid);
                columns.detail = Some(names::domain(r.domain));
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
                columns.detail = Some(direction_of(r.copy_kind).name());
                columns.on(r.device, r.context, r.stream, r.correlation);
                columns.bytes = Some(r.size_bytes);
                columns.source = Some(names::memory(r.source_kind.into()));
                columns.destination = Some(names::memory(r.destination_kind.into()));
                columns.graph_node = (r.graph_node != 0).then_some(r.graph_node);
            }
            Record::Memset(r) => {
                timed(r.start_ns, r.end_ns);
                columns.on(r.device, r.context, r.stream, r.correlation);
                (columns.bytes, columns.value) = (Some(r.size_bytes), Some(r.value));
                columns.destination = Some(names::memory(r.memory_kind.into()));
                columns.graph_node = (r.graph_node != 0).then_some(r.graph_node);
            }
            Record::Memory(r) => {
                timed(r.time_ns, 0);
                columns.detail = Some(names::memory_operation(r.operation));
                columns.on(r.device, r.context, r.stream, r.correlation);
                (columns.bytes, columns.address) = (Some(r.size_bytes), Some(Hex(r.address)));
                columns.destination = Some(names::memory(r.memory_kind));
            }
            Record::MemoryPool(r) => {
                timed(r.time_ns, 0);
                columns.detail = Some(names::pool_operation(r.operation));
                (columns.device, columns.correlation) = (known(r.device), Some(r.correlation));
                (columns.bytes, columns.address) = (Some(r.size_bytes), Some(Hex(r.address)));
            }
            Record::Sync(r) => {
                timed(r.start_ns, r.end_ns);
                columns.detail = Some(names::wait(r.sync_type));
                (columns.context, columns.stream) = (known(r.context), known(r.stream));
                (columns.correlation, columns.result) = (Some(r.correlation), Some(r.result));
            }
            Record::GraphTrace(r) => {
                timed(r.start_ns, r.end_ns);
                columns.on(r.device, r.context, r.stream, r.correlation);
            }
            Record::Overhead(r) => {
                timed(r.start_ns, r.end_ns);
                columns.detail = Some(names::overhead(r.overhead_kind));
                columns.correlation = Some(r.correlation);
            }
            Record::Name(r) => columns.detail = Some(names::object(r.object.kind)),
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

/// `CUpti_ActivityFlag` of a marker.
fn marker(flags: u32) -> &'static str {
    match flags {
        flags if flags & 2 != 0 => "mark",
        flags if flags & 4 != 0 => "start",
        flags if flags & 8 != 0 => "end",
        _ => "unknown",
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
pub(in crate::report) struct Hex(#[serde(serialize_with = "hex")] u64);

/// A record as a row of a table; what its kind does not have is left out.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(in crate::report) struct Columns<'a> {
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
pub(in crate::report) const HEADER: &[&str] = &[
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
        let known = |id: u32| (id != wire::UNKNOWN_ID).then_some(id);
        (self.device, self.context) = (known(device), known(context));
        (self.stream, self.correlation) = (known(stream), Some(correlation));
    }

    /// In the order of [`HEADER`].
    pub(in crate::report) fn row(&self) -> [String; HEADER.len()] {
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
