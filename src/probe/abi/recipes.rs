//! Recipes of the BPF programs for probed functions.

use super::super::skeleton::types;
use gpuprobe_cuda::{EntryValue, Function, Op};

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

pub(super) fn flags(function: &Function) -> u16 {
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
pub(in crate::probe) fn recipe(function: &Function) -> types::gp_recipe {
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
