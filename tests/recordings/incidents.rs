//! Recordings with out-of-memory incidents: a report and a replay have the same text and JSON.

use std::path::Path;

use gpuprobe_model::abi::{RawCall, RawTensor, record};
use gpuprobe_model::{GpuHolder, GpuMemory, GpuUse, Untraced};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::LogNote;
use zerocopy::IntoBytes;

use crate::scene::{
    MEMORY, MIB, PID, SECOND, begin, call, identity, introduce, mark, task, tensor, usage,
};

const GAVE_UP: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
const OTHER: u32 = 311;

/// A call of the process at the call site `stack`.
fn called(bytes: u64, stack: u64, now_ns: u64, result: i32) -> RawCall {
    let mut call = call("cudaMalloc", 0x7f00_0000_0000 + now_ns * MIB, bytes, now_ns);
    (call.stack, call.device, call.result) = (stack, 0, result);
    call
}

/// PyTorch gives up on a request of this many bytes.
fn gave_up(bytes: i64, now_ns: u64) -> RawTensor {
    RawTensor {
        allocated: 500 * MIB,
        held: 532 * MIB,
        stack: 1,
        ..tensor(GAVE_UP, 0, bytes, now_ns)
    }
}

/// NVML sample: the process, and one that is not traced.
fn gpu() -> GpuUse {
    let holder = |pid, bytes, command| GpuHolder {
        pid,
        bytes,
        who: Some(Untraced {
            uid: 1000,
            comm: "python3".into(),
            identity: identity("eve", command, 2),
        }),
    };
    GpuUse {
        gpu: Some(GpuMemory {
            index: 2,
            uuid: "GPU-2".into(),
            name: "NVIDIA H200".into(),
            total_bytes: Some(1500 * MIB),
            used_bytes: Some(1400 * MIB),
            busy_percent: None,
        }),
        holders: vec![
            holder(PID, 900 * MIB, "/usr/bin/python3 /home/ada/train.py"),
            holder(OTHER, 500 * MIB, "/usr/bin/python3 /srv/serve.py --port 80"),
        ],
    }
}

fn recorder(path: &Path) -> Player {
    let mut recorder = begin(path, MEMORY);
    let who = identity("ada", "/usr/bin/python3 /home/ada/train.py --epochs 3", 2);
    introduce(&mut recorder, PID, "python3", who);
    recorder
}

/// PyTorch holds memory of two lines, is refused more, frees too little, gives up, and the program
/// exits.
pub(crate) fn record(path: &Path) {
    let mut recorder = recorder(path);
    let at = |ms: u64| SECOND + ms * 1_000_000;
    for (bytes, stack, ms) in [(500 * MIB, 1, 1), (32 * MIB, 2, 2)] {
        recorder.record(called(bytes, stack, at(ms), 0).as_bytes());
    }
    recorder.record(called(200 * MIB, 1, at(10), 2).as_bytes());
    recorder.note(LogNote::Incident(1, gpu()));
    recorder.record(called(200 * MIB, 1, at(20), 2).as_bytes());
    recorder.record(gave_up(199 << 20, at(21)).as_bytes());
    recorder.note(mark(32, false, false, usage(532 * MIB)));
    recorder.record(task(record::EXIT, "python3", at(310)).as_bytes());
    recorder.note(mark(34, false, true, usage(0)));
    recorder.finish();
}

/// An error other than out of memory is no incident.
pub(crate) fn record_without(path: &Path) {
    let mut recorder = recorder(path);
    recorder.record(called(MIB, 1, SECOND, 1).as_bytes());
    recorder.record(called(MIB, 1, 2 * SECOND, 0).as_bytes());
    recorder.note(mark(34, false, true, usage(0)));
    recorder.finish();
}
