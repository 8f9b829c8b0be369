//! Single records, for people.

use std::fmt::{self, Display};
use std::io::{self, Write};

use gpuprobe_cuda::{kinds, names, nsys};
use gpuprobe_model::activity::{Activity, Record};
use gpuprobe_model::text::printable;
use gpuprobe_wire as wire;

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
        f.write_str(&printable(name))
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
        let Self(device, context, stream) = self;
        write!(f, "device {device}, context {context}")?;
        match *stream {
            wire::UNKNOWN_ID => Ok(()),
            stream => write!(f, ", stream {stream}"),
        }
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
        write!(f, "{} {number}", nsys::OBJECTS.name(kind))
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
    pub(super) fn at(&self, ns: u64) -> u64 {
        ns.saturating_sub(self.began_ns)
    }

    fn span(&self, start_ns: u64, end_ns: u64) -> Span {
        Span(self.at(start_ns), self.at(end_ns))
    }

    /// Writes it for people.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
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
                let api = nsys::COMPUTE_APIS.name(c.compute_api);
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
                        let name = Shown(Some(names::without_version(name)));
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
                let kind = nsys::COPY_KINDS.name(c.copy_kind);
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
                let operation = nsys::MEMORY_OPERATIONS.name(m.operation).to_uppercase();
                let (at, kind) = (self.at(m.time_ns), kinds::of_cupti(m.memory_kind).long);
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
                let operation = nsys::POOL_OPERATIONS.name(p.operation).to_uppercase();
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
                let kind = nsys::WAITS.name(s.sync_type).to_uppercase();
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
                let kind = nsys::OVERHEADS.name(o.overhead_kind).to_uppercase();
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
}

/// `CUpti_ActivityFlag` of a marker.
pub(super) fn marker(flags: u32) -> &'static str {
    match flags {
        flags if flags & wire::marker::INSTANTANEOUS != 0 => "mark",
        flags if flags & wire::marker::START != 0 => "start",
        flags if flags & wire::marker::END != 0 => "end",
        _ => "unknown",
    }
}
