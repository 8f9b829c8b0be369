//! Records of devices, contexts, streams, texts, names and ranges.

use super::layouts;

layouts! {
    /// A text that later records of the process refer to by id.
    pub struct Text {
        /// Id, from 1; 0 in a record means no text.
        pub id: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// Name of a driver or runtime function.
    pub struct CallbackName {
        /// Callback domain, see [`super::Api::domain`].
        pub domain: u32,
        /// Callback id, see [`super::Api::cbid`].
        pub cbid: u32,
    }

    /// An object of `CUpti_ActivityObjectKind`, with its ids.
    pub struct Object {
        /// Object kind: 0 unknown, 1 process, 2 thread, 3 device, 4 context, 5 stream.
        pub kind: u32,
        /// Process id or device index.
        pub a: u32,
        /// Thread id or context id; 0 if there is none.
        pub b: u32,
        /// Stream id; 0 if there is none.
        pub c: u32,
    }

    /// Properties of a GPU.
    pub struct Device {
        /// Bandwidth of the device memory, kB/s.
        pub memory_bandwidth: u64,
        /// Size of the global memory, bytes.
        pub memory_bytes: u64,
        /// UUID, as NVML and `nvidia-smi -L` print it.
        pub uuid: [u8; 16],
        /// Id of a [`Text`] with the product name.
        pub name: u32,
        /// As CUDA numbers it in this process.
        pub device: u32,
        /// Clock rate of the cores, kHz.
        pub clock_khz: u32,
        /// Number of multiprocessors of the GPU.
        pub multiprocessors: u32,
        /// Major number of the compute capability.
        pub capability_major: u32,
        /// Minor number of the compute capability.
        pub capability_minor: u32,
        /// Size of the L2 cache, bytes.
        pub l2_cache_bytes: u32,
        /// Size of the constant memory, bytes.
        pub constant_memory_bytes: u32,
        /// Number of threads per warp.
        pub threads_per_warp: u32,
        /// Number of copy engines.
        pub copy_engines: u32,
        /// Maximum number of warps per multiprocessor.
        pub max_warps_per_multiprocessor: u32,
        /// Maximum number of blocks per multiprocessor.
        pub max_blocks_per_multiprocessor: u32,
        /// Maximum shared memory per multiprocessor, bytes.
        pub max_shared_memory_per_multiprocessor: u32,
        /// Maximum number of registers per multiprocessor.
        pub max_registers_per_multiprocessor: u32,
        /// Maximum number of registers per block.
        pub max_registers_per_block: u32,
        /// Maximum shared memory per block, bytes.
        pub max_shared_memory_per_block: u32,
        /// Maximum number of threads per block.
        pub max_threads_per_block: u32,
        /// Maximum block size, threads.
        pub max_block_dim: [u32; 3],
        /// Maximum grid size, blocks.
        pub max_grid_dim: [u32; 3],
        /// 1 if ECC is enabled.
        pub ecc_enabled: u32,
    }

    /// A context of CUDA in a process.
    pub struct Context {
        /// CUPTI's number of it.
        pub context: u32,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// `CUpti_ActivityComputeApiKind`: 1 is CUDA.
        pub compute_api: u16,
        /// Id of the null stream.
        pub null_stream: u16,
        /// Parent context of a green context; else [`super::UNKNOWN_ID`].
        pub parent_context: u32,
    }

    /// A stream of CUDA in a context.
    pub struct Stream {
        /// Context id of CUPTI.
        pub context: u32,
        /// Stream id of CUPTI.
        pub stream: u32,
        /// Scheduling priority of the stream.
        pub priority: i32,
        /// Creation flag, as a value of `CUpti_ActivityStreamFlag`.
        pub flag: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// Name that the program gave to a process, thread, device, context or stream through NVTX.
    pub struct Name {
        /// Object that has the name.
        pub object: Object,
        /// Id of a [`Text`] with the name.
        pub name: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// An NVTX marker, or the start or end of an NVTX range.
    pub struct Marker {
        /// Time, nanoseconds of CUPTI's clock.
        pub time_ns: u64,
        /// Bit set of [`super::marker`].
        pub flags: u32,
        /// Id shared by start and end.
        pub id: u32,
        /// Object in which the marker was recorded.
        pub object: Object,
        /// Id of a [`Text`] with the message; 0 at an end.
        pub name: u32,
        /// Id of a [`Text`] with the domain; 0 for the default domain.
        pub domain: u32,
    }

    /// Maps a correlation id to an id of another library, for example `PyTorch`'s profiler.
    pub struct ExternalCorrelation {
        /// Id in the other library.
        pub external_id: u64,
        /// Library, as a value of `CUpti_ExternalCorrelationKind`.
        pub external_kind: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
    }
}
