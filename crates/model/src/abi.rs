//! Records and settings exchanged between the BPF programs and user space, byte for byte.
//!
//! The C side is `bpf/abi.h`. Sizes, offsets and constants are compared at compile time with the
//! generated skeleton (`src/probe/abi.rs`).

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

/// `struct gp_launch_key`: key of the launch counters, a kernel or graph of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunchKey {
    /// Kernel or graph handle that was passed to the launch.
    pub handle: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// Row of the function table.
    pub row: u16,
    /// Epoch of the handle: it changes where handles may have been reused for other kernels.
    pub epoch: u16,
}

/// `struct gp_launch_count`: the launch counters of one CPU.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLaunchCount {
    /// Launches that were executed.
    pub runs: u64,
    /// Launches that were captured into a graph.
    pub captured: u32,
    /// Number that the BPF side gave the user to whom the map entry is charged; 0 if this CPU did
    /// not create the entry.
    pub user: u32,
}

/// `struct gp_kernel` without the name, which follows in the record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawKernel {
    /// Record type, always [`record::KERNEL`].
    pub record_type: u16,
    /// Non-zero if the program passed the name; zero if it was found through the handle.
    pub given: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Key of the launch counters.
    pub key: RawLaunchKey,
    /// Grid size of the first launch, blocks.
    pub grid: [u32; 3],
    /// Block size of the first launch, threads.
    pub block: [u32; 3],
    /// Length of the name with its terminating zero; 0 if there is none.
    pub name_bytes: u32,
    /// Padding; always written as zero.
    pub reserved: u32,
}

/// `struct gp_launch`: a single launch call, sent at its return.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunch {
    /// Record type, always [`record::LAUNCH`].
    pub record_type: u16,
    /// Non-zero if the launch was captured into a graph.
    pub captured: u16,
    /// Return value of the function: 0 or a CUDA error code.
    pub result: i32,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Key of the launch counters.
    pub key: RawLaunchKey,
    /// Time of function entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Time of function return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Stream handle that was passed to the launch.
    pub stream: u64,
    /// Grid size, blocks; zeroes for a graph.
    pub grid: [u32; 3],
    /// Block size, threads; zeroes for a graph.
    pub block: [u32; 3],
    /// Stack id, see [`RawCall::stack`].
    pub stack: u64,
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

/// Maximum number of Python frames per stack (`GP_PYTHON_DEPTH`).
pub const PYTHON_DEPTH: usize = 128;
/// Exclusive upper limit of [`RawPython::together`].
pub const PYTHON_TOGETHER: u16 = 1024;
/// Bytes of a Python qualified name that are sent, from its beginning.
pub const PYTHON_NAME_BYTES: usize = 512;
/// Bytes of a Python file name that are sent, from its end.
pub const PYTHON_FILE_BYTES: usize = 1024;
/// [`RawPython`]: offset of a member that this version of the interpreter does not have.
pub const PYTHON_NONE: u16 = 0xffff;
/// [`RawPythonStack::flags`]: the stack has more frames than were sent.
pub const PYTHON_CUT: u32 = 1;
/// [`RawPythonStack::flags`]: the next frame could not be read.
pub const PYTHON_UNREADABLE: u32 = 2;

/// [`RawPythonStack::flags`]: the thread runs no Python code; the frames are those of the main
/// thread, which is blocked.
pub const PYTHON_WAITS: u32 = 4;

/// `enum gp_python_entry`: how an interpreter frame marks an entry from C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PythonEntry {
    /// Every frame is an entry.
    Each = 0,
    /// The frame has a non-zero entry flag.
    Flag = 1,
    /// The calling frame is owned by the C stack.
    Owner = 2,
}

/// `struct gp_python`: the interpreter of a process: addresses, and offsets in bytes of members of
/// `CPython`'s structures.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct RawPython {
    /// Address of `_PyRuntime` in the process.
    pub runtime: u64,
    /// Address of `PyCode_Type` in the process.
    pub code_type: u64,
    /// Offset in `_PyRuntime`: `autoTSSkey`.
    pub key: u32,
    /// Offset from the thread pointer to thread-specific storage: in glibc, to the first 32
    /// entries; in musl, to a pointer to all entries.
    pub tls: u32,
    /// Offset from the thread pointer to the pointers to the other entries in glibc; 0 for musl.
    pub tls_rest: u32,
    /// Offset in `PyThreadState`: the result of `pthread_self`.
    pub thread_id: u16,
    /// Offset in `PyThreadState`: the innermost frame, or the `_PyCFrame` that points to it.
    pub current: u16,
    /// Offset in `_PyCFrame`: the innermost frame; or [`PYTHON_NONE`].
    pub cframe: u16,
    /// Bytes of a frame that are read.
    pub frame_bytes: u16,
    /// Offset in a frame: the code object.
    pub code: u16,
    /// Offset in a frame: the calling frame.
    pub previous: u16,
    /// Offset in a frame: the current instruction.
    pub instruction: u16,
    /// Offset in a frame: the flag or owner that [`PythonEntry`] names.
    pub entry: u16,
    /// Calling frames within this many bytes below a frame are read in one go.
    pub together: u16,
    /// Offset in every object: its type.
    pub object_type: u16,
    /// Bytes of a code object that are read, from its type on.
    pub code_bytes: u16,
    /// Offset in a code object: `co_firstlineno`.
    pub first_line: u16,
    /// Offset in a code object: `co_version`; or [`PYTHON_NONE`].
    pub version: u16,
    /// Offset in a code object: `co_filename`.
    pub file: u16,
    /// Offset in a code object: `co_qualname`, or `co_name`.
    pub name: u16,
    /// Offset in a code object: `co_linetable`, or `co_lnotab`.
    pub line_table: u16,
    /// Offset in a code object: the first instruction.
    pub instructions: u16,
    /// Offset in a code object: `_co_firsttraceable`; or [`PYTHON_NONE`].
    pub first_traceable: u16,
    /// Offset in `str`: the length in characters.
    pub text_length: u16,
    /// Offset in `str`: the state.
    pub text_state: u16,
    /// Offset in `str`: the characters of an ASCII string.
    pub text_ascii: u16,
    /// Offset in `str`: the characters of any other string.
    pub text_wide: u16,
    /// Offset in `bytes`: the length.
    pub bytes_size: u16,
    /// Offset in `bytes`: the data.
    pub bytes_data: u16,
    /// Shift to the kind in the state of a `str`.
    pub text_kind_shift: u8,
    /// Tag bits of pointers in frames, to be masked off.
    pub tag_mask: u8,
    /// 1 if the instruction is a 4-byte index from the first instruction.
    pub is_index: u8,
    /// The [`PythonEntry`] of the interpreter.
    pub entry_rule: u8,
    /// Bytes of a `PyThreadState` that are read, from its first member needed on.
    pub thread_bytes: u16,
    /// Used by the BPF side; 0.
    pub has_slot: u16,
    /// Used by the BPF side; 0.
    pub slot: u32,
    /// Used by the BPF side; 0.
    pub slot_behind: u32,
    /// Padding; always written as zero.
    pub reserved: u32,
    /// Used by the BPF side; 0.
    pub main_state: u64,
    /// Used by the BPF side; 0.
    pub main_id: u64,
    /// Count of freed code objects, from a unique starting number; 0 if frees of code objects are
    /// not traced.
    pub generation: u64,
}

/// `struct gp_python_frame`: one frame of a Python stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonFrame {
    /// Id of the code object, see [`RawPythonCode::id`].
    pub code: u64,
    /// Bytes from the first instruction, or the interpreter's index; `i32::MIN` if the instruction
    /// is outside the code object.
    pub instruction: i32,
    /// The interpreter's `owner` field of the frame, if it has one.
    pub owner: u8,
    /// 1 if the interpreter was entered from C to run the frame.
    pub is_entry: u8,
    /// Padding; always written as zero.
    pub reserved: u16,
}

/// `struct gp_python_stack`: the Python frames of a call stack, innermost first.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonStack {
    /// Record type, always [`record::PYTHON`].
    pub record_type: u16,
    /// Number of valid entries in `frames`.
    pub count: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Stack id, see [`RawCall::stack`].
    pub id: u64,
    /// Stack id of the native call stack.
    pub native: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// Bit set of [`PYTHON_CUT`], [`PYTHON_UNREADABLE`] and [`PYTHON_WAITS`].
    pub flags: u32,
    /// Python frames, innermost first.
    pub frames: [RawPythonFrame; PYTHON_DEPTH],
}

/// `struct gp_python_text`: length and encoding of a string that was read.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonText {
    /// Bytes that were read.
    pub bytes: u32,
    /// Bytes per character; 0 if the string could not be read.
    pub kind: u32,
    /// 1 if the string was truncated.
    pub is_cut: u32,
}

/// `struct gp_python_code`: a code object, sent before the first stack that refers to it. The
/// beginning of its line table follows in the record.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonCode {
    /// Record type, always [`record::PYTHON_CODE`].
    pub record_type: u16,
    /// Padding; always written as zero.
    pub reserved: u16,
    /// Process id (tgid) in the initial PID namespace.
    pub tgid: u32,
    /// Id that [`RawPythonFrame::code`] refers to.
    pub id: u64,
    /// The process, see [`RawTask::process`].
    pub process: u32,
    /// First source line (`co_firstlineno`).
    pub first_line: u32,
    /// `_co_firsttraceable`, in units of 2 bytes: a frame before this instruction has not started.
    pub first_traceable: i32,
    /// Length of the line table, bytes.
    pub table_bytes: u32,
    /// Bytes of the line table that follow.
    pub table_copied: u32,
    /// Length and encoding of `name`.
    pub name_text: RawPythonText,
    /// Length and encoding of `file`.
    pub file_text: RawPythonText,
    /// Padding; always written as zero.
    pub reserved2: u32,
    /// Qualified name, or the name.
    pub name: [u8; PYTHON_NAME_BYTES],
    /// File name, from its end if it is truncated.
    pub file: [u8; PYTHON_FILE_BYTES],
}

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
    /// Inode of the executable, for [`record::NEW_IMAGE`].
    pub inode: u64,
    /// Device number of the executable's file system, in the kernel's encoding.
    pub device: u64,
    /// User to whom the process is charged.
    pub uid: u32,
    /// Padding; always written as zero.
    pub reserved: u32,
}

/// `struct gp_loss_key`: key of a loss counter, by user, process and kind.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLossKey {
    /// User to whom the losses are charged.
    pub uid: u32,
    /// Process id; 0 for the sum of processes that have no counter of their own.
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
}
