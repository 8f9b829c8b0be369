//! Rows of the function table in the kernel side's form.

use super::skeleton::types;
use gpuprobe_cuda::{EntryValue, FUNCTIONS, Flag, Function, HandleKind, Op, cookie as flags};

fn raw_value(value: EntryValue) -> types::gp_value {
    types::gp_value {
        place: value.place as u8,
        index: value.index,
        bits: value.bits,
        access: value.access as u8,
        offset: value.offset,
    }
}

fn has(function: &Function, flag: Flag) -> bool {
    let op = function.op;
    match flag {
        Flag::SizeAtReturn => function.size_at_return,
        Flag::Detailed => function.is_detailed(),
        Flag::Named => function.named,
        Flag::OutBytes => function.out_bytes,
        Flag::LedgerEvent => op.is_ledger_event(),
        Flag::InProgress => function.handle == Some(HandleKind::Communicator),
        Flag::WithStack => {
            op.allocates()
                || op.is_of_framework()
                || op.makes_object()
                || matches!(op, Op::GraphAllocate | Op::GraphNode | Op::Symbol)
        }
    }
}

/// What the BPF programs know of a function.
pub(super) fn recipe(function: &Function) -> types::gp_recipe {
    let flags = Flag::ALL.into_iter().filter(|&flag| has(function, flag));
    types::gp_recipe {
        op: function.op as u16,
        shape: function.shape as u8,
        scale: function.scale,
        layer: function.layer as u16,
        flags: flags.fold(0, |all, flag| all | flag as u16),
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

/// The attach cookie of a function.
pub(super) fn cookie(row: usize) -> u64 {
    let function = &FUNCTIONS[row];
    let has_device = function.device.is_there();
    let is_block = function.op == Op::Tensor && !has_device && !function.stream.is_there();
    let request = flags::BLOCK | flags::REQUEST;
    let flags = [
        (function.address.index == 1, flags::SECOND),
        (function.op == Op::OutOfMemory, flags::OUT_OF_MEMORY),
        (has_device, flags::WITH_DEVICE),
        (is_block, flags::BLOCK),
        (function.op == Op::BlockRequest, request),
        (function.address == EntryValue::RESULT, flags::RESULT),
    ];
    let flags = flags.into_iter().filter(|(has, _)| *has);
    flags.fold(row as u64, |all, (_, flag)| all | flag)
}
