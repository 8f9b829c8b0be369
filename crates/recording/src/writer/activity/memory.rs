//! Memory events from CUPTI, for runs without memory probes.

use rusqlite::params;

use crate::ids::global_pid;
use crate::writer::common::{RowContext, signed};
use gpuprobe_cuda::kinds;
use gpuprobe_model::activity::Activity;
use gpuprobe_wire as wire;

/// `CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION` and `_RELEASE`.
const ALLOCATED: u32 = 1;
const RELEASED: u32 = 2;
/// `CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL` and `_IMPORTED`.
const LOCAL: u32 = 1;
const IMPORTED: u32 = 2;

/// Writes an allocation or release.
pub(super) fn usage(
    activity: &Activity,
    memory: &wire::Memory,
    number: Option<i64>,
    common: &mut RowContext<'_>,
) -> rusqlite::Result<()> {
    let operation = match memory.operation {
        _ if memory.time_ns == 0 => return Ok(()),
        ALLOCATED => 0,
        RELEASED => 1,
        _ => return Ok(()),
    };
    let local = |value: u64| (memory.pool_type == LOCAL).then(|| signed(value));
    let imported = |value: u64| (memory.pool_type == IMPORTED).then(|| signed(value));
    let row = params![
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
        wire::known(memory.stream),
        local(memory.pool_address),
        local(memory.pool_release_threshold),
        local(memory.pool_size),
        local(memory.pool_utilized),
        imported(memory.pool_address),
        // For an imported pool, this is the exporting process.
        imported(memory.pool_size)
    ];
    common.insert("CUDA_GPU_MEMORY_USAGE_EVENTS", row)
}

/// Writes an event of a stream-ordered memory pool.
pub(super) fn pool(
    pid: u32,
    pool: &wire::MemoryPool,
    number: Option<i64>,
    common: &mut RowContext<'_>,
) -> rusqlite::Result<()> {
    if pool.time_ns == 0 {
        return Ok(());
    }
    let row = params![
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
    ];
    common.insert("CUDA_GPU_MEMORY_POOL_EVENTS", row)
}
