//! Trace exports for Perfetto and Chrome.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use gpuprobe_analysis::Filter;
use gpuprobe_os::progress::SharedProgress;
use gpuprobe_views::export::{self, ExportConfig, ExportFormat};
use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::Value;

use crate::Folder;

fn trace(file: &Path) -> Value {
    let output = file.with_extension("json");
    let config = ExportConfig {
        file: file.to_owned(),
        format: ExportFormat::Chrome,
        output: Some(output.clone()),
        filter: Filter::default(),
    };
    export::run(&config, &(Arc::new(()) as SharedProgress)).unwrap();
    serde_json::from_slice(&fs::read(output).unwrap()).unwrap()
}

fn events(trace: &Value) -> &[Value] {
    trace["traceEvents"].as_array().unwrap()
}

fn with<'a>(trace: &'a Value, key: &str, value: &str) -> Vec<&'a Value> {
    let all = events(trace).iter();
    all.filter(|event| event[key] == value).collect()
}

fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

type Track = (u64, u64);

fn track(event: &Value) -> Track {
    (
        event["pid"].as_u64().unwrap(),
        event["tid"].as_u64().unwrap(),
    )
}

/// Asserts the viewers' requirements: slices of a track nest, every flow has two ends within
/// slices, every async range is closed, and every track with slices has a name.
fn check(trace: &Value) {
    let mut tracks: BTreeMap<Track, Vec<(i64, i64)>> = BTreeMap::new();
    for slice in with(trace, "ph", "X") {
        let start = ns(&slice["ts"]);
        let end = start + ns(&slice["dur"]);
        tracks.entry(track(slice)).or_default().push((start, end));
    }
    for slices in tracks.values_mut() {
        slices.sort_by_key(|(start, end)| (*start, -end));
        let mut open: Vec<i64> = Vec::new();
        for (start, end) in slices {
            open.retain(|last| *last > *start);
            assert!(
                open.last().is_none_or(|last| *last >= *end),
                "{start} {end}"
            );
            open.push(*end);
        }
    }
    let begins_at = |event: &Value| {
        let slices = tracks.get(&track(event));
        slices.is_some_and(|slices| slices.iter().any(|(start, _)| *start == ns(&event["ts"])))
    };
    let mut arrows: HashMap<u64, Vec<&Value>> = HashMap::new();
    for end in with(trace, "cat", "flow") {
        assert!(begins_at(end), "{end}");
        arrows
            .entry(end["id"].as_u64().unwrap())
            .or_default()
            .push(end);
    }
    for ends in arrows.values() {
        let phases: Vec<_> = ends.iter().map(|end| end["ph"].as_str().unwrap()).collect();
        assert_eq!(phases, ["s", "f"]);
        assert_eq!(ends[1]["bp"], "e");
    }
    let begun = with(trace, "ph", "b");
    let ended = with(trace, "ph", "e");
    let ids = |ends: &[&Value]| ends.iter().map(|e| e["id"].as_u64()).collect::<Vec<_>>();
    assert_eq!(ids(&begun), ids(&ended));
    let named: Vec<_> = with(trace, "name", "thread_name")
        .into_iter()
        .map(track)
        .collect();
    assert!(tracks.keys().all(|track| named.contains(track)));
}

#[test]
fn a_real_export_becomes_a_trace_that_nests() {
    check(&trace(&Folder::new().real_export()));
}

/// Rows of calls, of GPU work, and of NVTX ranges, with random values.
type Rows = (Vec<[i64; 4]>, Vec<[i64; 4]>, Vec<[i64; 4]>);

fn rows() -> impl Strategy<Value = Rows> {
    let row = || [0i64..60, -2i64..40, 0i64..3, 0i64..6];
    let some = || prop::collection::vec(row(), 0..25);
    (some(), some(), some())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_rows_become_a_trace_that_nests((calls, work, ranges) in rows()) {
        let folder = Folder::new();
        let file = folder.database(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER,
                eventClass INTEGER, globalTid INTEGER, correlationId INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, streamId INTEGER,
                correlationId INTEGER, globalPid INTEGER);
             CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER,
                globalTid INTEGER);",
        );
        let process = (1i64 << 48) + (999 << 24);
        let connection = Connection::open(&file).unwrap();
        connection.execute_batch("PRAGMA synchronous = OFF; BEGIN").unwrap();
        let insert = |sql: &str, values: &[i64]| {
            connection.execute(sql, rusqlite::params_from_iter(values)).unwrap();
        };
        for [start, length, thread, number] in &calls {
            let sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)";
            let class = if number % 5 == 4 { 67 } else { thread % 2 };
            insert(sql, &[*start, start + length, class, process + thread, *number]);
        }
        for (index, [start, length, stream, number]) in work.iter().enumerate() {
            let table = if index % 2 == 0 { "KERNEL" } else { "MEMSET" };
            let sql = format!("INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES (?, ?, ?, ?, ?)");
            insert(&sql, &[*start, start + length, *stream, *number, process]);
        }
        for [start, length, thread, number] in &ranges {
            let sql = "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)";
            let kind = [59, 60, 34][(*number % 3) as usize];
            let (start, end, thread) = (*start, start + length, process + thread);
            insert(sql, &[start, end, kind, thread]);
        }
        connection.execute_batch("COMMIT").unwrap();
        let trace = trace(&file);
        check(&trace);
        let is_right = |row: &&[i64; 4]| row[1] >= 0;
        let of = |category: &str| with(&trace, "cat", category).len();
        prop_assert_eq!(of("kernel") + of("set"), work.iter().filter(is_right).count());
        let calls = calls.iter().filter(is_right).filter(|row| row[3] % 5 != 4);
        prop_assert_eq!(of("runtime") + of("driver"), calls.count());
    }
}
