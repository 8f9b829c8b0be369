//! More than a report has room for: allocations, processes that ended long ago, and ranges beyond `--top`.

use std::path::Path;

use gpuprobe_cuda::Modes;
use gpuprobe_model::abi::{RawTask, record};
use gpuprobe_model::{GpuUsage, Untraced};
use gpuprobe_wire as wire;
use wire::WireRecord;
use zerocopy::IntoBytes;

use crate::scene::{self, MIB, PID, SECOND, allocate, batch, call, task};

/// Ended processes with GPU activity that a report lists.
const LISTED: u32 = 1024;

const ACTIVITY: Modes = Modes {
    activity: true,
    memleak: false,
    ..scene::MEMORY
};

/// Allocations of the runtime and of the driver, more than a report lists, and two failures.
pub(crate) fn record_allocations(path: &Path) {
    let mut recorder = scene::begin(path, scene::MEMORY);
    let who = scene::identity("ada", "python3 train.py", 0);
    scene::know(&mut recorder, PID, "python3", who);
    for number in 0..422 {
        let at_ns = SECOND + number * 1000;
        allocate(&mut recorder, PID, "cudaMalloc", 0, MIB, at_ns);
    }
    for number in 0..3 {
        let at_ns = 2 * SECOND + number * 1000;
        allocate(&mut recorder, PID, "cuMemAlloc_v2", 0, 512 << number, at_ns);
    }
    for number in 0..2 {
        let mut failed = call("cudaMalloc", 0, 64, 3 * SECOND + number);
        failed.result = 1;
        recorder.record(failed.as_bytes());
    }
    recorder.note(scene::mark(34, false, true, scene::usage(0)));
    recorder.finish();
}

/// A run without an event, beside a process that has memory from before.
pub(crate) fn record_bystander(path: &Path) {
    let mut recorder = scene::begin(path, scene::MEMORY);
    recorder.note(scene::mark(32, false, false, GpuUsage::default()));
    let who = Untraced {
        uid: 1001,
        comm: "vllm".to_owned(),
        identity: scene::identity("bob", "vllm serve", 0),
    };
    let before = GpuUsage {
        processes: [(24_142, vec![(0, 2099 * MIB)])].into(),
        untraced: [(24_142, who)].into(),
        ..GpuUsage::default()
    };
    recorder.note(scene::mark(34, false, true, before));
    recorder.finish();
}

/// More processes with GPU activity than a report lists.
pub(crate) fn record_processes(path: &Path) {
    let mut recorder = scene::begin(path, ACTIVITY);
    for pid in 1..=LISTED + 3 {
        let of_pid = |kind, time_ns| RawTask {
            tgid: pid,
            tid: pid,
            process: pid << 10,
            ..task(kind, "short", time_ns)
        };
        recorder.record(of_pid(record::PROCESS, 1_000).as_bytes());
        let kernel = wire::Kernel {
            start_ns: SECOND,
            end_ns: SECOND + 10,
            name: 1,
            ..wire::Kernel::default()
        };
        recorder.record(&batch(pid, &["k"], &[WireRecord::Kernel(kernel)]));
        recorder.record(of_pid(record::EXIT, 2 * SECOND).as_bytes());
    }
    recorder.note(scene::mark(34, true, true, GpuUsage::default()));
    recorder.finish();
}

/// Ranges of four names, of which two do not end.
pub(crate) fn record_ranges(path: &Path) {
    use wire::marker::{END, START};
    let mut recorder = scene::begin(path, ACTIVITY);
    scene::know(&mut recorder, PID, "python3", Default::default());
    let object = wire::Object {
        kind: 2,
        a: PID,
        b: PID,
        c: 0,
    };
    let mark = |time: u64, flags, id| {
        WireRecord::Marker(wire::Marker {
            time_ns: SECOND + time,
            flags,
            id,
            name: if flags == START { id } else { 0 },
            // The first one's.
            domain: if id == 1 { 5 } else { 0 },
            object,
        })
    };
    let marks = [
        mark(100, START, 1),
        mark(200, START, 2),
        mark(300, END, 2),
        mark(400, END, 1),
        mark(500, START, 3),
        mark(600, START, 4),
    ];
    let names = ["outer", "inner", "open", "open too", "solver"];
    recorder.record(&batch(PID, &names, &marks));
    recorder.note(scene::mark(34, false, true, GpuUsage::default()));
    recorder.finish();
}
