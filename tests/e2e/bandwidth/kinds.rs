//! Every copy and memset function of the driver: bytes, direction, and whether the call waits.

use serde_json::json;

use super::{
    COPIES, CopyRow, Function, call_each, check, check_rows, copies_of, host_address, say_each,
    variants,
};
use crate::harness::{Backend, Setup, Workload, said};

/// Functions without unified addressing.
const PLAIN: &[Function] = &[
    ("h2d", "cuMemcpyHtoD_v2", "H2D", "sync"),
    ("d2h", "cuMemcpyDtoH_v2", "D2H", "sync"),
    ("d2d", "cuMemcpyDtoD_v2", "D2D", "async"),
    ("h2d", "cuMemcpyHtoDAsync_v2", "H2D", "async"),
    ("d2h", "cuMemcpyDtoHAsync_v2", "D2H", "async"),
    ("d2d", "cuMemcpyDtoDAsync_v2", "D2D", "async"),
    ("peer", "cuMemcpyPeer", "P2P", "async"),
    ("peer", "cuMemcpyPeerAsync", "P2P", "async"),
    ("2d", "cuMemcpy2D_v2", "H2D", "sync"),
    ("2d-d2h", "cuMemcpy2D_v2", "D2H", "sync"),
    ("2d-d2d", "cuMemcpy2D_v2", "D2D", "async"),
    ("2d", "cuMemcpy2DUnaligned_v2", "H2D", "sync"),
    ("2d-d2h", "cuMemcpy2DUnaligned_v2", "D2H", "sync"),
    ("2d-d2d", "cuMemcpy2DUnaligned_v2", "D2D", "async"),
    ("2d", "cuMemcpy2DAsync_v2", "H2D", "async"),
    ("2d-d2h", "cuMemcpy2DAsync_v2", "D2H", "async"),
    ("2d-d2d", "cuMemcpy2DAsync_v2", "D2D", "async"),
    ("3d", "cuMemcpy3D_v2", "H2D", "sync"),
    ("3d-d2h", "cuMemcpy3D_v2", "D2H", "sync"),
    ("3d-d2d", "cuMemcpy3D_v2", "D2D", "async"),
    ("3d", "cuMemcpy3DAsync_v2", "H2D", "async"),
    ("3d-d2h", "cuMemcpy3DAsync_v2", "D2H", "async"),
    ("3d-d2d", "cuMemcpy3DAsync_v2", "D2D", "async"),
    ("h2a", "cuMemcpyHtoA_v2", "H2A", "sync"),
    ("a2h", "cuMemcpyAtoH_v2", "A2H", "sync"),
    ("h2a", "cuMemcpyHtoAAsync_v2", "H2A", "async"),
    ("a2h", "cuMemcpyAtoHAsync_v2", "A2H", "async"),
    ("d2a", "cuMemcpyDtoA_v2", "D2A", "async"),
    ("a2d", "cuMemcpyAtoD_v2", "A2D", "async"),
    ("a2a", "cuMemcpyAtoA_v2", "A2A", "async"),
    // A batch may have several directions.
    ("batch", "cuMemcpyBatchAsync", "unknown", "async"),
    ("batch", "cuMemcpyBatchAsync_v2", "unknown", "async"),
    ("batch-3d", "cuMemcpy3DBatchAsync", "unknown", "async"),
    ("batch-3d", "cuMemcpy3DBatchAsync_v2", "unknown", "async"),
];

fn every_function(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    call_each(workload, PLAIN)
}

/// Arguments of `cuMemcpy` and its variants: kind, destination, source, and the expected direction.
fn unified(host: u64, device: u64) -> [(&'static str, u64, u64, &'static str); 3] {
    [
        ("default-h2d", device, host, "H2D"),
        ("default-d2h", host, device, "D2H"),
        ("default-d2d", device, device, "D2D"),
    ]
}

/// The direction follows the memory type.
fn unified_addressing(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid);
    let device = workload.say("alloc 1048576");
    let device = u64::from_str_radix(&device[2..], 16).unwrap();
    let mut expected: Vec<CopyRow<'static>> = Vec::new();
    for (function, is_sync) in [("cuMemcpy", true), ("cuMemcpyAsync", false)] {
        for variant in variants(function) {
            // Any address within the block is valid.
            for (kind, to, from, direction) in unified(host, device + 4096) {
                let bytes = 100_000 + expected.len() as u64;
                workload.say(&format!(
                    "copy {kind} {bytes} via={variant} dst={to} src={from}"
                ));
                let is_sync = is_sync && direction != "D2D";
                let mode = if is_sync { "sync" } else { "async" };
                expected.push((function, direction, mode, bytes));
            }
            workload.say(&format!("copy h2h 1000 via={variant}"));
            expected.push((function, "H2H", "async", 1000));
        }
    }
    expected
}

/// Device memory that is allocated before each copy and freed after it.
fn memory_live_during_the_copy(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid);
    let to_device = format!("copy default-h2d 100000 src={host}");
    let to_host = format!("copy default-d2h 100001 dst={host}");
    let copies = [
        (to_device.as_str(), 1, ("cuMemcpy", "H2D", "sync", 100_000)),
        (&to_host, 1, ("cuMemcpy", "D2H", "sync", 100_001)),
        (
            "copy default-d2d 100002",
            1,
            ("cuMemcpy", "D2D", "async", 100_002),
        ),
    ];
    say_each(workload, &copies)
}

fn no_bytes_and_single_rows(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let copies = [
        ("copy h2d 0 3", 3, ("cuMemcpyHtoD_v2", "H2D", "async", 0)),
        (
            "copy 2d 70001 2",
            2,
            ("cuMemcpy2D_v2", "H2D", "sync", 70_001),
        ),
        ("copy 3d 70002", 1, ("cuMemcpy3D_v2", "H2D", "sync", 70_002)),
    ];
    say_each(workload, &copies)
}

/// Copies that return early have no throughput, as is checked in every report; only small ones to
/// the device are staged.
fn modes(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    const MIB: u64 = 1 << 20;
    let to_device = |mode, bytes| ("cuMemcpyHtoD_v2", "H2D", mode, bytes);
    let to_array = |mode, bytes| ("cuMemcpyHtoA_v2", "H2A", mode, bytes);
    let to_host = |bytes| ("cuMemcpyDtoH_v2", "D2H", "sync", bytes);
    #[rustfmt::skip]
    let copies = [
        ("copy h2d 1048576 2 via=cuMemcpyHtoDAsync_v2", 2, ("cuMemcpyHtoDAsync_v2", "H2D", "async", MIB)),
        ("copy d2h 1048576 4 via=cuMemcpyDtoHAsync_v2", 4, ("cuMemcpyDtoHAsync_v2", "D2H", "async", MIB)),
        ("copy d2d 1048576 5", 5, ("cuMemcpyDtoD_v2", "D2D", "async", MIB)),
        ("copy d2d 1048576 6 via=cuMemcpyDtoDAsync_v2", 6, ("cuMemcpyDtoDAsync_v2", "D2D", "async", MIB)),
        ("copy h2h 4096 7", 7, ("cuMemcpy", "H2H", "async", 4096)),
        ("set 1048576 8", 8, ("cuMemsetD8_v2", "set", "async", MIB)),
        ("copy h2d 65536", 1, to_device("async", 65_536)),
        ("copy h2d 65537", 1, to_device("sync", 65_537)),
        ("copy d2h 1", 1, to_host(1)),
        ("copy d2h 65536", 1, to_host(65_536)),
        ("copy h2a 65536", 1, to_array("async", 65_536)),
        ("copy h2a 65537", 1, to_array("sync", 65_537)),
        ("copy a2h 512", 1, ("cuMemcpyAtoH_v2", "A2H", "sync", 512)),
    ];
    say_each(workload, &copies)
}

fn failures(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    workload.say("fail cuMemcpyHtoD_v2 3 700");
    let reply = workload.say("copy h2d 1048576 5");
    assert_eq!(said(&reply, "failed"), "3");
    workload.play(
        "fail cuMemcpyDtoHAsync_v2 2 700; copy d2h 1048576 2 via=cuMemcpyDtoHAsync_v2; \
         fail cuMemsetD8_v2 1 700; set 4096 4",
    );
    let to_device = ("cuMemcpyHtoD_v2", "H2D", "sync", 1 << 20);
    let set = ("cuMemsetD8_v2", "set", "async", 4096);
    vec![to_device, to_device, set, set, set]
}

const SETS: [&str; 12] = [
    "cuMemsetD8_v2",
    "cuMemsetD8Async",
    "cuMemsetD2D8_v2",
    "cuMemsetD2D8Async",
    "cuMemsetD16_v2",
    "cuMemsetD16Async",
    "cuMemsetD2D16_v2",
    "cuMemsetD2D16Async",
    "cuMemsetD32_v2",
    "cuMemsetD32Async",
    "cuMemsetD2D32_v2",
    "cuMemsetD2D32Async",
];

fn sets(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    // Elements of every size, in two rows.
    for (bytes, function) in (4096..).step_by(8).zip(SETS) {
        for variant in variants(function) {
            workload.say(&format!("set {bytes} 3 via={variant}"));
            expected.extend([(function, "set", "async", bytes); 3]);
        }
    }
    expected
}

/// Copies of sizes around powers of two.
fn sizes(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    let sizes = [0, 1, 1023, 1024, 2047, 2048, 1 << 20];
    for (bytes, calls) in sizes.into_iter().zip(1..) {
        workload.say(&format!("copy d2d {bytes} {calls}"));
        expected.extend(vec![("cuMemcpyDtoD_v2", "D2D", "async", bytes); calls]);
    }
    expected
}

#[test]
fn root_every_driver_copy_function_is_decoded() {
    let rows: [super::Run; 8] = [
        every_function,
        unified_addressing,
        memory_live_during_the_copy,
        no_bytes_and_single_rows,
        modes,
        failures,
        sets,
        sizes,
    ];
    let (report, pids) = check_rows(Backend::Driver, &[], &rows);
    // Failed copies are counted as failed calls only.
    assert_eq!(report["bandwidth_util"]["failed_calls"], 6);
    assert_eq!(report["bandwidth_util"]["captured"], 0);
    let sizes = &report.direction(pids[7], "D2D", "async")["sizes"];
    let expected = json!([
        [1, 1],
        [2, 2],
        [1024, 3],
        [2048, 9],
        [4096, 6],
        [2 << 20, 7]
    ]);
    assert_eq!(*sizes, expected);
}

/// Memory from before gpuprobe attached, not mapped in the process.
#[test]
fn root_directions_of_unknown_memory_are_unknown() {
    let mut workload = Workload::start(Backend::Driver);
    let device = workload.say("alloc 1048576");
    let setup = Setup::pid(workload.pid).modes(COPIES);
    let mut gpuprobe = setup.args(["--per-call"]).start();
    let host = host_address(workload.pid);
    workload.play(&format!(
        "copy default-h2d 100000 dst={device} src={host}; copy default-d2h 100000 dst={host} src={device}; \
         copy h2d 100000 dst={device}"
    ));
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let unknown = ("cuMemcpy", "unknown", "async", 100_000);
    let known = ("cuMemcpyHtoD_v2", "H2D", "sync", 100_000);
    let copies = copies_of(&gpuprobe);
    check(&report, workload.pid, &copies, &[unknown, unknown, known]);
}
