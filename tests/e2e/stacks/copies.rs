//! Copies by call site.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::built;
use crate::harness::gpuprobe::output_of;
use crate::harness::{Setup, standin};

/// What the programs do: function, text of its line, and the rest of its row in the report.
fn truth() -> [(&'static str, &'static str, Value); 4] {
    let reads = "each waits for the GPU: read results together, or less often";
    let locked = "page-locked memory would let them overlap";
    [
        // A burst is no loop.
        (
            "load_weights",
            "cudaMemcpy(device",
            json!(["H2D", "pageable", 12, 12 << 12, 0, null]),
        ),
        (
            "read_result",
            "cudaMemcpy(pageable",
            json!(["D2H", "pageable", 200, 800, 200, reads]),
        ),
        (
            "send_pageable",
            "device, pageable",
            json!(["H2D", "pageable", 30, 30 << 20, 0, locked]),
        ),
        (
            "send_pinned",
            "BATCH /",
            json!(["H2D", "pinned", 20, 10 << 20, 0, null]),
        ),
    ]
}

/// The rows of a report, sorted by label.
fn rows(report: &Value) -> Vec<(String, Value)> {
    let keys = [
        "direction",
        "host_memory",
        "calls",
        "bytes",
        "waits",
        "advice",
    ];
    let sites = report["bandwidth_util"]["sites"].as_array().unwrap();
    let row = |site: &Value| {
        // Behind those that called it.
        let label = site["label"].as_str().unwrap().rsplit(" > ").next();
        (
            label.unwrap().to_owned(),
            json!(keys.map(|key| site[key].clone())),
        )
    };
    let mut rows: Vec<_> = sites.iter().map(row).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

fn check(command: &[String], file: &str, source: &str) {
    let folder = TempDir::new().unwrap();
    let recording = folder
        .path()
        .join("run.sqlite")
        .to_str()
        .unwrap()
        .to_owned();
    let setup = Setup::command(command.iter().cloned()).modes(["--bandwidth-util"]);
    let mut gpuprobe = setup.args(["--record", &recording]).spawn();
    assert_eq!(gpuprobe.exit_code(), 0);
    let report = gpuprobe.final_report();
    report.assert_nothing_lost();
    let row = |(function, text, row): (&str, &str, Value)| {
        let line = source.lines().position(|line| line.contains(text));
        (format!("{file}:{} {function}", line.unwrap() + 1), row)
    };
    let mut expected: Vec<_> = truth().map(row).into();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(rows(&report), expected);
    let replayed = output_of(&["replay", &recording, "--last", "--format", "json"]);
    assert_eq!(rows(&serde_json::from_str(&replayed).unwrap()), expected);
    let analysis = ["report", &recording, "--analysis=copies", "--format"];
    let reported = output_of(&[&analysis[..], &["json"]].concat());
    assert_eq!(rows(&serde_json::from_str(&reported).unwrap()), expected);
    let table = output_of(&[&analysis[..], &["csv", "--group=stack"]].concat());
    let text = output_of(&["replay", &recording, "--last"]);
    for (label, row) in &expected {
        let [calls, bytes] = [&row[2], &row[3]];
        let counts = format!(",{calls},{bytes},{},", row[0].as_str().unwrap());
        let is_row = |line: &str| line.contains(&counts) && line.contains(label);
        assert!(table.lines().any(is_row), "{counts} {label} in {table}");
        let advice = row[5].as_str().map_or(0, |advice| {
            let line = format!(" > {label}: {advice}");
            usize::from(text.lines().any(|one| one.ends_with(&line)))
        });
        let said = text.matches(&format!("{label}: ")).count();
        assert_eq!(said, advice, "{label} in {text}");
    }
}

#[test]
fn root_copies_are_counted_by_line() {
    let folder = TempDir::new().unwrap();
    let program = built(folder.path(), "copies.c", &["-O2"]);
    let source = include_str!("../../../crates/stacks/tests/stacks/programs/copies.c");
    check(&[program.to_str().unwrap().to_owned()], "copies.c", source);
    let python = crate::pythons::pythons().pop().unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/programs/copies.py");
    let words = [
        python.program.to_str().unwrap(),
        "-B",
        path,
        &standin().runtime(),
    ];
    let source = include_str!("../programs/copies.py");
    check(&words.map(str::to_owned), "copies.py", source);
}
