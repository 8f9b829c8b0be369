//! A synthetic recording through the live reporters, without root.

use std::path::Path;

use chrono::DateTime;
use gpuprobe_cuda::{FUNCTIONS, Modes};
use gpuprobe_model::UserLoss;
use gpuprobe_model::abi::{RawCall, RawTask, record};
use gpuprobe_model::clock::WallClock;
use gpuprobe_model::identity::Identity;
use gpuprobe_recording::log::{LogNote, Mark};
use gpuprobe_recording::{Facts, Player};
use rusqlite::Connection;
use serde_json::Value;
use zerocopy::{FromZeros, IntoBytes};

use crate::validator::check_all;
use crate::{Folder, allocations, gpuprobe, report, report_json};

pub(crate) const BEGAN: &str = "2026-11-25T15:45:30+07:00";
pub(crate) const PID: u32 = 574;

pub(crate) fn row(symbol: &str) -> u16 {
    u16::try_from(FUNCTIONS.iter().position(|f| f.symbol == symbol).unwrap()).unwrap()
}

pub(crate) fn task(kind: u16, comm: &str, time_ns: u64) -> RawTask {
    let mut task = RawTask::new_zeroed();
    task.record_type = kind;
    (task.tgid, task.tid, task.uid, task.time_ns) = (PID, PID, 1000, time_ns);
    task.comm[..comm.len()].copy_from_slice(comm.as_bytes());
    task
}

pub(crate) fn call(symbol: &str, address: u64, size: u64, start_ns: u64) -> RawCall {
    let mut call = RawCall::new_zeroed();
    (call.record_type, call.row, call.device) = (record::CALL, row(symbol), -1);
    (call.tgid, call.tid) = (PID, PID);
    (call.start_ns, call.end_ns, call.address, call.size) =
        (start_ns, start_ns + 10, address, size);
    call
}

/// The user and process of the loss.
fn whose() -> UserLoss {
    UserLoss {
        uid: 1001,
        pid: Some(4242),
        comm: Some("evil".to_owned()),
        what: "memory".to_owned(),
        count: 3,
    }
}

fn mark(second: u32, is_final: bool) -> LogNote {
    LogNote::Report(Mark {
        host_wide: false,
        time: format!("2026-11-25T15:45:{second:02}+07:00"),
        is_final,
        since_last_ns: 2_000_000_000,
        since_start_ns: 4_000_000_000,
        link: None,
        stacks: false,
        now_ns: None,
        lost_by_user: is_final.then(whose).into_iter().collect(),
        usage: None,
    })
}

/// Start of the run, by the clock of its events.
const BEGAN_NS: i64 = 1_000;

/// A recording of memory that starts now.
fn begin(path: &Path) -> Player {
    let began = DateTime::parse_from_rfc3339(BEGAN).unwrap();
    let modes = Modes {
        memleak: true,
        ..Modes::default()
    };
    let facts = Facts {
        clock: WallClock::at(began, BEGAN_NS),
        ..Facts::now(modes)
    };
    Player::recording(path, facts).unwrap()
}

/// A run of two reports, recorded as the session does.
pub(crate) fn record(path: &Path) {
    let mut recorder = begin(path);
    let identity = Identity {
        single_gpu: true,
        ..Identity::default()
    };
    recorder.note(LogNote::Identity(PID, identity));
    recorder.record(task(record::PROCESS, "python", 1_000).as_bytes());
    recorder.record(task(record::THREAD, "python", 1_000).as_bytes());
    let mib = 1 << 20;
    recorder.record(call("cudaMalloc", 0x1000, 20 * mib, 2_000).as_bytes());
    recorder.record(call("cudaMalloc", 0x2000, 4 * mib, 3_000).as_bytes());
    recorder.record(call("cudaFree", 0x9000, 0, 3_500).as_bytes());
    recorder.note(mark(32, false));
    // Freed by one thread, and allocated again before the free has returned.
    let mut late = call("cudaFree", 0x2000, 0, 4_000);
    late.end_ns = 6_000;
    recorder.record(call("cudaMalloc", 0x2000, 8 * mib, 5_000).as_bytes());
    recorder.record(late.as_bytes());
    let mut failed = call("cudaMalloc", 0, 1 << 60, 7_000);
    failed.result = 2;
    recorder.record(failed.as_bytes());
    recorder.note(LogNote::Lost([("memory".to_owned(), 3)].into()));
    recorder.record(task(record::EXIT, "python", 8_000).as_bytes());
    recorder.note(mark(34, true));
    recorder.finish();
}

const GOLDEN: &str = "\
-------------------- 2026-11-25T15:45:32+07:00 --------------------
PID: 574 / UID: 1000
  python:574
    0x1000:gpu_0: 20.00 MiB
    0x2000:gpu_0: 4.00 MiB

TOTAL LEAKED: 24.00 MiB

total number of `cudaMalloc` calls: 2
frees of memory allocated before tracing began: 1
25165824 bytes leaked from 2 cuda memory allocation(s)

-------------------- 2026-11-25T15:45:34+07:00 --------------------
PID: 574 / UID: 1000 (exited)
  python:574
    0x1000:gpu_0: 20.00 MiB
    0x2000:gpu_0: 8.00 MiB

TOTAL LEAKED: 28.00 MiB

total number of `cudaMalloc` calls: 3
calls that failed: 1
frees of memory allocated before tracing began: 1
29360128 bytes leaked from 2 cuda memory allocation(s)

out of memory #1 at 15:45:30: python (pid 574, uid 1000) was refused 1.00 EiB on GPU 0 at cudaMalloc: \
the program ended at once
  cudaMalloc of 1152921504606846976 bytes (device) failed with error 2
  it held 28.00 MiB in 2 allocations
    28.00 MiB  0  cudaMalloc
out of memory so far: 1 incident, 1 call refused
LOST EVENTS, the figures above are incomplete: 3 memory calls
    3 memory calls of user 1001 (PID 4242 evil)

";

pub(crate) fn replay(file: &Path, arguments: &[&str]) -> String {
    let mut words = vec!["replay", file.to_str().unwrap()];
    words.extend(arguments);
    let output = gpuprobe(&words);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let written = String::from_utf8(output.stdout).unwrap();
    if arguments.contains(&"json") {
        check_all(&written);
    }
    written
}

#[test]
fn replay_equals_the_live_report() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record(&file);
    assert_eq!(replay(&file, &["--group", "thread"]), GOLDEN);
    let last: Value =
        serde_json::from_str(&replay(&file, &["--last", "--format", "json"])).unwrap();
    assert_eq!(last["memleak"]["live_bytes"], 28 << 20);
    assert_eq!(
        last["memleak"]["processes"][0]["threads"][0]["allocations"][0]["time"],
        "2026-11-25T15:45:30.000001+07:00"
    );
}

#[test]
fn recording_states_whether_it_is_complete() {
    const NOTE: &str = "note: the recording";
    let folder = Folder::new();
    let (whole, partial) = (folder.path("whole.sqlite"), folder.path("partial.sqlite"));
    record(&whole);
    let mut recorder = begin(&partial);
    recorder.record(call("cudaMalloc", 0x1000, 64, 2_000).as_bytes());
    recorder.note(LogNote::Dropped(5));
    recorder.finish();
    let meta = |file: &Path, sql: &str| -> String {
        let connection = Connection::open(file).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let complete = "SELECT val FROM GPUPROBE_META WHERE key = 'complete'";
    let dropped = "SELECT CAST(count AS TEXT) FROM GPUPROBE_LOST WHERE what = 'recording'";
    assert_eq!(meta(&whole, complete), "true");
    let absent = "SELECT CAST(count(*) AS TEXT) FROM sqlite_master WHERE name IN \
        ('CUDA_GPU_MEMORY_POOL_EVENTS', 'TARGET_INFO_CUDA_CONTEXT_INFO', \
        'TARGET_INFO_CUDA_STREAM', 'TARGET_INFO_CUDA_DEVICE')";
    let empty = folder.path("empty.sqlite");
    begin(&empty).finish();
    assert_eq!(meta(&empty, absent), "0", "tables without rows");
    assert_eq!(meta(&whole, dropped), "0");
    assert_eq!(meta(&partial, complete), "false");
    assert_eq!(meta(&partial, dropped), "5");
    let said = report(&whole, &[]);
    assert!(!said.contains(NOTE), "{said}");
    let said = report(&partial, &[]);
    assert!(
        said.contains("note: the recording is not complete: it did not keep up"),
        "{said}"
    );
    assert_eq!(report_json(&partial, &[])["lost"]["recording"], 5);
    // Like a recording that was cut off.
    let connection = Connection::open(&partial).unwrap();
    let cut = "DELETE FROM GPUPROBE_META WHERE key = 'complete'";
    connection.execute(cut, []).unwrap();
    drop(connection);
    let said = report(&partial, &[]);
    assert!(said.contains("note: the recording has no end"), "{said}");
}

/// Memory is live from the return of a call until the entry of another.
#[test]
fn memory_rows_have_the_times_of_their_calls() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut recorder = begin(&file);
    let mut at = |symbol: &str, address, size, (start_ns, end_ns): (u64, u64)| {
        let mut call = call(symbol, address, size, 1_000 + start_ns);
        call.end_ns = 1_000 + end_ns;
        recorder.record(call.as_bytes());
    };
    at("cudaMalloc", 0x1000, 64, (100, 140));
    at("cudaFree", 0x1000, 0, (200, 290));
    // Its free has been entered and the address reused; then it returns.
    at("cudaMalloc", 0x2000, 65, (300, 310));
    at("cudaMalloc", 0x2000, 66, (400, 420));
    at("cudaFree", 0x2000, 0, (350, 500));
    at("cudaFree", 0x9000, 0, (600, 690));
    recorder.finish();
    let connection = Connection::open(&file).unwrap();
    let rows = |sql: &str| -> Vec<[Option<i64>; 4]> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
        });
        rows.unwrap().map(Result::unwrap).collect()
    };
    let some = |values: [i64; 4]| values.map(Some);
    // Time, operation (1: free), bytes, and correlation id of the call.
    let memory = "SELECT start, memoryOperationType, bytes, correlationId \
                  FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY rowid";
    let gave_way = [Some(420), Some(1), Some(65), None];
    assert_eq!(
        rows(memory),
        [
            some([140, 0, 64, 1]),
            some([200, 1, 64, 2]),
            some([310, 0, 65, 3]),
            gave_way,
            some([420, 0, 66, 4]),
        ]
    );
    let calls = "SELECT start, \"end\", correlationId, returnValue \
                 FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY rowid";
    let times = [
        (100, 140),
        (200, 290),
        (300, 310),
        (400, 420),
        (350, 500),
        (600, 690),
    ];
    let expected: Vec<_> = (1..)
        .zip(times)
        .map(|(number, (start, end))| some([start, end, number, 0]))
        .collect();
    assert_eq!(rows(calls), expected);
    let unmatched = "SELECT t0, address, correlationId, 0 FROM GPUPROBE_UNMATCHED_FREES";
    assert_eq!(rows(unmatched), [some([600, 0x9000, 6, 0])]);
}

#[test]
fn analyses_agree_with_the_replay() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record(&file);
    let last: Value =
        serde_json::from_str(&replay(&file, &["--last", "--format", "json"])).unwrap();
    let leaked = report_json(&file, &["--analysis", "leakage"]);
    assert_eq!(
        leaked["totals"]["total"]["bytes"],
        last["memleak"]["live_bytes"]
    );
    assert_eq!(
        leaked["totals"]["total"]["allocations"],
        last["memleak"]["live_allocations"]
    );
    assert_eq!(leaked["lost"], last["lost"]);
    assert_eq!(leaked["lost"]["memory"], 3);
    let whose = serde_json::json!([whose()]);
    assert_eq!(
        (&leaked["lost_by_user"], &last["lost_by_user"]),
        (&whose, &whose)
    );
    assert_eq!(leaked["findings"]["double_allocations"], 0);
    let peak = report_json(&file, &["--analysis", "watermark"]);
    assert_eq!(
        peak["totals"]["total"]["bytes"],
        last["memleak"]["peak_bytes"]
    );
    let first = &allocations(&peak)[0];
    assert_eq!(first["api"], "cudaMalloc");
    assert_eq!(first["tid"], PID);
    // At the exit of the process, all of it is gone.
    let usage = report_json(&file, &["--analysis", "usage"]);
    let last = usage["points"].as_array().unwrap().last().unwrap();
    assert_eq!(last[1], 0);
}

#[test]
fn tables_match_an_nsys_export() {
    let folder = Folder::new();
    let (file, real) = (folder.path("run.sqlite"), folder.real_export());
    record(&file);
    let (ours, theirs) = (
        Connection::open(&file).unwrap(),
        Connection::open(&real).unwrap(),
    );
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
            for part in [
                "KERNEL",
                "RUNTIME",
                "DRIVER",
                "CUDA_API",
                "NVTX",
                "MEMCPY",
                "MEMSET",
                "CALLCHAIN",
            ] {
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

#[test]
fn records_of_another_layout_are_not_replayed() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record(&file);
    let connection = Connection::open(&file).unwrap();
    connection
        .execute(
            "UPDATE GPUPROBE_META SET val = 'other' WHERE key = 'record_layout'",
            [],
        )
        .unwrap();
    drop(connection);
    let output = gpuprobe(&["replay", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("`gpuprobe report` reads it"),
        "{said}"
    );
    assert_eq!(
        report_json(&file, &["--analysis", "leakage"])["totals"]["total"]["allocations"],
        2
    );
}

#[test]
fn rows_of_another_table_of_functions_are_found_by_name() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    record(&file);
    let connection = Connection::open(&file).unwrap();
    // As if the enumeration were ordered differently: 'cudaMalloc' and 'cudaFree' swap values.
    let (malloc, free) = (row("cudaMalloc"), row("cudaFree"));
    connection
        .execute_batch(&format!(
            "UPDATE GPUPROBE_FUNCTIONS SET symbol = 'cudaFree' WHERE line = {malloc};
             UPDATE GPUPROBE_FUNCTIONS SET symbol = 'cudaMalloc' WHERE line = {free};"
        ))
        .unwrap();
    drop(connection);
    let first = replay(&file, &["--format", "json"]);
    let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert_eq!(first["memleak"]["alloc_calls"], 1);
    assert_eq!(first["memleak"]["free_calls"], 2);
}
