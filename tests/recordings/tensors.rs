//! Recordings with tensors: block events of PyTorch's allocator.

use std::path::Path;

use gpuprobe_model::abi::{RawRequest, record};
use gpuprobe_recording::Player;
use zerocopy::IntoBytes;

use crate::scene::{MEMORY, MIB, PID, SECOND, begin_training, call, mark, tensor, usage};

/// A model of PyTorch's allocator: allocated and reserved bytes, and segments.
struct Torch {
    recorder: Player,
    allocated: u64,
    held: u64,
    now_ns: u64,
}

const SEGMENTS: u64 = 0x7f00_0000_0000;
pub(crate) const USAGE: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

impl Torch {
    fn begin(path: &Path) -> Self {
        Self {
            recorder: begin_training(path, MEMORY),
            allocated: 0,
            held: 0,
            now_ns: SECOND,
        }
    }

    /// A segment `offset` bytes behind the first, at the call site `stack`.
    fn segment(&mut self, offset: u64, bytes: u64, stack: u64) {
        self.now_ns += 1_000_000;
        let mut call = call("cudaMalloc", SEGMENTS + offset, bytes, self.now_ns);
        (call.tgid, call.tid, call.stack, call.device) = (PID, PID, stack, 0);
        self.recorder.record(call.as_bytes());
        self.held += bytes;
    }

    fn tensor(&mut self, offset: u64, bytes: i64, stack: u64) {
        self.now_ns += 1_000_000;
        self.allocated = self.allocated.saturating_add_signed(bytes);
        let mut tensor = tensor(USAGE, SEGMENTS + offset, bytes, self.now_ns);
        (tensor.allocated, tensor.held, tensor.stack) = (self.allocated, self.held, stack);
        self.recorder.record(tensor.as_bytes());
    }

    fn request(&mut self, offset: u64, bytes: u64) {
        let request = RawRequest {
            record_type: record::REQUEST,
            reserved: 0,
            tgid: PID,
            address: SEGMENTS + offset,
            bytes,
            stream: 0,
        };
        self.recorder.record(request.as_bytes());
    }
}

/// Three segments: one nearly full, one pinned by a small tensor, and one cached. `kept` tensors of
/// 16 MiB leak.
pub(crate) fn record(path: &Path, kept: u64) {
    let mut torch = Torch::begin(path);
    let signed = |bytes: u64| bytes.cast_signed();
    torch.segment(0, 512 * MIB, 1);
    for number in 0..kept {
        torch.tensor(number * 16 * MIB, signed(16 * MIB), 1);
        torch.request(number * 16 * MIB, 16 * MIB - 100);
    }
    torch.segment(1024 * MIB, 20 * MIB, 2);
    torch.tensor(1024 * MIB, signed(12 * MIB), 2);
    torch.tensor(1036 * MIB, signed(MIB / 2), 6);
    torch.request(1036 * MIB, MIB / 2);
    torch.tensor(1024 * MIB, -signed(12 * MIB), 0);
    torch.segment(2048 * MIB, 64 * MIB, 5);
    torch.tensor(2048 * MIB, signed(64 * MIB), 5);
    torch.tensor(2048 * MIB, -signed(64 * MIB), 0);
    torch
        .recorder
        .note(mark(32, false, false, usage(596 * MIB)));
    torch.recorder.note(mark(34, false, true, usage(596 * MIB)));
    torch.recorder.finish();
}
