//! Copies traced at the runtime, and the driver calls that the runtime makes for them.

use super::{CopyRow, check_rows, host_address};
use crate::harness::{Backend, Workload};

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

fn every_function(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    for (number, (kind, function, suffix, direction, mode)) in FUNCTIONS.iter().enumerate() {
        let bytes = 65_536 + 8 * (number as u64 + 1);
        for twin in [""].iter().chain(suffix) {
            workload.say(&format!("copy {kind} {bytes} 2 via={function}{twin}"));
            expected.extend([(*function, *direction, *mode, bytes); 2]);
        }
    }
    expected
}

fn unified_addressing(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid).to_string();
    let device = workload.say("alloc 1048576");
    let mut expected = Vec::new();
    for (function, mode) in [("cudaMemcpy", "sync"), ("cudaMemcpyAsync", "async")] {
        for (kind, to, from, direction, mode) in [
            ("default-h2d", &device, &host, "H2D", mode),
            ("default-d2h", &host, &device, "D2H", mode),
            ("default-d2d", &device, &device, "D2D", "async"),
        ] {
            workload.say(&format!(
                "copy {kind} 100000 via={function} dst={to} src={from}"
            ));
            expected.push((function, direction, mode, 100_000));
        }
    }
    expected
}

fn sets(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    let mut expected: Vec<CopyRow<'static>> = Vec::new();
    for (function, suffix) in [("cudaMemset", "_ptds"), ("cudaMemsetAsync", "_ptsz")] {
        for twin in ["", suffix] {
            let bytes = 4096 + expected.len() as u64;
            workload.say(&format!("set {bytes} 2 via={function}{twin}"));
            expected.extend([(function, "set", "async", bytes); 2]);
        }
    }
    expected
}

/// Calls that fail in the runtime, and in the driver below it.
fn failures(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    for function in ["cudaMemcpy", "cuMemcpyHtoD_v2"] {
        workload.say(&format!("fail {function} 2 700"));
        workload.say("copy h2d 1048576 3");
    }
    vec![("cudaMemcpy", "H2D", "sync", 1 << 20); 2]
}

#[test]
fn root_every_copy_function_of_the_runtime_is_counted_once() {
    let rows: [(&str, super::Run); 4] = [
        ("freenull", every_function),
        ("freenull", unified_addressing),
        ("freenull", sets),
        ("freenull", failures),
    ];
    let (report, _) = check_rows(Backend::Shared, &["--api", "runtime"], &rows);
    assert_eq!(report["bandwidth_util"]["failed_calls"], 4);
}

/// The driver calls made by runtime functions, including functions that are not traced at the
/// runtime layer.
fn driver_calls(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
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
    let mut expected = Vec::new();
    for (kind, runtime, function, direction, mode) in commands {
        workload.say(&format!("copy {kind} 80000 3 via={runtime}"));
        expected.extend([(function, direction, mode, 80_000); 3]);
    }
    expected
}

#[test]
fn root_copies_of_the_runtime_are_counted_once_in_the_driver() {
    check_rows(Backend::Shared, &[], &[("freenull", driver_calls)]);
}
