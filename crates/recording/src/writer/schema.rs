//! Tables of a recording.
//!
//! Names and columns of the first two lists are those of an Nsight Systems export, schema 3.13, in
//! the same order, with nullable columns of later versions. Tables of gpuprobe avoid the names and
//! columns by which readers of exports identify tables.

/// A table and its columns.
pub(super) type Table = (&'static str, &'static str);

/// Schema version in the metadata of recordings.
pub(super) const SCHEMA_VERSION: [&str; 3] = ["3", "13", "2"];

/// Tables of every recording.
pub(super) const CORE_TABLES: &[Table] = &[
    (
        "StringIds",
        "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    ),
    ("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT"),
    (
        "ThreadNames",
        "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    ),
    (
        "ANALYSIS_DETAILS",
        "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, \
         stopTime INTEGER NOT NULL",
    ),
    (
        "TARGET_INFO_SESSION_START_TIME",
        "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER",
    ),
    ("META_DATA_EXPORT", "name TEXT NOT NULL, value TEXT"),
    ("META_DATA_CAPTURE", "name TEXT NOT NULL, value TEXT"),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, eventClass INTEGER NOT NULL, \
         globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue \
         INTEGER NOT NULL, callchainId INTEGER",
    ),
    (
        "TARGET_INFO_SYSTEM_ENV",
        "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER \
         NOT NULL, value TEXT NOT NULL",
    ),
];

/// Tables that are created with their first row.
pub(super) const LAZY: &[Table] = &[
    (
        "TARGET_INFO_GPU",
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete \
         INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, \
         clockRate INTEGER, smCount INTEGER, pwGpuId INTEGER, uuid TEXT, luid INTEGER, \
         chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT, ctrlDevPath TEXT, revision \
         INTEGER, nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER, \
         maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER, maxShmemPerBlockOptin \
         INTEGER, maxShmemPerSm INTEGER, maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, \
         asyncEngines INTEGER, maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER, \
         maxThreadsPerBlock INTEGER, maxBlockDimX INTEGER, maxBlockDimY INTEGER, maxBlockDimZ \
         INTEGER, maxGridDimX INTEGER, maxGridDimY INTEGER, maxGridDimZ INTEGER, computeMajor \
         INTEGER, computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER",
    ),
    (
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, address INTEGER NOT NULL, pc INTEGER NOT NULL, bytes \
         INTEGER NOT NULL, memKind INTEGER NOT NULL, memoryOperationType INTEGER NOT NULL, \
         name TEXT, correlationId INTEGER, streamId INTEGER, localMemoryPoolAddress INTEGER, \
         localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, \
         localMemoryPoolUtilizedSize INTEGER, importedMemoryPoolAddress INTEGER, \
         importedMemoryPoolProcessId INTEGER",
    ),
    (
        "CUDA_GPU_MEMORY_POOL_EVENTS",
        "start INTEGER NOT NULL, globalPid INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         address INTEGER NOT NULL, operationType INTEGER NOT NULL, poolType INTEGER NOT NULL, \
         correlationId INTEGER, minBytesToKeep INTEGER, localMemoryPoolReleaseThreshold \
         INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER",
    ),
    (
        "TARGET_INFO_CUDA_CONTEXT_INFO",
        "nullStreamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, processId \
         INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, \
         parentContextId INTEGER, isGreenContext INTEGER",
    ),
    (
        "TARGET_INFO_CUDA_STREAM",
        "streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, processId \
         INTEGER NOT NULL, contextId INTEGER NOT NULL, priority INTEGER NOT NULL, flag INTEGER \
         NOT NULL",
    ),
    (
        "TARGET_INFO_CUDA_DEVICE",
        "gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL",
    ),
    (
        "CUDA_CALLCHAINS",
        "id INTEGER NOT NULL, symbol INTEGER NOT NULL, module INTEGER NOT NULL, unresolved \
         INTEGER, originalIP INTEGER, stackDepth INTEGER NOT NULL, PRIMARY KEY (id, \
         stackDepth)",
    ),
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName \
         INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, \
         registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, \
         gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ \
         INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER \
         NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, \
         gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, \
         sharedMemoryLimitConfig INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER \
         NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId \
         INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, \
         migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, copyCount \
         INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT \
         NULL, graphNodeId INTEGER, memKind INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, eventId INTEGER \
         NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER \
         NOT NULL",
    ),
    (
        "PROFILER_OVERHEAD",
        "start INTEGER NOT NULL, \"end\" INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER \
         NOT NULL, returnValue INTEGER NOT NULL",
    ),
    (
        "NVTX_EVENTS",
        "start INTEGER NOT NULL, \"end\" INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, \
         category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, \
         textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, \
         doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, \
         jsonTextId INTEGER, jsonText TEXT",
    ),
];

/// Tables that nsys does not have.
pub(super) const OURS: &[Table] = &[
    ("GPUPROBE_META", "key TEXT NOT NULL PRIMARY KEY, val TEXT"),
    (
        "GPUPROBE_LOST",
        "what TEXT NOT NULL PRIMARY KEY, count INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_LOST_BY_USER",
        "uid INTEGER NOT NULL, pid INTEGER, comm TEXT, what TEXT NOT NULL, \
         count INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_FUNCTIONS",
        "line INTEGER NOT NULL PRIMARY KEY, symbol TEXT NOT NULL",
    ),
    (
        "GPUPROBE_LOG",
        "seq INTEGER PRIMARY KEY, t0 INTEGER NOT NULL, count INTEGER NOT NULL, \
         entries BLOB NOT NULL",
    ),
    (
        "GPUPROBE_PROCESSES",
        "globalPid INTEGER NOT NULL, pid INTEGER NOT NULL, uid INTEGER, comm TEXT, t0 INTEGER",
    ),
    (
        "GPUPROBE_ENDS",
        "globalPid INTEGER NOT NULL, t0 INTEGER NOT NULL, how TEXT NOT NULL, \
         correlationId INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_CONTEXTS",
        "globalPid INTEGER NOT NULL, device INTEGER, contextId INTEGER, t0 INTEGER, t1 INTEGER",
    ),
    (
        "GPUPROBE_LAUNCH_COUNTS",
        "globalPid INTEGER NOT NULL, name TEXT NOT NULL, mangled TEXT, handle INTEGER, \
         api TEXT, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, \
         blockY INTEGER, blockZ INTEGER, launches INTEGER NOT NULL, captured INTEGER NOT NULL, \
         isGraph INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_LAUNCHES",
        "correlationId INTEGER NOT NULL, globalPid INTEGER NOT NULL, launched INTEGER NOT NULL, \
         stream INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, \
         blockY INTEGER, blockZ INTEGER, captured INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_LAUNCHED",
        "launched INTEGER NOT NULL PRIMARY KEY, globalPid INTEGER NOT NULL, name TEXT NOT NULL, \
         mangled TEXT, handle INTEGER, api TEXT, isGraph INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_COPIES",
        "correlationId INTEGER NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL, \
         globalPid INTEGER NOT NULL, bytes INTEGER NOT NULL, direction TEXT, mode TEXT, \
         destination INTEGER, source INTEGER, captured INTEGER NOT NULL, \
         result INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_UNMATCHED_FREES",
        "correlationId INTEGER NOT NULL, t0 INTEGER NOT NULL, globalPid INTEGER NOT NULL, \
         address INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_FRAMES",
        "chain INTEGER NOT NULL, depth INTEGER NOT NULL, file INTEGER, line INTEGER, \
         isInlined INTEGER NOT NULL, language INTEGER, source INTEGER, PRIMARY KEY (chain, \
         depth)",
    ),
    (
        "GPUPROBE_STACKS",
        "chain INTEGER NOT NULL PRIMARY KEY, isComplete INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_NESTED",
        "correlationId INTEGER NOT NULL, t0 INTEGER NOT NULL, t1 INTEGER NOT NULL, \
         eventClass INTEGER NOT NULL, globalTid INTEGER NOT NULL, nameId INTEGER NOT NULL, \
         returnValue INTEGER NOT NULL, callchainId INTEGER",
    ),
    (
        "GPUPROBE_EXTERNAL",
        "correlationId INTEGER NOT NULL, globalPid INTEGER NOT NULL, externalKind INTEGER \
         NOT NULL, externalId INTEGER NOT NULL",
    ),
    (
        "GPUPROBE_NAMES",
        "globalPid INTEGER NOT NULL, object TEXT NOT NULL, a INTEGER NOT NULL, b INTEGER \
         NOT NULL, c INTEGER NOT NULL, name TEXT NOT NULL",
    ),
    (
        "GPUPROBE_TENSORS",
        "t0 INTEGER NOT NULL, globalTid INTEGER NOT NULL, device INTEGER NOT NULL, \
         address INTEGER NOT NULL, bytes INTEGER NOT NULL, isFree INTEGER NOT NULL, \
         allocated INTEGER NOT NULL, reserved INTEGER NOT NULL, requested INTEGER, \
         stream INTEGER, chain INTEGER",
    ),
    (
        "GPUPROBE_INCIDENTS",
        "id INTEGER NOT NULL PRIMARY KEY, t0 INTEGER NOT NULL, globalTid INTEGER NOT NULL, \
         api TEXT NOT NULL, returnValue INTEGER, kind TEXT NOT NULL, requested INTEGER, \
         device INTEGER, attempts INTEGER NOT NULL, repeats INTEGER NOT NULL, \
         outcome TEXT NOT NULL, settled INTEGER, liveBytes INTEGER NOT NULL, \
         torchRequested INTEGER, torchAllocated INTEGER, torchReserved INTEGER, gpu INTEGER, \
         gpuTotal INTEGER, gpuUsed INTEGER, chain INTEGER",
    ),
    (
        "GPUPROBE_INCIDENT_HOLDERS",
        "incident INTEGER NOT NULL, globalPid INTEGER NOT NULL, usedBytes INTEGER NOT NULL, \
         name TEXT",
    ),
    (
        "GPUPROBE_SMI",
        "t0 INTEGER NOT NULL, gpu INTEGER NOT NULL, usedBytes INTEGER NOT NULL",
    ),
];

/// The SQL statement that creates `table`.
pub(super) fn create((name, columns): &Table) -> String {
    format!("CREATE TABLE {name} ({columns})")
}

/// The SQL statement that inserts a row of `columns` values into `table`.
pub(super) fn insert(table: &str, columns: usize) -> String {
    let values = vec!["?"; columns].join(", ");
    format!("INSERT INTO {table} VALUES ({values})")
}

/// Number of columns of a table.
pub(super) fn columns((_, definition): &Table) -> usize {
    let columns = definition.split(", PRIMARY KEY (").next();
    columns.unwrap_or(definition).split(", ").count()
}

/// The definition of the table `name`.
pub(super) fn table(name: &str) -> Option<&'static Table> {
    [CORE_TABLES, LAZY, OURS]
        .into_iter()
        .flatten()
        .find(|(table, _)| *table == name)
}
