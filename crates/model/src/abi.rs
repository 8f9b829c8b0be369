//! Records and settings exchanged between the BPF programs and user space, byte for byte.
//!
//! The C side is `bpf/abi.h`. Sizes, offsets and constants are compared at compile time with the
//! generated skeleton (`src/probe/abi.rs`).

mod launches;
mod python;

pub use self::launches::*;
pub use self::python::*;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuprobe_cuda::EXTRA;

/// [`RawCall::device`] of a call whose device was not observed.
pub const DEVICE_UNKNOWN: i32 = -1;

/// Record types: the first two bytes of every record.
pub mod record {
    #![allow(missing_docs)]
    pub const CALL: u16 = 1;
    pub const PROCESS: u16 = 2;
    pub const THREAD: u16 = 3;
    pub const EXIT: u16 = 4;
    pub const EXEC: u16 = 5;
    pub const THREAD_EXIT: u16 = 6;
    pub const NEW_IMAGE: u16 = 7;
    pub const NEW_LIBRARY: u16 = 8;
    pub const KERNEL: u16 = 9;
    pub const COPY: u16 = 10;
    pub const DETAIL: u16 = 11;
    pub const NAMED: u16 = 12;
    pub const LAUNCH: u16 = 13;
    pub const STACK: u16 = 14;
    pub const BATCH: u16 = 15;
    pub const PYTHON: u16 = 16;
    pub const PYTHON_CODE: u16 = 17;
    pub const TENSOR: u16 = 18;
    pub const REQUEST: u16 = 19;
}

/// `struct gp_call`: a finished outermost memory call.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCall {
    /// Record type, always [`record::CALL`].
    pub record_type: u16,
    /// Row of the function table.
    pub row: u16,
    /// Return value of the function: 0 or a CUDA error code.
    pub result: i32,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Device address that the call returned or was passed.
    pub address: u64,
    /// Requested bytes; 0 for a free.
    pub size: u64,
    /// Device index, or [`DEVICE_UNKNOWN`].
    pub device: i32,
    /// Number of the context that the call ran in or is about; 0 for a primary context,
    /// [`CONTEXT_UNKNOWN`] if unknown.
    pub context: u16,
    /// Bit set; [`CALL_CAPTURED`] is the only bit.
    pub flags: u16,
    /// Stack id within the process; 0 if no stack was taken.
    pub stack: u64,
}

/// Bit of [`RawCall::flags`]: the call was captured into a graph.
pub const CALL_CAPTURED: u16 = 1;
/// [`RawTensor::device`] where the allocator does not report the device.
pub const ANY_DEVICE: u16 = 0xffff;
/// [`RawCall::context`] where the context is unknown.
pub const CONTEXT_UNKNOWN: u16 = 0xffff;
/// Shift of the process id in [`RawTask::process`]; a generation number is in the bits below it.
pub const PROCESS_PID_SHIFT: u32 = 10;
/// `CUgraphNodeType` of a memory allocation node; the size of
/// [`Op::GraphNode`](gpuprobe_cuda::Op::GraphNode).
pub const NODE_ALLOCATES: u64 = 10;
/// `CUgraphNodeType` of a memory free node.
pub const NODE_FREES: u64 = 11;

/// `struct gp_detail`: a memory call with values that only a few functions have.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawDetail {
    /// The memory call itself.
    pub call: RawCall,
    /// Value that the call wrote to the location of [`Function::out`].
    pub out: u64,
    /// Stream handle, see [`Function::stream`].
    pub stream: u64,
    /// Arguments listed in [`Function::extra`], or further bytes at the location of `out`.
    pub values: [u64; EXTRA],
}

/// `struct gp_named` without the name, which follows in the record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawNamed {
    /// The memory call with its detail.
    pub detail: RawDetail,
    /// Length of the name with its terminating zero; 0 if there is none.
    pub name_bytes: u32,
    /// Padding; always written as zero.
    pub reserved: u32,
}

/// `struct gp_tensor`: an allocation or free by a framework's caching allocator; for the row of its
/// out-of-memory handler, the failed request.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawTensor {
    /// Record type, always [`record::TENSOR`].
    pub record_type: u16,
    /// Row of the function table.
    pub row: u16,
    /// Device index as numbered in the process, or [`ANY_DEVICE`].
    pub device: u16,
    /// Padding; always written as zero.
    pub reserved: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Device address of the block.
    pub address: u64,
    /// Size of the block, bytes; negative for a free.
    pub bytes: i64,
    /// Bytes allocated on the device after the event.
    pub allocated: u64,
    /// Bytes that the allocator has reserved from CUDA.
    pub held: u64,
    /// Stack id within the process; 0 if no stack was taken.
    pub stack: u64,
}

/// `struct gp_request`: the requested size and stream of the last block that the thread allocated
/// from a framework's allocator.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawRequest {
    /// Record type, always [`record::REQUEST`].
    pub record_type: u16,
    /// Padding; always written as zero.
    pub reserved: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Device address of the block.
    pub address: u64,
    /// Size that the program requested, bytes.
    pub bytes: u64,
    /// Handle of the stream that the block is for.
    pub stream: u64,
}

/// `struct gp_task`: a process or thread that is first seen, renamed, exited, or executing a new
/// program.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawTask {
    /// Record type of the task event, for example [`record::EXEC`].
    pub record_type: u16,
    /// Of a process: non-zero if it was traced from its start.
    pub from_birth: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// User id of the process.
    pub uid: u32,
    /// Distinguishes processes, and programs of one process, that have the same process id.
    pub process: u32,
    /// Process id in the innermost PID namespace of the process.
    pub inner_pid: u32,
    /// Cgroup id (cgroup v2).
    pub cgroup: u64,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Start time of the process, `CLOCK_BOOTTIME` nanoseconds.
    pub start_boot_ns: u64,
    /// Thread name, padded with zero bytes.
    pub comm: [u8; 16],
}

/// `struct gp_copy`: a copy or memset call, sent at its return.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCopy {
    /// Record type, always [`record::COPY`].
    pub record_type: u16,
    /// Row of the function table.
    pub row: u16,
    /// Return value of the function: 0 or a CUDA error code.
    pub result: i32,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Bytes copied or set.
    pub bytes: u64,
    /// Address that is written to.
    pub destination: u64,
    /// Source address; 0 for a memset.
    pub source: u64,
    /// `cudaMemcpyKind`, or the `CUmemorytype` of the source, depending on the function.
    pub kind: i32,
    /// `CUmemorytype` of the destination.
    pub second: u16,
    /// Non-zero if the copy was captured into a graph.
    pub captured: u16,
}

/// `struct gp_batch`: header of a batch of GPU activity from a collector. The batch follows in the
/// record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawBatch {
    /// Record type, always [`record::BATCH`].
    pub record_type: u16,
    /// Padding; always written as zero.
    pub reserved: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// Length of the batch, bytes; the rest of the record is unused.
    pub bytes: u32,
    /// Activity records of the process that the BPF side has dropped so far.
    pub lost: u64,
}

/// Maximum number of addresses of a frame-pointer walk (`GP_MAX_DEPTH`).
pub const MAX_DEPTH: usize = 128;
/// Maximum number of replaced return addresses (`GP_MAX_REPLACED`).
pub const MAX_REPLACED: usize = 8;
/// Return addresses per part of a call path (`GP_PATH_STEPS`).
pub const PATH_STEPS: usize = 59;
/// Stack words that a part of a call path spans (`GP_PATH_WORDS`).
pub const PATH_WORDS: usize = 512;
/// Maximum number of parts of a call path (`GP_PATH_LEVELS`).
pub const PATH_LEVELS: usize = 32;

/// `struct gp_replaced`: a return address on the stack that a uretprobe has replaced with its
/// trampoline.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawReplaced {
    /// Stack address of the slot.
    pub at: u64,
    /// Return address before it was replaced.
    pub original: u64,
}

/// `struct gp_stack`: a call stack as captured by the BPF side. Copied stack bytes follow in the
/// record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawStack {
    /// Record type, always [`record::STACK`].
    pub record_type: u16,
    /// Number of valid entries in `addresses`.
    pub count: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Stack id, see [`RawCall::stack`].
    pub id: u64,
    /// Hash state at the start of the call path.
    pub root: u64,
    /// Return address of the probed function.
    pub return_address: u64,
    /// Instruction pointer: the entry of the probed function.
    pub ip: u64,
    /// Stack pointer at function entry.
    pub sp: u64,
    /// Frame pointer at function entry.
    pub fp: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// Number of valid entries in `replaced`.
    pub replaced_count: u16,
    /// 1 if the BPF side's map of the process's executable pages ([`RawCode`]) was out of date.
    pub is_stale: u16,
    /// Bytes of the stack, from `sp` upwards, that follow.
    pub copied: u64,
    /// Hash of the stack's possible return addresses: the key in the BPF side's map of stacks that
    /// were sent.
    pub copy_key: u64,
    /// Return addresses replaced by uretprobes.
    pub replaced: [RawReplaced; MAX_REPLACED],
    /// Frame-pointer walk, innermost first.
    pub addresses: [u64; MAX_DEPTH],
}

/// `struct gp_path`: one part of a cached call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPath {
    /// Hash state after the return addresses of this part, if the path ends here.
    pub end: u64,
    /// Stack id of the path that ends here.
    pub stack: u64,
    /// Number of valid entries in `offsets`.
    pub count: u16,
    /// Positions of the return addresses: 8-byte words above the stack pointer.
    pub offsets: [u16; PATH_STEPS],
}

/// Shift from an address to its bit in [`RawCode::bits`] (`GP_CODE_SHIFT`).
pub const CODE_SHIFT: u32 = 16;
/// Words of [`RawCode::bits`] (`GP_CODE_WORDS`).
pub const CODE_WORDS: usize = 2048;

/// `struct gp_code`: map of the executable address ranges of a process.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCode {
    /// The kernel's count of executable pages of the process (`mm->exec_vm`).
    pub exec_pages: u64,
    /// One bit per `1 << CODE_SHIFT` bytes of address space, modulo the number of bits.
    pub bits: [u64; CODE_WORDS],
}

/// `struct gp_image`: a program, and the tree in which the path of its dynamic loader is looked up. Only the
/// kernel side looks into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawImage(pub [u64; 6]);

/// `struct gp_notice`: asks user space to scan a process for probed libraries.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawNotice {
    /// Record type, [`record::NEW_IMAGE`] or [`record::NEW_LIBRARY`].
    pub record_type: u16,
    /// Non-zero if the process was stopped and needs `SIGCONT` to resume.
    pub held: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// The program that it executes, for [`record::NEW_IMAGE`].
    pub image: RawImage,
}

/// `struct gp_loss_key`: key of a loss counter, by process and kind.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLossKey {
    /// Process id.
    pub tgid: u32,
    /// Index of the counter in `struct gp_losses`.
    pub what: u32,
}

/// `struct gp_loss`: a loss counter.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLoss {
    /// Number of lost items.
    pub count: u64,
    /// Name of the process at its first loss.
    pub comm: [u8; 16],
    /// User of the process at its first loss.
    pub uid: u32,
    /// Padding.
    pub reserved: u32,
}
