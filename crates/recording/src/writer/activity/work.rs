//! GPU work: kernels, copies, memsets, graphs and synchronizations.

use rusqlite::{ToSql, params};

use super::names::CuptiKernelIds;
use super::places::ContextRow;
use crate::ids::global_pid;
use crate::writer::common::{RowContext, signed};
use gpuprobe_cuda::kinds;
use gpuprobe_cuda::nsys::OVERHEADS;
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// A NULL column.
const NOTHING: Option<i64> = None;

/// Columns of every table of GPU work.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkColumns {
    pub(super) pid: u32,
    /// Times of CUPTI; 0 if it has none.
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) device: u32,
    pub(super) context: ContextRow,
    pub(super) stream: u32,
    /// Correlation id of the call.
    pub(super) number: Option<i64>,
}

/// Writer of GPU work.
#[derive(Default)]
pub(super) struct WorkWriter {
    names: CuptiKernelIds,
    /// Number of records without times, which get no row.
    pub(super) untimed: u64,
}

fn node(number: u64) -> Option<i64> {
    (number != 0).then(|| signed(number))
}

impl WorkWriter {
    /// The session times of a record; `None` if CUPTI has no times.
    fn span(
        &mut self,
        start_ns: u64,
        end_ns: u64,
        common: &mut RowContext<'_>,
    ) -> Option<(i64, i64)> {
        if start_ns == 0 || end_ns < start_ns {
            self.untimed += 1;
            return None;
        }
        Some((common.time(start_ns), common.time(end_ns)))
    }

    /// Writes a row; `own` are the columns that only its table has.
    fn row(
        &mut self,
        table: &'static str,
        work: &WorkColumns,
        own: &[&dyn ToSql],
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(work.start_ns, work.end_ns, common) else {
            return Ok(());
        };
        let row = params![
            start,
            end,
            work.device,
            work.context.id,
            work.context.green,
            work.stream,
            work.number,
            global_pid(work.pid)
        ];
        common.insert(table, &*[row, own].concat())
    }

    pub(super) fn kernel(
        &mut self,
        work: &WorkColumns,
        kernel: &wire::Kernel,
        activity: &Activity,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let names = self.names.of(activity.name.as_ref(), common)?;
        let [grid_x, grid_y, grid_z] = kernel.grid;
        let [block_x, block_y, block_z] = kernel.block;
        let own = params![
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
        ];
        self.row("CUPTI_ACTIVITY_KIND_KERNEL", work, own, common)
    }

    pub(super) fn copy(
        &mut self,
        work: &WorkColumns,
        copy: &wire::Memcpy,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let own = params![
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
        ];
        self.row("CUPTI_ACTIVITY_KIND_MEMCPY", work, own, common)
    }

    pub(super) fn set(
        &mut self,
        work: &WorkColumns,
        set: &wire::Memset,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let kind = kinds::of_cupti(set.memory_kind.into()).id;
        let (bytes, node) = (signed(set.size_bytes), node(set.graph_node));
        let own = params![set.value, bytes, node, kind];
        self.row("CUPTI_ACTIVITY_KIND_MEMSET", work, own, common)
    }

    /// CUPTI has a single id for the launched graph, which is written to both columns.
    pub(super) fn graph(
        &mut self,
        work: &WorkColumns,
        graph: &wire::GraphTrace,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let own = params![graph.graph, graph.graph];
        self.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", work, own, common)
    }

    pub(super) fn sync(
        &mut self,
        work: &WorkColumns,
        sync: &wire::Sync,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let own = params![sync.sync_type, sync.event];
        self.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", work, own, common)
    }

    pub(super) fn overhead(
        &mut self,
        overhead: &wire::Overhead,
        thread: Option<(u32, u32)>,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<()> {
        let Some((start, end)) = self.span(overhead.start_ns, overhead.end_ns, common) else {
            return Ok(());
        };
        let thread = thread.map(|(pid, tid)| common.thread(pid, tid));
        let name = common.string(OVERHEADS.of(overhead.overhead_kind).label)?;
        let row = params![start, end, thread.transpose()?, name, 0];
        common.insert("PROFILER_OVERHEAD", row)
    }
}

/// Writes the number that another tool gave to a call.
pub(super) fn external(
    pid: u32,
    external: &wire::ExternalCorrelation,
    number: Option<i64>,
    common: &mut RowContext<'_>,
) -> rusqlite::Result<()> {
    let Some(number) = number else { return Ok(()) };
    let (kind, theirs) = (external.external_kind, signed(external.external_id));
    let row = params![number, global_pid(pid), kind, theirs];
    common.insert("GPUPROBE_EXTERNAL", row)
}
