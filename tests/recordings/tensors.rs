//! Recordings with tensors: block events of PyTorch's allocator.

use std::fs;
use std::path::Path;

use gpuprobe_model::abi::{RawCall, RawRequest, RawTensor, record};
use gpuprobe_recording::Player;
use rusqlite::Connection;
use serde_json::json;
use zerocopy::IntoBytes;

use crate::replay::{PID, call};
use crate::scene::{MEMORY, MIB, SECOND, begin, identity, introduce, mark, row, usage};
use crate::{Folder, gpuprobe, report_json};

/// A model of PyTorch's allocator: allocated and reserved bytes, and segments.
struct Torch {
    recorder: Player,
    allocated: u64,
    held: u64,
    now_ns: u64,
}

const SEGMENTS: u64 = 0x7f00_0000_0000;
pub(crate) const USAGE: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

impl Torch {
    fn begin(path: &Path) -> Self {
        let mut recorder = begin(path, MEMORY);
        let who = identity("ada", "/usr/bin/python3 /home/ada/train.py --epochs 3", 0);
        introduce(&mut recorder, PID, "python3", who);
        Self {
            recorder,
            allocated: 0,
            held: 0,
            now_ns: SECOND,
        }
    }

    /// A segment `offset` bytes behind the first, at the call site `stack`.
    fn segment(&mut self, offset: u64, bytes: u64, stack: u64) {
        self.now_ns += 1_000_000;
        let mut call: RawCall = call("cudaMalloc", SEGMENTS + offset, bytes, self.now_ns);
        (call.tgid, call.tid, call.stack, call.device) = (PID, PID, stack, 0);
        self.recorder.record(call.as_bytes());
        self.held += bytes;
    }

    fn tensor(&mut self, offset: u64, bytes: i64, stack: u64) {
        self.now_ns += 1_000_000;
        self.allocated = self.allocated.saturating_add_signed(bytes);
        let tensor = RawTensor {
            record_type: record::TENSOR,
            row: row(USAGE),
            device: 0,
            reserved: 0,
            tgid: PID,
            tid: PID,
            time_ns: self.now_ns,
            address: SEGMENTS + offset,
            bytes,
            allocated: self.allocated,
            held: self.held,
            stack,
        };
        self.recorder.record(tensor.as_bytes());
    }

    fn request(&mut self, offset: u64, bytes: u64) {
        let request = RawRequest {
            record_type: record::REQUEST,
            reserved: 0,
            tgid: PID,
            address: SEGMENTS + offset,
            bytes,
            stream: 0,
        };
        self.recorder.record(request.as_bytes());
    }
}

/// Three segments: one nearly full, one pinned by a small tensor, and one cached. `kept` tensors of
/// 16 MiB leak.
pub(crate) fn record_scene(path: &Path, kept: u64) {
    let mut torch = Torch::begin(path);
    let signed = |bytes: u64| bytes.cast_signed();
    torch.segment(0, 512 * MIB, 1);
    for number in 0..kept {
        torch.tensor(number * 16 * MIB, signed(16 * MIB), 1);
        torch.request(number * 16 * MIB, 16 * MIB - 100);
    }
    torch.segment(1024 * MIB, 20 * MIB, 2);
    torch.tensor(1024 * MIB, signed(12 * MIB), 2);
    torch.tensor(1036 * MIB, signed(MIB / 2), 6);
    torch.request(1036 * MIB, MIB / 2);
    torch.tensor(1024 * MIB, -signed(12 * MIB), 0);
    torch.segment(2048 * MIB, 64 * MIB, 5);
    torch.tensor(2048 * MIB, signed(64 * MIB), 5);
    torch.tensor(2048 * MIB, -signed(64 * MIB), 0);
    torch
        .recorder
        .note(mark(32, false, false, usage(596 * MIB)));
    torch.recorder.note(mark(34, false, true, usage(596 * MIB)));
    torch.recorder.finish();
}

fn recorded(kept: u64) -> (Folder, std::path::PathBuf) {
    let folder = Folder::new();
    let path = folder.path("run.sqlite");
    record_scene(&path, kept);
    (folder, path)
}

#[test]
fn reports_have_pytorch_memory() {
    let (_folder, path) = recorded(20);
    let report = report_json(&path, &["--analysis", "leakage"]);
    let told = &report["memleak"]["processes"][0]["pytorch"][0];
    for (key, expected) in [
        ("device", json!(0)),
        ("allocated_bytes", json!(20 * 16 * MIB + MIB / 2)),
        ("reserved_bytes", json!(596 * MIB)),
        (
            "peak_allocated_bytes",
            json!(20 * 16 * MIB + MIB / 2 + 64 * MIB),
        ),
        ("requested_bytes", json!(20 * (16 * MIB - 100) + MIB / 2)),
        ("tensors", json!(21)),
        ("before_bytes", json!(0)),
        ("since_start", json!(true)),
        ("segments", json!(3)),
        ("segment_bytes", json!(596 * MIB)),
        ("largest_free_bytes", json!(192 * MIB)),
        ("empty_cache_bytes", json!(64 * MIB)),
        ("pinned_by_small_bytes", json!(20 * MIB)),
        ("pinned_by_tensors", json!(1)),
        ("outside_bytes", json!(0)),
        ("alloc_calls", json!(23)),
        ("free_calls", json!(2)),
    ] {
        assert_eq!(told[key], expected, "{key} of {told}");
    }
    let sites = told["sites"].as_array().unwrap();
    let sums = sites
        .iter()
        .map(|site| (&site["live_bytes"], &site["live_allocations"]));
    let expected = [(json!(320 * MIB), json!(20)), (json!(MIB / 2), json!(1))];
    assert!(
        sums.eq(expected.iter().map(|(bytes, count)| (bytes, count))),
        "{told}"
    );
    assert_eq!(told["pinned_by_sites"][0], sites[1]["id"]);
    // They are inside the counted segments.
    assert_eq!(report["memleak"]["live_bytes"], 596 * MIB);
}

#[test]
fn report_up_to_a_time_has_no_later_events() {
    let (_folder, path) = recorded(20);
    let report = report_json(&path, &["--analysis", "leakage", "--to", "4ms"]);
    let told = &report["memleak"]["processes"][0]["pytorch"][0];
    assert_eq!(told["allocated_bytes"], 4 * 16 * MIB, "{told}");
}

#[test]
fn the_table_has_each_block() {
    let (_folder, path) = recorded(3);
    let database = Connection::open(path).unwrap();
    let query = "SELECT bytes, isFree, allocated, requested FROM GPUPROBE_TENSORS ORDER BY rowid";
    let mut statement = database.prepare(query).unwrap();
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let rows: Vec<(i64, bool, i64, Option<i64>)> = rows.unwrap().map(Result::unwrap).collect();
    let (mib, half) = (1 << 20, 1 << 19);
    let expected = [
        (16 * mib, false, 16 * mib, Some(16 * mib - 100)),
        (16 * mib, false, 32 * mib, Some(16 * mib - 100)),
        (16 * mib, false, 48 * mib, Some(16 * mib - 100)),
        (12 * mib, false, 60 * mib, None),
        (half, false, 60 * mib + half, Some(half)),
        (12 * mib, true, 48 * mib + half, None),
        (64 * mib, false, 112 * mib + half, None),
        (64 * mib, true, 48 * mib + half, None),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn comparisons_and_profiles_have_tensors() {
    let (folder, before) = recorded(3);
    let after = folder.path("after.sqlite");
    record_scene(&after, 10);
    let diff = report_json(&before, &["--diff", after.to_str().unwrap()]);
    let tensors = &diff["tensors"];
    assert_eq!(
        tensors["leaked"],
        json!([3 * 16 * MIB + MIB / 2, 160 * MIB + MIB / 2])
    );
    assert_eq!(tensors["never_freed"][0]["allocations"], json!([3, 10]));
    let folded = folder.path("folded");
    let arguments = [
        "report",
        before.to_str().unwrap(),
        "--of",
        "tensors",
        "--folded",
    ];
    let output = gpuprobe(&[&arguments[..], &[folded.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{output:?}");
    let folded = fs::read_to_string(folded).unwrap();
    let bytes = folded
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(bytes.sum::<u64>(), 48 * MIB + MIB / 2);
}

#[test]
fn plots_have_reserved_bytes_above_tensors() {
    let (folder, path) = recorded(20);
    let picture = folder.path("picture.svg");
    let (path, to) = (path.to_str().unwrap(), picture.to_str().unwrap());
    let output = gpuprobe(&["plot", path, "--by", "tensor-site", "-o", to]);
    assert!(output.status.success(), "{output:?}");
    let picture = fs::read_to_string(&picture).unwrap();
    for text in ["reserved by PyTorch", "peak 384.50 MiB", "T0 "] {
        assert!(picture.contains(text), "{text}");
    }
}
