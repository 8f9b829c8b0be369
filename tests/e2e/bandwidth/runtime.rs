//! Copies traced at the runtime, and the driver calls that the runtime makes for them.

use super::{CopyRow, check, each_copy, host_address};
use crate::harness::{Backend, Workload};

const RUNTIME: [&str; 2] = ["--api", "runtime"];

/// The workload's command, the function, the suffix of its variant if it has one, the direction,
/// and the mode.
const FUNCTIONS: &[(&str, &str, Option<&str>, &str, &str)] = &[
    ("h2d", "cudaMemcpy", Some("_ptds"), "H2D", "sync"),
    ("d2h", "cudaMemcpy", Some("_ptds"), "D2H", "sync"),
    ("d2d", "cudaMemcpy", Some("_ptds"), "D2D", "async"),
    ("h2h", "cudaMemcpy", Some("_ptds"), "H2H", "async"),
    ("h2d", "cudaMemcpyAsync", Some("_ptsz"), "H2D", "async"),
    ("d2h", "cudaMemcpyAsync", Some("_ptsz"), "D2H", "async"),
    ("d2d", "cudaMemcpyAsync", Some("_ptsz"), "D2D", "async"),
    ("h2h", "cudaMemcpyAsync", Some("_ptsz"), "H2H", "async"),
    ("peer", "cudaMemcpyPeer", None, "P2P", "async"),
    ("peer", "cudaMemcpyPeerAsync", None, "P2P", "async"),
    ("2d", "cudaMemcpy2D", Some("_ptds"), "H2D", "sync"),
    ("2d-d2h", "cudaMemcpy2D", Some("_ptds"), "D2H", "sync"),
    ("2d-d2d", "cudaMemcpy2D", Some("_ptds"), "D2D", "async"),
    ("2d", "cudaMemcpy2DAsync", Some("_ptsz"), "H2D", "async"),
    ("2d-d2h", "cudaMemcpy2DAsync", Some("_ptsz"), "D2H", "async"),
    ("2d-d2d", "cudaMemcpy2DAsync", Some("_ptsz"), "D2D", "async"),
    ("3d", "cudaMemcpy3D", Some("_ptds"), "H2D", "sync"),
    ("3d-d2h", "cudaMemcpy3D", Some("_ptds"), "D2H", "sync"),
    ("3d-d2d", "cudaMemcpy3D", Some("_ptds"), "D2D", "async"),
    ("3d", "cudaMemcpy3DAsync", Some("_ptsz"), "H2D", "async"),
    ("3d-d2h", "cudaMemcpy3DAsync", Some("_ptsz"), "D2H", "async"),
    ("3d-d2d", "cudaMemcpy3DAsync", Some("_ptsz"), "D2D", "async"),
    // Their kind describes memory, not arrays.
    ("h2a", "cudaMemcpyToArray", Some("_ptds"), "H2D", "sync"),
    ("d2a", "cudaMemcpyToArray", Some("_ptds"), "D2D", "async"),
    ("a2h", "cudaMemcpyFromArray", Some("_ptds"), "D2H", "sync"),
    ("a2d", "cudaMemcpyFromArray", Some("_ptds"), "D2D", "async"),
];

fn workload() -> Workload {
    let settings = [("STANDIN_DEVICES", "2"), ("STANDIN_COPY_GBPS", "0")];
    Workload::spawn(&mut Workload::command(Backend::Shared, &settings))
}

#[test]
fn root_every_copy_function_of_the_runtime_is_counted_once() {
    let mut workload = workload();
    let mut expected: Vec<CopyRow<'_>> = Vec::new();
    let (report, copies) = each_copy(&mut workload, &RUNTIME, |workload| {
        for (number, (kind, function, suffix, direction, mode)) in FUNCTIONS.iter().enumerate() {
            let bytes = 65_536 + 8 * (number as u64 + 1);
            for twin in [""].iter().chain(suffix) {
                workload.say(&format!("copy {kind} {bytes} 2 via={function}{twin}"));
                expected.extend([(*function, *direction, *mode, bytes); 2]);
            }
        }
    });
    check(&report, workload.pid, &copies, &expected);
}

#[test]
fn root_unified_addressing_in_the_runtime_has_directions() {
    let mut workload = workload();
    let host = host_address(workload.pid);
    let (report, copies) = each_copy(&mut workload, &RUNTIME, |workload| {
        let device = workload.say("alloc 1048576");
        for function in ["cudaMemcpy", "cudaMemcpyAsync"] {
            for (kind, to, from) in [
                ("default-h2d", device.as_str(), host.to_string().as_str()),
                ("default-d2h", host.to_string().as_str(), device.as_str()),
                ("default-d2d", device.as_str(), device.as_str()),
            ] {
                workload.say(&format!(
                    "copy {kind} 100000 via={function} dst={to} src={from}"
                ));
            }
        }
    });
    let expected = [
        ("cudaMemcpy", "H2D", "sync", 100_000),
        ("cudaMemcpy", "D2H", "sync", 100_000),
        ("cudaMemcpy", "D2D", "async", 100_000),
        ("cudaMemcpyAsync", "H2D", "async", 100_000),
        ("cudaMemcpyAsync", "D2H", "async", 100_000),
        ("cudaMemcpyAsync", "D2D", "async", 100_000),
    ];
    check(&report, workload.pid, &copies, &expected);
}

#[test]
fn root_sets_of_the_runtime_are_counted_once() {
    let mut workload = workload();
    let mut expected: Vec<CopyRow<'_>> = Vec::new();
    let (report, copies) = each_copy(&mut workload, &RUNTIME, |workload| {
        for (function, suffix) in [("cudaMemset", "_ptds"), ("cudaMemsetAsync", "_ptsz")] {
            for twin in ["", suffix] {
                let bytes = 4096 + expected.len() as u64;
                workload.say(&format!("set {bytes} 2 via={function}{twin}"));
                expected.extend([(function, "set", "async", bytes); 2]);
            }
        }
    });
    check(&report, workload.pid, &copies, &expected);
}

/// The driver calls made by runtime functions, including functions that are not traced at the
/// runtime layer.
#[test]
fn root_copies_of_the_runtime_are_counted_once_in_the_driver() {
    let mut workload = workload();
    let commands = [
        ("h2d", "cudaMemcpy", "cuMemcpyHtoD_v2", "H2D", "sync"),
        ("d2h", "cudaMemcpy_ptds", "cuMemcpyDtoH_v2", "D2H", "sync"),
        (
            "h2d",
            "cudaMemcpyAsync",
            "cuMemcpyHtoDAsync_v2",
            "H2D",
            "async",
        ),
        (
            "2d",
            "cudaMemcpy2D",
            "cuMemcpy2DUnaligned_v2",
            "H2D",
            "sync",
        ),
        (
            "2d-d2h",
            "cudaMemcpy2DAsync_ptsz",
            "cuMemcpy2DAsync_v2",
            "D2H",
            "async",
        ),
        ("3d", "cudaMemcpy3D", "cuMemcpy3D_v2", "H2D", "sync"),
        (
            "3d-d2h",
            "cudaMemcpy3DAsync",
            "cuMemcpy3DAsync_v2",
            "D2H",
            "async",
        ),
        ("h2a", "cudaMemcpyToArray", "cuMemcpyHtoA_v2", "H2A", "sync"),
        (
            "a2d",
            "cudaMemcpyFromArray",
            "cuMemcpyAtoD_v2",
            "A2D",
            "async",
        ),
        (
            "a2a",
            "cudaMemcpyArrayToArray",
            "cuMemcpyAtoA_v2",
            "A2A",
            "async",
        ),
        (
            "batch",
            "cudaMemcpyBatchAsync",
            "cuMemcpyBatchAsync",
            "unknown",
            "async",
        ),
        ("peer", "cudaMemcpyPeer", "cuMemcpyPeer", "P2P", "async"),
    ];
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        for (kind, function, ..) in commands {
            workload.say(&format!("copy {kind} 80000 3 via={function}"));
        }
    });
    let expected: Vec<_> = commands
        .into_iter()
        .flat_map(|(_, _, function, direction, mode)| [(function, direction, mode, 80_000); 3])
        .collect();
    check(&report, workload.pid, &copies, &expected);
}
