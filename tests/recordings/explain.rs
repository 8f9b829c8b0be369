//! Programs that run for a minute: growth is named by `gpuprobe explain`, and nothing else is.

use std::path::Path;

use gpuprobe_model::abi::{RawCall, RawTensor, record};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::LogNote;
use zerocopy::IntoBytes;

use crate::scene::SceneFrame::{Line, Native};
use crate::scene::{
    MEMORY, MIB, PID, SECOND, USAGE, begin, call, frames, identity, introduce, stack, task, tensor,
};

const KIB: u64 = 1 << 10;
/// A tick in which each place of a program may allocate.
const TICK: u64 = SECOND / 100;
/// The recordings are this long.
const TICKS: u64 = 6_700;

/// A recording that is being made, and the next address.
struct Program {
    recorder: Player,
    next: u64,
}

impl Program {
    fn record(path: &Path, tick: impl Fn(&mut Self, u64, u64)) {
        let mut recorder = begin(path, MEMORY);
        let who = identity("ada", "/usr/bin/python3 /home/ada/train.py", 0);
        introduce(&mut recorder, PID, "python3", who);
        let mut program = Self { recorder, next: 0 };
        for number in 0..TICKS {
            tick(&mut program, number, SECOND + number * TICK);
        }
        let end = task(record::EXIT, "python3", SECOND + TICKS * TICK);
        program.recorder.record(end.as_bytes());
        program.recorder.finish();
    }

    /// Allocates at the call site `stack`.
    fn allocate(&mut self, symbol: &str, stack: u64, bytes: u64, now_ns: u64) -> u64 {
        self.next += 1;
        let address = self.next << 32;
        self.call(symbol, address, bytes, stack, now_ns);
        address
    }

    fn call(&mut self, symbol: &str, address: u64, bytes: u64, stack: u64, now_ns: u64) {
        let call = RawCall {
            stack,
            device: 0,
            ..call(symbol, address, bytes, now_ns)
        };
        self.recorder.record(call.as_bytes());
    }
}

/// A leak of five blocks a second, one of a hundred blocks that are freed at once, memory that is freed every four
/// seconds, and workspaces.
fn memory(program: &mut Program, tick: u64, now_ns: u64) {
    if tick.is_multiple_of(20) {
        program.allocate("cudaMalloc", 1, 64 * KIB, now_ns);
    }
    let passing = program.allocate("cudaMalloc", 2, 8 * KIB, now_ns + 1_000);
    if !tick.is_multiple_of(100) {
        program.call("cudaFree", passing, 0, 0, now_ns + 2_000);
    }
    let of_batch = |number: u64| (1 << 60) + (number << 32);
    if tick.is_multiple_of(10) {
        let address = of_batch(tick % 400);
        program.call("cudaMalloc", address, 256 * KIB, 4, now_ns + 3_000);
    }
    if tick % 400 == 399 {
        for number in (0..400).step_by(10) {
            program.call("cudaFree", of_batch(number), 0, 0, now_ns + 4_000 + number);
        }
    }
    if tick < 4 {
        program.allocate("cudaMalloc", 5, 2 * MIB, now_ns + 5_000);
    }
}

/// Thirteen handles each 1.5 s; eleven of them are released.
fn handles(program: &mut Program, tick: u64, now_ns: u64) {
    if tick.is_multiple_of(150) {
        for number in 0..13 {
            let at_ns = now_ns + number * 1_000;
            let handle = program.allocate("cuMemCreate", 1, 2 * MIB, at_ns);
            if number >= 2 {
                program.call("cuMemRelease", handle, 0, 0, at_ns + 20_000);
            }
        }
    }
}

/// A stream each 0.4 s for 40 s, none of which is destroyed: NVML has 3 MiB more with each. Each has an event, which is.
fn streams(program: &mut Program, tick: u64, now_ns: u64) {
    if tick < 4000 && tick.is_multiple_of(40) {
        program.allocate("cuStreamCreate", 1, 0, now_ns);
        let event = program.allocate("cuEventCreate", 2, 0, now_ns + 1_000);
        program.call("cuEventDestroy_v2", event, 0, 0, now_ns + 2_000);
    }
    if tick.is_multiple_of(100) {
        let used = 500 * MIB + tick.min(4000) / 40 * 3 * MIB;
        let note = LogNote::ProcessesUsed(now_ns, vec![(PID, used)]);
        program.recorder.note(note);
    }
}

pub(crate) fn record_streams(path: &Path) {
    Program::record(path, streams);
}

const SEGMENT: u64 = 0x7f00_0000_0000;

/// An event of a block at the call site `stack`.
fn block(offset: u64, bytes: i64, stack: u64, time_ns: u64, sums: (u64, u64)) -> RawTensor {
    RawTensor {
        allocated: sums.0,
        held: sums.1,
        stack,
        ..tensor(USAGE, SEGMENT + offset, bytes, time_ns)
    }
}

/// A tensor each 250 ms that stays, and one that is freed, in segments of 20 MiB.
fn tensors(program: &mut Program, tick: u64, now_ns: u64) {
    if !tick.is_multiple_of(25) {
        return;
    }
    let number = tick / 25;
    if number.is_multiple_of(20) {
        let segment = SEGMENT + number * MIB;
        program.call("cudaMalloc", segment, 20 * MIB, 2, now_ns);
    }
    let passing = 1_u64 << 40;
    let sums = ((number + 1) * MIB, (number / 20 + 1) * 20 * MIB);
    for tensor in [
        block(number * MIB, 1 << 20, 1, now_ns + 1_000, sums),
        block(passing, 1 << 20, 4, now_ns + 2_000, sums),
        block(passing, -(1 << 20), 0, now_ns + 3_000, sums),
    ] {
        program.recorder.record(tensor.as_bytes());
    }
}

/// A large tensor is freed, and a small one keeps its segment; and blocks of PyTorch's cache of pinned memory, which
/// rounds up, or, at another line, does not.
fn pinned(program: &mut Program, tick: u64, now_ns: u64) {
    if tick > 0 {
        return;
    }
    program.call("cudaMalloc", SEGMENT, 64 * MIB, 2, now_ns);
    for tensor in [
        block(0, 62 << 20, 1, now_ns + 1_000, (62 * MIB, 64 * MIB)),
        block(0, -(62 << 20), 0, now_ns + 2_000, (0, 64 * MIB)),
        block(0, 1 << 20, 4, now_ns + 3_000, (MIB, 64 * MIB)),
    ] {
        program.recorder.record(tensor.as_bytes());
    }
    for (id, line, bytes) in [(6, 20, 8 * MIB), (7, 21, 5 * MIB)] {
        let all = [
            Native("at::CachingHostAllocatorImpl::allocate", "libtorch_cuda.so"),
            Line("pin", "/home/ada/train.py", line, ""),
        ];
        stack(&mut program.recorder, (PID, id), &all, true);
        frames(&mut program.recorder, (PID, id), &all);
        for bytes in [128 * MIB, bytes, 4 * MIB] {
            program.allocate("cudaHostAlloc", id, bytes, now_ns + 4_000);
        }
    }
}

pub(crate) fn record_leaks(path: &Path) {
    Program::record(path, memory);
}

pub(crate) fn record_handles(path: &Path) {
    Program::record(path, handles);
}

pub(crate) fn record_growing_tensors(path: &Path) {
    Program::record(path, tensors);
}

pub(crate) fn record_pinned(path: &Path) {
    Program::record(path, pinned);
}
