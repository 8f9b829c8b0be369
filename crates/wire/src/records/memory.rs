//! Allocations and memory pools.

use super::layouts;

layouts! {
    /// An allocation or a release (`MEMORY2`).
    pub struct Memory {
        /// When.
        pub time_ns: u64,
        /// Address.
        pub address: u64,
        /// Bytes.
        pub size_bytes: u64,
        /// Where the call was made; 0 if unknown.
        pub pc: u64,
        /// 0 if it came from no pool.
        pub pool_address: u64,
        /// Of a local pool, else the process id of the exporter.
        pub pool_size: u64,
        /// Pool release threshold.
        pub pool_release_threshold: u64,
        /// Pool utilized.
        pub pool_utilized: u64,
        /// `CUpti_ActivityMemoryOperationType`: 1 allocation, 2 release.
        pub operation: u32,
        /// `CUpti_ActivityMemoryKind`.
        pub memory_kind: u32,
        /// Process id as the process itself sees it.
        pub pid: u32,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// CUPTI's number of the context.
        pub context: u32,
        /// CUPTI's number of the stream.
        pub stream: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// A [`super::Text`]: the variable, if it has one.
        pub name: u32,
        /// 0 or 1.
        pub asynchronous: u32,
        /// `CUpti_ActivityMemoryPoolType`: 0 none, 1 local, 2 imported.
        pub pool_type: u32,
        /// A [`super::Text`]: the library that allocated, if CUPTI says so.
        pub source: u32,
        /// Always 0.
        pub reserved: u32,
    }

    /// Something done to a memory pool.
    pub struct MemoryPool {
        /// When.
        pub time_ns: u64,
        /// Address.
        pub address: u64,
        /// Bytes.
        pub size_bytes: u64,
        /// Utilized bytes.
        pub utilized_bytes: u64,
        /// Release threshold.
        pub release_threshold: u64,
        /// Min bytes to keep.
        pub min_bytes_to_keep: u64,
        /// `CUpti_ActivityMemoryPoolOperationType`: 1 created, 2 destroyed, 3 trimmed.
        pub operation: u32,
        /// As [`Memory::pool_type`].
        pub pool_type: u32,
        /// Process id as the process itself sees it.
        pub pid: u32,
        /// Device, as CUDA numbers it in this process.
        pub device: u32,
        /// Joins a call and the work that it started on the GPU.
        pub correlation: u32,
        /// 0 or 1.
        pub managed: u32,
    }
}
