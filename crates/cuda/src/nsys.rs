//! Numbers of CUPTI and of Nsight Systems, and what they are called: in reports, and in the `ENUM_*`
//! tables of exports.

use crate::Direction;

/// Numbers, and what they are called.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration {
    /// The `ENUM_*` table of exports; empty if they have none.
    pub table: &'static str,
    /// What every [`Value::name`] begins with.
    pub prefix: &'static str,
    /// The first is for numbers that are not known.
    pub values: &'static [Value],
}

/// A number, and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// The number.
    pub number: i64,
    /// The name in exports, without the prefix.
    pub name: &'static str,
    /// The label in exports.
    pub label: &'static str,
    /// The name in reports; empty if they have none.
    pub ours: &'static str,
}

impl Enumeration {
    /// The value with this number, or the first.
    pub fn of(&self, number: impl Into<i64>) -> &'static Value {
        let number = number.into();
        let found = self.values.iter().find(|value| value.number == number);
        found.unwrap_or(&self.values[0])
    }

    /// What reports call this number.
    pub fn name(&self, number: impl Into<i64>) -> &'static str {
        self.of(number).ours
    }
}

/// What `CUDA_GPU_MEMORY_USAGE_EVENTS` calls an allocation.
pub const ALLOCATION: &str = "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION";
/// What it calls a deallocation.
pub const DEALLOCATION: &str = "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION";

/// Event classes of `CUPTI_ACTIVITY_KIND_RUNTIME`.
pub mod class {
    /// A call of the runtime.
    pub const RUNTIME: i64 = 0;
    /// A call of the driver, made directly.
    pub const DRIVER: i64 = 1;
    /// The same call as another row's, with a call stack.
    pub const BACKTRACE: i64 = 67;
}

const fn table(table: &'static str, prefix: &'static str, values: &'static [Value]) -> Enumeration {
    Enumeration {
        table,
        prefix,
        values,
    }
}

/// A number that only exports name.
const fn export(number: i64, name: &'static str, label: &'static str) -> Value {
    value(number, name, label, "")
}

/// A number that only reports name.
const fn ours(number: i64, ours: &'static str) -> Value {
    value(number, "", "", ours)
}

const fn value(number: i64, name: &'static str, label: &'static str, ours: &'static str) -> Value {
    Value {
        number,
        name,
        label,
        ours,
    }
}

/// `CUpti_ActivityMemcpyKind`, as CUPTI's samples print it, and what exports number beyond it.
pub const COPY_KINDS: Enumeration = table(
    "ENUM_CUDA_MEMCPY_OPER",
    "CUDA_MEMCPY_KIND_",
    &[
        value(0, "UNKNOWN", "Unknown", "UNKNOWN"),
        value(1, "HTOD", "Host-to-Device", "HtoD"),
        value(2, "DTOH", "Device-to-Host", "DtoH"),
        value(3, "HTOA", "Host-to-Array", "HtoA"),
        value(4, "ATOH", "Array-to-Host", "AtoH"),
        value(5, "ATOA", "Array-to-Array", "AtoA"),
        value(6, "ATOD", "Array-to-Device", "AtoD"),
        value(7, "DTOA", "Device-to-Array", "DtoA"),
        value(8, "DTOD", "Device-to-Device", "DtoD"),
        value(9, "HTOH", "Host-to-Host", "HtoH"),
        value(10, "PTOP", "Peer-to-Peer", "PtoP"),
        value(11, "UVM_HTOD", "Unified Host-to-Device", "UNKNOWN"),
        value(12, "UVM_DTOH", "Unified Device-to-Host", "UNKNOWN"),
        value(13, "UVM_DTOD", "Unified Device-to-Device", "UNKNOWN"),
    ],
);

/// The directions of [`COPY_KINDS`], by number.
const DIRECTIONS: [Direction; 14] = [
    Direction::Unknown,
    Direction::HostToDevice,
    Direction::DeviceToHost,
    Direction::HostToArray,
    Direction::ArrayToHost,
    Direction::ArrayToArray,
    Direction::ArrayToDevice,
    Direction::DeviceToArray,
    Direction::DeviceToDevice,
    Direction::HostToHost,
    Direction::PeerToPeer,
    Direction::UnifiedHostToDevice,
    Direction::UnifiedDeviceToHost,
    Direction::UnifiedDeviceToDevice,
];

/// The direction of a copy with this number of [`COPY_KINDS`].
pub fn direction(copy_kind: u8) -> Direction {
    let direction = DIRECTIONS.get(usize::from(copy_kind));
    direction.copied().unwrap_or(Direction::Unknown)
}

/// `CUpti_ActivityMemoryOperationType`.
pub const MEMORY_OPERATIONS: Enumeration = table(
    "",
    "",
    &[
        ours(0, "unknown"),
        ours(1, "allocation"),
        ours(2, "release"),
    ],
);

/// `CUpti_ActivityMemoryPoolOperationType`.
pub const POOL_OPERATIONS: Enumeration = table(
    "ENUM_CUDA_MEMPOOL_OPER",
    "CUDA_MEMPOOL_OPERATION_TYPE_",
    &[
        value(0, "INVALID", "Invalid", "unknown"),
        value(1, "CREATED", "Created", "created"),
        value(2, "DESTROYED", "Destroyed", "destroyed"),
        value(3, "TRIMMED", "Trimmed", "trimmed"),
    ],
);

/// `CUpti_ActivitySynchronizationType`.
pub const WAITS: Enumeration = table(
    "ENUM_CUPTI_SYNC_TYPE",
    "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_",
    &[
        value(0, "UNKNOWN", "Unknown", "unknown"),
        value(1, "EVENT_SYNCHRONIZE", "Event sync", "event"),
        value(
            2,
            "STREAM_WAIT_EVENT",
            "Stream wait sync",
            "stream waits for event",
        ),
        value(3, "STREAM_SYNCHRONIZE", "Stream sync", "stream"),
        value(4, "CONTEXT_SYNCHRONIZE", "Context sync", "context"),
    ],
);

/// `CUpti_ActivityOverheadKind`; the labels are the names in `PROFILER_OVERHEAD`.
pub const OVERHEADS: Enumeration = table(
    "",
    "",
    &[
        value(0, "", "Unknown", "unknown"),
        value(1, "", "CUDA Driver Compiler", "driver compiler"),
        value(1 << 16, "", "CUPTI Buffer flush", "CUPTI buffer flush"),
        value(
            2 << 16,
            "",
            "CUPTI Instrumentation",
            "CUPTI instrumentation",
        ),
        value(3 << 16, "", "CUPTI Resource Management", "CUPTI resource"),
        value(
            4 << 16,
            "",
            "Runtime Triggered Module Loading",
            "module loading",
        ),
        value(
            5 << 16,
            "",
            "Lazy Function Loading",
            "lazy function loading",
        ),
        value(6 << 16, "", "Command Buffer Full", "command buffer full"),
        value(
            7 << 16,
            "",
            "Activity Buffer Request",
            "activity buffer request",
        ),
        value(8 << 16, "", "UVM Activity Init", "UVM activity init"),
    ],
);

/// `CUpti_CallbackDomain`, as far as the collector hands it on.
pub const DOMAINS: Enumeration = table(
    "",
    "",
    &[
        ours(0, "unknown"),
        ours(domain::DRIVER as i64, "driver"),
        ours(domain::RUNTIME as i64, "runtime"),
        ours(3, "internal"),
    ],
);

/// Numbers of [`DOMAINS`].
pub mod domain {
    /// `CUPTI_CB_DOMAIN_DRIVER_API`.
    pub const DRIVER: u32 = 1;
    /// `CUPTI_CB_DOMAIN_RUNTIME_API`.
    pub const RUNTIME: u32 = 2;
}

/// `CUpti_ActivityComputeApiKind`.
pub const COMPUTE_APIS: Enumeration = table(
    "",
    "",
    &[ours(0, "UNKNOWN"), ours(1, "CUDA"), ours(2, "CUDA_MPS")],
);

/// `CUpti_ActivityObjectKind`; the labels are the names in `GPUPROBE_NAMES`.
pub const OBJECTS: Enumeration = table(
    "",
    "",
    &[
        value(0, "", "unknown", "object"),
        value(1, "", "process", "process"),
        value(object::THREAD as i64, "", "thread", "thread"),
        value(3, "", "device", "device"),
        value(4, "", "context", "context"),
        value(5, "", "stream", "stream"),
    ],
);

/// Numbers of [`OBJECTS`].
pub mod object {
    /// `CUPTI_ACTIVITY_OBJECT_THREAD`.
    pub const THREAD: u32 = 2;
}

/// Those that every recording has, but for `ENUM_CUDA_MEM_KIND`, which is
/// [`KINDS`](super::kinds::KINDS).
pub const ENUMERATIONS: &[Enumeration] = &[
    table(
        "ENUM_CUDA_DEV_MEM_EVENT_OPER",
        "CUDA_DEV_MEM_EVENT_OPR_",
        &[
            export(0, "ALLOCATION", "Allocation"),
            export(1, "DEALLOCATION", "Deallocation"),
        ],
    ),
    COPY_KINDS,
    POOL_OPERATIONS,
    table(
        "ENUM_CUDA_MEMPOOL_TYPE",
        "CUDA_MEMPOOL_TYPE_",
        &[
            export(0, "INVALID", "Invalid"),
            export(1, "LOCAL", "Local"),
            export(2, "IMPORTED", "Imported"),
        ],
    ),
    table(
        "ENUM_CUDA_KERNEL_LAUNCH_TYPE",
        "CUDA_KERNEL_LAUNCH_TYPE_",
        &[
            export(0, "UNKNOWN", "Unknown"),
            export(1, "REGULAR", "Regular"),
            export(2, "COOPERATIVE_SINGLE_DEVICE", "Coop Single Device"),
            export(3, "COOPERATIVE_MULTI_DEVICE", "Coop Multi Device"),
        ],
    ),
    table(
        "ENUM_CUDA_FUNC_CACHE_CONFIG",
        "CU_FUNC_CACHE_PREFER_",
        &[
            export(0, "NONE", "None"),
            export(1, "SHARED", "Shared"),
            export(2, "L1", "L1"),
            export(3, "EQUAL", "Equal"),
        ],
    ),
    table(
        "ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG",
        "CUDA_SHARED_MEM_LIMIT_",
        &[
            export(0, "DEFAULT", "Default"),
            export(1, "OPTIN", "Opt in"),
        ],
    ),
    table(
        "ENUM_CUDA_UNIF_MEM_MIGRATION",
        "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_",
        &[
            export(0, "UNKNOWN", "Unknown"),
            export(1, "USER", "User prefetch"),
            export(2, "COHERENCE", "Page fault"),
            export(3, "PREFETCH", "Speculative prefecth"),
            export(4, "EVICTION", "Eviction"),
            export(5, "ACCESS_COUNTERS", "Access counters"),
        ],
    ),
    table(
        "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE",
        "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_",
        &[
            export(0, "UNKNOWN", "Unknown"),
            export(1, "READ", "Read"),
            export(2, "WRITE", "Write"),
            export(3, "ATOMIC", "Atomic"),
            export(4, "PREFETCH", "Prefetch"),
        ],
    ),
    WAITS,
    table(
        "ENUM_CUPTI_STREAM_TYPE",
        "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_",
        &[
            export(0, "UNKNOWN", "Unknown stream type"),
            export(1, "DEFAULT", "Default stream"),
            export(2, "NON_BLOCKING", "Non-blocking stream"),
            export(3, "NULL", "Null stream"),
        ],
    ),
    table(
        "ENUM_NSYS_EVENT_CLASS",
        "TRACE_PROCESS_EVENT_",
        &[
            export(0, "CUDA_RUNTIME", "CUDA runtime"),
            export(1, "CUDA_DRIVER", "CUDA driver"),
            export(3, "TSP_OVERHEAD", "TSP overhead"),
            export(26, "CUDA_API", "CUDA API"),
            export(27, "OS_RUNTIME", "OSRT runtime"),
            export(67, "CUDABACKTRACE", "CUDA backtrace"),
        ],
    ),
    table(
        "ENUM_NSYS_EVENT_TYPE",
        "",
        &[
            export(33, "NvtxCategory", "NvtxCategory"),
            export(34, "NvtxMark", "NvtxMark"),
            export(39, "NvtxThread", "NvtxThread"),
            export(59, "NvtxPushPopRange", "NvtxPushPopRange"),
            export(60, "NvtxStartEndRange", "NvtxStartEndRange"),
            export(75, "NvtxDomainCreate", "NvtxDomainCreate"),
            export(76, "NvtxDomainDestroy", "NvtxDomainDestroy"),
        ],
    ),
    table(
        "ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
        "",
        &[
            export(0, "UnknownLevel", "Unknown"),
            export(1, "Info", "Info"),
            export(2, "Warning", "Warning"),
            export(3, "Error", "Error"),
            export(4, "Verbose", "Verbose"),
        ],
    ),
    table(
        "ENUM_DIAGNOSTIC_SOURCE_TYPE",
        "",
        &[
            export(0, "UnknownSource", "Unknown source"),
            export(1, "Injection", "Injection"),
            export(2, "Daemon", "Daemon"),
            export(3, "Analysis", "Analysis"),
        ],
    ),
    table(
        "ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE",
        "",
        &[
            export(0, "UnknownTimestamp", "Unknown timestamp"),
            export(1, "TargetTimestamp", "Target timestamp"),
            export(2, "HostTimestamp", "Host timestamp"),
        ],
    ),
];
