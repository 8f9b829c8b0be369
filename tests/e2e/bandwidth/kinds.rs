//! Every copy and memset function of the driver: bytes, direction, and whether the call waits.

use serde_json::json;

use super::{CopyRow, check_rows, host_address, say_each};
use crate::harness::{Backend, Workload, said};

/// A function without unified addressing: the workload's command, the function, the suffix of its
/// variant, the direction, and the mode.
const PLAIN: &[(&str, &str, &str, &str, &str)] = &[
    ("h2d", "cuMemcpyHtoD_v2", "_ptds", "H2D", "sync"),
    ("d2h", "cuMemcpyDtoH_v2", "_ptds", "D2H", "sync"),
    ("d2d", "cuMemcpyDtoD_v2", "_ptds", "D2D", "async"),
    ("h2d", "cuMemcpyHtoDAsync_v2", "_ptsz", "H2D", "async"),
    ("d2h", "cuMemcpyDtoHAsync_v2", "_ptsz", "D2H", "async"),
    ("d2d", "cuMemcpyDtoDAsync_v2", "_ptsz", "D2D", "async"),
    ("peer", "cuMemcpyPeer", "_ptds", "P2P", "async"),
    ("peer", "cuMemcpyPeerAsync", "_ptsz", "P2P", "async"),
    ("2d", "cuMemcpy2D_v2", "_ptds", "H2D", "sync"),
    ("2d-d2h", "cuMemcpy2D_v2", "_ptds", "D2H", "sync"),
    ("2d-d2d", "cuMemcpy2D_v2", "_ptds", "D2D", "async"),
    ("2d", "cuMemcpy2DUnaligned_v2", "_ptds", "H2D", "sync"),
    ("2d-d2h", "cuMemcpy2DUnaligned_v2", "_ptds", "D2H", "sync"),
    ("2d-d2d", "cuMemcpy2DUnaligned_v2", "_ptds", "D2D", "async"),
    ("2d", "cuMemcpy2DAsync_v2", "_ptsz", "H2D", "async"),
    ("2d-d2h", "cuMemcpy2DAsync_v2", "_ptsz", "D2H", "async"),
    ("2d-d2d", "cuMemcpy2DAsync_v2", "_ptsz", "D2D", "async"),
    ("3d", "cuMemcpy3D_v2", "_ptds", "H2D", "sync"),
    ("3d-d2h", "cuMemcpy3D_v2", "_ptds", "D2H", "sync"),
    ("3d-d2d", "cuMemcpy3D_v2", "_ptds", "D2D", "async"),
    ("3d", "cuMemcpy3DAsync_v2", "_ptsz", "H2D", "async"),
    ("3d-d2h", "cuMemcpy3DAsync_v2", "_ptsz", "D2H", "async"),
    ("3d-d2d", "cuMemcpy3DAsync_v2", "_ptsz", "D2D", "async"),
    ("h2a", "cuMemcpyHtoA_v2", "_ptds", "H2A", "sync"),
    ("a2h", "cuMemcpyAtoH_v2", "_ptds", "A2H", "sync"),
    ("h2a", "cuMemcpyHtoAAsync_v2", "_ptsz", "H2A", "async"),
    ("a2h", "cuMemcpyAtoHAsync_v2", "_ptsz", "A2H", "async"),
    ("d2a", "cuMemcpyDtoA_v2", "_ptds", "D2A", "async"),
    ("a2d", "cuMemcpyAtoD_v2", "_ptds", "A2D", "async"),
    ("a2a", "cuMemcpyAtoA_v2", "_ptds", "A2A", "async"),
    // A batch may have several directions.
    ("batch", "cuMemcpyBatchAsync", "_ptsz", "unknown", "async"),
    (
        "batch",
        "cuMemcpyBatchAsync_v2",
        "_ptsz",
        "unknown",
        "async",
    ),
    (
        "batch-3d",
        "cuMemcpy3DBatchAsync",
        "_ptsz",
        "unknown",
        "async",
    ),
    (
        "batch-3d",
        "cuMemcpy3DBatchAsync_v2",
        "_ptsz",
        "unknown",
        "async",
    ),
];

/// Every size is distinct, above the staging limit, and a multiple of rows and layers.
fn size(number: usize) -> u64 {
    65_536 + 8 * (number as u64 + 1)
}

fn every_function(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    for (number, (kind, function, suffix, direction, mode)) in PLAIN.iter().enumerate() {
        let bytes = size(number);
        for twin in ["", suffix] {
            workload.say(&format!("copy {kind} {bytes} 2 via={function}{twin}"));
            expected.extend([(*function, *direction, *mode, bytes); 2]);
        }
    }
    expected
}

/// Arguments of `cuMemcpy` and its variants: kind, destination, source, and the expected direction.
fn unified(host: u64, device: u64) -> [(&'static str, u64, u64, &'static str); 3] {
    [
        ("default-h2d", device, host, "H2D"),
        ("default-d2h", host, device, "D2H"),
        ("default-d2d", device, device, "D2D"),
    ]
}

const UNIFIED: [(&str, &str, bool); 4] = [
    ("cuMemcpy", "", true),
    ("cuMemcpy", "_ptds", true),
    ("cuMemcpyAsync", "", false),
    ("cuMemcpyAsync", "_ptsz", false),
];

/// The direction follows the memory type.
fn unified_addressing(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid);
    let device = workload.say("alloc 1048576");
    let device = u64::from_str_radix(&device[2..], 16).unwrap();
    let mut expected: Vec<CopyRow<'static>> = Vec::new();
    for (function, suffix, is_sync) in UNIFIED {
        // Any address within the block is valid.
        for (kind, to, from, direction) in unified(host, device + 4096) {
            let bytes = 100_000 + expected.len() as u64;
            workload.say(&format!(
                "copy {kind} {bytes} via={function}{suffix} dst={to} src={from}"
            ));
            let is_sync = is_sync && direction != "D2D";
            let mode = if is_sync { "sync" } else { "async" };
            expected.push((function, direction, mode, bytes));
        }
        workload.say(&format!("copy h2h 1000 via={function}{suffix}"));
        expected.push((function, "H2H", "async", 1000));
    }
    expected
}

/// Device memory that is allocated before each copy and freed after it.
fn memory_live_during_the_copy(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
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

/// Memory from before gpuprobe attached, not mapped in the process.
fn unknown_direction(workload: &mut Workload, device: &str) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid);
    workload.say(&format!("copy default-h2d 100000 dst={device} src={host}"));
    workload.say(&format!("copy default-d2h 100000 dst={host} src={device}"));
    workload.say(&format!("copy h2d 100000 dst={device}"));
    vec![
        ("cuMemcpy", "unknown", "async", 100_000),
        ("cuMemcpy", "unknown", "async", 100_000),
        ("cuMemcpyHtoD_v2", "H2D", "sync", 100_000),
    ]
}

fn no_bytes_and_single_rows(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
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
fn modes(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
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

fn failures(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    workload.say("fail cuMemcpyHtoD_v2 3 700");
    let reply = workload.say("copy h2d 1048576 5");
    assert_eq!(said(&reply, "failed"), "3");
    workload.say("fail cuMemcpyDtoHAsync_v2 2 700");
    workload.say("copy d2h 1048576 2 via=cuMemcpyDtoHAsync_v2");
    workload.say("fail cuMemsetD8_v2 1 700");
    workload.say("set 4096 4");
    let to_device = ("cuMemcpyHtoD_v2", "H2D", "sync", 1 << 20);
    let set = ("cuMemsetD8_v2", "set", "async", 4096);
    vec![to_device, to_device, set, set, set]
}

/// Every memset function and the suffix of its variant.
const SETS: [(&str, &str); 12] = [
    ("cuMemsetD8_v2", "_ptds"),
    ("cuMemsetD8Async", "_ptsz"),
    ("cuMemsetD2D8_v2", "_ptds"),
    ("cuMemsetD2D8Async", "_ptsz"),
    ("cuMemsetD16_v2", "_ptds"),
    ("cuMemsetD16Async", "_ptsz"),
    ("cuMemsetD2D16_v2", "_ptds"),
    ("cuMemsetD2D16Async", "_ptsz"),
    ("cuMemsetD32_v2", "_ptds"),
    ("cuMemsetD32Async", "_ptsz"),
    ("cuMemsetD2D32_v2", "_ptds"),
    ("cuMemsetD2D32Async", "_ptsz"),
];

fn sets(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    for (number, (function, suffix)) in SETS.into_iter().enumerate() {
        // Elements of every size, in two rows.
        let bytes = 4096 + 8 * number as u64;
        for twin in ["", suffix] {
            workload.say(&format!("set {bytes} 3 via={function}{twin}"));
            expected.extend([(function, "set", "async", bytes); 3]);
        }
    }
    expected
}

/// Copies of sizes around powers of two.
fn sizes(workload: &mut Workload, _: &str) -> Vec<CopyRow<'static>> {
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
    let rows: [(&str, super::Run); 9] = [
        ("freenull", every_function),
        ("freenull", unified_addressing),
        ("freenull", memory_live_during_the_copy),
        ("alloc 1048576", unknown_direction),
        ("freenull", no_bytes_and_single_rows),
        ("freenull", modes),
        ("freenull", failures),
        ("freenull", sets),
        ("freenull", sizes),
    ];
    let (report, pids) = check_rows(Backend::Driver, &[], &rows);
    // Failed copies are counted as failed calls only.
    assert_eq!(report["bandwidth_util"]["failed_calls"], 6);
    assert_eq!(report["bandwidth_util"]["captured"], 0);
    let sizes = &report.direction(pids[8], "D2D", "async")["sizes"];
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
