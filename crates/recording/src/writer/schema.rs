//! Tables of a recording.
//!
//! Each line is a table with its columns, which are of the type INTEGER if they name no other; `!` is NOT NULL.
//! Names and columns of the first two lists are those of an Nsight Systems export, schema 3.13, in
//! the same order, with nullable columns of later versions. Tables of gpuprobe avoid the names and
//! columns by which readers of exports identify tables.

/// Begin of a key of several columns.
const KEY: &str = "PRIMARY KEY (";

/// Schema version in the metadata of recordings.
pub(super) const SCHEMA_VERSION: [&str; 3] = ["3", "13", "2"];

/// Tables of every recording.
pub(super) const CORE_TABLES: &str = "\
StringIds: id INTEGER! PRIMARY KEY, value TEXT!
PROCESSES: globalPid, pid, name TEXT
ThreadNames: nameId!, priority, globalTid
ANALYSIS_DETAILS: globalVid!, duration!, startTime!, stopTime!
TARGET_INFO_SESSION_START_TIME: utcEpochNs, utcTime TEXT, localTime TEXT, systemClockNs
META_DATA_EXPORT: name TEXT!, value TEXT
META_DATA_CAPTURE: name TEXT!, value TEXT
CUPTI_ACTIVITY_KIND_RUNTIME: start!, \"end\"!, eventClass!, globalTid, correlationId, nameId!, \
    returnValue!, callchainId
TARGET_INFO_SYSTEM_ENV: globalVid, devStateName TEXT!, name TEXT!, nameEnum!, value TEXT!";

/// Tables that are created with their first row.
pub(super) const LAZY: &str = "\
TARGET_INFO_GPU: vmId!, id!, name TEXT, busLocation TEXT, isDiscrete, l2CacheSize, totalMemory, \
    memoryBandwidth, clockRate, smCount, pwGpuId, uuid TEXT, luid, chipName TEXT, cuDevice, \
    ctxswDevPath TEXT, ctrlDevPath TEXT, revision, nodeMask, constantMemory, maxIPC, \
    maxRegistersPerBlock, maxShmemPerBlock, maxShmemPerBlockOptin, maxShmemPerSm, \
    maxRegistersPerSm, threadsPerWarp, asyncEngines, maxWarpsPerSm, maxBlocksPerSm, \
    maxThreadsPerBlock, maxBlockDimX, maxBlockDimY, maxBlockDimZ, maxGridDimX, maxGridDimY, \
    maxGridDimZ, computeMajor, computeMinor, smMajor, smMinor
CUDA_GPU_MEMORY_USAGE_EVENTS: start!, globalPid!, deviceId!, contextId!, address!, pc!, bytes!, \
    memKind!, memoryOperationType!, name TEXT, correlationId, streamId, localMemoryPoolAddress, \
    localMemoryPoolReleaseThreshold, localMemoryPoolSize, localMemoryPoolUtilizedSize, \
    importedMemoryPoolAddress, importedMemoryPoolProcessId
CUDA_GPU_MEMORY_POOL_EVENTS: start!, globalPid!, deviceId!, address!, operationType!, poolType!, \
    correlationId, minBytesToKeep, localMemoryPoolReleaseThreshold, localMemoryPoolSize, \
    localMemoryPoolUtilizedSize
TARGET_INFO_CUDA_CONTEXT_INFO: nullStreamId!, hwId!, vmId!, processId!, deviceId!, contextId!, \
    parentContextId, isGreenContext
TARGET_INFO_CUDA_STREAM: streamId!, hwId!, vmId!, processId!, contextId!, priority!, flag!
TARGET_INFO_CUDA_DEVICE: gpuId, cudaId!, pid!
CUDA_CALLCHAINS: id!, symbol!, module!, unresolved, originalIP, stackDepth!, PRIMARY KEY \
    (id,stackDepth)
CUPTI_ACTIVITY_KIND_KERNEL: start!, \"end\"!, deviceId!, contextId!, greenContextId, streamId!, \
    correlationId, globalPid, demangledName!, shortName!, mangledName, launchType, cacheConfig, \
    registersPerThread!, gridX!, gridY!, gridZ!, blockX!, blockY!, blockZ!, staticSharedMemory!, \
    dynamicSharedMemory!, localMemoryPerThread!, localMemoryTotal!, gridId!, sharedMemoryExecuted, \
    graphNodeId, sharedMemoryLimitConfig
CUPTI_ACTIVITY_KIND_MEMCPY: start!, \"end\"!, deviceId!, contextId!, greenContextId, streamId!, \
    correlationId, globalPid, bytes!, copyKind!, deprecatedSrcId, srcKind, dstKind, srcDeviceId, \
    srcContextId, dstDeviceId, dstContextId, migrationCause, graphNodeId, virtualAddress, \
    copyCount
CUPTI_ACTIVITY_KIND_MEMSET: start!, \"end\"!, deviceId!, contextId!, greenContextId, streamId!, \
    correlationId, globalPid, value!, bytes!, graphNodeId, memKind
CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: start!, \"end\"!, deviceId!, contextId!, greenContextId, \
    streamId!, correlationId, globalPid, syncType!, eventId!
CUPTI_ACTIVITY_KIND_GRAPH_TRACE: start!, \"end\"!, deviceId!, contextId!, greenContextId, \
    streamId!, correlationId, globalPid, graphId!, graphExecId!
PROFILER_OVERHEAD: start!, \"end\"!, globalTid, nameId!, returnValue!
NVTX_EVENTS: start!, \"end\", eventType!, rangeId, category, color, text TEXT, globalTid, \
    endGlobalTid, textId, domainId, uint64Value, int64Value, doubleValue REAL, uint32Value, \
    int32Value, floatValue REAL, jsonTextId, jsonText TEXT";

/// Tables that nsys does not have.
pub(super) const OURS: &str = "\
GPUPROBE_META: key TEXT! PRIMARY KEY, val TEXT
GPUPROBE_LOST: what TEXT! PRIMARY KEY, count!
GPUPROBE_LOST_BY_USER: uid!, pid, comm TEXT, what TEXT!, count!
GPUPROBE_FUNCTIONS: line INTEGER! PRIMARY KEY, symbol TEXT!
GPUPROBE_LOG: seq INTEGER PRIMARY KEY, t0!, count!, entries BLOB!
GPUPROBE_PROCESSES: globalPid!, pid!, uid, comm TEXT, t0
GPUPROBE_ENDS: globalPid!, t0!, how TEXT!, correlationId!
GPUPROBE_CHECKPOINTS: globalPid!, t0!, state TEXT!
GPUPROBE_CONTEXTS: globalPid!, device, contextId, t0, t1
GPUPROBE_LAUNCH_COUNTS: globalPid!, name TEXT!, mangled TEXT, handle, api TEXT, gridX, gridY, \
    gridZ, blockX, blockY, blockZ, launches!, captured!, isGraph!
GPUPROBE_LAUNCHES: correlationId!, globalPid!, launched!, stream, gridX, gridY, gridZ, blockX, \
    blockY, blockZ, captured!
GPUPROBE_LAUNCHED: launched INTEGER! PRIMARY KEY, globalPid!, name TEXT!, mangled TEXT, handle, \
    api TEXT, isGraph!
GPUPROBE_COPIES: correlationId!, t0!, t1!, globalPid!, bytes!, direction TEXT, mode TEXT, \
    destination, source, captured!, result!
GPUPROBE_UNMATCHED_FREES: correlationId!, t0!, globalPid!, address!
GPUPROBE_FRAMES: chain!, depth!, file, line, isInlined!, language, source, PRIMARY KEY \
    (chain,depth)
GPUPROBE_STACKS: chain INTEGER! PRIMARY KEY, isComplete!
GPUPROBE_SAME_CALLS: correlationId INTEGER! PRIMARY KEY, cupti!
GPUPROBE_EXTERNAL: correlationId!, globalPid!, externalKind!, externalId!
GPUPROBE_NAMES: globalPid!, object TEXT!, a!, b!, c!, name TEXT!
GPUPROBE_TENSORS: t0!, globalTid!, device!, address!, bytes!, isFree!, allocated!, reserved!, \
    requested, stream, chain
GPUPROBE_INCIDENTS: id INTEGER! PRIMARY KEY, t0!, globalTid!, api TEXT!, returnValue, kind TEXT!, \
    requested, device, attempts!, repeats!, outcome TEXT!, settled, liveBytes!, torchRequested, \
    torchAllocated, torchReserved, gpu, gpuTotal, gpuUsed, chain
GPUPROBE_INCIDENT_HOLDERS: incident!, globalPid!, usedBytes!, name TEXT
GPUPROBE_SMI: t0!, gpu!, usedBytes!";

/// The SQL statement that creates the table `name`, unless it exists; `None` if there is no table of that name.
pub(super) fn create(name: &str) -> Option<String> {
    let definition = |column: &str| match (column.contains(' '), column.strip_suffix('!')) {
        (true, _) => column.replace('!', " NOT NULL"),
        (false, Some(column)) => format!("{column} INTEGER NOT NULL"),
        (false, None) => format!("{column} INTEGER"),
    };
    let definitions: Vec<_> = columns(name)?.split(", ").map(definition).collect();
    let definitions = definitions.join(", ");
    Some(format!("CREATE TABLE IF NOT EXISTS {name} ({definitions})"))
}

/// The SQL statement that inserts a row with values for all columns into the table `name`.
pub(super) fn insert(name: &str) -> String {
    let columns = columns(name).unwrap_or_default().split(", ");
    let values = columns
        .filter(|column| !column.starts_with(KEY))
        .map(|_| "?");
    let values = values.collect::<Vec<_>>().join(", ");
    format!("INSERT INTO {name} VALUES ({values})")
}

/// Names and columns of the tables of a list.
pub(super) fn tables(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    list.lines().filter_map(|table| table.split_once(": "))
}

fn columns(name: &str) -> Option<&'static str> {
    let mut all = [CORE_TABLES, LAZY, OURS].into_iter().flat_map(tables);
    all.find_map(|(table, columns)| (table == name).then_some(columns))
}
