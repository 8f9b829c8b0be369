//! Memory events from CUPTI, for runs without memory probes.

use rusqlite::{Connection, params};

use crate::ids::global_pid;
use crate::writer::common::{RowContext, signed};
use crate::writer::insert::Insert;
use gpuprobe_cuda::kinds;
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// `CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION` and `_RELEASE`.
const ALLOCATED: u32 = 1;
const RELEASED: u32 = 2;
/// `CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL` and `_IMPORTED`.
const LOCAL: u32 = 1;
const IMPORTED: u32 = 2;

/// Writer of memory events. It is disabled if the ledger writes them.
pub(super) struct MemoryEventWriter<'c> {
    is_wanted: bool,
    usage: Insert<'c>,
    pools: Insert<'c>,
}

impl<'c> MemoryEventWriter<'c> {
    pub(super) fn new(connection: &'c Connection, is_wanted: bool) -> Self {
        let into = |table| Insert::into(connection, table);
        Self {
            is_wanted,
            usage: into("CUDA_GPU_MEMORY_USAGE_EVENTS"),
            pools: into("CUDA_GPU_MEMORY_POOL_EVENTS"),
        }
    }

    pub(super) fn usage(
        &mut self,
        activity: &Activity,
        memory: &wire::Memory,
        number: Option<i64>,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        let operation = match memory.operation {
            ALLOCATED => 0,
            RELEASED => 1,
            _ => return Ok(()),
        };
        if !self.is_wanted || memory.time_ns == 0 {
            return Ok(());
        }
        let local = |value: u64| (memory.pool_type == LOCAL).then(|| signed(value));
        let imported = |value: u64| (memory.pool_type == IMPORTED).then(|| signed(value));
        let stream = wire::known(memory.stream);
        self.usage.row(params![
            common.time(memory.time_ns),
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
            stream,
            local(memory.pool_address),
            local(memory.pool_release_threshold),
            local(memory.pool_size),
            local(memory.pool_utilized),
            imported(memory.pool_address),
            // For an imported pool, this is the exporting process.
            imported(memory.pool_size)
        ])
    }

    pub(super) fn pool(
        &mut self,
        pid: u32,
        pool: &wire::MemoryPool,
        number: Option<i64>,
        common: &mut RowContext<'c>,
    ) -> rusqlite::Result<()> {
        if !self.is_wanted || pool.time_ns == 0 {
            return Ok(());
        }
        self.pools.row(params![
            common.time(pool.time_ns),
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
        ])
    }
}
