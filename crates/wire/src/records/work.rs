//! Records of API calls and GPU work.

use super::{Object, layouts};

layouts! {
    /// A driver or runtime API call.
    pub struct Api {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// `CUpti_CallbackDomain`: 1 driver, 2 runtime; 3 a launch inside another library.
        pub domain: u32,
        /// Callback id of the function; named by a [`super::CallbackName`].
        pub cbid: u32,
        /// Process id in the PID namespace of the process.
        pub pid: u32,
        /// Thread id in the PID namespace of the process.
        pub tid: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Return value: 0 or a CUDA error code.
        pub result: u32,
    }

    /// An execution of a kernel.
    pub struct Kernel {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// Time at which it was put into the command buffer; 0 if unknown.
        pub queued_ns: u64,
        /// Time at which it was submitted to the GPU; 0 if unknown.
        pub submitted_ns: u64,
        /// Time at which the kernel and its child kernels had completed; 0 if unknown.
        pub completed_ns: u64,
        /// CUPTI's id of the execution.
        pub grid_id: i64,
        /// Graph node id; 0 outside of graphs.
        pub graph_node: u64,
        /// Total local memory, bytes.
        pub local_memory_total: u64,
        /// Id of a [`super::Text`] with the mangled name.
        pub name: u32,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// Context id of CUPTI.
        pub context: u32,
        /// Stream id of CUPTI.
        pub stream: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Graph id; [`super::UNKNOWN_ID`] or 0 outside of graphs.
        pub graph: u32,
        /// Size of the grid, blocks.
        pub grid: [u32; 3],
        /// Size of a block, threads.
        pub block: [u32; 3],
        /// Cluster size, blocks; 0 without clusters.
        pub cluster: [u32; 3],
        /// Static shared memory per block, bytes.
        pub static_shared_memory: u32,
        /// Dynamic shared memory per block, bytes.
        pub dynamic_shared_memory: u32,
        /// Shared memory size set by the driver, bytes per block.
        pub shared_memory_executed: u32,
        /// Local memory per thread, bytes.
        pub local_memory_per_thread: u32,
        /// Id of the hardware channel.
        pub channel: u32,
        /// Type of the channel (`CUpti_ChannelType`).
        pub channel_type: u32,
        /// Number of registers per thread.
        pub registers_per_thread: u16,
        /// Cache configuration, requested and executed.
        pub cache_config: u8,
        /// `CUpti_ActivityLaunchType`: 0 regular, 1 cooperative single device, 2 cooperative multi device.
        pub launch_type: u8,
        /// Shared memory limit configuration.
        pub shared_memory_limit_config: u32,
        /// 1 if CUPTI reported it as `CONCURRENT_KERNEL`, 0 if as `KERNEL`.
        pub concurrent: u32,
        /// 1 if it was launched from a kernel.
        pub device_launched: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// A copy, including peer copies.
    pub struct Memcpy {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// Size of the operation, bytes.
        pub size_bytes: u64,
        /// Graph node id; 0 outside of graphs.
        pub graph_node: u64,
        /// Number of copies in the record; 1 if CUPTI's version does not report it.
        pub copies: u64,
        /// `CUpti_ActivityMemcpyKind`: 1 `HtoD`, 2 `DtoH`, 8 `DtoD`, 10 `PtoP` ...
        pub copy_kind: u8,
        /// `CUpti_ActivityMemoryKind`: 1 pageable, 2 pinned, 3 device, 4 array, 5 managed ...
        pub source_kind: u8,
        /// Memory kind, as `source_kind`.
        pub destination_kind: u8,
        /// Bit set; bit 0: asynchronous.
        pub flags: u8,
        /// 1 if CUPTI reported it as `MEMCPY2` (between GPUs).
        pub peer: u32,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// Context id of CUPTI.
        pub context: u32,
        /// Stream id of CUPTI.
        pub stream: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Correlation id of the runtime call.
        pub runtime_correlation: u32,
        /// Graph id; [`super::UNKNOWN_ID`] or 0 outside of graphs.
        pub graph: u32,
        /// Source device of a peer copy; else [`super::UNKNOWN_ID`].
        pub source_device: u32,
        /// Source context id, see [`Memcpy::source_device`].
        pub source_context: u32,
        /// Destination device id, see [`Memcpy::source_device`].
        pub destination_device: u32,
        /// Destination context id, see [`Memcpy::source_device`].
        pub destination_context: u32,
        /// Id of the hardware channel.
        pub channel: u32,
        /// Type of the channel (`CUpti_ChannelType`).
        pub channel_type: u32,
    }

    /// A memset on the GPU.
    pub struct Memset {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// Size of the operation, bytes.
        pub size_bytes: u64,
        /// Graph node id; 0 outside of graphs.
        pub graph_node: u64,
        /// Value that is set.
        pub value: u32,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// Context id of CUPTI.
        pub context: u32,
        /// Stream id of CUPTI.
        pub stream: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Bit set; bit 0: asynchronous.
        pub flags: u16,
        /// Kind of the memory, a `CUpti_ActivityMemoryKind`.
        pub memory_kind: u16,
        /// Graph id; [`super::UNKNOWN_ID`] or 0 outside of graphs.
        pub graph: u32,
        /// Id of the hardware channel.
        pub channel: u32,
        /// Type of the channel (`CUpti_ChannelType`).
        pub channel_type: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// A synchronization: wait for GPU work.
    pub struct Sync {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// `CUpti_ActivitySynchronizationType`: 1 event, 2 stream wait event, 3 stream, 4 context.
        pub sync_type: u32,
        /// Context id of CUPTI.
        pub context: u32,
        /// Id in CUPTI; [`super::UNKNOWN_ID`] if there is none.
        pub stream: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Id in CUPTI; [`super::UNKNOWN_ID`] if there is none.
        pub event: u32,
        /// Return value: 0 or a CUDA error code.
        pub result: u32,
    }

    /// An execution of a whole graph.
    pub struct GraphTrace {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// Context id of CUPTI.
        pub context: u32,
        /// Stream id of CUPTI.
        pub stream: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Graph id; [`super::UNKNOWN_ID`] or 0 outside of graphs.
        pub graph: u32,
        /// Device on which the last node ended.
        pub end_device: u32,
        /// Context in which the last node ended.
        pub end_context: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// Overhead of tracing, as CUPTI reports it.
    pub struct Overhead {
        /// Start time, nanoseconds of CUPTI's clock.
        pub start_ns: u64,
        /// End time, nanoseconds of CUPTI's clock.
        pub end_ns: u64,
        /// Overhead kind, as a value of `CUpti_ActivityOverheadKind`.
        pub overhead_kind: u32,
        /// Object to which the overhead is attributed.
        pub object: Object,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
    }
}
