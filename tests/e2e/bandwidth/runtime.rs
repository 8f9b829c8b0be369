//! Copies traced at the runtime, and the driver calls that the runtime makes for them.

use super::{CopyRow, Function, call_each, check_rows, host_address, variants};
use crate::harness::{Backend, Workload};

const FUNCTIONS: &[Function] = &[
    ("h2d", "cudaMemcpy", "H2D", "sync"),
    ("d2h", "cudaMemcpy", "D2H", "sync"),
    ("d2d", "cudaMemcpy", "D2D", "async"),
    ("h2h", "cudaMemcpy", "H2H", "async"),
    ("h2d", "cudaMemcpyAsync", "H2D", "async"),
    ("d2h", "cudaMemcpyAsync", "D2H", "async"),
    ("d2d", "cudaMemcpyAsync", "D2D", "async"),
    ("h2h", "cudaMemcpyAsync", "H2H", "async"),
    ("peer", "cudaMemcpyPeer", "P2P", "async"),
    ("peer", "cudaMemcpyPeerAsync", "P2P", "async"),
    ("2d", "cudaMemcpy2D", "H2D", "sync"),
    ("2d-d2h", "cudaMemcpy2D", "D2H", "sync"),
    ("2d-d2d", "cudaMemcpy2D", "D2D", "async"),
    ("2d", "cudaMemcpy2DAsync", "H2D", "async"),
    ("2d-d2h", "cudaMemcpy2DAsync", "D2H", "async"),
    ("2d-d2d", "cudaMemcpy2DAsync", "D2D", "async"),
    ("3d", "cudaMemcpy3D", "H2D", "sync"),
    ("3d-d2h", "cudaMemcpy3D", "D2H", "sync"),
    ("3d-d2d", "cudaMemcpy3D", "D2D", "async"),
    ("3d", "cudaMemcpy3DAsync", "H2D", "async"),
    ("3d-d2h", "cudaMemcpy3DAsync", "D2H", "async"),
    ("3d-d2d", "cudaMemcpy3DAsync", "D2D", "async"),
    // Their kind describes memory, not arrays.
    ("h2a", "cudaMemcpyToArray", "H2D", "sync"),
    ("d2a", "cudaMemcpyToArray", "D2D", "async"),
    ("a2h", "cudaMemcpyFromArray", "D2H", "sync"),
    ("a2d", "cudaMemcpyFromArray", "D2D", "async"),
];

fn every_function(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    call_each(workload, FUNCTIONS)
}

fn unified_addressing(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid).to_string();
    let device = workload.say("alloc 1048576");
    let mut expected = Vec::new();
    for (function, mode) in [
        ("cudaMemcpy", "sync"),
        ("cudaMemcpyAsync", "async"),
        ("cudaMemcpyWithAttributesAsync", "async"),
    ] {
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
    for (kind, function, direction) in [
        ("batch-3d", "cudaMemcpy3DWithAttributesAsync", "H2D"),
        ("prefetch", "cudaMemPrefetchBatchAsync", "prefetch to D"),
        (
            "prefetch-host",
            "cudaMemDiscardAndPrefetchBatchAsync",
            "prefetch to H",
        ),
    ] {
        for variant in variants(function) {
            workload.say(&format!(
                "copy {kind} 90000 via={variant} parts=1 dst={device} src={host}"
            ));
            expected.push((function, direction, "async", 90_000));
        }
    }
    expected
}

fn sets(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let mut expected: Vec<CopyRow<'static>> = Vec::new();
    for function in ["cudaMemset", "cudaMemsetAsync"] {
        for variant in variants(function) {
            let bytes = 4096 + expected.len() as u64;
            workload.say(&format!("set {bytes} 2 via={variant}"));
            expected.extend([(function, "set", "async", bytes); 2]);
        }
    }
    expected
}

/// Calls that fail in the runtime, and in the driver below it.
fn failures(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    for function in ["cudaMemcpy", "cuMemcpyHtoD_v2"] {
        workload.say(&format!("fail {function} 2 700"));
        workload.say("copy h2d 1048576 3");
    }
    vec![("cudaMemcpy", "H2D", "sync", 1 << 20); 2]
}

#[test]
fn root_every_copy_function_of_the_runtime_is_counted_once() {
    let rows: [super::Run; 4] = [every_function, unified_addressing, sets, failures];
    let (report, _) = check_rows(Backend::Shared, &["--api", "runtime"], &rows);
    assert_eq!(report["bandwidth_util"]["failed_calls"], 4);
}

/// The driver calls made by runtime functions, including functions that are not traced at the
/// runtime layer.
fn driver_calls(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    #[rustfmt::skip]
    let commands = [
        ("h2d", "cudaMemcpy", ("cuMemcpyHtoD_v2", "H2D", "sync", 80_000)),
        ("d2h", "cudaMemcpy_ptds", ("cuMemcpyDtoH_v2", "D2H", "sync", 80_000)),
        ("h2d", "cudaMemcpyAsync", ("cuMemcpyHtoDAsync_v2", "H2D", "async", 80_000)),
        ("2d", "cudaMemcpy2D", ("cuMemcpy2DUnaligned_v2", "H2D", "sync", 80_000)),
        ("2d-d2h", "cudaMemcpy2DAsync_ptsz", ("cuMemcpy2DAsync_v2", "D2H", "async", 80_000)),
        ("3d", "cudaMemcpy3D", ("cuMemcpy3D_v2", "H2D", "sync", 80_000)),
        ("3d-d2h", "cudaMemcpy3DAsync", ("cuMemcpy3DAsync_v2", "D2H", "async", 80_000)),
        ("h2a", "cudaMemcpyToArray", ("cuMemcpyHtoA_v2", "H2A", "sync", 80_000)),
        ("a2d", "cudaMemcpyFromArray", ("cuMemcpyAtoD_v2", "A2D", "async", 80_000)),
        ("a2a", "cudaMemcpyArrayToArray", ("cuMemcpyAtoA_v2", "A2A", "async", 80_000)),
        ("peer", "cudaMemcpyPeer", ("cuMemcpyPeer", "P2P", "async", 80_000)),
    ];
    let mut expected = Vec::new();
    for (kind, runtime, row) in commands {
        workload.say(&format!("copy {kind} 80000 3 via={runtime}"));
        expected.extend([row; 3]);
    }
    let host = host_address(workload.pid);
    workload.say(&format!(
        "copy batch 80000 3 via=cudaMemcpyBatchAsync parts=1 src={host}"
    ));
    expected.extend([("cuMemcpyBatchAsync", "H2D", "async", 80_000); 3]);
    expected
}

#[test]
fn root_copies_of_the_runtime_are_counted_once_in_the_driver() {
    check_rows(Backend::Shared, &[], &[driver_calls]);
}
