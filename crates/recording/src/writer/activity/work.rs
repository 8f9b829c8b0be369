//! GPU work: kernels, copies, memsets, graphs and synchronizations.

use rusqlite::{Connection, params};

use super::names::CuptiKernelIds;
use super::places::ContextRow;
use crate::ids::global_pid;
use crate::writer::common::{RowContext, signed};
use crate::writer::insert::Insert;
use gpuprobe_cuda::kinds;
use gpuprobe_cuda::nsys::OVERHEADS;
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// A NULL column.
const NOTHING: Option<i64> = None;

/// Writer of GPU work.
pub(super) struct WorkWriter<'c> {
    kernels: Insert<'c>,
    copies: Insert<'c>,
    sets: Insert<'c>,
    graphs: Insert<'c>,
    waits: Insert<'c>,
    overheads: Insert<'c>,
    externals: Insert<'c>,
    names: CuptiKernelIds,
    /// Number of records without times, which get no row.
    pub(super) untimed: u64,
}

fn node(number: u64) -> Option<i64> {
    (number != 0).then(|| signed(number))
}

impl<'c> WorkWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            kernels: into("CUPTI_ACTIVITY_KIND_KERNEL"),
            copies: into("CUPTI_ACTIVITY_KIND_MEMCPY"),
            sets: into("CUPTI_ACTIVITY_KIND_MEMSET"),
            graphs: into("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"),
            waits: into("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"),
            overheads: into("PROFILER_OVERHEAD"),
            externals: into("GPUPROBE_EXTERNAL"),
            names: CuptiKernelIds::default(),
            untimed: 0,
        }
    }

    /// The session times of a record; `None` if CUPTI has no times.
    fn span(
        &mut self,
        start_ns: u64,
        end_ns: u64,
        common: &mut RowContext<'c>,
    ) -> Option<(i64, i64)> {
        if start_ns == 0 || end_ns < start_ns {
            self.untimed += 1;
            return None;
        }
        Some((common.time(start_ns), common.time(end_ns)))
    }

    pub(super) fn kernel(
        &mut self,
        activity: &Activity,
        kernel: &wire::Kernel,
        number: Option<i64>,
        context: ContextRow,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(kernel.start_ns, kernel.end_ns, common) else {
            return Ok(());
        };
        let names = self.names.of(activity.name.as_ref(), &mut common.strings)?;
        let [grid_x, grid_y, grid_z] = kernel.grid;
        let [block_x, block_y, block_z] = kernel.block;
        self.kernels.row(params![
            start,
            end,
            kernel.device,
            context.id,
            context.green,
            kernel.stream,
            number,
            global_pid(activity.pid),
            names.demangled,
            names.short,
            names.mangled,
            // CUPTI numbers from 0, exports from 1.
            u32::from(kernel.launch_type) + 1,
            // The executed configuration; the requested one is in the lower half.
            kernel.cache_config >> 4,
            kernel.registers_per_thread,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            kernel.static_shared_memory,
            kernel.dynamic_shared_memory,
            kernel.local_memory_per_thread,
            signed(kernel.local_memory_total),
            kernel.grid_id,
            kernel.shared_memory_executed,
            node(kernel.graph_node),
            kernel.shared_memory_limit_config
        ])
    }

    pub(super) fn copy(
        &mut self,
        pid: u32,
        copy: &wire::Memcpy,
        number: Option<i64>,
        context: ContextRow,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(copy.start_ns, copy.end_ns, common) else {
            return Ok(());
        };
        self.copies.row(params![
            start,
            end,
            copy.device,
            context.id,
            context.green,
            copy.stream,
            number,
            global_pid(pid),
            signed(copy.size_bytes),
            copy.copy_kind,
            NOTHING,
            kinds::of_cupti(copy.source_kind.into()).id,
            kinds::of_cupti(copy.destination_kind.into()).id,
            wire::known(copy.source_device),
            wire::known(copy.source_context),
            wire::known(copy.destination_device),
            wire::known(copy.destination_context),
            NOTHING,
            node(copy.graph_node),
            NOTHING,
            signed(copy.copies)
        ])
    }

    pub(super) fn set(
        &mut self,
        pid: u32,
        set: &wire::Memset,
        number: Option<i64>,
        context: ContextRow,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(set.start_ns, set.end_ns, common) else {
            return Ok(());
        };
        self.sets.row(params![
            start,
            end,
            set.device,
            context.id,
            context.green,
            set.stream,
            number,
            global_pid(pid),
            set.value,
            signed(set.size_bytes),
            node(set.graph_node),
            kinds::of_cupti(set.memory_kind.into()).id
        ])
    }

    /// CUPTI has a single id for the launched graph, which is written to both columns.
    pub(super) fn graph(
        &mut self,
        pid: u32,
        graph: &wire::GraphTrace,
        number: Option<i64>,
        context: ContextRow,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(graph.start_ns, graph.end_ns, common) else {
            return Ok(());
        };
        self.graphs.row(params![
            start,
            end,
            graph.device,
            context.id,
            context.green,
            graph.stream,
            number,
            global_pid(pid),
            graph.graph,
            graph.graph
        ])
    }

    pub(super) fn sync(
        &mut self,
        pid: u32,
        sync: &wire::Sync,
        number: Option<i64>,
        context: ContextRow,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(sync.start_ns, sync.end_ns, common) else {
            return Ok(());
        };
        self.waits.row(params![
            start,
            end,
            // The record has no device, and the column is NOT NULL.
            context.device.unwrap_or(0),
            context.id,
            context.green,
            sync.stream,
            number,
            global_pid(pid),
            sync.sync_type,
            sync.event
        ])
    }

    pub(super) fn overhead(
        &mut self,
        overhead: &wire::Overhead,
        thread: Option<(u32, u32)>,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(overhead.start_ns, overhead.end_ns, common) else {
            return Ok(());
        };
        let kind = OVERHEADS.of(overhead.overhead_kind);
        let name = common.strings.id(kind.label)?;
        let thread = thread
            .map(|(pid, tid)| common.thread(pid, tid))
            .transpose()?;
        self.overheads.row(params![start, end, thread, name, 0])
    }

    pub(super) fn external(
        &mut self,
        pid: u32,
        external: &wire::ExternalCorrelation,
        number: Option<i64>,
    ) -> rusqlite::Result<()> {
        let Some(number) = number else { return Ok(()) };
        let (kind, theirs) = (external.external_kind, signed(external.external_id));
        self.externals
            .row(params![number, global_pid(pid), kind, theirs])
    }
}
