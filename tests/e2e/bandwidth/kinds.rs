//! Every copy function of the driver: bytes, direction, and whether the call waits for the copy.

use super::{CopyRow, check, each_copy, host_address};
use crate::harness::{Backend, Workload};

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

#[test]
fn root_every_driver_copy_function_is_decoded() {
    let settings = [("STANDIN_DEVICES", "2"), ("STANDIN_COPY_GBPS", "0")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    let mut expected: Vec<CopyRow<'_>> = Vec::new();
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        for (number, (kind, function, suffix, direction, mode)) in PLAIN.iter().enumerate() {
            let bytes = size(number);
            for twin in ["", suffix] {
                workload.say(&format!("copy {kind} {bytes} 2 via={function}{twin}"));
                expected.extend([(*function, *direction, *mode, bytes); 2]);
            }
        }
    });
    check(&report, workload.pid, &copies, &expected);
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

#[test]
fn root_direction_of_unified_addressing_follows_the_memory_type() {
    let settings = [("STANDIN_COPY_GBPS", "0")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    let host = host_address(workload.pid);
    let mut expected: Vec<CopyRow<'_>> = Vec::new();
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        let device = workload.say("alloc 1048576");
        let device = u64::from_str_radix(&device[2..], 16).unwrap();
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
    });
    check(&report, workload.pid, &copies, &expected);
}

#[test]
fn root_direction_follows_memory_live_during_the_copy() {
    let settings = [("STANDIN_COPY_GBPS", "0")];
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &settings));
    let host = host_address(workload.pid);
    let mut expected: Vec<CopyRow<'_>> = Vec::new();
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        // Device memory is allocated before each copy and freed after it.
        workload.say(&format!("copy default-h2d 100000 src={host}"));
        expected.push(("cuMemcpy", "H2D", "sync", 100_000));
        workload.say(&format!("copy default-d2h 100001 dst={host}"));
        expected.push(("cuMemcpy", "D2H", "sync", 100_001));
        workload.say("copy default-d2d 100002");
        expected.push(("cuMemcpy", "D2D", "async", 100_002));
    });
    check(&report, workload.pid, &copies, &expected);
}

#[test]
fn root_undeterminable_direction_is_unknown() {
    let mut workload = Workload::start(Backend::Driver);
    let host = host_address(workload.pid);
    // Allocated before gpuprobe attached, and not mapped in the process.
    let device = workload.say("alloc 1048576");
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        workload.say(&format!("copy default-h2d 100000 dst={device} src={host}"));
        workload.say(&format!("copy default-d2h 100000 dst={host} src={device}"));
        workload.say(&format!("copy h2d 100000 dst={device}"));
    });
    let expected = [
        ("cuMemcpy", "unknown", "async", 100_000),
        ("cuMemcpy", "unknown", "async", 100_000),
        ("cuMemcpyHtoD_v2", "H2D", "sync", 100_000),
    ];
    check(&report, workload.pid, &copies, &expected);
}

#[test]
fn root_copies_of_no_bytes_and_single_rows_are_counted() {
    let mut workload = Workload::start(Backend::Driver);
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        workload.say("copy h2d 0 3");
        workload.say("copy 2d 70001 2");
        workload.say("copy 3d 70002");
    });
    let expected = [
        ("cuMemcpyHtoD_v2", "H2D", "async", 0),
        ("cuMemcpyHtoD_v2", "H2D", "async", 0),
        ("cuMemcpyHtoD_v2", "H2D", "async", 0),
        ("cuMemcpy2D_v2", "H2D", "sync", 70_001),
        ("cuMemcpy2D_v2", "H2D", "sync", 70_001),
        ("cuMemcpy3D_v2", "H2D", "sync", 70_002),
    ];
    check(&report, workload.pid, &copies, &expected);
}
