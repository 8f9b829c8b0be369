//! A training loop of any length.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use super::scene::{CUBLAS_STACK, MODULE_STACK, NCCL_STACK, STEP_STACK, TorchScene};
use rusqlite::Connection;

use super::{AT, CUBLAS, NCCL, exported, of_engine};
use crate::Folder;
use crate::scene::MIB;

/// Segments of the activations, and blocks of a step.
const SEGMENTS: u64 = 4;
const BLOCKS: u64 = 16;
const BLOCK: u64 = 5 * MIB / 2;

/// The address of a step's activations.
fn activations(step: u64) -> u64 {
    AT + (step % SEGMENTS + 1) * 256 * MIB
}

/// Records the state before the first step. Returns the bytes of its blocks.
fn begin(scene: &mut TorchScene) -> u64 {
    scene.call("cudaMalloc", NCCL, 24 * MIB, NCCL_STACK);
    scene.segment(AT, 64 * MIB);
    for number in 0..12 {
        let asked = Some((5 * MIB - 100, 0));
        scene.block(AT + number * 5 * MIB, 5 * MIB, asked, MODULE_STACK);
    }
    for step in 0..SEGMENTS {
        scene.segment(activations(step), 40 * MIB);
    }
    12 * 5 * MIB
}

/// Records a step, which leaks a block in every tenth of the first few hundred. Returns its bytes.
fn step(scene: &mut TorchScene, step: u64) -> u64 {
    if step == 2 {
        scene.call("cudaMalloc", CUBLAS, 32 * MIB, CUBLAS_STACK);
    }
    let segment = activations(step);
    for number in 0..BLOCKS {
        let asked = Some((BLOCK - 1000 * number, 0));
        scene.block(segment + number * BLOCK, BLOCK, asked, STEP_STACK);
    }
    for number in (0..BLOCKS).rev() {
        scene.free(segment + number * BLOCK, BLOCK);
    }
    if !step.is_multiple_of(10) || step >= 400 {
        return 0;
    }
    let kept = AT + (4096 + step * 2) * MIB;
    scene.segment(kept, 20 * MIB);
    scene.block(kept, 12 * MIB, Some((12 * MIB, 0)), STEP_STACK);
    12 * MIB
}

/// Writes a recording of this many steps; returns the bytes of blocks that are live at the end. The
/// recorder drops table rows that it has no time for: all but the first steps are in the log only.
fn record(path: &Path, steps: u64) -> u64 {
    let mut scene = TorchScene::new(path);
    let mut live = begin(&mut scene);
    let first = steps.min(400);
    live += (0..first)
        .map(|number| step(&mut scene, number))
        .sum::<u64>();
    scene.used(scene.reserved + (24 + 32 + 532) * MIB);
    scene.end();
    scene.only_log();
    let mut database = Connection::open(path).unwrap();
    let transaction = database.transaction().unwrap();
    for number in first..steps {
        step(&mut scene, number);
        let log = scene.log.as_mut().unwrap();
        if log.len() > 1 << 20 || number + 1 == steps {
            let insert = "INSERT INTO GPUPROBE_LOG (t0, count, entries) VALUES (0, 0, ?)";
            transaction.execute(insert, [&*log]).unwrap();
            log.clear();
        }
    }
    transaction.commit().unwrap();
    live
}

#[test]
fn a_long_trace_takes_little_memory() {
    let steps = 5_000;
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record(&file, steps);
    let out = folder.path("snapshot.pickle");
    // Limit of the address space in KiB.
    let limit = "ulimit -v 131072; exec \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limit, "sh", env!("CARGO_BIN_EXE_gpuprobe"), "export"])
        .args([file.to_str().unwrap(), "--format", "torch", "-o"])
        .arg(&out)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let events = steps * (BLOCKS * 3);
    let bytes = fs::metadata(&out).unwrap().len();
    assert!(bytes > 30 * events, "{bytes}");
}

#[test]
fn kept_blocks_are_in_the_segments() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let live = record(&file, 30);
    let [ours, others] = exported(&file);
    let active: u64 = ours.iter().chain(&others).map(|segment| segment.2).sum();
    assert_eq!(active, live + (24 + 32 + 532) * MIB);
    assert_eq!(ours, of_engine(&file));
}

/// For manual inspection: writes a recording of `GPUPROBE_STEPS` steps to the folder
/// `GPUPROBE_KEEP`.
#[test]
#[ignore = "it writes a file that is to be kept"]
fn recording_for_manual_inspection() {
    let variable = |name| std::env::var(name).unwrap();
    let path = Path::new(&variable("GPUPROBE_KEEP")).join("training.sqlite");
    record(&path, variable("GPUPROBE_STEPS").parse().unwrap());
    assert!(File::open(path).is_ok());
}
