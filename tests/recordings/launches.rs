//! Single launches, from BPF records to table rows.

use std::path::Path;

use gpuprobe_cuda::Modes;
use gpuprobe_model::abi::record;
use gpuprobe_recording::Player;
use zerocopy::IntoBytes;

use crate::scene::{PID, PROCESS, begin, call, kernel_name, key, launch, task};

/// Starts a recording of a process and its single launches.
pub(crate) fn begin_launches(path: &Path) -> Player {
    let modes = Modes {
        memleak: true,
        cudatrace: true,
        ..Modes::default()
    };
    let mut recorder = begin(path, modes);
    let mut task = task(record::PROCESS, "x", 1_000);
    task.process = PROCESS;
    recorder.record(task.as_bytes());
    recorder
}

/// Launches of two kernels: one is named late, and one never.
pub(crate) fn record(path: &Path) {
    let mut recorder = begin_launches(path);
    recorder.record(call("cudaMalloc", 1 << 20, 1 << 20, 50).as_bytes());
    let [a, b] = [0x5000, 0x6000].map(|handle| key("cuLaunchKernel", handle));
    // Another thread's launch of the same kernel, which returned first.
    recorder.record(launch(a, 100).as_bytes());
    recorder.record(&kernel_name(a, false, "_Z1av"));
    recorder.record(launch(a, 200).as_bytes());
    let mut failed = launch(b, 300);
    (failed.result, failed.captured) = (700, 1);
    recorder.record(failed.as_bytes());
    // Other records are not taken for launches.
    recorder.record(launch(key("cudaMalloc", 1), 400).as_bytes());
    recorder.record(&launch(a, 500).as_bytes()[..40]);
    recorder.count(a, 2, 0);
    recorder.count(b, 1, 0);
    recorder.finish();
}

/// One name that is found through a handle differs from the given one: none is trusted any more.
pub(crate) fn record_contradicted(path: &Path) {
    let mut recorder = begin_launches(path);
    let [a, b] = [0x5000, 0x7000].map(|handle| key("cuLaunchKernel", handle));
    recorder.record(&kernel_name(a, false, "_Z1av"));
    recorder.record(launch(a, 100).as_bytes());
    let asked = key("cuModuleGetFunction", 0x7000);
    recorder.record(&kernel_name(asked, true, "_Z1cv"));
    recorder.record(&kernel_name(asked, false, "_Z1dv"));
    recorder.record(launch(b, 200).as_bytes());
    recorder.finish();
}

/// Launches of a graph that are events of the ledger, too: each is one call.
pub(crate) fn record_graphs(path: &Path) {
    let mut recorder = begin_launches(path);
    let graph = key("cuGraphLaunch", 0x9000);
    let mut call = call("cuGraphLaunch", graph.handle, 0, 0);
    call.tid = PID + 1;
    for start_ns in [100, 200, 300] {
        (call.start_ns, call.end_ns) = (start_ns, start_ns + 11);
        recorder.record(call.as_bytes());
    }
    // One of these was lost, and one is by a thread without an event in the ledger.
    recorder.record(launch(graph, 100).as_bytes());
    recorder.record(launch(graph, 300).as_bytes());
    let mut other = launch(graph, 200);
    other.tid = PID + 2;
    recorder.record(other.as_bytes());
    recorder.finish();
}
