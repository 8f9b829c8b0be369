//! Layouts and constants shared with the kernel side, checked at compile time against those in
//! `bpf/abi.h`, which the generated skeleton has from clang; and rows of the function table in the
//! kernel side's form.

use std::mem::{offset_of, size_of};

use gpuprobe_cuda::{
    Access, ArgumentPlace, EXTRA, EntryValue, FUNCTIONS, Function, LaunchShape, Layer, Op,
};
use gpuprobe_model::abi::*;
use gpuprobe_wire as wire;

use super::StackMode;
use super::skeleton::types;
use gpuprobe_stacks::paths::MIX_FACTOR;

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
    RawTensor,
    types::gp_tensor,
    record_type = r#type,
    row = row,
    device = device,
    tgid = tgid,
    tid = tid,
    time_ns = time_ns,
    address = address,
    bytes = bytes,
    allocated = allocated,
    held = held,
    stack = stack,
);
assert_same_layout!(
    RawRequest,
    types::gp_request,
    record_type = r#type,
    tgid = tgid,
    address = address,
    bytes = bytes,
    stream = stream,
);
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
    uid = uid,
);
assert_same_layout!(
    RawLossKey,
    types::gp_loss_key,
    uid = uid,
    tgid = tgid,
    what = what,
);
assert_same_layout!(RawLoss, types::gp_loss, count = count, comm = comm);
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
    captured = captured,
    user = user,
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
    copy_key = copy_key,
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
assert_same_layout!(
    RawPython,
    types::gp_python,
    runtime = runtime,
    code_type = code_type,
    key = key,
    tls = tls,
    tls_rest = tls_rest,
    thread_id = thread_id,
    current = current,
    cframe = cframe,
    frame_bytes = frame_bytes,
    code = code,
    previous = previous,
    instruction = instruction,
    entry = entry,
    together = together,
    object_type = r#type,
    code_bytes = code_bytes,
    first_line = first_line,
    version = version,
    file = file,
    name = name,
    line_table = line_table,
    instructions = instructions,
    first_traceable = first_traceable,
    text_length = text_length,
    text_state = text_state,
    text_ascii = text_ascii,
    text_wide = text_wide,
    bytes_size = bytes_size,
    bytes_data = bytes_data,
    text_kind_shift = text_kind_shift,
    tag_mask = tag_mask,
    is_index = is_index,
    entry_rule = entry_rule,
    thread_bytes = thread_bytes,
    has_slot = has_slot,
    slot = slot,
    slot_behind = slot_behind,
    main_state = main_state,
    main_id = main_id,
    generation = generation,
);
assert_same_layout!(
    RawPythonFrame,
    types::gp_python_frame,
    code = code,
    instruction = instruction,
    owner = owner,
    is_entry = is_entry,
);
assert_same_layout!(
    RawPythonStack,
    types::gp_python_stack,
    record_type = r#type,
    count = count,
    tgid = tgid,
    id = id,
    native = native,
    process = process,
    flags = flags,
    frames = frames,
);
assert_same_layout!(
    RawPythonText,
    types::gp_python_text,
    bytes = bytes,
    kind = kind,
    is_cut = is_cut,
);
assert_same_layout!(
    RawPythonCode,
    types::gp_python_code,
    record_type = r#type,
    tgid = tgid,
    id = id,
    process = process,
    first_line = first_line,
    first_traceable = first_traceable,
    table_bytes = table_bytes,
    table_copied = table_copied,
    name_text = name_text,
    file_text = file_text,
    name = name,
    file = file,
);
const _: () = assert!(
    FUNCTIONS.len() <= types::gp_number::GP_MAX_ROWS.0 as usize,
    "the function table has outgrown GP_MAX_ROWS"
);
const _: () =
    assert!(size_of::<types::gp_batch_large>() == size_of::<RawBatch>() + wire::BATCH_MAX);

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

fn raw_value(value: EntryValue) -> types::gp_value {
    types::gp_value {
        place: value.place as u8,
        index: value.index,
        bits: value.bits,
        access: value.access as u8,
        offset: value.offset,
    }
}

/// Number of flags in `enum gp_flag`.
const FLAG_COUNT: usize = 1 + types::gp_flag::GP_FLAG_END.0.ilog2() as usize;

fn flags(function: &Function) -> u16 {
    let op = function.op;
    let flags: [_; FLAG_COUNT] = [
        (types::gp_flag::GP_SIZE_AT_RETURN, function.size_at_return),
        (types::gp_flag::GP_DETAILED, function.is_detailed()),
        (types::gp_flag::GP_NAMED, function.named),
        (types::gp_flag::GP_OUT_BYTES, function.out_bytes),
        (types::gp_flag::GP_LEDGER_EVENT, op.is_ledger_event()),
        (
            types::gp_flag::GP_WITH_STACK,
            op.allocates()
                || op.is_of_framework()
                || matches!(op, Op::GraphAllocate | Op::GraphNode),
        ),
    ];
    let set = flags.iter().filter(|(_, is_set)| *is_set);
    set.fold(0, |all, (flag, _)| all | flag.0 as u16)
}

/// The row of the function table in the kernel side's form.
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
