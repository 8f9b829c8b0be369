//! Every copy and memset function of the driver: bytes, direction, and whether the call waits.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    COPIES, CopyRow, Function, call_each, check, check_rows, copies_of, host_address, variants,
};
use crate::harness::{Backend, Setup, Workload, said};

/// Functions without unified addressing.
#[rustfmt::skip]
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
    ("prefetch", "cuMemPrefetchAsync", "prefetch to D", "async"),
    ("prefetch-host", "cuMemPrefetchAsync", "prefetch to H", "async"),
    ("prefetch", "cuMemPrefetchAsync_v2", "prefetch to D", "async"),
    ("prefetch-host", "cuMemPrefetchAsync_v2", "prefetch to H", "async"),
    ("prefetch-domain", "cuMemPrefetchAsync_v2", "prefetch to D", "async"),
];

/// Functions that take a batch, which is one call, with the directions of its copies in turn.
#[rustfmt::skip]
const BATCHES: &[(&str, &str, [&str; 2])] = &[
    ("batch", "cuMemcpyBatchAsync", ["H2D", "H2D"]),
    ("batch-mixed", "cuMemcpyBatchAsync", ["H2D", "D2H"]),
    ("batch-mixed", "cuMemcpyBatchAsync_v2", ["H2D", "D2H"]),
    ("batch-3d", "cuMemcpy3DBatchAsync", ["H2D", "H2D"]),
    ("batch-3d", "cuMemcpy3DBatchAsync_v2", ["H2D", "H2D"]),
    ("prefetch", "cuMemPrefetchBatchAsync", ["prefetch to D"; 2]),
    ("prefetch-host", "cuMemPrefetchBatchAsync", ["prefetch to H"; 2]),
    ("prefetch-domain", "cuMemDiscardAndPrefetchBatchAsync", ["prefetch to D"; 2]),
    // Which are for which location is not followed.
    ("prefetch-both", "cuMemDiscardAndPrefetchBatchAsync", ["unknown"; 2]),
];

#[test]
fn root_each_copy_of_a_batch_has_its_direction_and_a_batch_is_one_call() {
    const COPIES_OF_EACH: u64 = 5;
    let mut workload = super::losses::workload();
    let host = host_address(workload.pid);
    let setup = Setup::pid(workload.pid).modes(COPIES);
    let mut gpuprobe = setup.args(["--per-call"]).start();
    let (mut expected, mut sums) = (Vec::new(), BTreeMap::new());
    for (size, (kind, function, directions)) in (1000..).zip(BATCHES) {
        for variant in variants(function) {
            let bytes = COPIES_OF_EACH * size;
            workload.say(&format!(
                "copy {kind} {bytes} 2 via={variant} parts={COPIES_OF_EACH} src={host}"
            ));
            for number in (0..COPIES_OF_EACH).chain(0..COPIES_OF_EACH) {
                let direction = directions[number as usize % 2];
                expected.push((*function, direction, "async", size));
                let sum: &mut (u64, u64) = sums.entry(direction).or_default();
                *sum = (sum.0 + u64::from(number == 0), sum.1 + size);
            }
        }
    }
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let sizes = &report.direction(workload.pid, "H2D", "async")["sizes"];
    let of_h2d = expected.iter().filter(|copy| copy.1 == "H2D").count();
    assert_eq!(*sizes, json!([[1024, of_h2d]]));
    let copies = copies_of(&gpuprobe);
    assert_eq!(copies.iter().map(super::row).collect::<Vec<_>>(), expected);
    let sums = sums.into_iter();
    let sums: Vec<_> = sums
        .map(|(direction, (calls, bytes))| (direction, "async", calls, bytes))
        .collect();
    assert_eq!(report.moved(workload.pid), sums);
    assert_eq!(report["bandwidth_util"]["copies"], workload.status().copies);
}

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
    for (function, is_sync) in [
        ("cuMemcpy", true),
        ("cuMemcpyAsync", false),
        ("cuMemcpyWithAttributesAsync", false),
    ] {
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
    let function = "cuMemcpy3DWithAttributesAsync";
    for variant in variants(function) {
        workload.say(&format!(
            "copy batch-3d 90000 via={variant} dst={device} src={host}"
        ));
        expected.push((function, "H2D", "async", 90_000));
    }
    expected
}

/// Copies that return early have no throughput, as is checked in every report; only small ones to
/// the device are staged.
#[rustfmt::skip]
const MODES: [Function; 19] = [
    ("copy h2d 0 3", "cuMemcpyHtoD_v2", "H2D", "async"),
    ("copy 2d 70001 2", "cuMemcpy2D_v2", "H2D", "sync"),
    ("copy 3d 70002", "cuMemcpy3D_v2", "H2D", "sync"),
    ("copy h2d 1048576 2 via=cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "H2D", "async"),
    ("copy d2h 1048576 4 via=cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2", "D2H", "async"),
    ("copy d2d 1048576 5", "cuMemcpyDtoD_v2", "D2D", "async"),
    ("copy d2d 1048576 6 via=cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "D2D", "async"),
    ("copy h2h 4096 7", "cuMemcpy", "H2H", "async"),
    ("set 1048576 8", "cuMemsetD8_v2", "set", "async"),
    ("copy h2d 65536", "cuMemcpyHtoD_v2", "H2D", "async"),
    ("copy h2d 65537", "cuMemcpyHtoD_v2", "H2D", "sync"),
    ("copy d2h 1", "cuMemcpyDtoH_v2", "D2H", "sync"),
    ("copy d2h 65536", "cuMemcpyDtoH_v2", "D2H", "sync"),
    ("copy h2a 65536", "cuMemcpyHtoA_v2", "H2A", "async"),
    ("copy h2a 65537", "cuMemcpyHtoA_v2", "H2A", "sync"),
    ("copy a2h 512", "cuMemcpyAtoH_v2", "A2H", "sync"),
    // Device memory that is allocated before each copy and freed after it.
    ("copy default-d2d 100002", "cuMemcpy", "D2D", "async"),
    ("copy default-h2d 100000 src=HOST", "cuMemcpy", "H2D", "sync"),
    ("copy default-d2h 100001 dst=HOST", "cuMemcpy", "D2H", "sync"),
];

fn modes(workload: &mut Workload) -> Vec<CopyRow<'static>> {
    let host = host_address(workload.pid).to_string();
    let mut expected = Vec::new();
    for (command, function, direction, mode) in MODES {
        workload.say(&command.replace("HOST", &host));
        // Its bytes and, if there are several, its calls.
        let mut numbers = command.split(' ').filter_map(|word| word.parse().ok());
        let row = (function, direction, mode, numbers.next().unwrap());
        expected.extend(vec![row; numbers.next().unwrap_or(1) as usize]);
    }
    expected
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
    let rows: [super::Run; 6] = [
        every_function,
        unified_addressing,
        modes,
        failures,
        sets,
        sizes,
    ];
    let (report, pids) = check_rows(Backend::Driver, &[], &rows);
    // Failed copies are counted as failed calls only.
    assert_eq!(report["bandwidth_util"]["failed_calls"], 6);
    assert_eq!(report["bandwidth_util"]["captured"], 0);
    let sizes = &report.direction(pids[5], "D2D", "async")["sizes"];
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
