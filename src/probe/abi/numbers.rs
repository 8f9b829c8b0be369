//! Numbers of the kernel side, checked at compile time.

use std::mem::offset_of;

use gpuprobe_cuda::{Access, ArgumentPlace, EXTRA, LaunchShape, Layer, Op};
use gpuprobe_model::abi::*;
use gpuprobe_stacks::paths::MIX_FACTOR;
use gpuprobe_wire as wire;

use super::super::StackMode;
use super::super::skeleton::types;

/// Asserts that Rust constants equal those of a C enum. Compared as 32 bits: older clangs do not
/// record the sign of an enum in BTF.
macro_rules! assert_same_numbers {
    ($theirs:ident: $($ours:expr => $constant:ident),+ $(,)?) => {
        $(const _: () = assert!(
            $ours as u32 == types::$theirs::$constant.0 as u32,
            concat!(stringify!($constant), " of bpf/abi.h is not ", stringify!($ours))
        );)+
    };
}

/// The same for all variants of an enum. The C constants begin at `$first`, and `$count` is one more
/// than the last.
macro_rules! assert_same_enum {
    ($ours:ident, $theirs:ident, $first:literal, $count:ident: $($variant:ident = $constant:ident),+ $(,)?) => {
        assert_same_numbers!($theirs: $($ours::$variant => $constant),+);
        // An unlisted variant makes the match incomplete: a compile error.
        const _: fn($ours) = |ours| match ours { $($ours::$variant)|+ => () };
        const _: () = assert!(
            $first + [$($ours::$variant),+].len() == types::$theirs::$count.0 as usize,
            concat!(stringify!($theirs), " of bpf/abi.h has constants that are not listed here")
        );
    };
}

assert_same_enum! {
    Op, gp_op, 1, GP_OP_COUNT:
    SelfTest = GP_OP_SELFTEST, Allocate = GP_OP_ALLOCATE, Free = GP_OP_FREE,
    ContextCreate = GP_OP_CONTEXT_CREATE, ContextRetain = GP_OP_CONTEXT_RETAIN,
    ContextSet = GP_OP_CONTEXT_SET, ContextPush = GP_OP_CONTEXT_PUSH,
    ContextPop = GP_OP_CONTEXT_POP, ContextGet = GP_OP_CONTEXT_GET,
    ContextDevice = GP_OP_CONTEXT_DEVICE, DeviceSet = GP_OP_DEVICE_SET,
    DeviceGet = GP_OP_DEVICE_GET, DeviceCount = GP_OP_DEVICE_COUNT, Launch = GP_OP_LAUNCH,
    GraphLaunch = GP_OP_GRAPH_LAUNCH, CaptureBegin = GP_OP_CAPTURE_BEGIN,
    CaptureEnd = GP_OP_CAPTURE_END, KernelName = GP_OP_KERNEL_NAME,
    ModuleUnload = GP_OP_MODULE_UNLOAD, Copy = GP_OP_COPY, CopyBatch = GP_OP_COPY_BATCH,
    HandleCreate = GP_OP_HANDLE_CREATE, HandleImport = GP_OP_HANDLE_IMPORT,
    HandleRetain = GP_OP_HANDLE_RETAIN, HandleRelease = GP_OP_HANDLE_RELEASE, Map = GP_OP_MAP,
    MapHandle = GP_OP_MAP_HANDLE, Unmap = GP_OP_UNMAP, Reserve = GP_OP_RESERVE,
    Unreserve = GP_OP_UNRESERVE, ShareOpen = GP_OP_SHARE_OPEN, ShareClose = GP_OP_SHARE_CLOSE,
    ShareExport = GP_OP_SHARE_EXPORT, Symbol = GP_OP_SYMBOL, ModuleLoad = GP_OP_MODULE_LOAD,
    ContextDestroy = GP_OP_CONTEXT_DESTROY, DeviceReset = GP_OP_DEVICE_RESET,
    PrimaryRelease = GP_OP_PRIMARY_RELEASE, PoolCreate = GP_OP_POOL_CREATE,
    PoolDestroy = GP_OP_POOL_DESTROY, PoolTrim = GP_OP_POOL_TRIM,
    PoolAttribute = GP_OP_POOL_ATTRIBUTE, PoolOfDevice = GP_OP_POOL_OF_DEVICE,
    PoolSet = GP_OP_POOL_SET, GraphAllocate = GP_OP_GRAPH_ALLOCATE, GraphFree = GP_OP_GRAPH_FREE,
    GraphNode = GP_OP_GRAPH_NODE, GraphBuild = GP_OP_GRAPH_BUILD,
    GraphDestroy = GP_OP_GRAPH_DESTROY, LibraryLoad = GP_OP_LIBRARY_LOAD,
    HandleOther = GP_OP_HANDLE_OTHER, EventRecord = GP_OP_EVENT_RECORD,
    StreamWait = GP_OP_STREAM_WAIT, StreamDestroy = GP_OP_STREAM_DESTROY,
    Tensor = GP_OP_TENSOR, OutOfMemory = GP_OP_OUT_OF_MEMORY,
}
assert_same_enum! {
    LaunchShape, gp_shape, 0, GP_SHAPE_COUNT:
    None = GP_SHAPE_NONE, Arguments = GP_SHAPE_ARGUMENTS, Config = GP_SHAPE_CONFIG,
    Dim3 = GP_SHAPE_DIM3, Addresses = GP_SHAPE_ADDRESSES,
    Cuboids = GP_SHAPE_CUBOIDS,
}
assert_same_enum! {
    Layer, gp_layer, 0, GP_LAYER_COUNT:
    Runtime = GP_LAYER_RUNTIME, Driver = GP_LAYER_DRIVER, Framework = GP_LAYER_FRAMEWORK,
}
assert_same_enum! {
    ArgumentPlace, gp_place, 0, GP_PLACE_COUNT:
    None = GP_PLACE_NONE, Argument = GP_PLACE_ARGUMENT, Stack = GP_PLACE_STACK,
}
assert_same_enum! {
    Access, gp_access, 0, GP_ACCESS_COUNT:
    Plain = GP_ACCESS_PLAIN, Behind = GP_ACCESS_BEHIND, Plus = GP_ACCESS_PLUS,
}
assert_same_enum! {
    StackMode, gp_stack_mode, 0, GP_STACKS_COUNT:
    Off = GP_STACKS_OFF, Fp = GP_STACKS_FRAME_POINTERS, Dwarf = GP_STACKS_COPY,
    Auto = GP_STACKS_AUTO,
}
assert_same_enum! {
    PythonEntry, gp_python_entry, 0, GP_PYTHON_ENTRY_COUNT:
    Each = GP_PYTHON_ENTRY_EACH, Flag = GP_PYTHON_ENTRY_FLAG, Owner = GP_PYTHON_ENTRY_OWNER,
}
assert_same_numbers!(
    gp_number:
    PYTHON_DEPTH => GP_PYTHON_DEPTH,
    PYTHON_TOGETHER => GP_PYTHON_TOGETHER,
    PYTHON_NAME_BYTES => GP_PYTHON_NAME_BYTES,
    PYTHON_FILE_BYTES => GP_PYTHON_FILE_BYTES,
    PYTHON_NONE => GP_PYTHON_NONE,
    PYTHON_CUT => GP_PYTHON_CUT,
    PYTHON_UNREADABLE => GP_PYTHON_UNREADABLE,
    PYTHON_WAITS => GP_PYTHON_WAITS,
    EXTRA => GP_MAX_EXTRA,
    wire::BATCH_MAX => GP_MAX_BATCH_BYTES,
    offset_of!(wire::BatchHeader, records) => GP_BATCH_RECORDS_AT,
    MAX_DEPTH => GP_MAX_DEPTH,
    MAX_REPLACED => GP_MAX_REPLACED,
    PATH_STEPS => GP_PATH_STEPS,
    PATH_WORDS => GP_PATH_WORDS,
    PATH_LEVELS => GP_PATH_LEVELS,
    CODE_SHIFT => GP_CODE_SHIFT,
    CODE_WORDS => GP_CODE_WORDS,
    DEVICE_UNKNOWN => GP_DEVICE_UNKNOWN,
    CONTEXT_UNKNOWN => GP_CONTEXT_UNKNOWN,
    ANY_DEVICE => GP_ANY_DEVICE,
    gpuprobe_cuda::OUT_OF_MEMORY => GP_OUT_OF_MEMORY,
    CALL_CAPTURED => GP_CALL_CAPTURED,
    PROCESS_PID_SHIFT => GP_PROCESS_PID_SHIFT,
    NODE_ALLOCATES => GP_NODE_MEMORY_ALLOCATE,
    NODE_FREES => GP_NODE_MEMORY_FREE,
);
assert_same_numbers!(
    gp_mix_factor:
    MIX_FACTOR & 0xffff_ffff => GP_MIX_LOW,
    MIX_FACTOR >> 32 => GP_MIX_HIGH,
);
assert_same_numbers!(
    gp_record_type:
    record::CALL => GP_RECORD_CALL,
    record::PROCESS => GP_RECORD_PROCESS,
    record::THREAD => GP_RECORD_THREAD,
    record::EXIT => GP_RECORD_EXIT,
    record::EXEC => GP_RECORD_EXEC,
    record::THREAD_EXIT => GP_RECORD_THREAD_EXIT,
    record::NEW_IMAGE => GP_RECORD_NEW_IMAGE,
    record::NEW_LIBRARY => GP_RECORD_NEW_LIBRARY,
    record::KERNEL => GP_RECORD_KERNEL,
    record::COPY => GP_RECORD_COPY,
    record::DETAIL => GP_RECORD_DETAIL,
    record::NAMED => GP_RECORD_NAMED,
    record::LAUNCH => GP_RECORD_LAUNCH,
    record::STACK => GP_RECORD_STACK,
    record::BATCH => GP_RECORD_BATCH,
    record::PYTHON => GP_RECORD_PYTHON,
    record::PYTHON_CODE => GP_RECORD_PYTHON_CODE,
    record::TENSOR => GP_RECORD_TENSOR,
    record::REQUEST => GP_RECORD_REQUEST,
    record::REQUEST + 1 => GP_RECORD_COUNT,
);
