//! Single records as text lines and as table rows: the fields of each kind of record.

use std::io::{self, Write};

use super::columns::{RecordColumn, RecordRow};
use super::fields::FieldValue::{Address, Missing, Name, Number, Shape, Signed, Text, Unknown};
use super::fields::{Field, FieldValue};
use super::fields::{
    both, cell, correlation, detail, graph, id, kind, known, line, nonzero, number, place, size,
    words,
};
use gpuprobe_cuda::{kinds, names, nsys};
use gpuprobe_model::activity::{Activity, ActivityRecord};
use gpuprobe_wire as wire;

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

/// Initial capacity of a line in bytes: few lines are longer.
const USUAL: usize = 256;

/// Receives fields in the order of the line.
type Put<'p, 'a> = &'p mut dyn FnMut(&[Field<'a>]);

impl<'a> PerRecordLine<'a> {
    /// Writes the record as a text line.
    pub(crate) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut text = String::with_capacity(USUAL);
        self.fields(&mut |fields| {
            for field in fields {
                if let Some(before) = field.before
                    && !matches!(field.value, Missing)
                {
                    text.push_str(before);
                    let _ = field.value.push(&mut text);
                }
            }
        });
        text.push('\n');
        out.write_all(text.as_bytes())
    }

    /// The record as a row of the table.
    pub(crate) fn row(&self) -> RecordRow<'a> {
        let mut row = RecordRow::default();
        self.fields(&mut |fields| {
            for field in fields {
                if let Some((column, cell)) = field.column.zip(field.value.cell()) {
                    row.set(column, cell);
                }
            }
        });
        row
    }

    /// A time, relative to the start of tracing.
    fn time(&self, ns: u64) -> FieldValue<'a> {
        match ns {
            0 => Unknown(0),
            ns => Number(ns.saturating_sub(self.began_ns)),
        }
    }

    fn span(&self, start_ns: u64, end_ns: u64) -> [Field<'a>; 3] {
        [
            both(RecordColumn::StartNs, " [ ", self.time(start_ns)),
            both(RecordColumn::EndNs, " - ", self.time(end_ns)),
            words(" ]"),
        ]
    }

    fn moment(&self, ns: u64) -> [Field<'a>; 2] {
        [
            both(RecordColumn::StartNs, " [ ", self.time(ns)),
            words(" ]"),
        ]
    }

    /// The qualifier of the record, if it has one.
    fn qualifier(&self, before: &'static str) -> Field<'a> {
        let qualifier = self.activity.qualifier.as_deref();
        line(before, optional(qualifier))
    }

    fn fields(&self, put: Put<'_, 'a>) {
        put(&[
            cell(RecordColumn::Pid, number(self.activity.pid)),
            cell(RecordColumn::Name, Name(self.name)),
        ]);
        match &self.activity.record {
            ActivityRecord::Device(device) => self.device(device, put),
            ActivityRecord::Context(context) => put(&of_context(context)),
            ActivityRecord::Stream(stream) => put(&of_stream(stream)),
            ActivityRecord::Api(call) => self.call(call, put),
            ActivityRecord::Kernel(kernel) => self.kernel(kernel, put),
            ActivityRecord::Memcpy(copy) => self.copy(copy, put),
            ActivityRecord::Memset(set) => self.set(set, put),
            ActivityRecord::Memory(memory) => self.memory(memory, put),
            ActivityRecord::MemoryPool(pool) => self.pool(pool, put),
            ActivityRecord::Sync(sync) => self.sync(sync, put),
            ActivityRecord::GraphTrace(graph) => self.graph(graph, put),
            ActivityRecord::Overhead(overhead) => self.overhead(overhead, put),
            ActivityRecord::Name(name) => self.object_name(name, put),
            ActivityRecord::Marker(marker) => self.marker(marker, put),
            ActivityRecord::ExternalCorrelation(external) => put(&[
                kind("external_correlation"),
                both(RecordColumn::ExternalId, " ", number(external.external_id)),
                line(" kind ", number(external.external_kind)),
                correlation(external.correlation),
            ]),
        }
    }

    fn device(&self, device: &wire::Device, put: Put<'_, 'a>) {
        put(&[
            kind("device"),
            line(" ", Name(self.name)),
            both(RecordColumn::Device, " (", id(device.device)),
            line("), capability ", number(device.capability_major)),
            line(".", number(device.capability_minor)),
            line(
                ", global memory (bandwidth ",
                number(device.memory_bandwidth / 1_000_000),
            ),
            line(" GB/s, size ", number(device.memory_bytes >> 20)),
            cell(RecordColumn::Bytes, number(device.memory_bytes)),
            line(" MB), multiprocessors ", number(device.multiprocessors)),
            line(", clock ", number(device.clock_khz / 1000)),
            words(" MHz"),
        ]);
    }

    fn call(&self, call: &wire::Api, put: Put<'_, 'a>) {
        let layer = match call.domain {
            nsys::domain::DRIVER => "DRIVER_API",
            nsys::domain::RUNTIME => "RUNTIME_API",
            _ => "INTERNAL_API",
        };
        put(&[
            cell(RecordColumn::Kind, Text("call")),
            cell(RecordColumn::Detail, Text(nsys::DOMAINS.name(call.domain))),
            line("", Text(layer)),
            match self.name {
                Some(name) => line(" ", Name(Some(names::without_version(name)))),
                None => line(" function ", number(call.cbid)),
            },
        ]);
        put(&self.span(call.start_ns, call.end_ns));
        put(&[
            line(" process ", number(self.activity.pid)),
            both(RecordColumn::Tid, ", thread ", number(call.tid)),
            correlation(call.correlation),
            line(", error ", nonzero(call.result)),
            cell(RecordColumn::Result, number(call.result)),
        ]);
    }

    fn kernel(&self, kernel: &wire::Kernel, put: Put<'_, 'a>) {
        put(&[kind("kernel"), line(" \"", Name(self.name)), words("\"")]);
        put(&self.span(kernel.start_ns, kernel.end_ns));
        put(&place(kernel.device, kernel.context, kernel.stream));
        put(&[
            correlation(kernel.correlation),
            cell(RecordColumn::Mangled, Name(self.activity.name.as_deref())),
            cell(RecordColumn::Grid, Shape(kernel.grid)),
            cell(RecordColumn::Block, Shape(kernel.block)),
        ]);
        put(&graph(kernel.graph, kernel.graph_node));
    }

    fn copy(&self, copy: &wire::Memcpy, put: Put<'_, 'a>) {
        let of_peer = |device: u32| match copy.peer {
            0 => Missing,
            _ => number(device),
        };
        let memory = |kind: u8| Text(kinds::of_cupti(kind.into()).long);
        put(&[
            kind("memcpy"),
            words(if copy.peer != 0 { "2" } else { "" }),
            line(" ", Text(nsys::COPY_KINDS.name(copy.copy_kind))),
            cell(
                RecordColumn::Detail,
                Text(nsys::direction(copy.copy_kind).name()),
            ),
        ]);
        put(&self.span(copy.start_ns, copy.end_ns));
        put(&place(copy.device, copy.context, copy.stream));
        put(&[
            line(", from device ", of_peer(copy.source_device)),
            line(" to device ", of_peer(copy.destination_device)),
            size(copy.size_bytes),
            correlation(copy.correlation),
            line("/", number(copy.runtime_correlation)),
            cell(RecordColumn::Source, memory(copy.source_kind)),
            cell(RecordColumn::Destination, memory(copy.destination_kind)),
        ]);
        put(&graph(copy.graph, copy.graph_node));
    }

    fn set(&self, set: &wire::Memset, put: Put<'_, 'a>) {
        let memory = kinds::of_cupti(set.memory_kind.into());
        put(&[
            kind("memset"),
            both(RecordColumn::Value, " value=", number(set.value)),
        ]);
        put(&self.span(set.start_ns, set.end_ns));
        put(&place(set.device, set.context, set.stream));
        put(&[
            size(set.size_bytes),
            correlation(set.correlation),
            cell(RecordColumn::Destination, Text(memory.long)),
        ]);
        put(&graph(set.graph, set.graph_node));
    }

    fn memory(&self, memory: &wire::Memory, put: Put<'_, 'a>) {
        put(&[
            kind("memory"),
            detail(nsys::MEMORY_OPERATIONS.name(memory.operation)),
            both(
                RecordColumn::Destination,
                " ",
                Text(kinds::of_cupti(memory.memory_kind).long),
            ),
        ]);
        put(&self.moment(memory.time_ns));
        put(&place(memory.device, memory.context, memory.stream));
        put(&[
            both(RecordColumn::Address, ", address ", Address(memory.address)),
            size(memory.size_bytes),
            correlation(memory.correlation),
            line(", variable ", optional(self.name)),
            self.qualifier(", by "),
        ]);
    }

    fn pool(&self, pool: &wire::MemoryPool, put: Put<'_, 'a>) {
        put(&[
            kind("memory_pool"),
            detail(nsys::POOL_OPERATIONS.name(pool.operation)),
        ]);
        put(&self.moment(pool.time_ns));
        put(&[
            both(RecordColumn::Device, " device ", id(pool.device)),
            both(RecordColumn::Address, ", address ", Address(pool.address)),
            size(pool.size_bytes),
            line(", used ", number(pool.utilized_bytes)),
            correlation(pool.correlation),
        ]);
    }

    fn sync(&self, sync: &wire::Sync, put: Put<'_, 'a>) {
        put(&[kind("sync"), detail(nsys::WAITS.name(sync.sync_type))]);
        put(&self.span(sync.start_ns, sync.end_ns));
        put(&[
            both(RecordColumn::Context, " context ", id(sync.context)),
            both(RecordColumn::Stream, ", stream ", known(sync.stream)),
            line(", event ", known(sync.event)),
            correlation(sync.correlation),
            cell(RecordColumn::Result, number(sync.result)),
        ]);
    }

    fn graph(&self, graph: &wire::GraphTrace, put: Put<'_, 'a>) {
        put(&[kind("graph"), line(" ", number(graph.graph))]);
        put(&self.span(graph.start_ns, graph.end_ns));
        put(&place(graph.device, graph.context, graph.stream));
        put(&[correlation(graph.correlation)]);
    }

    fn overhead(&self, overhead: &wire::Overhead, put: Put<'_, 'a>) {
        put(&[
            kind("overhead"),
            detail(nsys::OVERHEADS.name(overhead.overhead_kind)),
            cell(RecordColumn::Correlation, number(overhead.correlation)),
        ]);
        put(&self.span(overhead.start_ns, overhead.end_ns));
        put(&object(" ", &overhead.object));
    }

    fn object_name(&self, name: &wire::Name, put: Put<'_, 'a>) {
        put(&[
            kind("name"),
            line(" \"", Name(self.name)),
            words("\""),
            cell(
                RecordColumn::Detail,
                Text(nsys::OBJECTS.name(name.object.kind)),
            ),
        ]);
        put(&object(" ", &name.object));
    }

    fn marker(&self, marker: &wire::Marker, put: Put<'_, 'a>) {
        put(&[
            kind("marker"),
            detail(moment_of(marker.flags)),
            line(" \"", Name(self.name)),
            words("\""),
        ]);
        put(&self.moment(marker.time_ns));
        put(&[both(RecordColumn::Value, " id ", number(marker.id))]);
        put(&object(", ", &marker.object));
        put(&[self.qualifier(", domain ")]);
    }
}

fn of_context(context: &wire::Context) -> [Field<'static>; 6] {
    let api = nsys::COMPUTE_APIS.name(context.compute_api);
    [
        kind("context"),
        both(RecordColumn::Context, " ", id(context.context)),
        both(RecordColumn::Device, ", device ", id(context.device)),
        line(", compute API ", Text(api)),
        both(
            RecordColumn::Stream,
            ", NULL stream ",
            number(context.null_stream),
        ),
        line(", part of ", known(context.parent_context)),
    ]
}

fn of_stream(stream: &wire::Stream) -> [Field<'static>; 5] {
    [
        kind("stream"),
        both(RecordColumn::Stream, " ", id(stream.stream)),
        both(RecordColumn::Context, ", context ", id(stream.context)),
        line(", priority ", Signed(stream.priority.into())),
        cell(RecordColumn::Correlation, number(stream.correlation)),
    ]
}

/// The object that a name, a marker or an overhead is about.
fn object(before: &'static str, object: &wire::Object) -> [Field<'static>; 2] {
    let wire::Object { kind, a, b, c } = *object;
    let number = match kind {
        2 | 4 => b,
        5 => c,
        _ => a,
    };
    [
        line(before, Text(nsys::OBJECTS.name(kind))),
        line(" ", self::number(number)),
    ]
}

fn optional(text: Option<&str>) -> FieldValue<'_> {
    text.map_or(Missing, |text| Name(Some(text)))
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
