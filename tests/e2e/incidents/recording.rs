//! Incidents in recordings: a replay and a report say the same as the live run. `tests/recordings` has their
//! tables and text.

use serde_json::Value;

use super::{MIB, incidents, short};
use crate::harness::gpuprobe::output_of;
use crate::harness::{Backend, Nvml, Setup, Workload};
use crate::recording::Recording;

#[test]
fn root_recorded_incidents_match_the_live_ones() {
    let recording = Recording::new();
    let text = &*recording.text();
    let nvml = Nvml::with_gpus(1);
    let mut program = Workload::start(Backend::Shared);
    let other = Workload::start(Backend::Shared);
    nvml.says(&[(0, program.pid, 30 * MIB), (0, other.pid, 50 * MIB)]);
    let setup = nvml.given_to(Setup::pid(program.pid));
    let mut gpuprobe = setup.args(["--record", text]).start();
    program.play(
        "alloc 1048576 3; fail cudaMalloc 2 2; alloc 4096; alloc 4096; alloc 4096; \
         fail cudaMallocAsync 1 2; async 8192; fail cudaMallocPitch 1 2; pitched 100 10",
    );
    program.done();
    let report = gpuprobe.final_report();
    let expected = [
        ("cudaMalloc", 4096, 2, "retried"),
        ("cudaMallocAsync", 8192, 1, "continued"),
        ("cudaMallocPitch", 1000, 1, "ended"),
    ];
    assert_eq!(short(incidents(&report)), expected);
    let used = incidents(&report)
        .iter()
        .map(|one| &one["gpu"]["used_bytes"]);
    assert!(used.into_iter().all(|used| *used == 80 * MIB));
    for arguments in [
        &["report", text, "--format", "json"][..],
        &["replay", text, "--last", "--format", "json"],
    ] {
        let found: Value = serde_json::from_str(&output_of(arguments)).unwrap();
        assert_eq!(found["incidents"], report["incidents"], "{arguments:?}");
        assert_eq!(found["out_of_memory"], report["out_of_memory"]);
    }
}
