//! Tables of GPU work, and conversion of their rows to records.

use gpuprobe_cuda::kinds;
use gpuprobe_engine::activity::process::MODE_NOT_TOLD;
use gpuprobe_model::activity::ActivityRecord;
use gpuprobe_wire as wire;
use rusqlite::Row;

use crate::row::integer;

/// Table of API calls.
pub(super) const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
/// Table of synchronizations.
pub(super) const WAITS: &str = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";

/// Columns that all tables have; they are read first.
pub(super) const COMMON: [&str; 4] = ["start", "end", "globalPid", "deviceId"];

/// A table of GPU work.
pub struct WorkTable {
    /// Name of the table.
    pub name: &'static str,
    /// Columns in addition to the common ones.
    pub columns: &'static [&'static str],
    pub(super) record: fn(&Row<'_>, &CommonColumns) -> ActivityRecord,
}

/// Values of the common columns.
pub(super) struct CommonColumns {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) device: u32,
    pub(super) context: u32,
    pub(super) stream: u32,
}

/// The table of kernel executions.
pub const KERNELS: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_KERNEL",
    columns: &[
        "demangledName",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "graphNodeId",
    ],
    record: kernel,
};

/// Copies on the GPU.
pub const COPIES: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_MEMCPY",
    columns: &["bytes", "copyKind", "srcKind", "dstKind", "correlationId"],
    record: copy,
};

/// Index of the correlation id among the columns of [`COPIES`].
pub(super) const CORRELATION: usize = 4;

/// Memsets on the GPU.
pub const SETS: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_MEMSET",
    columns: &["bytes", "memKind", "value"],
    record: set,
};

/// Executions of whole graphs.
pub const GRAPHS: WorkTable = WorkTable {
    name: "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    columns: &["graphId", "graphExecId"],
    record: graph,
};

/// Index of the first of [`WorkTable::columns`].
pub(super) const OWN: usize = COMMON.len() + 2;

fn number(row: &Row<'_>, index: usize) -> u64 {
    integer(row, index)
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

pub(super) fn id(row: &Row<'_>, index: usize) -> u32 {
    integer(row, index)
        .and_then(|id| u32::try_from(id).ok())
        .unwrap_or(wire::UNKNOWN_ID)
}

pub(super) fn small(row: &Row<'_>, index: usize) -> u32 {
    u32::try_from(number(row, index)).unwrap_or(u32::MAX)
}

fn memory_kind(row: &Row<'_>, index: usize) -> u8 {
    let kind = integer(row, index).and_then(|kind| u8::try_from(kind).ok());
    kinds::of_id(kind.unwrap_or(kinds::UNKNOWN)).cupti()
}

/// A record with the common fields and its own.
macro_rules! record {
    ($kind:ident, $common:expr, $($field:ident: $value:expr,)*) => {
        ActivityRecord::$kind(wire::$kind {
            start_ns: $common.start_ns,
            end_ns: $common.end_ns,
            device: $common.device,
            context: $common.context,
            stream: $common.stream,
            $($field: $value,)*
            ..wire::$kind::default()
        })
    };
}

fn kernel(row: &Row<'_>, common: &CommonColumns) -> ActivityRecord {
    record!(
        Kernel,
        common,
        grid: [1, 2, 3].map(|index| small(row, OWN + index)),
        block: [4, 5, 6].map(|index| small(row, OWN + index)),
        registers_per_thread: u16::try_from(number(row, OWN + 7)).unwrap_or(u16::MAX),
        static_shared_memory: small(row, OWN + 8),
        dynamic_shared_memory: small(row, OWN + 9),
    )
}

fn copy(row: &Row<'_>, common: &CommonColumns) -> ActivityRecord {
    record!(
        Memcpy,
        common,
        size_bytes: number(row, OWN),
        copy_kind: u8::try_from(number(row, OWN + 1)).unwrap_or(0),
        source_kind: memory_kind(row, OWN + 2),
        destination_kind: memory_kind(row, OWN + 3),
        flags: MODE_NOT_TOLD,
    )
}

fn set(row: &Row<'_>, common: &CommonColumns) -> ActivityRecord {
    record!(
        Memset,
        common,
        size_bytes: number(row, OWN),
        memory_kind: memory_kind(row, OWN + 1).into(),
    )
}

fn graph(_: &Row<'_>, common: &CommonColumns) -> ActivityRecord {
    record!(GraphTrace, common,)
}
