//! What the collector hands to gpuprobe: batches of records.
//!
//! A batch is a [`BatchHeader`] and then [`BatchHeader::bytes`] bytes of records, one after the
//! other. A record is a [`RecordHeader`], the fixed part that its [`Kind`] has, and for some kinds
//! text. Everything is little-endian and aligned to 8 bytes within the batch; both ends come from
//! one build, so there is no other form of it than this one, and [`MAGIC`] changes with it.
//!
//! Times are those of CUPTI's clock, nanoseconds; [`BatchHeader::cupti_ns`] and
//! [`BatchHeader::monotonic_ns`] are one moment on both clocks. 0 means that CUPTI has no time.
//! Ids that CUPTI does not know are [`UNKNOWN_ID`], whatever its version calls them. Field by field
//! the meaning is that of the field of the same name in CUPTI's `cupti_activity.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first bytes of a batch. Changes with every change of what follows.
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuact01");

/// Largest batch, header included. The kernel side copies no more.
pub const BATCH_MAX: usize = 32 << 10;

/// Longest text of a record; what is longer is cut at a character.
pub const TEXT_MAX: usize = 4 << 10;

/// No such context, stream, device or graph.
pub const UNKNOWN_ID: u32 = u32::MAX;

/// `id`, unless it is [`UNKNOWN_ID`].
#[must_use]
pub fn known(id: u32) -> Option<u32> {
    (id != UNKNOWN_ID).then_some(id)
}

/// The environment variable by which gpuprobe tells the collector what is wanted.
pub const SETTINGS_VARIABLE: &str = "GPUPROBE_COLLECTOR";

/// The function whose calls gpuprobe probes: `void gpuprobe_activity_batch(const void *batch,
/// size_t bytes)`. It does nothing.
pub const BATCH_FUNCTION: &str = "gpuprobe_activity_batch";

/// Begins every batch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct BatchHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// Number of this batch within its process, from 0: a missing one was lost on the way.
    pub sequence: u64,
    /// Records of all batches before this one, [`Kind::Text`] and [`Kind::CallbackName`] included.
    pub records_before: u64,
    /// A moment on CUPTI's clock, nanoseconds.
    pub cupti_ns: u64,
    /// The same moment, `CLOCK_MONOTONIC` nanoseconds.
    pub monotonic_ns: u64,
    /// Records that CUPTI dropped for want of a buffer, so far.
    pub dropped: u64,
    /// Records of kinds that were not asked for or that this version does not know, so far.
    pub unknown: u64,
    /// Records or ends of buffers that could not be read, so far.
    pub malformed: u64,
    /// Process id as the process itself sees it.
    pub pid: u32,
    /// What `cuptiGetVersion` says.
    pub cupti_version: u32,
    /// Records in this batch.
    pub records: u32,
    /// Bytes of the records in this batch.
    pub bytes: u32,
    /// [`flags`].
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Bits of [`BatchHeader::flags`].
pub mod flags {
    /// Times are `CLOCK_MONOTONIC` already.
    pub const MONOTONIC: u32 = 1;
    /// The collector has ended as it should; nothing of this process follows.
    pub const LAST: u32 = 2;
}

/// Bits of [`Marker::flags`], `CUPTI_ACTIVITY_FLAG_MARKER_...`.
pub mod marker {
    /// A moment.
    pub const INSTANTANEOUS: u32 = 1;
    /// A range begins.
    pub const START: u32 = 2;
    /// A range ends.
    pub const END: u32 = 4;
}

/// Begins every record.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct RecordHeader {
    /// A [`Kind`].
    pub kind: u16,
    /// Bytes of the record with this header, a multiple of 8.
    pub bytes: u16,
    /// Bytes of text after the fixed part, padding not counted.
    pub text_bytes: u16,
    /// Always 0.
    pub reserved: u16,
}

/// What a record is about; the number is what stands in [`RecordHeader::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Kind {
    /// [`Text`], with the text: said once, before the first record that names it.
    Text = 1,
    /// [`CallbackName`], with the name.
    CallbackName = 2,
    /// [`Device`].
    Device = 3,
    /// [`Context`].
    Context = 4,
    /// [`Stream`].
    Stream = 5,
    /// [`Api`].
    Api = 6,
    /// [`Kernel`].
    Kernel = 7,
    /// [`Memcpy`].
    Memcpy = 8,
    /// [`Memset`].
    Memset = 9,
    /// [`Memory`].
    Memory = 10,
    /// [`MemoryPool`].
    MemoryPool = 11,
    /// [`Sync`].
    Sync = 12,
    /// [`GraphTrace`].
    GraphTrace = 13,
    /// [`Overhead`].
    Overhead = 14,
    /// [`Name`].
    Name = 15,
    /// [`Marker`].
    Marker = 16,
    /// [`ExternalCorrelation`].
    ExternalCorrelation = 17,
}

/// A text that later records of the process name by its id.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Text {
    /// From 1; 0 in a record means none.
    pub id: u32,
    /// Always 0.
    pub reserved: u32,
}

/// What a driver or runtime function is called.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct CallbackName {
    /// As in [`Api::domain`].
    pub domain: u32,
    /// As in [`Api::cbid`].
    pub cbid: u32,
}

/// What a record is about: `CUpti_ActivityObjectKind` and its ids.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Context {
    /// CUPTI's number of it.
    pub context: u32,
    /// Device, as CUDA numbers it in this process.
    pub device: u32,
    /// `CUpti_ActivityComputeApiKind`: 1 is CUDA.
    pub compute_api: u16,
    /// Null stream.
    pub null_stream: u16,
    /// Of a green context; else [`UNKNOWN_ID`].
    pub parent_context: u32,
}

/// A stream.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Stream {
    /// CUPTI's number of the context.
    pub context: u32,
    /// CUPTI's number of the stream.
    pub stream: u32,
    /// Priority.
    pub priority: i32,
    /// `CUpti_ActivityStreamFlag`.
    pub flag: u32,
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A call of the driver or of the runtime.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Api {
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// `CUpti_CallbackDomain`: 1 driver, 2 runtime; 3 a launch that another library makes inside.
    pub domain: u32,
    /// Which function; named by a [`CallbackName`].
    pub cbid: u32,
    /// Process id as the process itself sees it.
    pub pid: u32,
    /// Thread id as the process itself sees it.
    pub tid: u32,
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// 0 or an error code.
    pub result: u32,
}

/// A run of a kernel.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
    /// A [`Text`]: mangled.
    pub name: u32,
    /// Device, as CUDA numbers it in this process.
    pub device: u32,
    /// CUPTI's number of the context.
    pub context: u32,
    /// CUPTI's number of the stream.
    pub stream: u32,
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// [`UNKNOWN_ID`] or 0 if it is of no graph.
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// Runtime correlation.
    pub runtime_correlation: u32,
    /// The graph, or [`UNKNOWN_ID`] or 0.
    pub graph: u32,
    /// Of a peer copy, else [`UNKNOWN_ID`].
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// Bit 0: asynchronous.
    pub flags: u16,
    /// `CUpti_ActivityMemoryKind`.
    pub memory_kind: u16,
    /// The graph, or [`UNKNOWN_ID`] or 0.
    pub graph: u32,
    /// Hardware channel.
    pub channel: u32,
    /// `CUpti_ChannelType`.
    pub channel_type: u32,
    /// Always 0.
    pub reserved: u32,
}

/// An allocation or a release (`MEMORY2`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// A [`Text`]: the variable, if it has one.
    pub name: u32,
    /// 0 or 1.
    pub asynchronous: u32,
    /// `CUpti_ActivityMemoryPoolType`: 0 none, 1 local, 2 imported.
    pub pool_type: u32,
    /// A [`Text`]: the library that allocated, if CUPTI says so.
    pub source: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Something done to a memory pool.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// 0 or 1.
    pub managed: u32,
}

/// A wait for the GPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Sync {
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// `CUpti_ActivitySynchronizationType`: 1 event, 2 stream wait event, 3 stream, 4 context.
    pub sync_type: u32,
    /// CUPTI's number of the context.
    pub context: u32,
    /// [`UNKNOWN_ID`] if it is about none.
    pub stream: u32,
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// [`UNKNOWN_ID`] if it is about none.
    pub event: u32,
    /// 0 or an error code.
    pub result: u32,
}

/// A run of a whole graph.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
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
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
    /// The graph, or [`UNKNOWN_ID`] or 0.
    pub graph: u32,
    /// End device.
    pub end_device: u32,
    /// End context.
    pub end_context: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Time that tracing itself took.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Overhead {
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// `CUpti_ActivityOverheadKind`.
    pub overhead_kind: u32,
    /// Whose.
    pub object: Object,
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
}

/// What the program calls a process, thread, device, context or stream (through NVTX).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Name {
    /// Whose.
    pub object: Object,
    /// A [`Text`].
    pub name: u32,
    /// Always 0.
    pub reserved: u32,
}

/// A moment, or the beginning or end of a range, that the program marks through NVTX.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Marker {
    /// When.
    pub time_ns: u64,
    /// [`marker`].
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
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ExternalCorrelation {
    /// External id.
    pub external_id: u64,
    /// `CUpti_ExternalCorrelationKind`.
    pub external_kind: u32,
    /// What joins the call to what it made the GPU do.
    pub correlation: u32,
}
