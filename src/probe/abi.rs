//! The records and settings that cross between kernel and user space, byte for byte.
//!
//! The C side is `bpf/abi.h`. Sizes, offsets and limits are compared at compile time with what
//! clang laid out, as the generated skeleton reports it.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::skeleton::types;
use crate::activity::wire;
use crate::api::{EXTRA, Function, Op, Value};

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
/// In [`RawCall::context`]: not known.
pub const CONTEXT_UNKNOWN: u16 = 0xffff;

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
    pub captured: u64,
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
}

macro_rules! assert_same_layout {
    ($ours:ty, $theirs:ty, $($our_field:ident = $their_field:ident),+ $(,)?) => {
        const _: () = assert!(size_of::<$ours>() == size_of::<$theirs>());
        $(const _: () = assert!(offset_of!($ours, $our_field) == offset_of!($theirs, $their_field));)+
    };
}

assert_same_layout!(
    RawCall,
    types::gp_call,
    record_type = r#type,
    row = row,
    result = result,
    tgid = tgid,
    tid = tid,
    start_ns = start_ns,
    end_ns = end_ns,
    address = address,
    size = size,
    device = device,
    context = context,
    flags = flags,
    stack = stack,
);
assert_same_layout!(
    RawDetail,
    types::gp_detail,
    call = call,
    out = out,
    stream = stream,
    values = values,
);
const _: () = assert!(size_of::<RawNamed>() == offset_of!(types::gp_named, name));
const _: () = assert!(offset_of!(RawNamed, name_bytes) == offset_of!(types::gp_named, name_bytes));
assert_same_layout!(
    RawTask,
    types::gp_task,
    record_type = r#type,
    from_birth = from_birth,
    tgid = tgid,
    tid = tid,
    uid = uid,
    time_ns = time_ns,
    start_boot_ns = start_boot_ns,
    comm = comm,
    process = process,
    inner_pid = inner_pid,
    cgroup = cgroup,
);
assert_same_layout!(
    RawNotice,
    types::gp_notice,
    record_type = r#type,
    held = held,
    tgid = tgid,
    inode = inode,
    device = device,
);
assert_same_layout!(
    RawLaunchKey,
    types::gp_launch_key,
    handle = handle,
    process = process,
    row = row,
    epoch = epoch,
);
assert_same_layout!(
    RawLaunchCount,
    types::gp_launch_count,
    runs = runs,
    captured = captured
);
const _: () = assert!(size_of::<RawKernel>() == offset_of!(types::gp_kernel, name));
const _: () = assert!(offset_of!(RawKernel, key) == offset_of!(types::gp_kernel, key));
const _: () = assert!(offset_of!(RawKernel, grid) == offset_of!(types::gp_kernel, grid));
const _: () =
    assert!(offset_of!(RawKernel, name_bytes) == offset_of!(types::gp_kernel, name_bytes));
assert_same_layout!(
    RawLaunch,
    types::gp_launch,
    record_type = r#type,
    captured = captured,
    result = result,
    tgid = tgid,
    tid = tid,
    key = key,
    start_ns = start_ns,
    end_ns = end_ns,
    stream = stream,
    grid = grid,
    block = block,
    stack = stack,
);
assert_same_layout!(
    RawCopy,
    types::gp_copy,
    record_type = r#type,
    row = row,
    result = result,
    tgid = tgid,
    tid = tid,
    start_ns = start_ns,
    end_ns = end_ns,
    bytes = bytes,
    destination = destination,
    source = source,
    kind = kind,
    second = second,
    captured = captured,
);
assert_same_layout!(
    RawBatch,
    types::gp_batch,
    record_type = r#type,
    tgid = tgid,
    process = process,
    bytes = bytes,
    lost = lost,
);
assert_same_layout!(
    RawStack,
    types::gp_stack,
    record_type = r#type,
    count = count,
    tgid = tgid,
    id = id,
    root = root,
    return_address = return_address,
    ip = ip,
    sp = sp,
    fp = fp,
    process = process,
    replaced_count = replaced_count,
    is_stale = is_stale,
    copied = copied,
    looks = looks,
    replaced = replaced,
    addresses = addresses,
);
assert_same_layout!(
    RawReplaced,
    types::gp_replaced,
    at = at,
    original = original,
);
assert_same_layout!(
    RawCode,
    types::gp_code,
    exec_pages = exec_pages,
    bits = bits,
);
assert_same_layout!(
    RawPath,
    types::gp_path,
    end = end,
    stack = stack,
    count = count,
    offsets = offsets,
);
const _: () = assert!(
    crate::api::FUNCTIONS.len() <= size_of::<types::rodata>() / size_of::<types::gp_recipe>(),
    "the function table has outgrown GP_MAX_ROWS"
);
const _: () =
    assert!(size_of::<types::gp_batch_large>() == size_of::<RawBatch>() + wire::BATCH_MAX);
/// `GP_BATCH_RECORDS_AT`.
const _: () = assert!(offset_of!(wire::BatchHeader, records) == 72);

fn raw_value(value: Value) -> types::gp_value {
    types::gp_value {
        place: value.place as u8,
        index: value.index,
        bits: value.bits,
        access: value.access as u8,
        offset: value.offset,
    }
}

/// The bits of `enum gp_flag`.
fn flags(function: &Function) -> u16 {
    [
        function.size_at_return,
        function.is_detailed(),
        function.named,
        function.out_bytes,
        function.op.is_told(),
        function.op.allocates() || matches!(function.op, Op::GraphAllocate | Op::GraphNode),
    ]
    .into_iter()
    .enumerate()
    .fold(0, |flags, (bit, set)| flags | u16::from(set) << bit)
}

/// The row as the kernel side reads it.
pub(super) fn recipe(function: &Function) -> types::gp_recipe {
    types::gp_recipe {
        op: function.op as u16,
        shape: function.shape as u8,
        scale: function.scale,
        layer: function.layer as u16,
        flags: flags(function),
        size: raw_value(function.size),
        address: raw_value(function.address),
        out: raw_value(function.out),
        device: raw_value(function.device),
        second: raw_value(function.second),
        stream: raw_value(function.stream),
        factors: function.factors.map(raw_value),
        unless: function.unless.map(raw_value),
        extra: function.extra.map(raw_value),
    }
}
