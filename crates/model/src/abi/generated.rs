// Written by scripts/abi.py from bpf/abi_records.h and bpf/abi_stacks.h.

/// as the kernel's TASK_COMM_LEN
pub const COMM_LEN: usize = 16;
/// Maximum size of an activity batch, and the offset of its number of records.
pub const MAX_BATCH_BYTES: usize = 32 * 1024;
pub const BATCH_RECORDS_AT: usize = 72;

/// gp_tensor.device: the allocator does not report it.
pub const ANY_DEVICE: u16 = 0xffff;
/// gp_call.context: unknown.
pub const CONTEXT_UNKNOWN: u16 = 0xffff;
/// gp_call.flags: the call was captured into a graph; nothing was allocated or
/// freed.
pub const CALL_CAPTURED: u16 = 1;

/// gp_call.device: not observed
pub const DEVICE_UNKNOWN: i32 = -1;

/// Shift of the process id in gp_task.process; a generation number is below it.
pub const PROCESS_PID_SHIFT: u32 = 10;

/// in CUDA 13.5
pub const NODE_LAST: u64 = 18;
/// CUgraphNodeType, the size of GP_OP_GRAPH_NODE: the last that is known, and those that concern
/// memory.
pub const NODE_ALLOCATES: u64 = 10;
/// CUgraphNodeType, the size of GP_OP_GRAPH_NODE: the last that is known, and those that concern
/// memory.
pub const NODE_FREES: u64 = 11;

/// The first two bytes of every record.
pub mod record {
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
    pub const CHECKPOINT: u16 = 20;
    pub const RESTORE: u16 = 21;
}

/// An outermost memory call, sent at its return. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCall {
    pub record_type: u16,
    /// of the function table
    pub row: u16,
    /// 0 or a CUDA error code
    pub result: i32,
    /// process and thread in the initial PID namespace
    pub tgid: u32,
    pub tid: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// device address that the call returned or was passed
    pub address: u64,
    /// requested bytes; 0 for a free
    pub size: u64,
    /// index, or GP_DEVICE_UNKNOWN
    pub device: i32,
    /// Number of the context that the call ran in or is about, 0 for a primary context;
    /// for captured calls and the end of a capture, the number of the capture.
    pub context: u16,
    /// GP_CALL_*
    pub flags: u16,
    /// stack id within the process, or 0
    pub stack: u64,
}

/// A memory call with values that only a few functions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawDetail {
    pub call: RawCall,
    /// value that the call wrote to `out` of the function
    pub out: u64,
    /// as in gp_recipe
    pub stream: u64,
    /// its `extra` arguments, or the bytes behind `out`
    pub values: [u64; EXTRA],
}

/// A memory call with detail and a name, which follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawNamed {
    pub detail: RawDetail,
    /// with the terminating zero; 0 if there is none
    pub name_bytes: u32,
    pub reserved: u32,
}

/// An allocation or free by a framework's allocator, or, depending on the row, its
/// out-of-memory error, which has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawTensor {
    pub record_type: u16,
    pub row: u16,
    /// as numbered in the process, or GP_ANY_DEVICE
    pub device: u16,
    pub reserved: u16,
    pub tgid: u32,
    pub tid: u32,
    pub time_ns: u64,
    pub address: u64,
    /// negative for a free
    pub bytes: i64,
    /// bytes allocated on the device after the event, or the allocator
    pub allocated: u64,
    /// bytes reserved from CUDA, or asked for
    pub held: u64,
    /// as gp_call.stack
    pub stack: u64,
}

/// Requested size and stream of the thread's last tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawRequest {
    pub record_type: u16,
    pub reserved: u16,
    pub tgid: u32,
    pub address: u64,
    pub bytes: u64,
    pub stream: u64,
}

/// A process (with its group leader's comm) or thread that is first seen, renamed,
/// exited, executing a new program, checkpointed or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawTask {
    pub record_type: u16,
    /// of a process: it was traced from its start
    pub from_birth: u16,
    pub tgid: u32,
    pub tid: u32,
    pub uid: u32,
    /// distinguishes processes and programs that share a PID
    pub process: u32,
    /// in the innermost PID namespace of the process
    pub inner_pid: u32,
    /// id in the cgroup v2 hierarchy
    pub cgroup: u64,
    pub time_ns: u64,
    /// start of the process, CLOCK_BOOTTIME
    pub start_boot_ns: u64,
    /// padded with zeroes
    pub comm: [u8; COMM_LEN],
}

/// Of the hits of a thread, each of this number is timed. A prime: the calls of a loop take
/// turns.
pub const TIMED_EVERY: u64 = 61;

/// What hits of probes took, of a thread or of the ended threads of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCost {
    /// hits since the last timed one
    pub untimed: u64,
    pub timed: u64,
    pub timed_ns: u64,
    /// of a live thread: hits of a framework's hook
    pub tensors: u64,
}

/// Key of the launch counters: a kernel or graph of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout, Serialize, Deserialize)]
#[repr(C)]
pub struct RawLaunchKey {
    pub handle: u64,
    /// as in gp_task
    pub process: u32,
    pub row: u16,
    /// counts module unloads, after which handles may be reused
    pub epoch: u16,
}

/// Launch counters of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunchCount {
    pub runs: u64,
    /// captured into a graph, not executed
    pub captured: u32,
    pub reserved: u32,
}

/// The name of a kernel, which follows: at its first launch, or when the program looked it
/// up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawKernel {
    pub record_type: u16,
    /// the name was passed to the call that returned the handle
    pub given: u16,
    pub tgid: u32,
    pub key: RawLaunchKey,
    /// of the first launch
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// with the terminating zero; 0 if there is none
    pub name_bytes: u32,
    pub reserved: u32,
}

/// A single launch, sent at its return if single launches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunch {
    pub record_type: u16,
    /// captured into a graph, not executed
    pub captured: u16,
    pub result: i32,
    pub tgid: u32,
    pub tid: u32,
    pub key: RawLaunchKey,
    pub start_ns: u64,
    pub end_ns: u64,
    pub stream: u64,
    /// of a kernel; zeroes for a graph
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// as gp_call.stack
    pub stack: u64,
}

/// A copy or memset, sent at its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCopy {
    pub record_type: u16,
    pub row: u16,
    pub result: i32,
    pub tgid: u32,
    pub tid: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub bytes: u64,
    pub destination: u64,
    /// 0 for a memset
    pub source: u64,
    /// cudaMemcpyKind, or the memory type of the source
    pub kind: i32,
    /// the memory type of the destination; of a batch, the copy's number
    pub second: u16,
    /// captured into a graph, not executed
    pub captured: u16,
    /// as gp_call.stack
    pub stack: u64,
}

/// Header of a batch of GPU activity records from a collector, whose format is in
/// crates/wire, and which follows. Bytes after `bytes` are undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawBatch {
    pub record_type: u16,
    pub reserved: u16,
    pub tgid: u32,
    /// as in gp_task
    pub process: u32,
    pub bytes: u32,
    /// dropped records of the process so far
    pub lost: u64,
}

/// A program, and the root below which the path of its dynamic loader is looked up. User space
/// only passes it back. The number of a deleted file may be given to another, so the time of
/// the last inode change is a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawImage {
    pub inode: u64,
    pub changed_ns: u64,
    pub root_inode: u64,
    pub device: u32,
    pub root_device: u32,
}

/// Asks user space to scan a process: it runs a new program, or its dynamic loader
/// mapped a possible CUDA library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawNotice {
    pub record_type: u16,
    /// the process was stopped and waits for SIGCONT
    pub held: u16,
    pub tgid: u32,
    /// for GP_RECORD_NEW_IMAGE
    pub image: RawImage,
}

/// Maximum number of return addresses in a frame-pointer walk; the kernel's own
/// limit is 127.
pub const MAX_DEPTH: usize = 128;
/// Maximum number of return addresses on one stack that are replaced by
/// uretprobes.
pub const MAX_REPLACED: usize = 8;
/// return addresses per part of a call path
pub const PATH_STEPS: usize = 59;
/// stack words that a part spans
pub const PATH_WORDS: usize = 512;
/// maximum number of parts of a path
pub const PATH_LEVELS: usize = 32;
/// of gp_code.bits; bits are modulo their number
pub const CODE_WORDS: usize = 2048;
/// Maximum number of Python frames per stack.
pub const PYTHON_DEPTH: usize = 128;
/// of a qualified name, from its beginning
pub const PYTHON_NAME_BYTES: usize = 512;
/// of a file name, from its end
pub const PYTHON_FILE_BYTES: usize = 1024;

/// Exclusive upper limit of the bytes below a frame that are read with it.
pub const PYTHON_TOGETHER: u16 = 4096;
/// gp_python: offset of a member that this version does not have.
pub const PYTHON_NONE: u16 = 0xffff;

/// from an address to its bit in gp_code.bits
pub const CODE_SHIFT: u32 = 16;
/// gp_python_stack.flags: there are more frames than were sent.
pub const PYTHON_CUT: u32 = 1;
/// gp_python_stack.flags: the next frame could not be read.
pub const PYTHON_UNREADABLE: u32 = 2;
/// gp_python_stack.flags: the thread runs no Python code; the frames are those
/// of the main thread, which is blocked.
pub const PYTHON_WAITS: u32 = 4;

/// Factor of gp_mix, in two halves: 64-bit enums are not supported by every kernel's
/// BTF.
pub const MIX_LOW: u64 = 0x7f4a7c15;
/// Factor of gp_mix, in two halves: 64-bit enums are not supported by every kernel's
/// BTF.
pub const MIX_HIGH: u64 = 0x9e3779b9;

/// Source of call stacks.
pub mod stacks {
    pub const OFF: u32 = 0;
    /// the kernel's frame-pointer walk
    pub const FRAME_POINTERS: u32 = 1;
    /// a copy of every stack
    pub const COPY: u32 = 2;
    /// a copy of every stack without a cached call path
    pub const AUTO: u32 = 3;
}

/// A return address replaced by a uretprobe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawReplaced {
    /// address of its slot on the stack
    pub at: u64,
    pub original: u64,
}

/// A call stack: the frame-pointer walk, and the registers for unwinding. The copied
/// bytes, from `sp` upwards, follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawStack {
    pub record_type: u16,
    /// number of addresses
    pub count: u16,
    pub tgid: u32,
    /// gp_call.stack
    pub id: u64,
    /// hash state at the start of the path
    pub root: u64,
    /// of the probed function, at whose entry the registers were
    pub return_address: u64,
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    /// as in gp_task
    pub process: u32,
    pub replaced_count: u16,
    /// the map of executable ranges was out of date
    pub is_stale: u16,
    /// bytes of the stack that follow
    pub copied: u64,
    /// hash of the stack, the key in sent_copies
    pub copy_key: u64,
    pub replaced: [RawReplaced; MAX_REPLACED],
    /// `ip` first
    pub addresses: [u64; MAX_DEPTH],
}

/// A part of a cached call path: positions of the next return addresses. The key is the
/// hash state after all previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPath {
    /// the state after these, if the path ends here
    pub end: u64,
    /// stack id of the path that ends here
    pub stack: u64,
    pub count: u16,
    /// from the stack pointer, in words
    pub offsets: [u16; PATH_STEPS],
}

/// Map of the executable ranges of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCode {
    /// the kernel's count of executable pages at that time
    pub exec_pages: u64,
    pub bits: [u64; CODE_WORDS],
}

/// How an interpreter frame marks an entry from C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PythonEntry {
    /// a non-zero flag in the frame
    Flag,
    /// the calling frame is owned by the C stack
    Owner,
}

impl PythonEntry {
    /// All, in order.
    pub const ALL: [Self; 2] = [Self::Flag, Self::Owner];
}

/// The interpreter of a process: addresses, and offsets in bytes of members of CPython's
/// structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPython {
    /// _PyRuntime
    pub runtime: u64,
    /// PyCode_Type
    pub code_type: u64,
    /// In _PyRuntime: two ints, whether the key of the thread-specific storage
    /// exists, and the key.
    pub key: u32,
    /// in PyThreadState: the result of pthread_self
    pub thread_id: u16,
    /// there: the innermost frame, or the _PyCFrame that points to it
    pub current: u16,
    /// in _PyCFrame: the innermost frame; or GP_PYTHON_NONE
    pub cframe: u16,
    /// of a frame that are read
    pub frame_bytes: u16,
    /// in a frame
    pub code: u16,
    /// in a frame: the calling one
    pub previous: u16,
    /// in a frame
    pub instruction: u16,
    /// in a frame: the flag or owner of gp_python_entry
    pub entry: u16,
    /// in every object
    pub object_type: u16,
    /// of a code object that are read, from its type on
    pub code_bytes: u16,
    /// in a code object: co_firstlineno
    pub first_line: u16,
    /// in a code object: co_version, unique; or GP_PYTHON_NONE
    pub version: u16,
    /// in a code object: co_filename
    pub file: u16,
    /// in a code object: co_qualname, or co_name
    pub name: u16,
    /// in a code object: co_linetable
    pub line_table: u16,
    /// in a code object: the first one
    pub instructions: u16,
    /// in a code object: _co_firsttraceable
    pub first_traceable: u16,
    /// in str: in characters
    pub text_length: u16,
    /// in str
    pub text_state: u16,
    /// in str: the characters of ASCII strings
    pub text_ascii: u16,
    /// in str: the characters of others
    pub text_wide: u16,
    /// in bytes: the length
    pub bytes_size: u16,
    /// in bytes
    pub bytes_data: u16,
    /// shift in the state
    pub text_kind_shift: u8,
    /// tag bits of pointers in frames, to be masked off
    pub tag_mask: u8,
    /// GP_PYTHON_ENTRY_*
    pub entry_rule: u8,
    /// written by the BPF side: location of the threads' states
    pub has_slot: u8,
    /// of a PyThreadState, from its first member needed
    pub thread_bytes: u16,
    /// written by the BPF side
    pub slot: u32,
    /// written by the BPF side
    pub slot_behind: u32,
    /// written by the BPF side: PyThreadState of the main thread
    pub main_state: u64,
    /// written by the BPF side: its thread_id
    pub main_id: u64,
    /// Count of freed code objects, from a unique starting number; 0 if frees are
    /// not traced.
    pub generation: u64,
}

/// A frame of a Python stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonFrame {
    /// gp_python_code.id
    pub code: u64,
    /// Bytes from the first instruction; INT_MIN: out of range.
    pub instruction: i32,
    /// the interpreter's `owner` of the frame, if it has one
    pub owner: u8,
    /// the interpreter was entered from C to run the frame
    pub is_entry: u8,
    pub reserved: u16,
}

/// The Python frames of a call stack, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonStack {
    pub record_type: u16,
    pub count: u16,
    pub tgid: u32,
    /// gp_call.stack
    pub id: u64,
    /// stack id of the native stack
    pub native: u64,
    pub process: u32,
    /// GP_PYTHON_CUT, GP_PYTHON_UNREADABLE, GP_PYTHON_WAITS
    pub flags: u32,
    pub frames: [RawPythonFrame; PYTHON_DEPTH],
}

/// A string that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonText {
    /// number of bytes read
    pub bytes: u32,
    /// bytes per character; 0 if it could not be read
    pub kind: u32,
    /// the string was truncated
    pub is_cut: u32,
}

/// A code object, sent before the first stack that refers to it. The beginning of its
/// line table follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonCode {
    pub record_type: u16,
    pub reserved: u16,
    pub tgid: u32,
    pub id: u64,
    pub process: u32,
    pub first_line: u32,
    /// In units of 2 bytes: a frame before this instruction has not started.
    pub first_traceable: i32,
    /// of the line table
    pub table_bytes: u32,
    /// of these, how many follow
    pub table_copied: u32,
    pub name_text: RawPythonText,
    pub file_text: RawPythonText,
    pub reserved2: u32,
    /// qualified, if the version has it
    pub name: [u8; PYTHON_NAME_BYTES],
    pub file: [u8; PYTHON_FILE_BYTES],
}

/// Key of the losses of one kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLossKey {
    pub tgid: u32,
    /// index in gp_losses
    pub what: u32,
}

/// Losses of one kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLoss {
    pub count: u64,
    /// at the first loss, as the user
    pub comm: [u8; COMM_LEN],
    pub uid: u32,
    pub reserved: u32,
}
