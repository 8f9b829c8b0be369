//! The JSON Schema: every document is valid, and an unknown key is an error.

use std::collections::BTreeSet;
use std::path::Path;

use gpuprobe_cuda::{Direction, MemoryKind};
use gpuprobe_model::Lost;
use serde_json::{Map, Value, json};

use crate::replay::replay;
use crate::untrusted::{SEEDS, seed};
use crate::validator::{DOCUMENT, check, complaint};
use crate::{Folder, report};

/// Report arguments for files.
const QUESTIONS: [&str; 12] = [
    "",
    "--analysis summary --host --top 1",
    "--analysis watermark --host --full-stacks",
    "--analysis watermark --to 0.001",
    "--analysis leakage --group --host --top 1",
    "--analysis leakage --older-than 1ms --min-size 2M --top 1 --depth 1",
    "--analysis=copies",
    "--analysis=calls",
    "--analysis=waits",
    "--analysis nvtx --top 1",
    "--analysis=processes",
    "--analysis usage --host",
];

/// Replay arguments for recordings.
const REPLAYS: [&str; 3] = [
    "--per-call",
    "--last --top 1 --depth 1 --full-stacks",
    "--last --group thread --sort age --older-than 1s --min-size 2M",
];

/// JSON output of the program, one document a line.
pub(crate) fn answers(file: &Path) -> Vec<Value> {
    let words = |question: &'static str| question.split_whitespace().chain(["--format", "json"]);
    let answer = |question| report(file, &words(question).collect::<Vec<_>>());
    let answer = |question| serde_json::from_str(&answer(question)).unwrap();
    let mut answers: Vec<Value> = QUESTIONS.into_iter().map(answer).collect();
    let other = file.to_str().unwrap();
    let diff = report(file, &["--diff", other, "--format", "json"]);
    answers.push(serde_json::from_str(&diff).unwrap());
    answers
}

pub(crate) fn replays(file: &Path) -> Vec<Value> {
    let lines = |question: &'static str| {
        let words = question.split_whitespace().chain(["--format", "json"]);
        let written = replay(file, &words.collect::<Vec<_>>());
        let lines = written
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    REPLAYS.into_iter().flat_map(lines).collect()
}

/// A recording of all modes, and every JSON output of it.
fn of_everything() -> Vec<Value> {
    let folder = Folder::new();
    let file = folder.scene("everything");
    let mut written = answers(&file);
    written.extend(replays(&file));
    written
}

#[test]
fn reports_of_exports_and_old_recordings_match_the_schema() {
    let folder = Folder::new();
    let files = SEEDS.map(|name| seed(&folder, name));
    for file in files.into_iter().chain([folder.real_export()]) {
        answers(&file).iter().for_each(check);
    }
}

#[test]
fn reports_of_recordings_and_replays_match_the_schema() {
    let folder = Folder::new();
    let file = folder.scene("stacks");
    answers(&file).iter().chain(&replays(&file)).for_each(check);
    let written = of_everything();
    written.iter().for_each(check);
    let has = |key: &str| written.iter().any(|document| document.get(key).is_some());
    for key in "copy record memleak cudatrace bandwidth_util activity".split(' ') {
        assert!(has(key), "nothing of {key} was written");
    }
}

/// Calls `see` with each object in `value` and its path.
fn objects(value: &Value, path: &str, see: &mut dyn FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            see(path, object);
            for (key, value) in object {
                objects(value, &format!("{path}/{key}"), see);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                objects(value, &format!("{path}/{index}"), see);
            }
        }
        _ => {}
    }
}

/// Objects whose keys are data.
pub(crate) fn is_map(path: &str) -> bool {
    let is_named = |name: &&str| path.ends_with(&format!("/{name}"));
    [
        "calls",
        "kinds",
        "session/gpus",
        "session/lost",
        "session/notes",
    ]
    .iter()
    .any(is_named)
}

/// Leaves the first elements of each list: all have the same schema.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(object) => object.values_mut().for_each(shorten),
        Value::Array(values) => {
            values.truncate(2);
            values.iter_mut().for_each(shorten);
        }
        _ => {}
    }
}

#[test]
fn unknown_and_renamed_keys_are_refused() {
    let mut places = BTreeSet::new();
    for mut document in of_everything() {
        check(&document);
        shorten(&mut document);
        let mut found = Vec::new();
        objects(&document, "", &mut |path, object| {
            found.push((path.to_owned(), object.keys().cloned().collect::<Vec<_>>()));
        });
        for (path, keys) in found {
            // One element of each list suffices.
            let place = path.split('/').filter(|part| part.parse::<u32>().is_err());
            let place = place.collect::<Vec<_>>().join("/");
            if is_map(&path) || !places.insert((place, keys.clone())) {
                continue;
            }
            let mut added = document.clone();
            added.pointer_mut(&path).unwrap()["surprise"] = json!(1);
            assert!(complaint(&added).is_some(), "{path}/surprise is allowed");
            for key in keys {
                let mut renamed = document.clone();
                let object = renamed.pointer_mut(&path).unwrap().as_object_mut().unwrap();
                let value = object.remove(&key).unwrap();
                object.insert(format!("{key}_"), value);
                let said = complaint(&renamed);
                assert!(said.is_some(), "{path}/{key} may be called {key}_");
            }
        }
    }
    assert!(places.len() > 50, "only {places:?}");
}

#[test]
fn values_of_wrong_type_are_refused() {
    let written = of_everything();
    let has_all =
        |document: &&Value| document["memleak"].is_object() && !document["activity"].is_null();
    let summary = written.iter().find(has_all).unwrap();
    check(summary);
    for (path, value) in [
        ("/schema", json!(1)),
        ("/time", json!("yesterday")),
        ("/analysis", json!("usage")),
        ("/lost/memory", json!(-1)),
        ("/memleak/live_bytes", json!("1 MiB")),
        ("/memleak/processes/0/pid", json!(null)),
        ("/memleak/kinds", json!({"device": {"bytes": 1}})),
        (
            "/memleak/kinds",
            json!({"tape": {"bytes": 1, "allocations": 1}}),
        ),
        ("/cudatrace/kernels/0/grid", json!([1, 1])),
    ] {
        let mut changed = summary.clone();
        let place = changed.pointer_mut(path);
        *place.unwrap_or_else(|| panic!("no {path} in {summary}")) = value;
        assert!(complaint(&changed).is_some(), "{path}");
    }
}

/// Asserts that each object of the schema is closed and that every key has a description.
#[test]
fn schema_objects_are_closed_and_described() {
    // Their keys are merged into others, which are closed.
    let fragments = ["sums", "times", "memleak_keys"].map(|name| format!("/$defs/{name}"));
    let mut keys = 0;
    objects(&DOCUMENT, "", &mut |path, object| {
        let Some(properties) = object.get("properties") else {
            return;
        };
        if path.ends_with("/properties") {
            return;
        }
        let is_closed = |key: &str| object.get(key) == Some(&json!(false));
        assert!(
            is_closed("additionalProperties")
                || is_closed("unevaluatedProperties")
                || fragments.iter().any(|fragment| fragment == path),
            "{path} is open"
        );
        for (key, value) in properties.as_object().unwrap() {
            let referred = value["$ref"].as_str().unwrap_or("#");
            let referred = DOCUMENT.pointer(referred.trim_start_matches('#')).unwrap();
            let is_described = |value: &Value| value["description"].is_string();
            keys += 1;
            assert!(
                is_described(value) || value.get("$ref").is_some() && is_described(referred),
                "{path}/{key} is not described"
            );
        }
    });
    assert!(keys > 200, "only {keys}");
}

/// Names that are data are the same in the schema and in the program.
#[test]
fn enumerations_match_the_program() {
    let names = |path: &str| -> BTreeSet<String> {
        match DOCUMENT.pointer(path).unwrap() {
            Value::Object(keys) => keys.keys().cloned().collect(),
            names => serde_json::from_value(names.clone()).unwrap(),
        }
    };
    let kinds = MemoryKind::ALL.map(|kind| kind.name().to_owned());
    assert_eq!(names("/$defs/kind/enum"), kinds.into());
    let directions = Direction::ALL.map(|direction| direction.name().to_owned());
    assert_eq!(names("/$defs/direction/enum"), directions.into());
    let lost = Lost::default().by_name().into_keys().collect();
    assert_eq!(names("/$defs/lost/properties"), lost);
}
