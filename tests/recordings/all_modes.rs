//! A recording of all modes, without root: its records are synthetic.

use std::path::Path;

use gpuprobe_cuda::Modes;
use gpuprobe_model::abi::record;
use gpuprobe_model::identity::Identity;
use gpuprobe_recording::log::LogNote;
use gpuprobe_wire as wire;
use zerocopy::{FromBytes, IntoBytes};

use crate::scene::{MIB, PID, PROCESS, batch, begin, call, copy, key, mark, task, usage};

/// A record with no field at its default: each number of four bytes is 1.
fn loud<T: FromBytes + IntoBytes>() -> T {
    let mut record = T::new_zeroed();
    let bytes = record.as_mut_bytes();
    bytes.iter_mut().step_by(4).for_each(|byte| *byte = 1);
    record
}

/// A record of each kind: names before their users.
fn gpu_records() -> Vec<wire::WireRecord> {
    use wire::WireRecord::*;
    let (start_ns, end_ns, time_ns) = (5_000, 5_400, 5_500);
    let (name, size_bytes) = (1, 4096);
    macro_rules! record {
        ($kind:ident, $($field:ident $(: $value:expr)?),+) => {
            $kind(wire::$kind { $($field $(: $value)?,)+ ..loud() })
        };
    }
    vec![
        CallbackName(wire::CallbackName { domain: 1, cbid: 1 }),
        record!(Device, memory_bytes: 1 << 37),
        record!(Context, context: 1),
        record!(Stream, stream: 7),
        record!(Api, start_ns, end_ns, domain: 1, cbid: 1),
        record!(Kernel, start_ns, end_ns, name, graph: 2, graph_node: 3),
        record!(Memcpy, start_ns, end_ns, size_bytes, copy_kind: 1),
        record!(Memset, start_ns, end_ns, size_bytes),
        record!(Memory, time_ns, size_bytes),
        record!(MemoryPool, time_ns, size_bytes),
        record!(Sync, start_ns, end_ns),
        record!(GraphTrace, start_ns, end_ns),
        record!(Overhead, start_ns, end_ns),
        record!(Name, object: wire::Object::default()),
        record!(Marker, time_ns, flags: wire::marker::INSTANTANEOUS),
        record!(ExternalCorrelation, external_id: 1),
    ]
}

/// A run of all modes, with events for each.
pub(crate) fn record(path: &Path) {
    let modes = Modes {
        memleak: true,
        cudatrace: true,
        bandwidth_util: true,
        activity: true,
    };
    let mut recorder = begin(path, modes);
    recorder.note(LogNote::Identity(PID, Identity::default()));
    for kind in [record::PROCESS, record::THREAD] {
        let mut task = task(kind, "python", 1_000);
        task.process = PROCESS;
        recorder.record(task.as_bytes());
    }
    recorder.record(call("cudaMalloc", 0x1000, 20 << 20, 2_000).as_bytes());
    recorder.record(call("cudaMallocHost", 0x7000, 1 << 20, 3_000).as_bytes());
    recorder.count(key("cuLaunchKernel", 0x5000), 3, 1);
    recorder.count(key("cuLaunchKernel", 0x6000), 2, 0);
    recorder.count(key("cuGraphLaunch", 0x9000), 2, 0);
    for (symbol, bytes) in [
        ("cuMemcpyHtoD_v2", 1 << 20),
        ("cuMemcpyDtoH_v2", 512),
        ("cuMemcpyHtoDAsync_v2", 64),
        ("cuMemsetD8_v2", 2048),
    ] {
        recorder.record(copy(symbol, bytes, (4_000, 4_500)).as_bytes());
    }
    recorder.record(&batch(PID, &["_Z3addPfS_i"], &gpu_records()));
    recorder.note(mark(32, false, false, usage(498 * MIB)));
    recorder.note(LogNote::Lost([("memory".to_owned(), 3)].into()));
    recorder.record(task(record::EXIT, "python", 8_000).as_bytes());
    recorder.note(mark(34, false, true, usage(498 * MIB)));
    recorder.finish();
}
