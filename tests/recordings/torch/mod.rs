//! Snapshots for PyTorch's viewers.

mod scene;
mod training;

use std::path::Path;
use std::process::Command;

use gpuprobe_cuda::KindSet;
use gpuprobe_model::abi::record;
use gpuprobe_recording::{Player, log};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::scene::{MEMORY, MIB, PID};
use crate::{Folder, gpuprobe};
use scene::{CUBLAS_STACK, MODULE_STACK, NCCL_STACK, SEGMENT_STACK, STEP_STACK, TorchScene};

/// A snapshot as unpickled by Python, checked for the viewers' requirements; and the messages.
struct Exported {
    snapshot: Value,
    said: String,
}

/// Exports `file` with these further options.
fn export(folder: &Folder, file: &Path, options: &[&str]) -> Exported {
    let out = folder.path("snapshot.pickle");
    let (file, path) = (file.to_str().unwrap(), out.to_str().unwrap());
    let words = ["export", file, "--format", "torch", "-o", path];
    let output = gpuprobe(&[&words[..], options].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/torch_viz_check.py");
    let checked = python(&[script.to_str().unwrap(), path]);
    assert!(checked.contains("ok    schema"), "{checked}");
    let load = "import json, pickle, sys; print(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))";
    let snapshot = serde_json::from_str(&python(&["-c", load, path])).unwrap();
    Exported { snapshot, said }
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

impl Exported {
    /// Address, bytes, live and requested bytes, and category of the block of memory outside
    /// PyTorch.
    fn segments(&self, device: u64) -> Vec<(u64, u64, u64, u64)> {
        let all = self.snapshot["segments"].as_array().unwrap().iter();
        let here = all.filter(|segment| segment["device"] == device);
        let number = |value: &Value| value.as_u64().unwrap();
        here.map(|segment| {
            (
                number(&segment["address"]),
                number(&segment["total_size"]),
                number(&segment["active_size"]),
                number(&segment["requested_size"]),
            )
        })
        .collect()
    }

    /// PyTorch's blocks, without requested bytes: other memory has no stream.
    fn of_torch(&self) -> Vec<(u64, u64, u64)> {
        let all = self.segments(0).into_iter();
        let is_torch = |address| self.segment(address)["stream"] != -2;
        all.filter(|segment| is_torch(segment.0))
            .map(|(address, bytes, used, _)| (address, bytes, used))
            .collect()
    }

    fn segment(&self, address: u64) -> &Value {
        let mut all = self.snapshot["segments"].as_array().unwrap().iter();
        all.find(|segment| segment["address"] == address).unwrap()
    }

    fn trace(&self, device: usize) -> &[Value] {
        self.snapshot["device_traces"][device].as_array().unwrap()
    }

    /// Events by action, address, bytes and category; both events of a free are one.
    fn events(&self, device: usize) -> Vec<(&str, u64, u64, &str)> {
        let shown = |event: &&Value| event["action"] != "free_requested";
        let all = self.trace(device).iter().filter(shown);
        all.map(|event| {
            (
                event["action"].as_str().unwrap(),
                event["addr"].as_u64().unwrap(),
                event["size"].as_u64().unwrap(),
                event["category"].as_str().unwrap_or("-"),
            )
        })
        .collect()
    }
}

/// Address, bytes and live bytes of PyTorch's segments, as the reports have them.
fn of_engine(file: &Path) -> Vec<(u64, u64, u64)> {
    let mut player = Player::new(MEMORY, KindSet::ALL);
    let database = Connection::open(file).unwrap();
    let mut log = database
        .prepare("SELECT entries FROM GPUPROBE_LOG ORDER BY seq")
        .unwrap();
    let mut rows = log.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        for entry in log::entries(row.get_ref(0).unwrap().as_blob().unwrap()) {
            player.play(entry);
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

const AT: u64 = 0x7f00_0000_0000;
const SMALL: u64 = AT + 1024 * MIB;
const NCCL: u64 = AT + 2048 * MIB;
const CUBLAS: u64 = AT + 3072 * MIB;
const MADE_UP: u64 = 1 << 50;

/// The category of tensors.
const STEP: &str = "train.py:58 training_step";
const MODULE: &str = "train.py:99 <module>";

fn frame(name: &str, file: &str, line: u32) -> Value {
    json!({"name": name, "filename": file, "line": line})
}

#[test]
fn snapshot_has_pytorch_blocks_and_other_memory() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
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

    let exported = export(&folder, &file, &[]);
    assert_eq!(
        exported.segments(0),
        [
            (AT, 20 * MIB, 6 * MIB, 6 * MIB),
            (NCCL, 4 * MIB, 4 * MIB, 4 * MIB),
            (MADE_UP, 532 * MIB, 532 * MIB, 532 * MIB),
        ]
    );
    let small = 2 * MIB;
    assert_eq!(
        exported.events(0),
        [
            ("segment_alloc", MADE_UP, 532 * MIB, "context"),
            ("alloc", MADE_UP, 532 * MIB, "context"),
            ("segment_alloc", NCCL, 4 * MIB, "libnccl"),
            ("alloc", NCCL, 4 * MIB, "libnccl"),
            ("segment_alloc", AT, 20 * MIB, "PyTorch"),
            ("alloc", AT, 1_000_000, STEP),
            ("alloc", AT + MIB, 2 * MIB, MODULE),
            ("segment_alloc", CUBLAS, 32 * MIB, "libcublas"),
            ("alloc", CUBLAS, 32 * MIB, "libcublas"),
            ("segment_alloc", SMALL, small, "PyTorch"),
            ("alloc", SMALL, 400, STEP),
            ("free_completed", AT, 1_000_000, STEP),
            ("free_completed", SMALL, 400, STEP),
            ("segment_free", SMALL, small, "PyTorch"),
            ("alloc", AT + 4 * MIB, 4 * MIB, STEP),
            ("free_completed", CUBLAS, 32 * MIB, "libcublas"),
            ("segment_free", CUBLAS, 32 * MIB, "libcublas"),
            ("snapshot", 0, 0, "unknown"),
        ]
    );
    let streams: Vec<_> = exported
        .trace(0)
        .iter()
        .map(|e| e["stream"].as_i64().unwrap())
        .collect();
    let mut expected = vec![-2; 4];
    expected.extend([
        0, 0, 0, -2, -2, 0x77, 0x77, 0, 0, 0x77, 0x77, 0x77, 0, -2, -2, -2, 0,
    ]);
    assert_eq!(streams, expected);
    let segment = exported.segment(AT);
    let states: Vec<_> = segment["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| &b["state"])
        .collect();
    assert_eq!(
        states,
        [
            "inactive",
            "active_allocated",
            "inactive",
            "active_allocated",
            "inactive"
        ]
    );
    assert_eq!(segment["segment_type"], "large");
    assert_eq!(
        segment["frames"][4],
        frame("training_step", "/home/ada/train.py", 58)
    );
    let torch = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
    assert_eq!(
        segment["blocks"][1]["frames"],
        json!([
            frame(
                "c10::reportMemoryUsageToProfiler()",
                "/venv/torch/lib/libc10.so",
                0
            ),
            frame("at::native::empty_cuda()", torch, 0),
            frame("_PyEval_EvalFrameDefault", "/usr/bin/python3.12", 0),
            frame("<module>", "/home/ada/train.py", 99),
        ])
    );
    // 15:45:30 at 1 us of the other clock, in another time zone.
    assert_eq!(exported.trace(0)[2]["time_us"], 1_795_596_331_000_000u64);
    assert!(
        exported.said.contains("process 574 (python3): 4 tensors\n"),
        "{}",
        exported.said
    );
}

/// Expandable segments: two adjacent address ranges, pages that come and go.
#[test]
fn contiguous_mappings_are_one_segment() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
    let page = 20 * MIB;
    scene.call("cuMemAddressReserve", AT, 10 * page, 0);
    scene.call("cuMemAddressReserve", AT + 10 * page, 10 * page, 0);
    for number in [0, 1, 2, 9, 10] {
        scene.call("cuMemCreate", 0x50 + number, page, SEGMENT_STACK);
        scene.detail("cuMemMap", AT + number * page, page, [0x50 + number, 0]);
        scene.call("cuMemRelease", 0x50 + number, 0, 0);
        scene.reserved += page;
    }
    // Memory of another library, mapped twice; then one of the two mappings is removed.
    scene.call("cuMemCreate", 0x99, 2 * MIB, NCCL_STACK);
    scene.detail("cuMemMap", NCCL, 2 * MIB, [0x99, 0]);
    scene.detail("cuMemMap", CUBLAS, 2 * MIB, [0x99, 0]);
    scene.call("cuMemUnmap", CUBLAS, 2 * MIB, 0);
    // Across the border of two pages.
    scene.block(AT, page + MIB, Some((page + 7, 0)), STEP_STACK);
    scene.block(AT + 9 * page, 512, Some((512, 0)), STEP_STACK);
    scene.block(AT + 10 * page, MIB, Some((MIB, 9)), STEP_STACK);
    scene.call("cuMemUnmap", AT + 2 * page, page, 0);
    scene.end();

    let exported = export(&folder, &file, &[]);
    assert_eq!(
        exported.segments(0),
        [
            (AT, 2 * page, page + MIB, page + 7),
            (AT + 9 * page, page, 512, 512),
            (AT + 10 * page, page, MIB, MIB),
            (NCCL, 2 * MIB, 2 * MIB, 2 * MIB),
        ]
    );
    assert_eq!(exported.of_torch(), of_engine(&file));
    let kinds = exported.snapshot["segments"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|s| (&s["is_expandable"], &s["stream"])).collect();
    assert_eq!(
        json!(kinds),
        json!([[true, 0], [true, 0], [true, 9], [false, -2]])
    );
    let mapped: Vec<_> = exported
        .events(0)
        .into_iter()
        .filter(|e| e.0.contains("map"))
        .collect();
    let map = |number| ("segment_map", AT + number * page, page, "PyTorch");
    let unmap = ("segment_unmap", AT + 2 * page, page, "PyTorch");
    assert_eq!(mapped, [map(0), map(1), map(2), map(9), map(10), unmap]);
    assert_eq!(
        exported.snapshot["allocator_settings"],
        json!({"expandable_segments": true})
    );
}

/// Attached after tensors were made: later events are right, and nothing is invented.
#[test]
fn tensors_from_before_the_attach_are_reported_missing() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
    // 100 MiB in two segments, 30 MiB of them in tensors.
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

    let exported = export(&folder, &file, &[]);
    assert_eq!(
        exported.segments(0),
        [
            (old, 2 * MIB, 0, 0),
            (old + 10 * MIB, MIB, MIB, MIB),
            (old + 11 * MIB, 20 * MIB, 5 * MIB, 5 * MIB),
            (MADE_UP, 532 * MIB, 532 * MIB, 532 * MIB),
        ]
    );
    assert_eq!(
        exported.events(0)[2..],
        [
            ("alloc", old, 2 * MIB - 7, STEP),
            ("alloc", old + 10 * MIB, MIB, STEP),
            ("segment_alloc", old + 11 * MIB, 20 * MIB, "PyTorch"),
            ("alloc", old + 11 * MIB, 5 * MIB, STEP),
            ("free_completed", old, 2 * MIB - 7, STEP),
            // In the viewer, these exist from the start.
            ("free_completed", older, 8 * MIB, "PyTorch"),
            ("free_completed", older + 8 * MIB, 8 * MIB, "PyTorch"),
            ("segment_unmap", older, 16 * MIB, "PyTorch"),
            ("snapshot", 0, 0, "unknown"),
        ]
    );
    let missing = "cuda:0: 14.00 MiB in tensors from before tracing began are not in the snapshot";
    assert!(exported.said.contains(missing), "{}", exported.said);
}

#[test]
fn process_with_most_tensors_is_the_default() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
    // A launcher, then the program, in the same process.
    scene.call("cudaMalloc", NCCL, 4 * MIB, NCCL_STACK);
    scene.exit(record::EXEC);
    scene.process(scene.pid);
    scene.segment(AT, 20 * MIB);
    for number in 0..3 {
        scene.block(AT + number * MIB, MIB, None, STEP_STACK);
    }
    let first = scene.pid;
    scene.process(first + 1);
    scene.segment(AT, 2 * MIB);
    scene.block(AT, 512, None, STEP_STACK);
    // The first exits, and another process gets its PID.
    scene.pid = first;
    scene.exit(record::EXIT);
    scene.process(first);
    scene.segment(AT, 40 * MIB);
    scene.block(AT, 512, None, STEP_STACK);
    scene.end();

    let exported = export(&folder, &file, &[]);
    assert_eq!(exported.segments(0), [(AT, 20 * MIB, 3 * MIB, 3 * MIB)]);
    let said = "snapshot of process 574 (python3): 3 tensors; 2 more have tensors (--pid)\n";
    assert!(exported.said.contains(said), "{}", exported.said);
    let other = export(&folder, &file, &["--pid", &(first + 1).to_string()]);
    assert_eq!(other.segments(0), [(AT, 2 * MIB, 512, 512)]);
    assert!(!other.said.contains("more"), "{}", other.said);
    assert_eq!(
        refused(&file, &["--pid", "77"]),
        format!(
            "gpuprobe: error: cannot make a snapshot of {}: process 77 is recorded with no memory of a \
             GPU\n",
            file.display()
        )
    );
}

/// The error of an export, which must not have written anything.
fn refused(file: &Path, options: &[&str]) -> String {
    let folder = Folder::new();
    let out = folder.path("snapshot.pickle");
    let (file, path) = (file.to_str().unwrap(), out.to_str().unwrap());
    let words = ["export", file, "--format", "torch", "-o", path];
    let output = gpuprobe(&[&words[..], options].concat());
    assert!(!output.status.success() && !out.exists());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn file_without_a_memory_log_is_refused() {
    let folder = Folder::new();
    let export = folder.real_export();
    assert!(refused(&export, &[]).contains("is no recording of gpuprobe"));
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
    scene.end();
    assert!(refused(&file, &[]).contains("no memory of a GPU is recorded"));
    let other = folder.path("other.sqlite");
    let modes = gpuprobe_cuda::Modes {
        cudatrace: true,
        ..Default::default()
    };
    crate::scene::begin(&other, modes).finish();
    assert!(refused(&other, &[]).contains("was recorded without --memleak"));
    let trace = gpuprobe(&["export", file.to_str().unwrap(), "--pid", "5"]);
    assert!(String::from_utf8_lossy(&trace.stderr).contains("--pid is for --format torch"));
}

#[test]
fn devices_have_traces_of_their_own() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
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
    let exported = export(&folder, &file, &[]);
    assert_eq!(exported.segments(0), [(AT, 20 * MIB, 0, 0)]);
    assert_eq!(
        exported.segments(2),
        [(AT + 2048 * MIB, 20 * MIB, MIB, MIB)]
    );
    let events = |device: usize| exported.events(device).len();
    assert_eq!((events(0), events(1), events(2)), (4, 0, 3));
}

/// Hostile event sequences, and gaps after lost events.
#[test]
fn invalid_events_are_counted_and_dropped() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut scene = TorchScene::new(&file);
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
    let exported = export(&folder, &file, &[]);
    assert_eq!(exported.segments(0), []);
    assert_eq!(
        exported.events(0),
        [
            ("segment_alloc", AT, 20 * MIB, "PyTorch"),
            ("alloc", AT, MIB, STEP),
            ("free_completed", AT, MIB, STEP),
            ("alloc", AT + 512, MIB, STEP),
            ("free_completed", AT + 512, MIB, STEP),
            ("segment_free", AT, 20 * MIB, "PyTorch"),
            ("snapshot", 0, 0, "unknown"),
        ]
    );
    let said = "cuda:0: 6 events fit to nothing that is known, and are not in the snapshot";
    assert!(exported.said.contains(said), "{}", exported.said);
}
