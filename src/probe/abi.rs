//! The layout of what crosses between kernel and user space, compared at compile time with what
//! clang laid out (`bpf/abi.h`), as the generated skeleton reports it; and rows of the function
//! table as the kernel side reads them.

use std::mem::{offset_of, size_of};

use gpuprobe_cuda::{FUNCTIONS, Function, Op, Value};
use gpuprobe_model::abi::*;
use gpuprobe_wire as wire;

use super::skeleton::types;

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
    FUNCTIONS.len() <= size_of::<types::rodata>() / size_of::<types::gp_recipe>(),
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
