//! Recordings with out-of-memory incidents: a report and a replay have the same text and JSON.

use std::path::{Path, PathBuf};

use gpuprobe_model::abi::{RawCall, RawTensor, record};
use gpuprobe_model::{GpuHolder, GpuMemory, GpuUse, Untraced};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::LogNote;
use rusqlite::Connection;
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use crate::replay::{PID, call, task};
use crate::scene::{MEMORY, MIB, SECOND, begin, identity, introduce, mark, row, usage};
use crate::validator::check_all;
use crate::{Folder, gpuprobe, report, report_json};

const GAVE_UP: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
const OTHER: u32 = 311;

/// A call of the process at the call site `stack`.
fn called(bytes: u64, stack: u64, now_ns: u64, result: i32) -> RawCall {
    let mut call = call("cudaMalloc", 0x7f00_0000_0000 + now_ns * MIB, bytes, now_ns);
    (call.stack, call.device, call.result) = (stack, 0, result);
    call
}

/// PyTorch gives up on a request of this many bytes.
fn gave_up(bytes: i64, now_ns: u64) -> RawTensor {
    RawTensor {
        record_type: record::TENSOR,
        row: row(GAVE_UP),
        device: 0,
        reserved: 0,
        tgid: PID,
        tid: PID,
        time_ns: now_ns,
        address: 0,
        bytes,
        allocated: 500 * MIB,
        held: 532 * MIB,
        stack: 1,
    }
}

/// NVML sample: the process, and one that is not traced.
fn gpu() -> GpuUse {
    let holder = |pid, bytes, comm: &str, command| GpuHolder {
        pid,
        bytes,
        who: Some(Untraced {
            uid: 1000,
            comm: comm.into(),
            identity: identity("eve", command, 2),
        }),
    };
    GpuUse {
        gpu: Some(GpuMemory {
            index: 2,
            uuid: "GPU-2".into(),
            name: "NVIDIA H200".into(),
            total_bytes: Some(1500 * MIB),
            used_bytes: Some(1400 * MIB),
            busy_percent: None,
        }),
        holders: vec![
            holder(
                PID,
                900 * MIB,
                "python3",
                "/usr/bin/python3 /home/ada/train.py",
            ),
            holder(
                OTHER,
                500 * MIB,
                "python3",
                "/usr/bin/python3 /srv/serve.py --port 80",
            ),
        ],
    }
}

fn recorder(path: &Path) -> Player {
    let mut recorder = begin(path, MEMORY);
    let who = identity("ada", "/usr/bin/python3 /home/ada/train.py --epochs 3", 2);
    introduce(&mut recorder, PID, "python3", who);
    recorder
}

/// PyTorch holds memory of two lines, is refused more, frees too little, gives up, and the program
/// exits.
pub(crate) fn record_scene(path: &Path) {
    let mut recorder = recorder(path);
    let at = |ms: u64| SECOND + ms * 1_000_000;
    for (bytes, stack, ms) in [(500 * MIB, 1, 1), (32 * MIB, 2, 2)] {
        recorder.record(called(bytes, stack, at(ms), 0).as_bytes());
    }
    recorder.record(called(200 * MIB, 1, at(10), 2).as_bytes());
    recorder.note(LogNote::Incident(1, gpu()));
    recorder.record(called(200 * MIB, 1, at(20), 2).as_bytes());
    recorder.record(gave_up(199 << 20, at(21)).as_bytes());
    recorder.note(mark(32, false, false, usage(532 * MIB)));
    recorder.record(task(record::EXIT, "python3", at(310)).as_bytes());
    recorder.note(mark(34, false, true, usage(0)));
    recorder.finish();
}

fn recorded() -> (Folder, PathBuf) {
    let folder = Folder::new();
    let path = folder.path("run.sqlite");
    record_scene(&path);
    (folder, path)
}

/// Output of `gpuprobe replay FILE ARGUMENTS`.
fn replayed(file: &Path, arguments: &[&str]) -> String {
    let output = gpuprobe(&[&["replay", file.to_str().unwrap()], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

const LINES: &[&str] = &[
    "out of memory #1 at 15:45:31: python3 train.py --epochs 3 (pid 574, ada) was refused 199.00 MiB on GPU 2 \
     at train.py:88 step: PyTorch gave up; the program ended after 299ms",
    "  cudaMalloc of 209715200 bytes (device) failed 2 times with error 2",
    "  GPU 2 H200: 100.00 MiB free of 1.46 GiB",
    "  it held 532.00 MiB in 2 allocations; NVML: 900.00 MiB; by owner: libtorch 532.00 MiB",
    "  PyTorch cuda:0: allocated 500.00 MiB of 532.00 MiB reserved",
    "    500.00 MiB  0  train.py:88 step",
    "     32.00 MiB  1  model.py:41 Block.__init__",
    "  also on GPU 2:",
    "    500.00 MiB  python3 serve.py --port 80 (pid 311, eve)",
    "out of memory so far: 1 incident, 2 calls refused",
];

#[test]
fn report_and_replay_have_the_same_text() {
    let (_folder, path) = recorded();
    let of_report = report(&path, &[]);
    let of_replay = replayed(&path, &["--last"]);
    for text in [of_report, of_replay] {
        let lines = text
            .lines()
            .skip_while(|line| !line.starts_with("out of memory"));
        let lines: Vec<_> = lines.take(LINES.len()).collect();
        assert_eq!(lines, LINES, "{text}");
    }
    // Before the exit, the outcome was unknown.
    let first = replayed(&path, &[]);
    let line = first
        .lines()
        .find(|line| line.starts_with("out of memory #1"));
    assert!(line.unwrap().ends_with(": PyTorch gave up"), "{first}");
}

#[test]
fn the_json_of_a_report_and_a_replay_is_the_same() {
    let (_folder, path) = recorded();
    let of_report = report_json(&path, &[]);
    let text = replayed(&path, &["--format", "json"]);
    check_all(&text);
    let reports: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [first, last] = &reports[..] else {
        panic!("{} reports", reports.len());
    };
    assert_eq!(of_report["incidents"], last["incidents"]);
    assert_eq!(
        of_report["out_of_memory"],
        json!({"calls": 2, "incidents": 1})
    );
    assert_eq!(first["incidents"][0]["outcome"], "failed");
    let one = &last["incidents"][0];
    for (key, expected) in [
        ("outcome", json!("ended")),
        ("asked_bytes", json!(200 * MIB)),
        ("attempts", json!(2)),
        ("live_bytes", json!(532 * MIB)),
        ("device_bytes", json!(532 * MIB)),
        ("used_bytes", json!(900 * MIB)),
        ("physical_index", json!(2)),
        ("label", json!("train.py:88 step")),
    ] {
        assert_eq!(one[key], expected, "{key}");
    }
    assert_eq!(one["gpu"]["free_bytes"], 100 * MIB);
    assert_eq!(one["pytorch"]["gave_up_on_bytes"], 199 * MIB);
    assert_eq!(one["others"][0]["pid"], OTHER);
    // Without CUDA's own frame, down to the start of the thread.
    let stack = one["stack"].as_array().unwrap();
    let line = stack
        .iter()
        .find(|frame| frame["language"] == "python")
        .unwrap();
    assert_eq!(
        (&line["file"], &line["line"]),
        (&json!("/home/ada/train.py"), &json!(88))
    );
    assert_eq!((stack.len(), &one["complete"]), (5, &json!(true)));
}

#[test]
fn tables_have_the_incident_and_the_holders() {
    let (_folder, path) = recorded();
    let database = Connection::open(path).unwrap();
    let sql = "SELECT api, requested, attempts, repeats, outcome, settled - t0, liveBytes, \
               torchRequested, torchAllocated, torchReserved, gpu, gpuTotal - gpuUsed FROM \
               GPUPROBE_INCIDENTS";
    let row = |row: &rusqlite::Row<'_>| {
        let numbers = (1..12).filter(|index| *index != 4);
        let numbers: Vec<i64> = numbers.map(|index| row.get(index).unwrap()).collect();
        Ok((row.get(0)?, row.get(4)?, numbers))
    };
    let found: (String, String, Vec<i64>) = database.query_row(sql, [], row).unwrap();
    let mib = 1 << 20;
    let numbers = vec![
        200 * mib,
        2,
        0,
        300_000_000 - 10,
        532 * mib,
        199 * mib,
        500 * mib,
        532 * mib,
        2,
        100 * mib,
    ];
    assert_eq!(found, ("cudaMalloc".into(), "ended".into(), numbers));
    // With its call stack.
    let sql = "SELECT count(*) FROM GPUPROBE_INCIDENTS i JOIN CUDA_CALLCHAINS c ON c.id = i.chain";
    let frames: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(frames, 6);
    let sql = "SELECT (globalPid >> 24) & 0xffffff, usedBytes, name FROM GPUPROBE_INCIDENT_HOLDERS";
    let mut statement = database.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let holders = statement.query_map([], row).unwrap().map(Result::unwrap);
    let holders: Vec<(u32, i64, String)> = holders.collect();
    let name = || "python3".to_owned();
    assert_eq!(
        holders,
        [(PID, 900 * mib, name()), (OTHER, 500 * mib, name())]
    );
}

#[test]
fn refused_requests_are_no_allocations() {
    let (_folder, path) = recorded();
    let leaked = report_json(&path, &["--analysis", "leakage"]);
    assert_eq!(leaked["memleak"]["live_bytes"], 532 * MIB);
    // Incidents are in the summary and in `explain`.
    assert!(leaked.get("incidents").is_none());
    let database = Connection::open(&path).unwrap();
    let sql = "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS";
    let events: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(events, 2);
}

#[test]
fn run_without_incidents_has_no_section() {
    let folder = Folder::new();
    let path = folder.path("run.sqlite");
    let mut recorder = recorder(&path);
    // An error other than out of memory.
    recorder.record(called(MIB, 1, SECOND, 1).as_bytes());
    recorder.record(called(MIB, 1, 2 * SECOND, 0).as_bytes());
    recorder.note(mark(34, false, true, usage(0)));
    recorder.finish();
    let found = report_json(&path, &[]);
    assert!(found.get("incidents").is_none() && found.get("out_of_memory").is_none());
    assert!(!report(&path, &[]).contains("out of memory"));
}
