//! Contexts, devices and pools in recordings.

use std::path::Path;

use super::{count, open, recorded};
use crate::harness::{Backend, Setup};

/// A workload on a host with two GPUs.
fn on_two_gpus(backend: Backend) -> Setup {
    Setup::workload(backend).env("STANDIN_DEVICES", "2")
}

/// The rows of a query of four numbers; NULL is -1.
fn rows(file: &Path, sql: &str) -> Vec<[i64; 4]> {
    let connection = open(file);
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        let number = |index| row.get(index).map(|n: Option<i64>| n.unwrap_or(-1));
        Ok([number(0)?, number(1)?, number(2)?, number(3)?])
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn root_contexts_are_recorded_with_their_devices() {
    let script = "alloc 4096; setdevice 1; alloc 64; ctx create 1; alloc 32; ctx create 0; alloc 16; \
                  free 3; ctx pop; ctx pop; free 2; free 0 2";
    let (recording, _, run) = recorded(on_two_gpus(Backend::Driver), script);
    let file = &recording.file;
    let contexts = "SELECT processId, deviceId, contextId, nullStreamId \
            FROM TARGET_INFO_CUDA_CONTEXT_INFO ORDER BY contextId";
    let pid = i64::from(run.pid);
    let expected = [
        [pid, 0, 1, 7],
        [pid, 1, 2, 7],
        [pid, 1, 241, 7],
        [pid, 0, 242, 7],
    ];
    assert_eq!(rows(file, contexts), expected);
    let streams = "SELECT processId, contextId, streamId, flag \
            FROM TARGET_INFO_CUDA_STREAM ORDER BY contextId";
    let expected = [1, 2, 241, 242].map(|context| [pid, context, 7, 3]);
    assert_eq!(rows(file, streams), expected);
    let devices = "SELECT pid, cudaId, 0, 0 FROM TARGET_INFO_CUDA_DEVICE ORDER BY cudaId";
    assert_eq!(rows(file, devices), [[pid, 0, 0, 0], [pid, 1, 0, 0]]);
    // A free has the context of its allocation.
    let memory = "SELECT bytes, deviceId, contextId, memoryOperationType \
            FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY rowid";
    let expected = [
        [4096, 0, 1, 0],
        [64, 1, 2, 0],
        [32, 1, 241, 0],
        [16, 0, 242, 0],
        [16, 0, 242, 1],
        [32, 1, 241, 1],
        [4096, 0, 1, 1],
        [64, 1, 2, 1],
    ];
    assert_eq!(rows(file, memory), expected);
    let created = "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId \
            WHERE s.value LIKE 'cuCtxCreate%'";
    assert_eq!(count(file, created), 2);
}

#[test]
fn root_events_of_pools_are_recorded() {
    let script = "pool create; poolalloc 0 20000000; pool attr 0 reserved; poolalloc 0 4096; \
                  pool trim 0 1048576; pool create host; pool trim 1 0; setdevice 1; pool create; \
                  pool destroy 2; afree 0 2; pool destroy 0";
    let (recording, ..) = recorded(on_two_gpus(Backend::Shared), script);
    let file = &recording.file;
    let events = "SELECT deviceId, operationType, poolType, minBytesToKeep \
        FROM CUDA_GPU_MEMORY_POOL_EVENTS ORDER BY rowid";
    let expected = [
        [0, 1, 1, -1],
        [0, 3, 1, 1_048_576],
        [1, 1, 1, -1],
        [1, 2, 1, -1],
        [0, 2, 1, -1],
    ];
    assert_eq!(rows(file, events), expected);
    let named = "CUDA_GPU_MEMORY_POOL_EVENTS p JOIN CUPTI_ACTIVITY_KIND_RUNTIME r \
        USING (correlationId) JOIN StringIds s ON s.id = r.nameId \
        WHERE s.value LIKE 'cuMemPool%' AND p.start BETWEEN r.start AND r.\"end\"";
    assert_eq!(count(file, named), 5);
    // Allocations from a pool have its id, and its reserved bytes once these were queried.
    let memory = "SELECT m.bytes, m.memoryOperationType, m.localMemoryPoolSize, \
        (SELECT p.operationType FROM CUDA_GPU_MEMORY_POOL_EVENTS p \
        WHERE p.address = m.localMemoryPoolAddress AND p.operationType = 1) \
        FROM CUDA_GPU_MEMORY_USAGE_EVENTS m ORDER BY m.rowid";
    let expected = [
        [20_000_000, 0, -1, 1],
        [4096, 0, 32 << 20, 1],
        [20_000_000, 1, -1, 1],
        [4096, 1, -1, 1],
    ];
    assert_eq!(rows(file, memory), expected);
}
