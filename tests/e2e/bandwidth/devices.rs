//! Peer-to-peer copies.

use serde_json::Value;

use super::{COPIES, CopyRow, copies_of, row};
use crate::harness::gpuprobe::output_of;
use crate::harness::{Backend, Setup};
use crate::recording::{Recording, count};

/// The workload's command, the function that makes the copy, and its recorded kind.
const DRIVER: &[(&str, &str, &str)] = &[
    ("default-d2d", "cuMemcpy", "cuMemcpy"),
    ("default-d2d", "cuMemcpyAsync", "cuMemcpyAsync"),
    ("d2d", "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2"),
    ("d2d", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync_v2"),
    ("2d-d2d", "cuMemcpy2D_v2", "cuMemcpy2D_v2"),
    ("3d-d2d", "cuMemcpy3DAsync_v2", "cuMemcpy3DAsync_v2"),
];
const RUNTIME: &[(&str, &str, &str)] = &[
    ("default-d2d", "cudaMemcpy", "cuMemcpy"),
    ("default-d2d", "cudaMemcpyAsync", "cuMemcpyAsync"),
    ("d2d", "cudaMemcpy", "cuMemcpyDtoD_v2"),
];

#[test]
fn root_copy_between_two_devices_is_p2p() {
    let alone = Setup::workload(Backend::Driver).modes(COPIES);
    peer_to_peer(alone, DRIVER);
    let both = Setup::workload(Backend::Shared).modes(["--memleak", "--bandwidth-util"]);
    peer_to_peer(both, RUNTIME);
}

fn peer_to_peer(setup: Setup, functions: &[(&str, &str, &str)]) {
    let recording = Recording::new();
    let file = recording.text();
    let (mut gpuprobe, pid) = setup
        .env("STANDIN_DEVICES", "2")
        .env("STANDIN_COPY_GBPS", "0")
        .args(["--per-call", "--record", &file])
        .started();
    let talk = &mut gpuprobe.talk;
    let mut block = |device: u32| {
        talk.say(&format!("setdevice {device}"));
        let address = talk.say("alloc 1048576");
        u64::from_str_radix(&address[2..], 16).unwrap()
    };
    let (first, second) = (block(0), block(1));
    let mut expected: Vec<CopyRow<'_>> = Vec::new();
    for (kind, function, recorded) in functions {
        for (to, from, direction) in [
            (second, first, "P2P"),
            (first, second + 4096, "P2P"),
            (first, first + 524_288, "D2D"),
            (second + 524_288, second, "D2D"),
        ] {
            let bytes = 100_000 + 8 * expected.len() as u64;
            talk.say(&format!(
                "copy {kind} {bytes} via={function} dst={to} src={from}"
            ));
            expected.push((recorded, direction, "async", bytes));
        }
    }
    let truth = talk.done();
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    assert_eq!(truth.copies, expected.len() as u64);
    let copies = copies_of(&gpuprobe);
    let found: Vec<_> = copies.iter().map(row).collect();
    assert_eq!(found, expected);
    let sum = |direction: &str| {
        let of_it = expected.iter().filter(|row| row.1 == direction);
        of_it.fold((0, 0), |(calls, bytes), row| (calls + 1, bytes + row.3))
    };
    let (within, between) = (sum("D2D"), sum("P2P"));
    let moved = report.moved(pid);
    let expected = [
        ("D2D", "async", within.0, within.1),
        ("P2P", "async", between.0, between.1),
    ];
    assert_eq!(moved, expected);
    // The recording, its report and its replay agree.
    let of_peers = "GPUPROBE_COPIES WHERE direction = 'P2P'";
    assert_eq!(count(&recording.file, of_peers).cast_unsigned(), between.0);
    let copies = output_of(&["report", &file, "--analysis=copies", "--format", "json"]);
    let copies: Value = serde_json::from_str(&copies).unwrap();
    assert!(copies.to_string().contains("\"P2P\""), "{copies}");
    let last = output_of(&["replay", &file, "--last", "--format", "json"]);
    let last: Value = serde_json::from_str(last.trim()).unwrap();
    assert_eq!(last["bandwidth_util"], report["bandwidth_util"]);
}
