//! Devices, contexts, streams; texts and names; ranges of the program.

use super::layouts;

layouts! {
    /// A text that later records of the process name by its id.
    pub struct Text {
        /// From 1; 0 in a record means none.
        pub id: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// Name of a driver or runtime function.
    pub struct CallbackName {
        /// As in [`super::Api::domain`].
        pub domain: u32,
        /// As in [`super::Api::cbid`].
        pub cbid: u32,
    }

    /// `CUpti_ActivityObjectKind` and the ids that it has.
    pub struct Object {
        /// 0 unknown, 1 process, 2 thread, 3 device, 4 context, 5 stream.
        pub kind: u32,
        /// Process or device.
        pub a: u32,
        /// Thread or context; 0 if there is none.
        pub b: u32,
        /// Stream; 0 if there is none.
        pub c: u32,
    }

    /// A GPU.
    pub struct Device {
        /// kB/s.
        pub memory_bandwidth: u64,
        /// Global memory.
        pub memory_bytes: u64,
        /// As NVML and `nvidia-smi -L` print it.
        pub uuid: [u8; 16],
        /// A [`Text`].
        pub name: u32,
        /// As CUDA numbers it in this process.
        pub device: u32,
        /// Core clock.
        pub clock_khz: u32,
        /// Number of them.
        pub multiprocessors: u32,
        /// Compute capability.
        pub capability_major: u32,
        /// Compute capability.
        pub capability_minor: u32,
        /// L2 cache.
        pub l2_cache_bytes: u32,
        /// Constant memory.
        pub constant_memory_bytes: u32,
        /// Threads per warp.
        pub threads_per_warp: u32,
        /// Copy engines.
        pub copy_engines: u32,
        /// Max warps per multiprocessor.
        pub max_warps_per_multiprocessor: u32,
        /// Max blocks per multiprocessor.
        pub max_blocks_per_multiprocessor: u32,
        /// Bytes.
        pub max_shared_memory_per_multiprocessor: u32,
        /// Max registers per multiprocessor.
        pub max_registers_per_multiprocessor: u32,
        /// Max registers per block.
        pub max_registers_per_block: u32,
        /// Bytes.
        pub max_shared_memory_per_block: u32,
        /// Max threads per block.
        pub max_threads_per_block: u32,
        /// Max block dim.
        pub max_block_dim: [u32; 3],
        /// Max grid dim.
        pub max_grid_dim: [u32; 3],
        /// 0 or 1.
        pub ecc_enabled: u32,
    }

    /// A context.
    pub struct Context {
        /// CUPTI's number of it.
        pub context: u32,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// `CUpti_ActivityComputeApiKind`: 1 is CUDA.
        pub compute_api: u16,
        /// Null stream.
        pub null_stream: u16,
        /// Of a green context; else [`super::UNKNOWN_ID`].
        pub parent_context: u32,
    }

    /// A stream.
    pub struct Stream {
        /// CUPTI's number of the context.
        pub context: u32,
        /// CUPTI's number of the stream.
        pub stream: u32,
        /// Priority.
        pub priority: i32,
        /// `CUpti_ActivityStreamFlag`.
        pub flag: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// Name that the program gave a process, thread, device, context or stream (through NVTX).
    pub struct Name {
        /// Whose.
        pub object: Object,
        /// A [`Text`].
        pub name: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// A moment, or the beginning or end of a range, that the program marks through NVTX.
    pub struct Marker {
        /// When.
        pub time_ns: u64,
        /// [`super::marker`].
        pub flags: u32,
        /// Joins start and end.
        pub id: u32,
        /// Where.
        pub object: Object,
        /// A [`Text`]; 0 at an end.
        pub name: u32,
        /// A [`Text`]; 0 is the default domain.
        pub domain: u32,
    }

    /// Joins a correlation to another library's number (`PyTorch`'s profiler, for example).
    pub struct ExternalCorrelation {
        /// External id.
        pub external_id: u64,
        /// `CUpti_ExternalCorrelationKind`.
        pub external_kind: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
    }
}
