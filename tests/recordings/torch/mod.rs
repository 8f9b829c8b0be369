//! Programs with PyTorch. `texts` compares the snapshots of most of these recordings.

mod scene;
mod training;

use std::path::Path;
use std::process::Command;

use gpuprobe_cuda::KindSet;
use gpuprobe_model::abi::record;
use gpuprobe_recording::{Player, log};
use rusqlite::Connection;
use serde_json::Value;

use crate::scene::{MEMORY, MIB, PID, begin_training, mark, usage};
use crate::{Folder, gpuprobe};
use scene::{CUBLAS_STACK, MODULE_STACK, NCCL_STACK, SEGMENT_STACK, STEP_STACK, TorchScene};

const AT: u64 = 0x7f00_0000_0000;
const SMALL: u64 = AT + 1024 * MIB;
const NCCL: u64 = AT + 2048 * MIB;
const CUBLAS: u64 = AT + 3072 * MIB;

/// PyTorch's blocks, and memory of others.
pub(crate) fn record_blocks(path: &Path) {
    let mut scene = TorchScene::new(path);
    scene.call("cudaMalloc", NCCL, 4 * MIB, NCCL_STACK);
    scene.segment(AT, 20 * MIB);
    scene.block(AT, MIB, Some((1_000_000, 0)), STEP_STACK);
    scene.block(AT + MIB, 2 * MIB, Some((2 * MIB, 0)), MODULE_STACK);
    scene.call("cudaMalloc", CUBLAS, 32 * MIB, CUBLAS_STACK);
    scene.segment(SMALL, 2 * MIB);
    scene.block(SMALL, 512, Some((400, 0x77)), STEP_STACK);
    scene.free(AT, MIB);
    scene.free(SMALL, 512);
    scene.free_segment(SMALL, 2 * MIB);
    scene.block(AT + 4 * MIB, 4 * MIB, None, STEP_STACK);
    scene.call("cudaFree", CUBLAS, 0, 0);
    scene.used((4 + 20 + 532) * MIB);
    scene.end();
}

/// Expandable segments: two adjacent address ranges, pages that come and go.
pub(crate) fn record_mappings(path: &Path) {
    let mut scene = TorchScene::new(path);
    let page = 20 * MIB;
    scene.call("cuMemAddressReserve", AT, 10 * page, 0);
    scene.call("cuMemAddressReserve", AT + 10 * page, 10 * page, 0);
    for number in [0, 1, 2, 9, 10] {
        scene.call("cuMemCreate", 0x50 + number, page, SEGMENT_STACK);
        scene.map(AT + number * page, page, 0x50 + number);
        scene.call("cuMemRelease", 0x50 + number, 0, 0);
        scene.reserved += page;
    }
    // Memory of another library, mapped twice; then one of the two mappings is removed.
    scene.call("cuMemCreate", 0x99, 2 * MIB, NCCL_STACK);
    scene.map(NCCL, 2 * MIB, 0x99);
    scene.map(CUBLAS, 2 * MIB, 0x99);
    scene.call("cuMemUnmap", CUBLAS, 2 * MIB, 0);
    // Across the border of two pages.
    scene.block(AT, page + MIB, Some((page + 7, 0)), STEP_STACK);
    scene.block(AT + 9 * page, 512, Some((512, 0)), STEP_STACK);
    scene.block(AT + 10 * page, MIB, Some((MIB, 9)), STEP_STACK);
    scene.call("cuMemUnmap", AT + 2 * page, page, 0);
    scene.end();
}

/// A process with 100 MiB in two segments, 30 MiB of them in tensors, from before the attach.
pub(crate) fn record_attached(path: &Path) {
    let mut scene = TorchScene::new(path);
    (scene.allocated, scene.reserved) = (30 * MIB, 100 * MIB);
    let (old, older) = (AT, AT + 4096 * MIB);
    scene.block(old, 2 * MIB, Some((2 * MIB - 7, 0)), STEP_STACK);
    scene.block(old + 10 * MIB, MIB, None, STEP_STACK);
    // Adjacent to the memory seen for the first.
    scene.segment(old + 11 * MIB, 20 * MIB);
    scene.block(old + 11 * MIB, 5 * MIB, None, STEP_STACK);
    scene.free(old, 2 * MIB);
    scene.free(older, 8 * MIB);
    scene.free(older + 8 * MIB, 8 * MIB);
    scene.used((532 + 120) * MIB);
    scene.call("cudaFree", older, 0, 0);
    scene.end();
}

/// A launcher, then the program, in the same process; another process; and one with the PID of the first.
pub(crate) fn record_processes(path: &Path) {
    let mut scene = TorchScene::new(path);
    scene.call("cudaMalloc", NCCL, 4 * MIB, NCCL_STACK);
    scene.exit(record::EXEC);
    scene.process(PID);
    scene.segment(AT, 20 * MIB);
    for number in 0..3 {
        scene.block(AT + number * MIB, MIB, None, STEP_STACK);
    }
    scene.process(PID + 1);
    scene.segment(AT, 2 * MIB);
    scene.block(AT, 512, None, STEP_STACK);
    scene.pid = PID;
    scene.exit(record::EXIT);
    scene.process(PID);
    scene.segment(AT, 40 * MIB);
    scene.block(AT, 512, None, STEP_STACK);
    scene.end();
}

/// Tensors on two of three devices.
pub(crate) fn record_devices(path: &Path) {
    let mut scene = TorchScene::new(path);
    for device in [0, 2] {
        scene.device = device;
        (scene.allocated, scene.reserved) = (0, 0);
        let at = AT + u64::from(device) * 1024 * MIB;
        scene.segment(at, 20 * MIB);
        scene.block(at, MIB, None, STEP_STACK);
    }
    scene.device = 0;
    scene.free(AT, MIB);
    scene.end();
}

/// Hostile event sequences, and gaps after lost events.
pub(crate) fn record_invalid(path: &Path) {
    let mut scene = TorchScene::new(path);
    scene.segment(AT, 20 * MIB);
    // Absurd sizes and addresses, beyond the end of a segment, and overlapping tensors.
    scene.block(AT, i64::MAX as u64, None, STEP_STACK);
    scene.block(u64::MAX - 100, 512, None, STEP_STACK);
    scene.block(AT + 19 * MIB, 2 * MIB, None, STEP_STACK);
    scene.block(0, 0, None, STEP_STACK);
    scene.call("cudaMalloc", 0x1000, u64::MAX - 5, NCCL_STACK);
    scene.block(AT, MIB, None, STEP_STACK);
    scene.block(AT + 512, MIB, Some((u64::MAX, u64::MAX)), STEP_STACK);
    // An unmatched free; the free of a segment with a block in use.
    scene.free(AT + 4 * MIB, MIB);
    scene.call("cudaFree", AT, 0, 0);
    scene.end();
}

/// A process without memory.
pub(crate) fn record_nothing(path: &Path) {
    TorchScene::new(path).end();
}

/// Three segments: one nearly full, one pinned by a small tensor, and one cached. `kept` tensors of
/// 16 MiB leak.
pub(crate) fn record_leak(path: &Path, kept: u64) {
    let mut scene = TorchScene::of(begin_training(path, MEMORY), 1_000_000);
    scene.segment_from(1, AT, 512 * MIB);
    for number in 0..kept {
        let asked = Some((16 * MIB - 100, 0));
        scene.block(AT + number * 16 * MIB, 16 * MIB, asked, 1);
    }
    scene.segment_from(2, AT + 1024 * MIB, 20 * MIB);
    scene.block(AT + 1024 * MIB, 12 * MIB, None, 2);
    scene.block(AT + 1036 * MIB, MIB / 2, Some((MIB / 2, 0)), 6);
    scene.free(AT + 1024 * MIB, 12 * MIB);
    scene.segment_from(5, AT + 2048 * MIB, 64 * MIB);
    scene.block(AT + 2048 * MIB, 64 * MIB, None, 5);
    scene.free(AT + 2048 * MIB, 64 * MIB);
    for (second, is_final) in [(32, false), (34, true)] {
        let mark = mark(second, false, is_final, usage(596 * MIB));
        scene.recorder.note(mark);
    }
    scene.recorder.finish();
}

/// Standard output of Python, which must succeed.
fn python(arguments: &[&str]) -> String {
    let output = Command::new("python3").arg("-B").args(arguments).output();
    let output = output.expect("these tests need python3");
    let written = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{written}{said}");
    written
}

/// Address, bytes and live bytes of a segment.
type Segment = (u64, u64, u64);

/// The segments in the snapshot of a recording: PyTorch's, and memory of others, which has no stream.
fn exported(file: &Path) -> [Vec<Segment>; 2] {
    let out = file.with_extension("pickle");
    let (file, path) = (file.to_str().unwrap(), out.to_str().unwrap());
    let output = gpuprobe(&["export", file, "--format", "torch", "-o", path]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/torch_viz_check.py");
    python(&[script.to_str().unwrap(), path]);
    let load = "import json, pickle, sys; print(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))";
    let snapshot: Value = serde_json::from_str(&python(&["-c", load, path])).unwrap();
    let all = snapshot["segments"].as_array().unwrap().iter();
    let (others, ours): (Vec<_>, Vec<_>) = all.partition(|segment| segment["stream"] == -2);
    [ours, others].map(|segments| {
        let number = |segment: &Value, key: &str| segment[key].as_u64().unwrap();
        let keys = ["address", "total_size", "active_size"];
        let rows = segments
            .into_iter()
            .map(|one| keys.map(|key| number(one, key)));
        rows.map(|[address, bytes, used]| (address, bytes, used))
            .collect()
    })
}

/// PyTorch's segments, as the reports have them.
fn of_engine(file: &Path) -> Vec<Segment> {
    let mut player = Player::new(MEMORY, KindSet::ALL);
    let database = Connection::open(file).unwrap();
    let mut log = database
        .prepare("SELECT entries FROM GPUPROBE_LOG ORDER BY seq")
        .unwrap();
    let mut rows = log.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        for item in log::items(row.get_ref(0).unwrap().as_blob().unwrap(), Some) {
            player.play(item);
        }
    }
    let process = player.state.ledger.process_of(PID).unwrap();
    let found = process
        .tensors
        .iter()
        .next()
        .unwrap()
        .fragmentation(process);
    assert_eq!(found.outside.bytes, 0);
    let segments = found.segments.iter();
    segments
        .map(|s| (s.address, s.bytes, s.used_bytes))
        .collect()
}

#[test]
fn contiguous_mappings_are_one_segment() {
    let folder = Folder::new();
    let file = folder.scene("torch-mappings");
    assert_eq!(exported(&file)[0], of_engine(&file));
}

#[test]
fn arrays_have_addresses_of_their_own() {
    let folder = Folder::new();
    let path = folder.path("arrays.sqlite");
    let mut scene = TorchScene::new(&path);
    for (handle, mib) in [(0x5000, 3), (0x5040, 5), (0x5080, 7)] {
        scene.call("cudaMallocArray", handle, mib * MIB, NCCL_STACK);
    }
    scene.call("cudaFreeArray", 0x5040, 0, 0);
    scene.end();
    let [torch, others] = exported(&path);
    let first = 1 << 49;
    let expected = [(first, 3), (first + 8 * MIB, 7)];
    let expected = expected.map(|(at, mib)| (at, mib * MIB, mib * MIB));
    assert_eq!((torch, others), (Vec::new(), expected.to_vec()));
}
