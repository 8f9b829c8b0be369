//! GPU work and memory events from CUPTI.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::Null;
use rusqlite::{Result, ToSql, params};

use super::places::ContextRow;
use crate::ids::global_pid;
use crate::writer::tables::{Tables, signed};
use gpuprobe_cuda::kinds;
use gpuprobe_cuda::nsys::OVERHEADS;
use gpuprobe_model::activity::Activity;
use gpuprobe_stacks::symbols;
use gpuprobe_wire as wire;

/// `CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION` and `_RELEASE`.
const ALLOCATED: u32 = 1;
const RELEASED: u32 = 2;
/// `CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL` and `_IMPORTED`.
const LOCAL: u32 = 1;
const IMPORTED: u32 = 2;

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
    /// `StringIds` of kernels by mangled name: demangled, short, mangled.
    names: HashMap<Arc<str>, [i64; 3]>,
    /// Number of records without times, which get no row.
    pub(super) untimed: u64,
}

/// The graph node with this number; `None` for 0.
pub(super) fn node(number: u64) -> Option<i64> {
    (number != 0).then(|| signed(number))
}

impl WorkWriter {
    /// The session times of a record; `None` if CUPTI has no times.
    fn span(&mut self, start_ns: u64, end_ns: u64, tables: &mut Tables<'_>) -> Option<(i64, i64)> {
        if start_ns == 0 || end_ns < start_ns {
            self.untimed += 1;
            return None;
        }
        Some((tables.time(start_ns), tables.time(end_ns)))
    }

    /// Writes a row; `own` are the columns that only its table has.
    pub(super) fn row(
        &mut self,
        table: &'static str,
        work: &WorkColumns,
        own: &[&dyn ToSql],
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let Some((start, end)) = self.span(work.start_ns, work.end_ns, tables) else {
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
        tables.insert(table, &[row, own].concat())
    }

    pub(super) fn kernel(
        &mut self,
        work: &WorkColumns,
        kernel: &wire::Kernel,
        activity: &Activity,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let (demangled, short, mangled) = self.names(activity.name.as_ref(), tables)?;
        let [grid_x, grid_y, grid_z] = kernel.grid;
        let [block_x, block_y, block_z] = kernel.block;
        let own = params![
            demangled,
            short,
            mangled,
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
        self.row("CUPTI_ACTIVITY_KIND_KERNEL", work, own, tables)
    }

    pub(super) fn copy(
        &mut self,
        work: &WorkColumns,
        copy: &wire::Memcpy,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let own = params![
            signed(copy.size_bytes),
            copy.copy_kind,
            Null,
            kinds::of_cupti(copy.source_kind.into()).id,
            kinds::of_cupti(copy.destination_kind.into()).id,
            wire::known(copy.source_device),
            wire::known(copy.source_context),
            wire::known(copy.destination_device),
            wire::known(copy.destination_context),
            Null,
            node(copy.graph_node),
            Null,
            signed(copy.copies)
        ];
        self.row("CUPTI_ACTIVITY_KIND_MEMCPY", work, own, tables)
    }

    /// `StringIds` of the names of a kernel.
    fn names(
        &mut self,
        mangled: Option<&Arc<str>>,
        tables: &mut Tables<'_>,
    ) -> Result<(i64, i64, Option<i64>)> {
        let Some(mangled) = mangled else {
            let unknown = tables.string("[unknown]")?;
            return Ok((unknown, unknown, None));
        };
        let [demangled, short, id] = match self.names.get(mangled) {
            Some(names) => *names,
            None => {
                let demangled = symbols::demangle(mangled);
                let short = symbols::base_name(&demangled);
                let names = [
                    tables.string(&demangled)?,
                    tables.string(short)?,
                    tables.string(mangled)?,
                ];
                self.names.insert(Arc::clone(mangled), names);
                names
            }
        };
        Ok((demangled, short, Some(id)))
    }

    pub(super) fn overhead(
        &mut self,
        overhead: &wire::Overhead,
        thread: Option<(u32, u32)>,
        tables: &mut Tables<'_>,
    ) -> Result<()> {
        let Some((start, end)) = self.span(overhead.start_ns, overhead.end_ns, tables) else {
            return Ok(());
        };
        let thread = thread.map(|(pid, tid)| tables.thread(pid, tid));
        let name = tables.string(OVERHEADS.of(overhead.overhead_kind).label)?;
        let row = params![start, end, thread.transpose()?, name, 0];
        tables.insert("PROFILER_OVERHEAD", row)
    }
}

/// Writes an allocation or release, for runs without memory probes.
pub(super) fn memory(
    activity: &Activity,
    memory: &wire::Memory,
    number: Option<i64>,
    tables: &mut Tables<'_>,
) -> Result<()> {
    let operation = match memory.operation {
        _ if memory.time_ns == 0 => return Ok(()),
        ALLOCATED => 0,
        RELEASED => 1,
        _ => return Ok(()),
    };
    let local = |value: u64| (memory.pool_type == LOCAL).then(|| signed(value));
    let imported = |value: u64| (memory.pool_type == IMPORTED).then(|| signed(value));
    let row = params![
        tables.time(memory.time_ns),
        global_pid(activity.pid),
        memory.device,
        memory.context,
        signed(memory.address),
        signed(memory.pc),
        signed(memory.size_bytes),
        kinds::of_cupti(memory.memory_kind).id,
        operation,
        activity.name.as_deref(),
        number,
        wire::known(memory.stream),
        local(memory.pool_address),
        local(memory.pool_release_threshold),
        local(memory.pool_size),
        local(memory.pool_utilized),
        imported(memory.pool_address),
        // For an imported pool, this is the exporting process.
        imported(memory.pool_size)
    ];
    tables.insert("CUDA_GPU_MEMORY_USAGE_EVENTS", row)
}

/// Writes an event of a stream-ordered memory pool.
pub(super) fn pool(
    pid: u32,
    pool: &wire::MemoryPool,
    number: Option<i64>,
    tables: &mut Tables<'_>,
) -> Result<()> {
    if pool.time_ns == 0 {
        return Ok(());
    }
    let row = params![
        tables.time(pool.time_ns),
        global_pid(pid),
        pool.device,
        signed(pool.address),
        pool.operation,
        pool.pool_type,
        number,
        signed(pool.min_bytes_to_keep),
        signed(pool.release_threshold),
        signed(pool.size_bytes),
        signed(pool.utilized_bytes)
    ];
    tables.insert("CUDA_GPU_MEMORY_POOL_EVENTS", row)
}
