//! Enumerations of CUPTI and Nsight Systems, with their names in reports and in the `ENUM_*` tables
//! of exports.

use crate::Direction;

/// An enumeration of CUPTI or Nsight Systems.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration {
    /// Name of the `ENUM_*` table in exports; empty if there is none.
    pub table: &'static str,
    /// Common prefix of every [`EnumValue::name`].
    pub prefix: &'static str,
    /// Values; the first stands for unknown numbers.
    pub values: &'static [EnumValue],
}

/// A value of an [`Enumeration`].
#[derive(Clone, Copy, Debug)]
pub struct EnumValue {
    /// Number in CUPTI and exports.
    pub number: i64,
    /// Name in exports, without the prefix.
    pub name: &'static str,
    /// Label in `ENUM_*` tables.
    pub label: &'static str,
    /// Name in reports; empty if it has none.
    pub report_name: &'static str,
}

impl Enumeration {
    /// The value with this number, or the first value.
    pub fn of(&self, number: impl Into<i64>) -> &'static EnumValue {
        let number = number.into();
        let found = self.values.iter().find(|value| value.number == number);
        found.unwrap_or(&self.values[0])
    }

    /// Name of this number in reports.
    pub fn name(&self, number: impl Into<i64>) -> &'static str {
        self.of(number).report_name
    }
}

/// Name of an allocation in `CUDA_GPU_MEMORY_USAGE_EVENTS`.
pub const ALLOCATION: &str = "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION";
/// Name of a deallocation in `CUDA_GPU_MEMORY_USAGE_EVENTS`.
pub const DEALLOCATION: &str = "CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION";

/// Event classes of `CUPTI_ACTIVITY_KIND_RUNTIME`.
pub mod class {
    /// Call of a runtime function.
    pub const RUNTIME: i64 = 0;
    /// Direct call of a driver function.
    pub const DRIVER: i64 = 1;
    /// Duplicate row of a call, with its call stack.
    pub const BACKTRACE: i64 = 67;
}

/// Values of `eventType` in `NVTX_EVENTS`, of `ENUM_NSYS_EVENT_TYPE`.
pub mod event_type {
    /// A mark at one point in time.
    pub const MARK: i64 = 34;
    /// A range of one thread, pushed and popped.
    pub const PUSH_POP: i64 = 59;
    /// A range of the process, started and ended.
    pub const START_END: i64 = 60;
    /// A domain was created.
    pub const DOMAIN: i64 = 75;
}

/// Table, prefix, and for each value the number, name, label and, in brackets, the name in reports.
macro_rules! enumeration {
    ($table:literal $prefix:literal
     $($number:literal $name:literal $label:literal $([$report_name:literal])?;)+) => {
        Enumeration {
            table: $table,
            prefix: $prefix,
            values: &[$(EnumValue {
                number: $number,
                name: $name,
                label: $label,
                report_name: concat!($($report_name)?),
            }),+],
        }
    };
}

/// `CUpti_ActivityMemcpyKind`, with the names that CUPTI's samples print, and the further numbers
/// of exports.
pub const COPY_KINDS: Enumeration = enumeration! { "ENUM_CUDA_MEMCPY_OPER" "CUDA_MEMCPY_KIND_"
    0 "UNKNOWN" "Unknown" ["UNKNOWN"];
    1 "HTOD" "Host-to-Device" ["HtoD"];
    2 "DTOH" "Device-to-Host" ["DtoH"];
    3 "HTOA" "Host-to-Array" ["HtoA"];
    4 "ATOH" "Array-to-Host" ["AtoH"];
    5 "ATOA" "Array-to-Array" ["AtoA"];
    6 "ATOD" "Array-to-Device" ["AtoD"];
    7 "DTOA" "Device-to-Array" ["DtoA"];
    8 "DTOD" "Device-to-Device" ["DtoD"];
    9 "HTOH" "Host-to-Host" ["HtoH"];
    10 "PTOP" "Peer-to-Peer" ["PtoP"];
    11 "UVM_HTOD" "Unified Host-to-Device" ["UNKNOWN"];
    12 "UVM_DTOH" "Unified Device-to-Host" ["UNKNOWN"];
    13 "UVM_DTOD" "Unified Device-to-Device" ["UNKNOWN"];
};

/// Directions by number of [`COPY_KINDS`].
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

/// The direction for a number of [`COPY_KINDS`].
pub fn direction(copy_kind: u8) -> Direction {
    let direction = DIRECTIONS.get(usize::from(copy_kind));
    direction.copied().unwrap_or(Direction::Unknown)
}

/// The values of `CUpti_ActivityMemoryOperationType`.
pub const MEMORY_OPERATIONS: Enumeration = enumeration! { "" ""
    0 "" "" ["unknown"];
    1 "" "" ["allocation"];
    2 "" "" ["release"];
};

/// The values of `CUpti_ActivityMemoryPoolOperationType`.
pub const POOL_OPERATIONS: Enumeration = enumeration! {
    "ENUM_CUDA_MEMPOOL_OPER" "CUDA_MEMPOOL_OPERATION_TYPE_"
    0 "INVALID" "Invalid" ["unknown"];
    1 "CREATED" "Created" ["created"];
    2 "DESTROYED" "Destroyed" ["destroyed"];
    3 "TRIMMED" "Trimmed" ["trimmed"];
};

/// The values of `CUpti_ActivitySynchronizationType`.
pub const WAITS: Enumeration = enumeration! {
    "ENUM_CUPTI_SYNC_TYPE" "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_"
    0 "UNKNOWN" "Unknown" ["unknown"];
    1 "EVENT_SYNCHRONIZE" "Event sync" ["event"];
    2 "STREAM_WAIT_EVENT" "Stream wait sync" ["stream waits for event"];
    3 "STREAM_SYNCHRONIZE" "Stream sync" ["stream"];
    4 "CONTEXT_SYNCHRONIZE" "Context sync" ["context"];
};

/// `CUpti_ActivityOverheadKind`; the labels are the names in `PROFILER_OVERHEAD`.
pub const OVERHEADS: Enumeration = enumeration! { "" ""
    0 "" "Unknown" ["unknown"];
    1 "" "CUDA Driver Compiler" ["driver compiler"];
    0x1_0000 "" "CUPTI Buffer flush" ["CUPTI buffer flush"];
    0x2_0000 "" "CUPTI Instrumentation" ["CUPTI instrumentation"];
    0x3_0000 "" "CUPTI Resource Management" ["CUPTI resource"];
    0x4_0000 "" "Runtime Triggered Module Loading" ["module loading"];
    0x5_0000 "" "Lazy Function Loading" ["lazy function loading"];
    0x6_0000 "" "Command Buffer Full" ["command buffer full"];
    0x7_0000 "" "Activity Buffer Request" ["activity buffer request"];
    0x8_0000 "" "UVM Activity Init" ["UVM activity init"];
};

/// `CUpti_CallbackDomain`, as far as the collector forwards it.
pub const DOMAINS: Enumeration = enumeration! { "" ""
    0 "" "" ["unknown"];
    1 "" "" ["driver"];
    2 "" "" ["runtime"];
    3 "" "" ["internal"];
};

/// Values in [`DOMAINS`] by name.
pub mod domain {
    /// The constant `CUPTI_CB_DOMAIN_DRIVER_API` of CUPTI.
    pub const DRIVER: u32 = 1;
    /// The constant `CUPTI_CB_DOMAIN_RUNTIME_API` of CUPTI.
    pub const RUNTIME: u32 = 2;
}

/// `CUpti_ActivityObjectKind`; the labels are the names in `GPUPROBE_NAMES`.
pub const OBJECTS: Enumeration = enumeration! { "" ""
    0 "" "unknown" ["object"];
    1 "" "process" ["process"];
    2 "" "thread" ["thread"];
    3 "" "device" ["device"];
    4 "" "context" ["context"];
    5 "" "stream" ["stream"];
};

/// Values in [`OBJECTS`] by name.
pub mod object {
    /// The constant `CUPTI_ACTIVITY_OBJECT_THREAD` of CUPTI.
    pub const THREAD: u32 = 2;
}

/// Enumerations with a table in every recording, except `ENUM_CUDA_MEM_KIND`, which is
/// [`KINDS`](super::kinds::KINDS).
pub const ENUMERATIONS: &[Enumeration] = &[
    enumeration! { "ENUM_CUDA_DEV_MEM_EVENT_OPER" "CUDA_DEV_MEM_EVENT_OPR_"
        0 "ALLOCATION" "Allocation";
        1 "DEALLOCATION" "Deallocation";
    },
    COPY_KINDS,
    POOL_OPERATIONS,
    enumeration! { "ENUM_CUDA_MEMPOOL_TYPE" "CUDA_MEMPOOL_TYPE_"
        0 "INVALID" "Invalid";
        1 "LOCAL" "Local";
        2 "IMPORTED" "Imported";
    },
    enumeration! { "ENUM_CUDA_KERNEL_LAUNCH_TYPE" "CUDA_KERNEL_LAUNCH_TYPE_"
        0 "UNKNOWN" "Unknown";
        1 "REGULAR" "Regular";
        2 "COOPERATIVE_SINGLE_DEVICE" "Coop Single Device";
        3 "COOPERATIVE_MULTI_DEVICE" "Coop Multi Device";
    },
    enumeration! { "ENUM_CUDA_FUNC_CACHE_CONFIG" "CU_FUNC_CACHE_PREFER_"
        0 "NONE" "None";
        1 "SHARED" "Shared";
        2 "L1" "L1";
        3 "EQUAL" "Equal";
    },
    enumeration! { "ENUM_CUDA_SHARED_MEM_LIMIT_CONFIG" "CUDA_SHARED_MEM_LIMIT_"
        0 "DEFAULT" "Default";
        1 "OPTIN" "Opt in";
    },
    enumeration! { "ENUM_CUDA_UNIF_MEM_MIGRATION" "CUDA_UNIFIED_MEMORY_MIGRATION_CAUSE_"
        0 "UNKNOWN" "Unknown";
        1 "USER" "User prefetch";
        2 "COHERENCE" "Page fault";
        3 "PREFETCH" "Speculative prefecth";
        4 "EVICTION" "Eviction";
        5 "ACCESS_COUNTERS" "Access counters";
    },
    enumeration! { "ENUM_CUDA_UNIF_MEM_ACCESS_TYPE" "CUDA_UNIFIED_MEMORY_ACCESS_TYPE_"
        0 "UNKNOWN" "Unknown";
        1 "READ" "Read";
        2 "WRITE" "Write";
        3 "ATOMIC" "Atomic";
        4 "PREFETCH" "Prefetch";
    },
    WAITS,
    enumeration! { "ENUM_CUPTI_STREAM_TYPE" "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_"
        0 "UNKNOWN" "Unknown stream type";
        1 "DEFAULT" "Default stream";
        2 "NON_BLOCKING" "Non-blocking stream";
        3 "NULL" "Null stream";
    },
    enumeration! { "ENUM_NSYS_EVENT_CLASS" "TRACE_PROCESS_EVENT_"
        0 "CUDA_RUNTIME" "CUDA runtime";
        1 "CUDA_DRIVER" "CUDA driver";
        3 "TSP_OVERHEAD" "TSP overhead";
        26 "CUDA_API" "CUDA API";
        27 "OS_RUNTIME" "OSRT runtime";
        67 "CUDABACKTRACE" "CUDA backtrace";
    },
    enumeration! { "ENUM_NSYS_EVENT_TYPE" ""
        33 "NvtxCategory" "NvtxCategory";
        34 "NvtxMark" "NvtxMark";
        39 "NvtxThread" "NvtxThread";
        59 "NvtxPushPopRange" "NvtxPushPopRange";
        60 "NvtxStartEndRange" "NvtxStartEndRange";
        75 "NvtxDomainCreate" "NvtxDomainCreate";
        76 "NvtxDomainDestroy" "NvtxDomainDestroy";
    },
    enumeration! { "ENUM_DIAGNOSTIC_SEVERITY_LEVEL" ""
        0 "UnknownLevel" "Unknown";
        1 "Info" "Info";
        2 "Warning" "Warning";
        3 "Error" "Error";
        4 "Verbose" "Verbose";
    },
    enumeration! { "ENUM_DIAGNOSTIC_SOURCE_TYPE" ""
        0 "UnknownSource" "Unknown source";
        1 "Injection" "Injection";
        2 "Daemon" "Daemon";
        3 "Analysis" "Analysis";
    },
    enumeration! { "ENUM_DIAGNOSTIC_TIMESTAMP_SOURCE" ""
        0 "UnknownTimestamp" "Unknown timestamp";
        1 "TargetTimestamp" "Target timestamp";
        2 "HostTimestamp" "Host timestamp";
    },
];
