//! Recordings are replayed by their log and read by their tables: both have what the live run had.

use std::path::Path;

use gpuprobe_model::abi::record;
use gpuprobe_model::identity::Identity;
use gpuprobe_model::{GpuUsage, UserLoss};
use gpuprobe_recording::log::{LogNote, Mark};
use rusqlite::Connection;
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::scene::{MEMORY, MIB, PID, begin, call, report_mark, task};
use crate::validator::check_all;
use crate::{Folder, gpuprobe, report_json};

/// A report of a run without stacks, times and samples of NVML, and with a loss of another user.
fn mark(second: u32, is_final: bool) -> LogNote {
    let whose = UserLoss {
        uid: 1001,
        pid: Some(4242),
        comm: Some("evil".to_owned()),
        what: "memory".to_owned(),
        count: 3,
    };
    LogNote::Report(Mark {
        link: None,
        stacks: false,
        now_ns: None,
        lost_by_user: is_final.then_some(whose).into_iter().collect(),
        usage: None,
        ..report_mark(second, false, is_final, GpuUsage::default())
    })
}

/// A run of two reports, recorded as the session does.
pub(crate) fn record(path: &Path) {
    let mut recorder = begin(path, MEMORY);
    let identity = Identity {
        single_gpu: true,
        ..Identity::default()
    };
    recorder.note(LogNote::Identity(PID, identity));
    recorder.record(task(record::PROCESS, "python", 1_000).as_bytes());
    recorder.record(task(record::THREAD, "python", 1_000).as_bytes());
    recorder.record(call("cudaMalloc", 0x1000, 20 * MIB, 2_000).as_bytes());
    recorder.record(call("cudaMalloc", 0x2000, 4 * MIB, 3_000).as_bytes());
    recorder.record(call("cudaFree", 0x9000, 0, 3_500).as_bytes());
    recorder.note(mark(32, false));
    // Freed by one thread, and allocated again before the free has returned.
    let mut late = call("cudaFree", 0x2000, 0, 4_000);
    late.end_ns = 6_000;
    recorder.record(call("cudaMalloc", 0x2000, 8 * MIB, 5_000).as_bytes());
    recorder.record(late.as_bytes());
    let mut failed = call("cudaMalloc", 0, 1 << 60, 7_000);
    failed.result = 2;
    recorder.record(failed.as_bytes());
    recorder.note(LogNote::Lost([("memory".to_owned(), 3)].into()));
    recorder.record(task(record::EXIT, "python", 8_000).as_bytes());
    recorder.note(mark(34, true));
    recorder.finish();
}

/// A run without an event.
pub(crate) fn record_nothing(path: &Path) {
    begin(path, MEMORY).finish();
}

/// A recording that did not keep up.
pub(crate) fn record_partly(path: &Path) {
    let mut recorder = begin(path, MEMORY);
    recorder.record(call("cudaMalloc", 0x1000, 64, 2_000).as_bytes());
    recorder.note(LogNote::Dropped(5));
    recorder.finish();
}

/// Calls that overlap: memory is live from the return of a call until the entry of another.
pub(crate) fn record_overlapping_calls(path: &Path) {
    let mut recorder = begin(path, MEMORY);
    for (symbol, address, size, start_ns, end_ns) in [
        ("cudaMalloc", 0x1000, 64, 100, 140),
        ("cudaFree", 0x1000, 0, 200, 290),
        // Its free has been entered and the address reused; then it returns.
        ("cudaMalloc", 0x2000, 65, 300, 310),
        ("cudaMalloc", 0x2000, 66, 400, 420),
        ("cudaFree", 0x2000, 0, 350, 500),
        ("cudaFree", 0x9000, 0, 600, 690),
    ] {
        let mut call = call(symbol, address, size, 1_000 + start_ns);
        call.end_ns = 1_000 + end_ns;
        recorder.record(call.as_bytes());
    }
    recorder.finish();
}

pub(crate) fn replay(file: &Path, arguments: &[&str]) -> String {
    let mut words = vec!["replay", file.to_str().unwrap()];
    words.extend(arguments);
    let output = gpuprobe(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let written = String::from_utf8(output.stdout).unwrap();
    if arguments.contains(&"json") {
        check_all(&written);
    }
    written
}

/// The last report of a replay.
pub(crate) fn last(file: &Path, arguments: &[&str]) -> Value {
    let words = [&["--last", "--format", "json"], arguments].concat();
    serde_json::from_str(&replay(file, &words)).unwrap()
}

#[test]
fn tables_have_the_sums_of_the_replay() {
    for name in ["replay", "training", "python", "incidents"] {
        let folder = Folder::new();
        let file = folder.scene(name);
        let last = last(&file, &[]);
        let memory = &last["memleak"];
        let leaked = report_json(&file, &["--analysis", "leakage"]);
        let total = &leaked["totals"]["total"];
        assert_eq!(total["bytes"], memory["live_bytes"], "{name}");
        assert_eq!(total["allocations"], memory["live_allocations"], "{name}");
        assert_eq!(leaked["lost"], last["lost"], "{name}");
        assert_eq!(leaked["lost_by_user"], last["lost_by_user"], "{name}");
        let peak = report_json(&file, &["--analysis", "watermark"]);
        assert_eq!(peak["totals"]["total"]["bytes"], memory["peak_bytes"]);
        // Of the processes that have exited, all is gone.
        let ended = memory["processes"].as_array().unwrap().iter();
        if ended
            .map(|process| &process["exited"])
            .all(|exited| *exited == true)
        {
            let usage = report_json(&file, &["--analysis", "usage"]);
            let last = usage["points"].as_array().unwrap().last().unwrap();
            assert_eq!(last[1], 0, "{name}");
        }
        let incidents = &report_json(&file, &[])["incidents"];
        assert_eq!(incidents, &last["incidents"], "{name}");
    }
}

#[test]
fn tables_match_an_nsys_export() {
    let folder = Folder::new();
    let [ours, theirs] =
        [folder.scene("replay"), folder.real_export()].map(|path| Connection::open(path).unwrap());
    let columns = |connection: &Connection, table: &str| -> Vec<(String, String, i64, i64)> {
        let sql = "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?)";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([table], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
        });
        rows.unwrap().map(Result::unwrap).collect()
    };
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let mut statement = ours.prepare(sql).unwrap();
    let tables: Vec<String> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(tables.len() > 30);
    for table in &tables {
        if table.starts_with("GPUPROBE_") {
            // Readers of exports detect tables by name.
            let parts = "KERNEL RUNTIME DRIVER CUDA_API NVTX MEMCPY MEMSET CALLCHAIN";
            for part in parts.split(' ') {
                assert!(!table.contains(part), "{table}");
            }
            let names: Vec<_> = columns(&ours, table).into_iter().map(|c| c.0).collect();
            let has = |name: &str| names.iter().any(|column| column == name);
            assert!(
                !(has("start") && has("end") || has("id") && has("value")),
                "{table}"
            );
            continue;
        }
        let mut expected = columns(&theirs, table);
        assert!(!expected.is_empty(), "an export has no {table}");
        if table == "TARGET_INFO_SESSION_START_TIME" {
            expected.push(("systemClockNs".to_owned(), "INTEGER".to_owned(), 0, 0));
        }
        assert_eq!(columns(&ours, table), expected, "{table}");
    }
    // Every enumeration value that gpuprobe writes is one of nsys'.
    for table in tables.iter().filter(|table| table.starts_with("ENUM_")) {
        let values = |connection: &Connection| -> Vec<(i64, String, String)> {
            let mut statement = connection
                .prepare(&format!("SELECT id, name, label FROM {table}"))
                .unwrap();
            let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let theirs = values(&theirs);
        for value in values(&ours) {
            assert!(theirs.contains(&value), "{table}: {value:?}");
        }
    }
}
