//! The `ENUM_*` tables, as exports have them: number, name, label.

/// An `ENUM_*` table.
pub struct Enumeration {
    /// The table.
    pub table: &'static str,
    /// What every name begins with.
    pub prefix: &'static str,
    /// Number, rest of the name, label.
    pub values: &'static [(i64, &'static str, &'static str)],
}

/// What `CUDA_GPU_MEMORY_USAGE_EVENTS` calls an allocation.
pub const ALLOCATION: &str = "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION";
/// What it calls a deallocation.
pub const DEALLOCATION: &str = "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION";

/// Between which memories a copy goes, by the number in `CUPTI_ACTIVITY_KIND_MEMCPY.copyKind`.
pub const COPY_LABELS: [&str; 14] = [
    "unknown",
    "H2D",
    "D2H",
    "H2A",
    "A2H",
    "A2A",
    "A2D",
    "D2A",
    "D2D",
    "H2H",
    "P2P",
    "unified H2D",
    "unified D2H",
    "unified D2D",
];

/// `CUpti_ActivityOverheadKind`: number, and the name in `PROFILER_OVERHEAD`.
pub const OVERHEADS: &[(u32, &str)] = &[
    (1, "CUDA Driver Compiler"),
    (1 << 16, "CUPTI Buffer flush"),
    (2 << 16, "CUPTI Instrumentation"),
    (3 << 16, "CUPTI Resource Management"),
    (4 << 16, "Runtime Triggered Module Loading"),
    (5 << 16, "Lazy Function Loading"),
    (6 << 16, "Command Buffer Full"),
    (7 << 16, "Activity Buffer Request"),
    (8 << 16, "UVM Activity Init"),
];

/// Event classes of `CUPTI_ACTIVITY_KIND_RUNTIME`.
pub mod class {
    /// A call of the runtime.
    pub const RUNTIME: i64 = 0;
    /// A call of the driver, made directly.
    pub const DRIVER: i64 = 1;
    /// The same call as another row's, with a call stack.
    pub const BACKTRACE: i64 = 67;
}

const fn table(
    table: &'static str,
    prefix: &'static str,
    values: &'static [(i64, &'static str, &'static str)],
) -> Enumeration {
    Enumeration {
        table,
        prefix,
        values,
    }
}

/// Those that every recording has, but for `ENUM_CUDA_MEM_KIND`, which is
/// [`KINDS`](super::kinds::KINDS).
pub const ENUMERATIONS: &[Enumeration] = &[
    table(
        "ENUM_CUDA_DEV_MEM_EVENT_OPER",
        "CUDA_DEV_MEM_EVENT_OPR_",
        &[
            (0, "ALLOCATION", "Allocation"),
            (1, "DEALLOCATION", "Deallocation"),
        ],
    ),
    table(
        "ENUM_CUDA_MEMCPY_OPER",
        "CUDA_MEMCPY_KIND_",
        &[
            (0, "UNKNOWN", "Unknown"),
            (1, "HTOD", "Host-to-Device"),
            (2, "DTOH", "Device-to-Host"),
            (3, "HTOA", "Host-to-Array"),
            (4, "ATOH", "Array-to-Host"),
            (5, "ATOA", "Array-to-Array"),
            (6, "ATOD", "Array-to-Device"),
            (7, "DTOA", "Device-to-Array"),
            (8, "DTOD", "Device-to-Device"),
            (9, "HTOH", "Host-to-Host"),
            (10, "PTOP", "Peer-to-Peer"),
            (11, "UVM_HTOD", "Unified Host-to-Device"),
            (12, "UVM_DTOH", "Unified Device-to-Host"),
            (13, "UVM_DTOD", "Unified Device-to-Device"),
        ],
    ),
    table(
        "ENUM_CUDA_MEMPOOL_OPER",
        "CUDA_MEMPOOL_OPERATION_TYPE_",
        &[
            (0, "INVALID", "Invalid"),
            (1, "CREATED", "Created"),
            (2, "DESTROYED", "Destroyed"),
            (3, "TRIMMED", "Trimmed"),
        ],
    ),
    table(
        "ENUM_CUDA_MEMPOOL_TYPE",
        "CUDA_MEMPOOL_TYPE_",
        &[
            (0, "INVALID", "Invalid"),
            (1, "LOCAL", "Local"),
            (2, "IMPORTED", "Imported"),
        ],
    ),
    table(
        "ENUM_CUDA_KERNEL_LAUNCH_TYPE",
        "CUDA_KERNEL_LAUNCH_TYPE_",
        &[
            (0, "UNKNOWN", "Unknown"),
            (1, "REGULAR", "Regular"),
            (2, "COOPERATIVE_SINGLE_DEVICE", "Coop Single Device"),
            (3, "COOPERATIVE_MULTI_DEVICE", "Coop Multi Device"),
        ],
    ),
    table(
        "ENUM_CUDA_FUNC_CACHE_CONFIG",
        "CU_FUNC_CACHE_PREFER_",
        &[
            (0, "NONE", "None"),
            (1, "SHARED", "Shared"),
            (2, "L1", "L1"),
            (3, "EQUAL", "Equal"),
        ],
    ),
    table(
        "ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG",
        "CUDA_SHARED_MEM_LIMIT_",
        &[(0, "DEFAULT", "Default"), (1, "OPTIN", "Opt in")],
    ),
    table(
        "ENUM_CUDA_UNIF_MEM_MIGRATION",
        "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_",
        &[
            (0, "UNKNOWN", "Unknown"),
            (1, "USER", "User prefetch"),
            (2, "COHERENCE", "Page fault"),
            (3, "PREFETCH", "Speculative prefecth"),
            (4, "EVICTION", "Eviction"),
            (5, "ACCESS_COUNTERS", "Access counters"),
        ],
    ),
    table(
        "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE",
        "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_",
        &[
            (0, "UNKNOWN", "Unknown"),
            (1, "READ", "Read"),
            (2, "WRITE", "Write"),
            (3, "ATOMIC", "Atomic"),
            (4, "PREFETCH", "Prefetch"),
        ],
    ),
    table(
        "ENUM_CUPTI_SYNC_TYPE",
        "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
        &[
            (0, "UNKNOWN", "Unknown"),
            (1, "EVENT_SYNCHRONIZE", "Event sync"),
            (2, "STREAM_WAIT_EVENT", "Stream wait sync"),
            (3, "STREAM_SYNCHRONIZE", "Stream sync"),
            (4, "CONTEXT_SYNCHRONIZE", "Context sync"),
        ],
    ),
    table(
        "ENUM_CUPTI_STREAM_TYPE",
        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_",
        &[
            (0, "UNKNOWN", "Unknown stream type"),
            (1, "DEFAULT", "Default stream"),
            (2, "NON_BLOCKING", "Non-blocking stream"),
            (3, "NULL", "Null stream"),
        ],
    ),
    table(
        "ENUM_NSYS_EVENT_CLASS",
        "TRACE_PROCESS_EVENT_",
        &[
            (0, "CUDA_RUNTIME", "CUDA runtime"),
            (1, "CUDA_DRIVER", "CUDA driver"),
            (3, "TSP_OVERHEAD", "TSP overhead"),
            (26, "CUDA_API", "CUDA API"),
            (27, "OS_RUNTIME", "OSRT runtime"),
            (67, "CUDABACKTRACE", "CUDA backtrace"),
        ],
    ),
    table(
        "ENUM_NSYS_EVENT_TYPE",
        "",
        &[
            (33, "NvtxCategory", "NvtxCategory"),
            (34, "NvtxMark", "NvtxMark"),
            (39, "NvtxThread", "NvtxThread"),
            (59, "NvtxPushPopRange", "NvtxPushPopRange"),
            (60, "NvtxStartEndRange", "NvtxStartEndRange"),
            (75, "NvtxDomainCreate", "NvtxDomainCreate"),
            (76, "NvtxDomainDestroy", "NvtxDomainDestroy"),
        ],
    ),
    table(
        "ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
        "",
        &[
            (0, "UnknownLevel", "Unknown"),
            (1, "Info", "Info"),
            (2, "Warning", "Warning"),
            (3, "Error", "Error"),
            (4, "Verbose", "Verbose"),
        ],
    ),
    table(
        "ENUM_DIAGNOSTIC_SOURCE_TYPE",
        "",
        &[
            (0, "UnknownSource", "Unknown source"),
            (1, "Injection", "Injection"),
            (2, "Daemon", "Daemon"),
            (3, "Analysis", "Analysis"),
        ],
    ),
    table(
        "ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE",
        "",
        &[
            (0, "UnknownTimestamp", "Unknown timestamp"),
            (1, "TargetTimestamp", "Target timestamp"),
            (2, "HostTimestamp", "Host timestamp"),
        ],
    ),
];
