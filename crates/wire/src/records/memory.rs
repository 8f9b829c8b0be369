//! Records of allocations and memory pools.

use super::layouts;

layouts! {
    /// An allocation or release (`MEMORY2`).
    pub struct Memory {
        /// Time, nanoseconds of CUPTI's clock.
        pub time_ns: u64,
        /// Device or host address.
        pub address: u64,
        /// Size of the operation, bytes.
        pub size_bytes: u64,
        /// Code address of the call; 0 if unknown.
        pub pc: u64,
        /// Address of the memory pool; 0 without a pool.
        pub pool_address: u64,
        /// Size of a local pool, or process id of the exporter.
        pub pool_size: u64,
        /// Release threshold of the pool, bytes.
        pub pool_release_threshold: u64,
        /// Used size of the pool, bytes.
        pub pool_utilized: u64,
        /// `CUpti_ActivityMemoryOperationType`: 1 allocation, 2 release.
        pub operation: u32,
        /// Kind of the memory, a `CUpti_ActivityMemoryKind`.
        pub memory_kind: u32,
        /// Process id in the PID namespace of the process.
        pub pid: u32,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// Context id of CUPTI.
        pub context: u32,
        /// Stream id of CUPTI.
        pub stream: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// Id of a [`super::Text`] with the variable's name; 0 if there is none.
        pub name: u32,
        /// 1 if the operation is stream-ordered.
        pub asynchronous: u32,
        /// `CUpti_ActivityMemoryPoolType`: 0 none, 1 local, 2 imported.
        pub pool_type: u32,
        /// Id of a [`super::Text`] with the library that allocated; 0 if CUPTI does not report it.
        pub source: u32,
        /// Padding; always written as zero.
        pub reserved: u32,
    }

    /// An operation on a memory pool.
    pub struct MemoryPool {
        /// Time, nanoseconds of CUPTI's clock.
        pub time_ns: u64,
        /// Address of the pool.
        pub address: u64,
        /// Size of the pool, bytes.
        pub size_bytes: u64,
        /// Used size of the pool, bytes.
        pub utilized_bytes: u64,
        /// Release threshold of the pool, bytes.
        pub release_threshold: u64,
        /// Bytes that a trim keeps at least.
        pub min_bytes_to_keep: u64,
        /// `CUpti_ActivityMemoryPoolOperationType`: 1 created, 2 destroyed, 3 trimmed.
        pub operation: u32,
        /// Pool type as in [`Memory::pool_type`].
        pub pool_type: u32,
        /// Process id in the PID namespace of the process.
        pub pid: u32,
        /// Device index as numbered by CUDA in the process.
        pub device: u32,
        /// Correlation id, shared by a call and the GPU work that it started.
        pub correlation: u32,
        /// 1 if it is a pool of managed memory.
        pub managed: u32,
    }
}
