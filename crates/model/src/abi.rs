//! The records and settings that cross between kernel and user space, byte for byte.
//!
//! The C side is `bpf/abi.h`. Sizes, offsets and numbers are compared at compile time with those
//! that clang saw, as the generated skeleton reports them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuprobe_cuda::EXTRA;

/// Device of a call that nothing told us about.
pub const DEVICE_UNKNOWN: i32 = -1;

/// Record types; the first two bytes of every record.
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
    /// [`record::CALL`].
    pub record_type: u16,
    /// Row of the function table.
    pub row: u16,
    /// What the function returned: 0 or a CUDA error.
    pub result: i32,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Device address that was handed out or in.
    pub address: u64,
    /// Bytes asked for; 0 for a free.
    pub size: u64,
    /// Device index or [`DEVICE_UNKNOWN`].
    pub device: i32,
    /// Number of the context that it was made in or is about; 0 for primary ones.
    pub context: u16,
    /// [`CALL_CAPTURED`].
    pub flags: u16,
    /// Names the call stack within the process; 0 if it was not taken.
    pub stack: u64,
}

/// In [`RawCall::flags`]: the call went into a graph.
pub const CALL_CAPTURED: u16 = 1;
/// In [`RawTensor::device`]: the allocator does not say where it is.
pub const ANY_DEVICE: u16 = 0xffff;
/// In [`RawCall::context`]: not known.
pub const CONTEXT_UNKNOWN: u16 = 0xffff;
/// The process id is in [`RawTask::process`] above so many bits.
pub const PROCESS_PID_SHIFT: u32 = 10;
/// `CUgraphNodeType`, the size of [`Op::GraphNode`](gpuprobe_cuda::Op::GraphNode): a node that
/// allocates.
pub const NODE_ALLOCATES: u64 = 10;
/// A node that frees.
pub const NODE_FREES: u64 = 11;

/// `struct gp_detail`: a call with what only few functions have.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawDetail {
    /// The call.
    pub call: RawCall,
    /// What it wrote to where [`Function::out`] points.
    pub out: u64,
    /// [`Function::stream`].
    pub stream: u64,
    /// [`Function::extra`], or the bytes of `out`.
    pub values: [u64; EXTRA],
}

/// `struct gp_named` without the name, which follows.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawNamed {
    /// The call.
    pub detail: RawDetail,
    /// Length of the name with its terminating zero; 0 if there is none.
    pub name_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct gp_tensor`: what a framework's allocator has handed out or taken back, or by its row, what it
/// gives up on.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawTensor {
    /// [`record::TENSOR`].
    pub record_type: u16,
    /// Row of the function table.
    pub row: u16,
    /// Device index as the process numbers it, or [`ANY_DEVICE`].
    pub device: u16,
    /// Zero.
    pub reserved: u16,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Where it is.
    pub address: u64,
    /// Bytes; negative if it was taken back.
    pub bytes: i64,
    /// Bytes that are allocated on the device after that.
    pub allocated: u64,
    /// Bytes that the allocator has from CUDA for that.
    pub held: u64,
    /// Names the call stack within the process; 0 if it was not taken.
    pub stack: u64,
}

/// `struct gp_request`: what was asked for, of the tensor that the thread was handed out last.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawRequest {
    /// [`record::REQUEST`].
    pub record_type: u16,
    /// Zero.
    pub reserved: u16,
    /// Process.
    pub tgid: u32,
    /// Where it is.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The stream that it is for.
    pub stream: u64,
}

/// `struct gp_task`: a process or thread at first sight, renamed, ended, or running a new program.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawTask {
    /// One of [`record`]'s task types.
    pub record_type: u16,
    /// Of a process: not 0 if nothing that it did was missed.
    pub from_birth: u16,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// User id.
    pub uid: u32,
    /// Tells apart processes and programs that share a process id.
    pub process: u32,
    /// Process id in the innermost PID namespace of the process.
    pub inner_pid: u32,
    /// Cgroup, by its id in the hierarchy of version 2.
    pub cgroup: u64,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Start of the process, `CLOCK_BOOTTIME` nanoseconds.
    pub start_boot_ns: u64,
    /// Name, padded with zero bytes.
    pub comm: [u8; 16],
}

/// `struct gp_launch_key`: a kernel or graph of a process, as launches are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunchKey {
    /// What was passed to the launch.
    pub handle: u64,
    /// The process, as in [`RawTask::process`].
    pub process: u32,
    /// Row of the function table.
    pub row: u16,
    /// Handles of different epochs may be used for different kernels.
    pub epoch: u16,
}

/// `struct gp_launch_count`: one CPU's share.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLaunchCount {
    /// Launches that ran.
    pub runs: u64,
    /// Launches that went into a graph.
    pub captured: u32,
    /// The user whose entry it is, as the kernel side numbers them; 0 where it was not made.
    pub user: u32,
}

/// `struct gp_kernel` without the name, which follows.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawKernel {
    /// [`record::KERNEL`].
    pub record_type: u16,
    /// Non-zero if the program gave the name; else it was found through the handle.
    pub given: u16,
    /// Process.
    pub tgid: u32,
    /// Which kernel.
    pub key: RawLaunchKey,
    /// Blocks of the first launch.
    pub grid: [u32; 3],
    /// Threads per block of the first launch.
    pub block: [u32; 3],
    /// Length of the name with its terminating zero; 0 if there is none.
    pub name_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// `struct gp_launch`: a single launch that has returned.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawLaunch {
    /// [`record::LAUNCH`].
    pub record_type: u16,
    /// Non-zero if it went into a graph instead of to the GPU.
    pub captured: u16,
    /// What the function returned: 0 or a CUDA error.
    pub result: i32,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// What was launched, as it is counted.
    pub key: RawLaunchKey,
    /// Entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// The stream that was handed in.
    pub stream: u64,
    /// Blocks; zeroes for a graph.
    pub grid: [u32; 3],
    /// Threads per block; zeroes for a graph.
    pub block: [u32; 3],
    /// As [`RawCall::stack`].
    pub stack: u64,
}

/// `struct gp_copy`: a finished copy or memory set.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCopy {
    /// [`record::COPY`].
    pub record_type: u16,
    /// Row of the function table.
    pub row: u16,
    /// What the function returned: 0 or a CUDA error.
    pub result: i32,
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Entry, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: u64,
    /// Return, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Bytes moved or set.
    pub bytes: u64,
    /// Address written to.
    pub destination: u64,
    /// Address read from; 0 for a set.
    pub source: u64,
    /// `cudaMemcpyKind`, or the memory type of the source.
    pub kind: i32,
    /// Memory type of the destination.
    pub second: u16,
    /// Non-zero if it went into a graph instead of to the GPU.
    pub captured: u16,
}

/// `struct gp_batch`: what a collector has handed over. The batch follows.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawBatch {
    /// [`record::BATCH`].
    pub record_type: u16,
    /// Zero.
    pub reserved: u16,
    /// Process.
    pub tgid: u32,
    /// The process, as in [`RawTask::process`].
    pub process: u32,
    /// Length of the batch; what follows it means nothing.
    pub bytes: u32,
    /// Records of the process that the kernel side could not hand on, so far.
    pub lost: u64,
}

/// Addresses of a walk along the frame pointers: `GP_MAX_DEPTH`.
pub const MAX_DEPTH: usize = 128;
/// Replaced return addresses: `GP_MAX_REPLACED`.
pub const MAX_REPLACED: usize = 8;
/// Return addresses in a part of a known path: `GP_PATH_STEPS`.
pub const PATH_STEPS: usize = 59;
/// Words of the stack that these lie in: `GP_PATH_WORDS`.
pub const PATH_WORDS: usize = 512;
/// Parts of a known path: `GP_PATH_LEVELS`.
pub const PATH_LEVELS: usize = 32;

/// `struct gp_replaced`: a return address that a return probe has replaced.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawReplaced {
    /// Where on the stack.
    pub at: u64,
    /// What was there.
    pub original: u64,
}

/// `struct gp_stack`: a call stack, as the kernel side found it. Copied bytes follow.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawStack {
    /// [`record::STACK`].
    pub record_type: u16,
    /// How many of `addresses` there are.
    pub count: u16,
    /// Process.
    pub tgid: u32,
    /// As in [`RawCall::stack`].
    pub id: u64,
    /// The state that its path begins with.
    pub root: u64,
    /// Where the function will return to.
    pub return_address: u64,
    /// Instruction pointer: the entry of the function.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// The process, as in [`RawTask::process`].
    pub process: u32,
    /// How many of `replaced` there are.
    pub replaced_count: u16,
    /// 1 if the kernel side did not know any more where the process has code.
    pub is_stale: u16,
    /// Bytes of the stack, from `sp` up, that follow.
    pub copied: u64,
    /// What it looks like: the key under which the kernel side remembers that it sent it.
    pub looks: u64,
    /// Return addresses that return probes have replaced.
    pub replaced: [RawReplaced; MAX_REPLACED],
    /// What the frame pointers lead to, innermost first.
    pub addresses: [u64; MAX_DEPTH],
}

/// `struct gp_path`: a part of a known call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPath {
    /// The state after these return addresses, if it is the path that ends here.
    pub end: u64,
    /// That path's stack.
    pub stack: u64,
    /// How many of `offsets` there are.
    pub count: u16,
    /// Where return addresses are: 8-byte words above the stack pointer.
    pub offsets: [u16; PATH_STEPS],
}

/// `GP_CODE_SHIFT` and `GP_CODE_WORDS`.
pub const CODE_SHIFT: u32 = 16;
/// See [`CODE_SHIFT`].
pub const CODE_WORDS: usize = 2048;

/// `struct gp_code`: where a process has code.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawCode {
    /// The kernel's count of its pages of code.
    pub exec_pages: u64,
    /// A bit for each part of the address space of `1 << CODE_SHIFT` bytes, modulo their number.
    pub bits: [u64; CODE_WORDS],
}

/// Python frames of a stack that the kernel side sends at most (`GP_PYTHON_DEPTH`).
pub const PYTHON_DEPTH: usize = 128;
/// More than [`RawPython::together`] can be.
pub const PYTHON_TOGETHER: u16 = 1024;
/// Bytes of a qualified name of Python, from its beginning.
pub const PYTHON_NAME_BYTES: usize = 512;
/// Bytes of the name of a file of Python, from its end.
pub const PYTHON_FILE_BYTES: usize = 1024;
/// [`RawPython`]: there is no such member.
pub const PYTHON_NONE: u16 = 0xffff;
/// [`RawPythonStack::flags`]: there are more frames.
pub const PYTHON_CUT: u32 = 1;
/// [`RawPythonStack::flags`]: the next frame could not be read.
pub const PYTHON_UNREADABLE: u32 = 2;

/// [`RawPythonStack::flags`]: the thread runs no Python; the frames are the main thread's, which
/// sleeps.
pub const PYTHON_WAITS: u32 = 4;

/// `enum gp_python_entry`: how a frame says that the interpreter was entered from C to run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PythonEntry {
    /// Each frame was.
    Each = 0,
    /// A byte is not 0.
    Flag = 1,
    /// Its caller is a frame that is owned by the C stack.
    Owner = 2,
}

/// `struct gp_python`: the interpreter of a process. Offsets, in bytes, of members of `CPython`'s
/// structures.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout,
)]
#[repr(C)]
pub struct RawPython {
    /// Address of `_PyRuntime`.
    pub runtime: u64,
    /// Address of `PyCode_Type`.
    pub code_type: u64,
    /// In `_PyRuntime`: `autoTSSkey`.
    pub key: u32,
    /// From the thread pointer to thread-specific storage: in glibc, to the first 32 entries; in musl,
    /// to a pointer to all.
    pub tls: u32,
    /// In glibc, to the pointers to the other entries; 0 for musl.
    pub tls_rest: u32,
    /// In `PyThreadState`: what `pthread_self` gave.
    pub thread_id: u16,
    /// The innermost frame, or the `_PyCFrame` that has it.
    pub current: u16,
    /// In `_PyCFrame`, or [`PYTHON_NONE`].
    pub cframe: u16,
    /// Bytes of a frame that are read.
    pub frame_bytes: u16,
    /// In a frame: the code object.
    pub code: u16,
    /// The caller's frame.
    pub previous: u16,
    /// The instruction.
    pub instruction: u16,
    /// The flag or the owner that [`PythonEntry`] is about.
    pub entry: u16,
    /// The callers' frames are near, at lower addresses: within so many bytes.
    pub together: u16,
    /// In every object: its type.
    pub object_type: u16,
    /// Bytes of a code object that are read, from its type on.
    pub code_bytes: u16,
    /// In a code object: `co_firstlineno`.
    pub first_line: u16,
    /// `co_version`, or [`PYTHON_NONE`].
    pub version: u16,
    /// `co_filename`.
    pub file: u16,
    /// `co_qualname`, or `co_name`.
    pub name: u16,
    /// `co_linetable`, or `co_lnotab`.
    pub line_table: u16,
    /// The instructions.
    pub instructions: u16,
    /// `_co_firsttraceable`, or [`PYTHON_NONE`].
    pub first_traceable: u16,
    /// In `str`: its length in characters.
    pub text_length: u16,
    /// Its state.
    pub text_state: u16,
    /// Its characters, if all are ASCII.
    pub text_ascii: u16,
    /// Its characters, if not.
    pub text_wide: u16,
    /// In `bytes`: its length.
    pub bytes_size: u16,
    /// What is in it.
    pub bytes_data: u16,
    /// Bits of the state of a `str` below its kind.
    pub text_kind_shift: u8,
    /// Bits of pointers in frames that are no part of these.
    pub tag_mask: u8,
    /// 1 if the instruction is 4 bytes that count from the first one.
    pub is_index: u8,
    /// [`PythonEntry`].
    pub entry_rule: u8,
    /// Bytes of a `PyThreadState` that are read, from the first of its members on.
    pub thread_bytes: u16,
    /// The kernel side's; 0.
    pub has_slot: u16,
    /// Likewise.
    pub slot: u32,
    /// Likewise.
    pub slot_behind: u32,
    /// 0.
    pub reserved: u32,
    /// The kernel side's; 0.
    pub main_state: u64,
    /// Likewise.
    pub main_id: u64,
    /// Counts the code objects that are gone, from a number that nothing else began with; 0 if nobody
    /// sees them go.
    pub generation: u64,
}

/// `struct gp_python_frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonFrame {
    /// [`RawPythonCode::id`].
    pub code: u64,
    /// Bytes from the first instruction, or the index that the interpreter has; `i32::MIN` if it is
    /// not in the code object.
    pub instruction: i32,
    /// As the interpreter has it, if it does.
    pub owner: u8,
    /// 1 if the interpreter was entered to run it.
    pub is_entry: u8,
    /// 0.
    pub reserved: u16,
}

/// `struct gp_python_stack`: the Python frames of a stack, innermost first.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonStack {
    /// [`record::PYTHON`].
    pub record_type: u16,
    /// How many of `frames` there are.
    pub count: u16,
    /// Process.
    pub tgid: u32,
    /// As in [`RawCall::stack`].
    pub id: u64,
    /// The id of the native stack that they are in.
    pub native: u64,
    /// The process, as in [`RawTask::process`].
    pub process: u32,
    /// [`PYTHON_CUT`], [`PYTHON_UNREADABLE`], [`PYTHON_WAITS`].
    pub flags: u32,
    /// The frames.
    pub frames: [RawPythonFrame; PYTHON_DEPTH],
}

/// `struct gp_python_text`.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonText {
    /// Bytes that were read.
    pub bytes: u32,
    /// Bytes of a character; 0 if it could not be read.
    pub kind: u32,
    /// 1 if there are more.
    pub is_cut: u32,
}

/// `struct gp_python_code`: a code object, before the first stack that has it. Some of its line table
/// follows.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct RawPythonCode {
    /// [`record::PYTHON_CODE`].
    pub record_type: u16,
    /// 0.
    pub reserved: u16,
    /// Process.
    pub tgid: u32,
    /// By which frames name it.
    pub id: u64,
    /// The process, as in [`RawTask::process`].
    pub process: u32,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// `_co_firsttraceable`, in units of 2 bytes: frames before it have not begun.
    pub first_traceable: i32,
    /// Bytes of its line table.
    pub table_bytes: u32,
    /// Bytes of it that follow.
    pub table_copied: u32,
    /// Of the qualified name, or the name.
    pub name_text: RawPythonText,
    /// Of the file's name.
    pub file_text: RawPythonText,
    /// 0.
    pub reserved2: u32,
    /// The name.
    pub name: [u8; PYTHON_NAME_BYTES],
    /// The file's name.
    pub file: [u8; PYTHON_FILE_BYTES],
}

/// `struct gp_notice`: discovery is asked to look at a process.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawNotice {
    /// [`record::NEW_IMAGE`] or [`record::NEW_LIBRARY`].
    pub record_type: u16,
    /// Non-zero if the process was stopped and waits for `SIGCONT`.
    pub held: u16,
    /// Process.
    pub tgid: u32,
    /// Inode of the program, for [`record::NEW_IMAGE`].
    pub inode: u64,
    /// Its file system's device number, as the kernel encodes it.
    pub device: u64,
    /// The user to whom the process counts.
    pub uid: u32,
    /// Nothing.
    pub reserved: u32,
}

/// `struct gp_loss_key`: losses of one kind of a process, or of what else a user has.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLossKey {
    /// User.
    pub uid: u32,
    /// Process; 0 for processes that are not told apart.
    pub tgid: u32,
    /// Place of the counter in `struct gp_losses`.
    pub what: u32,
}

/// `struct gp_loss`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawLoss {
    /// How many.
    pub count: u64,
    /// Name of the process.
    pub comm: [u8; 16],
}
