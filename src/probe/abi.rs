//! Layouts and constants shared with the kernel side, checked at compile time against those in
//! `bpf/abi.h`, which the generated skeleton has from clang; and rows of the function table in the
//! kernel side's form.

mod numbers;
mod recipes;

pub(super) use recipes::recipe;
use std::mem::{offset_of, size_of};

use gpuprobe_cuda::FUNCTIONS;
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
const _: () = assert!(size_of::<RawImage>() == size_of::<types::gp_image>());
assert_same_layout!(
    RawNotice,
    types::gp_notice,
    record_type = r#type,
    held = held,
    tgid = tgid,
    image = image,
);
assert_same_layout!(RawLossKey, types::gp_loss_key, tgid = tgid, what = what);
assert_same_layout!(
    RawLoss,
    types::gp_loss,
    count = count,
    comm = comm,
    uid = uid,
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
    captured = captured,
    reserved = reserved,
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
