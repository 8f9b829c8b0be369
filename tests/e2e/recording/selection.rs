//! Recordings of selected processes and kinds of memory.

use std::process::Command;

use serde_json::json as value;

use super::{Recording, analysed, count, json, recorded};
use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::{Backend, Setup, standin};

/// Two processes of one command with different names.
const SCRIPT: &str = "printf 'alloc 4096 5\\nfree 0 2\\nlaunch 0 10\\nexit\\n' | \"$0\" & \
    printf 'alloc 64 1\\nlaunch 0 7\\nexit\\n' | \"$1\"; wait";

fn record(recording: &Recording, options: &[&str], status: i32) {
    let programs = [Backend::Shared, Backend::Static].map(|b| standin().program_text(b));
    let output = Command::new(BINARY)
        .args(["record", "-o", &recording.text()])
        .args(options)
        .args(["--", "sh", "-c", SCRIPT])
        .args(programs)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
}

/// Each filter has its row in `filters`.
#[test]
fn root_recording_has_the_selected_processes_only() {
    let name = Backend::Shared.program();
    for (options, allocations, launches) in [(["--comm", name], 3, 10), (["--uid", "4242"], 0, 0)] {
        let recording = Recording::new();
        let all = [&options[..], &["--memleak", "--cudatrace"]].concat();
        record(&recording, &all, if allocations > 0 { 0 } else { NOTHING });
        let live = "(SELECT address, globalPid FROM CUDA_GPU_MEMORY_USAGE_EVENTS \
            GROUP BY 1, 2 HAVING sum(1 - 2 * memoryOperationType) = 1)";
        let has_memory = "sqlite_master WHERE name = 'CUDA_GPU_MEMORY_USAGE_EVENTS'";
        assert_eq!(count(&recording.file, has_memory) > 0, allocations > 0);
        if allocations > 0 {
            assert_eq!(count(&recording.file, live), allocations, "{options:?}");
        }
        let found = count(&recording.file, "GPUPROBE_LAUNCHES");
        assert_eq!(found, launches, "{options:?}");
        let processes = i64::from(allocations > 0);
        let callers = "(SELECT DISTINCT globalTid >> 24 FROM CUPTI_ACTIVITY_KIND_RUNTIME)";
        assert_eq!(count(&recording.file, callers), processes, "{options:?}");
    }
}

#[test]
fn root_recording_has_the_selected_kinds_only() {
    let setup = Setup::workload(Backend::Shared).args(["--kind", "managed,async"]);
    let script = "alloc 1048576 3; managed 8192; async 1000 2; afree 0";
    let (recording, last, _) = recorded(setup, script);
    let memleak = &last["memleak"];
    let live = value!({"bytes": memleak["live_bytes"], "allocations": memleak["live_allocations"]});
    assert_eq!(live["allocations"], 2, "{memleak}");
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(leaked["totals"]["total"], live);
    let peak = analysed(&recording.file, "watermark");
    assert_eq!(peak["totals"]["total"]["bytes"], memleak["peak_bytes"]);
    let replayed = json(&["replay", &recording.text(), "--last"]);
    assert_eq!(replayed["memleak"], *memleak);
}
