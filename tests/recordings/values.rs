//! Coverage of output fields: each key of the JSON by its path, each column of a recording and each loss
//! counter has a value other than its default in one of the scenes. Other tests compare the values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpuprobe_cuda::Modes;
use gpuprobe_model::Lost;
use gpuprobe_model::abi::RawCall;
use gpuprobe_recording::log::LogNote;
use rusqlite::Connection;
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::replay::{last, replay};
use crate::scene::{self, MEMORY, PID, begin, call, copy, kernel_name, key, launch, mark, usage};
use crate::schema::{answers, is_map, replays};
use crate::silent::{SILENT_COLUMNS, SILENT_PATHS};
use crate::untrusted::{SEEDS, seed};
use crate::{Folder, report, report_json};

/// Scenes that have all fields together.
const SCENES: &str = "second_device replay incidents training host launches copies activity everything ranges holders \
                      stacks streams tensors python";

/// Fields that no other scene has: memory and copies of the second device, a destroyed context,
/// failed calls, captured copies and launches, unknown frees, imported memory, single launches.
pub(crate) fn record_on_the_second_device(path: &Path) {
    let modes = Modes {
        memleak: true,
        cudatrace: true,
        bandwidth_util: true,
        activity: false,
    };
    let mut recorder = begin(path, modes);
    let who = scene::identity("ada", "python3 train.py", 1);
    scene::introduce(&mut recorder, PID, "python3", who);
    let on_device = |symbol: &str, address, bytes, start_ns| RawCall {
        device: 1,
        context: 3,
        ..call(symbol, address, bytes, start_ns)
    };
    for (number, symbol) in (1u64..).zip(["cudaMalloc", "cuMemHostAlloc", "cuMemCreate"]) {
        let call = on_device(symbol, number << 24, number << 20, 1_000_000 * number);
        recorder.record(call.as_bytes());
    }
    for (symbol, start_ns) in [
        ("cuCtxCreate_v2", 4_500_000),
        ("cuCtxDestroy_v2", 4_600_000),
    ] {
        let call = RawCall {
            context: 4,
            ..on_device(symbol, 0xc000, 0, start_ns)
        };
        recorder.record(call.as_bytes());
    }
    let failed = RawCall {
        result: 2,
        ..on_device("cudaMalloc", 0, 1 << 40, 5_000_000)
    };
    recorder.record(failed.as_bytes());
    recorder.record(call("cudaFree", 0x9000, 0, 6_000_000).as_bytes());
    for (number, (result, captured)) in (1u64..).zip([(0, 0), (1, 0), (0, 1)]) {
        let times = (7_000_000 + number, 7_100_000 + number);
        let mut copy = copy("cuMemcpyHtoD_v2", 1 << 20, times);
        (copy.result, copy.captured, copy.destination) = (result, captured, 1 << 24);
        recorder.record(copy.as_bytes());
    }
    let key = key("cuLaunchKernel", 0x5000);
    recorder.record(&kernel_name(key, true, "_Z1av"));
    for captured in [0, 1] {
        let mut launch = launch(key, 8_000_000);
        launch.captured = captured;
        recorder.record(launch.as_bytes());
    }
    recorder.count(key, 1, 1);
    recorder.note(LogNote::Used(8_500_000, 1, 1 << 30));
    recorder.note(mark(32, true, false, usage(1 << 30)));
    recorder.note(mark(34, true, true, usage(1 << 30)));
    recorder.finish();
}

fn recordings(folder: &Folder) -> Vec<PathBuf> {
    let scenes = SCENES.split_whitespace();
    scenes.map(|name| folder.scene(name)).collect()
}

/// Whether a value differs from its default.
fn tells(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(values) => !values.is_empty(),
    }
}

/// Records by path whether any value of a key differs from its default. Keys that are data have one path.
fn note(value: &Value, path: &str, found: &mut BTreeMap<String, bool>) {
    match value {
        Value::Object(_) if path.ends_with("/lost") => {}
        Value::Object(object) => {
            for (key, value) in object {
                let key = if is_map(path) { "*" } else { key };
                let path = format!("{path}/{key}");
                *found.entry(path.clone()).or_default() |= tells(value);
                note(value, &path, found);
            }
        }
        Value::Array(values) => {
            let path = format!("{path}[]");
            values.iter().for_each(|value| note(value, &path, found));
        }
        _ => {}
    }
}

#[test]
fn every_key_has_a_value_in_some_scene() {
    let folder = Folder::new();
    let mut found = BTreeMap::new();
    let ours = recordings(&folder);
    for file in &ours {
        for document in answers(file).iter().chain(&replays(file)) {
            note(document, "", &mut found);
        }
    }
    let exports = SEEDS.map(|name| seed(&folder, name));
    for file in exports.into_iter().chain([folder.real_export()]) {
        answers(&file)
            .iter()
            .for_each(|document| note(document, "", &mut found));
    }
    let silent: BTreeSet<_> = found
        .iter()
        .filter(|(_, tells)| !**tells)
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(
        silent,
        SILENT_PATHS.into_iter().collect(),
        "keys without a value, and with one"
    );
}

#[test]
fn every_column_has_a_value_in_some_scene() {
    let folder = Folder::new();
    let mut found: BTreeMap<String, bool> = BTreeMap::new();
    for file in recordings(&folder) {
        let connection = Connection::open(file).unwrap();
        let texts = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        for table in texts("SELECT name FROM sqlite_master WHERE type = 'table'") {
            for column in texts(&format!("SELECT name FROM pragma_table_info('{table}')")) {
                let sql = format!(
                    "SELECT EXISTS (SELECT 1 FROM {table} WHERE \"{column}\" NOT IN (0, ''))"
                );
                let has: bool = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
                *found.entry(format!("{table}.{column}")).or_default() |= has;
            }
        }
    }
    let silent: BTreeSet<_> = found
        .iter()
        .filter(|(column, tells)| !**tells && !column.starts_with("ENUM_"))
        .map(|(column, _)| column.as_str())
        .collect();
    assert_eq!(silent, SILENT_COLUMNS.into());
}

#[test]
fn every_loss_is_reported_with_its_own_count() {
    let folder = Folder::new();
    let file = folder.path("lost.sqlite");
    let mut lost = Lost::default().by_name();
    for (count, value) in (1001..).zip(lost.values_mut()) {
        *value = count;
    }
    let mut recorder = begin(&file, MEMORY);
    recorder.note(LogNote::Lost(lost.clone()));
    recorder.note(LogNote::Dropped(lost["recording"]));
    recorder.note(mark(34, false, true, Default::default()));
    recorder.finish();
    let last = last(&file, &[]);
    let text = replay(&file, &["--last"]);
    let of_file = report_json(&file, &[]);
    let connection = Connection::open(&file).unwrap();
    let said = report(&file, &[]);
    for (name, count) in &lost {
        assert_eq!(last["lost"][name], *count, "{name}");
        assert_eq!(of_file["lost"][name], *count, "{name}");
        let shown = format!("1,{:03}", count - 1000);
        let is_told = |text: &str| text.contains(&shown) || text.contains(&count.to_string());
        assert!(is_told(&text), "{name} in {text}");
        assert!(is_told(&said), "{name} in {said}");
        let sql = "SELECT count FROM GPUPROBE_LOST WHERE what = ?";
        let noted: i64 = connection.query_row(sql, [name], |row| row.get(0)).unwrap();
        assert_eq!(noted.cast_unsigned(), *count, "{name}");
    }
}
