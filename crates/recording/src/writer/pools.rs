//! Events of stream-ordered memory pools.

use rusqlite::{Connection, params};

use super::insert::Insert;
use crate::ids::global_pid;
use gpuprobe_cuda::Op;
use gpuprobe_model::event::Call;

/// `operationType`, of `ENUM_CUDA_MEMPOOL_OPER`.
const CREATED: i64 = 1;
const DESTROYED: i64 = 2;
const TRIMMED: i64 = 3;
/// `poolType`, of `ENUM_CUDA_MEMPOOL_TYPE`.
const LOCAL: i64 = 1;

/// Whether successful calls of this operation are pool events.
pub(super) fn has_event(op: Op) -> bool {
    matches!(op, Op::PoolCreate | Op::PoolDestroy | Op::PoolTrim)
}

/// Writer of pool events.
pub(super) struct PoolWriter<'c> {
    events: Insert<'c>,
}

impl<'c> PoolWriter<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self {
            events: Insert::into(connection, "CUDA_GPU_MEMORY_POOL_EVENTS"),
        }
    }

    /// Writes the event of a call on a pool of `device`.
    pub(super) fn event(
        &mut self,
        call: &Call,
        device: Option<u16>,
        correlation: i64,
        (start, end): (i64, i64),
    ) -> rusqlite::Result<()> {
        let (operation, time) = match call.function.op {
            Op::PoolCreate => (CREATED, end),
            Op::PoolDestroy => (DESTROYED, start),
            _ => (TRIMMED, end),
        };
        let kept = (operation == TRIMMED).then_some(call.size_bytes.cast_signed());
        let nothing: Option<i64> = None;
        self.events.row(params![
            time,
            global_pid(call.pid),
            // The column is NOT NULL.
            device.unwrap_or(0),
            call.address.cast_signed(),
            operation,
            LOCAL,
            correlation,
            kept,
            nothing,
            nothing,
            nothing
        ])
    }
}
