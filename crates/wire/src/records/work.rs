//! Calls, and work that the GPU did.

use super::{Object, layouts};

layouts! {
    /// A call of the driver or of the runtime.
    pub struct Api {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// `CUpti_CallbackDomain`: 1 driver, 2 runtime; 3 a launch that another library makes inside.
        pub domain: u32,
        /// Which function; named by a [`super::CallbackName`].
        pub cbid: u32,
        /// Process id as the process itself sees it.
        pub pid: u32,
        /// Thread id as the process itself sees it.
        pub tid: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// 0 or an error code.
        pub result: u32,
    }

    /// A run of a kernel.
    pub struct Kernel {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// When it was put into the command buffer, if known.
        pub queued_ns: u64,
        /// When it was given to the GPU, if known.
        pub submitted_ns: u64,
        /// When it and all that it launched had ended, if known.
        pub completed_ns: u64,
        /// CUPTI's number of the run.
        pub grid_id: i64,
        /// 0 if it is of no graph.
        pub graph_node: u64,
        /// Bytes.
        pub local_memory_total: u64,
        /// A [`super::Text`]: mangled.
        pub name: u32,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// CUPTI's number of the context.
        pub context: u32,
        /// CUPTI's number of the stream.
        pub stream: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// [`super::UNKNOWN_ID`] or 0 if it is of no graph.
        pub graph: u32,
        /// Blocks.
        pub grid: [u32; 3],
        /// Threads per block.
        pub block: [u32; 3],
        /// 0 if there are no clusters.
        pub cluster: [u32; 3],
        /// Bytes per block.
        pub static_shared_memory: u32,
        /// Bytes per block.
        pub dynamic_shared_memory: u32,
        /// Bytes per block.
        pub shared_memory_executed: u32,
        /// Bytes.
        pub local_memory_per_thread: u32,
        /// Hardware channel.
        pub channel: u32,
        /// `CUpti_ChannelType`.
        pub channel_type: u32,
        /// Registers per thread.
        pub registers_per_thread: u16,
        /// Cache config.
        pub cache_config: u8,
        /// `CUpti_ActivityLaunchType`: 0 regular, 1 cooperative single device, 2 cooperative multi device.
        pub launch_type: u8,
        /// Shared memory limit config.
        pub shared_memory_limit_config: u32,
        /// 1 if it came as `CONCURRENT_KERNEL`, 0 if as `KERNEL`.
        pub concurrent: u32,
        /// 1 if a kernel launched it.
        pub device_launched: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// A copy, also one between GPUs.
    pub struct Memcpy {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// Bytes.
        pub size_bytes: u64,
        /// 0 if it is of no graph.
        pub graph_node: u64,
        /// Copies that the record stands for; 1 where the version does not say.
        pub copies: u64,
        /// `CUpti_ActivityMemcpyKind`: 1 `HtoD`, 2 `DtoH`, 8 `DtoD`, 10 `PtoP` ...
        pub copy_kind: u8,
        /// `CUpti_ActivityMemoryKind`: 1 pageable, 2 pinned, 3 device, 4 array, 5 managed ...
        pub source_kind: u8,
        /// As `source_kind`.
        pub destination_kind: u8,
        /// Bit 0: asynchronous.
        pub flags: u8,
        /// 1 if it came as `MEMCPY2`, between GPUs.
        pub peer: u32,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// CUPTI's number of the context.
        pub context: u32,
        /// CUPTI's number of the stream.
        pub stream: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// Runtime correlation.
        pub runtime_correlation: u32,
        /// The graph, or [`super::UNKNOWN_ID`] or 0.
        pub graph: u32,
        /// Of a peer copy, else [`super::UNKNOWN_ID`].
        pub source_device: u32,
        /// Likewise.
        pub source_context: u32,
        /// Likewise.
        pub destination_device: u32,
        /// Likewise.
        pub destination_context: u32,
        /// Hardware channel.
        pub channel: u32,
        /// `CUpti_ChannelType`.
        pub channel_type: u32,
    }

    /// A memory set.
    pub struct Memset {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// Bytes.
        pub size_bytes: u64,
        /// 0 if it is of no graph.
        pub graph_node: u64,
        /// Value.
        pub value: u32,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// CUPTI's number of the context.
        pub context: u32,
        /// CUPTI's number of the stream.
        pub stream: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// Bit 0: asynchronous.
        pub flags: u16,
        /// `CUpti_ActivityMemoryKind`.
        pub memory_kind: u16,
        /// The graph, or [`super::UNKNOWN_ID`] or 0.
        pub graph: u32,
        /// Hardware channel.
        pub channel: u32,
        /// `CUpti_ChannelType`.
        pub channel_type: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// A wait for the GPU.
    pub struct Sync {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// `CUpti_ActivitySynchronizationType`: 1 event, 2 stream wait event, 3 stream, 4 context.
        pub sync_type: u32,
        /// CUPTI's number of the context.
        pub context: u32,
        /// [`super::UNKNOWN_ID`] if it is about none.
        pub stream: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// [`super::UNKNOWN_ID`] if it is about none.
        pub event: u32,
        /// 0 or an error code.
        pub result: u32,
    }

    /// A run of a whole graph.
    pub struct GraphTrace {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// CUPTI's number of the context.
        pub context: u32,
        /// CUPTI's number of the stream.
        pub stream: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// The graph, or [`super::UNKNOWN_ID`] or 0.
        pub graph: u32,
        /// End device.
        pub end_device: u32,
        /// End context.
        pub end_context: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// Time that tracing itself took.
    pub struct Overhead {
        /// Start.
        pub start_ns: u64,
        /// End.
        pub end_ns: u64,
        /// `CUpti_ActivityOverheadKind`.
        pub overhead_kind: u32,
        /// Whose.
        pub object: Object,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
    }
}
