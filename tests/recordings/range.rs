//! `--from` and `--to` select kernels, copies, calls, waits, NVTX ranges and launches.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::launches::{key, launch, malloc, name, recorded};
use crate::{Folder, gpuprobe, report, report_json};

/// What the real export has rows of, and how many of the parts of its time have some.
const QUESTIONS: [(&str, usize); 4] = [
    ("--kernels", 3),
    ("--copies", 2),
    ("--calls", 5),
    ("--waits", 1),
];
/// Times that divide it, nanoseconds after the first memory event; some are within kernels and copies.
const CUTS: [i64; 4] = [-1_000_000, 45_000_000, 53_000_001, 54_200_000];

/// Number and time of each row of a table, by what tells rows apart.
fn rows(file: &Path, question: &str, range: &[String]) -> BTreeMap<String, [u64; 2]> {
    let mut words = vec![question, "--format", "tsv"];
    words.extend(range.iter().map(String::as_str));
    let text = report(file, &words);
    let mut lines = text
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let place = |names: &[&str]| {
        let found = columns.iter().position(|column| names.contains(column));
        found.unwrap_or_else(|| panic!("no {names:?} in {columns:?}"))
    };
    let (count, ns) = (
        place(&["count", "launches"]),
        place(&["total_ns", "gpu_ns", "ns"]),
    );
    let told = |row: &[&str]| {
        let names = [
            "name",
            "function",
            "kind",
            "range",
            "domain",
            "direction",
            "mode",
            "source",
            "destination",
        ];
        let named = columns
            .iter()
            .zip(row)
            .filter(|(column, _)| names.contains(*column));
        named.map(|(_, cell)| *cell).collect::<Vec<_>>().join(" ")
    };
    let number = |cell: &str| cell.parse().unwrap();
    let all = lines.map(|row| (told(&row), [number(row[count]), number(row[ns])]));
    all.collect()
}

/// The ranges that [`CUTS`] divide a file into.
fn parts() -> Vec<Vec<String>> {
    let from = |cut: i64| format!("--from={}ns", cut + 1);
    let to = |cut: i64| format!("--to={cut}ns");
    let mut parts = vec![vec![to(CUTS[0])]];
    parts.extend(CUTS.windows(2).map(|pair| vec![from(pair[0]), to(pair[1])]));
    parts.push(vec![from(CUTS[CUTS.len() - 1])]);
    parts
}

#[test]
fn parts_of_the_time_add_up_to_all_of_it() {
    let folder = Folder::new();
    let file = folder.real_export();
    for (question, wanted) in QUESTIONS {
        let whole = rows(&file, question, &[]);
        assert!(!whole.is_empty(), "{question}");
        let mut sum = BTreeMap::new();
        let mut filled = 0;
        for range in parts() {
            let part = rows(&file, question, &range);
            filled += usize::from(!part.is_empty());
            for (name, [count, ns]) in part {
                let all: &mut [u64; 2] = sum.entry(name).or_default();
                *all = [all[0] + count, all[1] + ns];
            }
        }
        assert_eq!(sum, whole, "{question}");
        assert_eq!(filled, wanted, "{question}");
    }
}

#[test]
fn nvtx_ranges_are_selected_by_their_begin() {
    let folder = Folder::new();
    let thread = 574i64 << 24;
    let ranges = [(10, 500, "a"), (20, 30, "b"), (30, 40, "c")];
    let rows: Vec<_> = ranges
        .iter()
        .map(|(start, end, text)| format!("({start}, {end}, 59, {thread}, '{text}')"))
        .collect();
    let file = folder.database(&format!(
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT); \
         INSERT INTO NVTX_EVENTS VALUES {}",
        rows.join(", ")
    ));
    let names = |range: &[&str]| {
        let text = report(&file, &[&["--nvtx", "--format", "tsv"], range].concat());
        let names = text
            .lines()
            .skip(1)
            .map(|line| line.split('\t').nth(1).unwrap().to_owned());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&[]), ["a", "b", "c"]);
    assert_eq!(names(&["--to", "20ns"]), ["a", "b"]);
    assert_eq!(names(&["--from", "20ns", "--to", "29ns"]), ["b"]);
}

/// Busy time of the first GPU, and the time looked at.
fn busy(report: &Value) -> [u64; 2] {
    ["busy_ns", "observed_ns"].map(|key| report["gpus"][0][key].as_u64().unwrap_or(0))
}

#[test]
fn busy_time_is_clipped_to_the_range() {
    let folder = Folder::new();
    let file = folder.real_export();
    let asked = |range: &[String]| {
        let words: Vec<_> = range.iter().map(String::as_str).collect();
        busy(&report_json(&file, &[&["--kernels"], &words[..]].concat()))
    };
    let parts = parts();
    // The GPU has nothing to do in the first part.
    assert_eq!(asked(&parts[0]), [0, 0]);
    let mut sums = [0, 0];
    for range in &parts[1..] {
        let part = asked(range);
        assert!(part[0] <= part[1], "{range:?}: {part:?}");
        sums = [sums[0] + part[0], sums[1] + part[1]];
    }
    let later = format!("--from={}ns", CUTS[0] + 1);
    assert_eq!(asked(&[later]), sums);
    assert_eq!(asked(&[])[0], sums[0]);
}

#[test]
fn the_range_is_in_the_json() {
    let folder = Folder::new();
    let file = folder.real_export();
    let range = ["--kernels", "--from", "1ms", "--to=24.5ms"];
    let found = report_json(&file, &range);
    assert_eq!(
        (&found["from"], &found["to"]),
        (&0.001.into(), &0.0245.into())
    );
    let whole = report_json(&file, &["--kernels"]);
    assert_eq!((&whole["from"], &whole["to"]), (&Value::Null, &Value::Null));
    // Before the first memory event is all of it.
    let early = report_json(&file, &["--calls", "--from", "-1h"]);
    assert_eq!(
        early["activity"],
        report_json(&file, &["--calls"])["activity"]
    );
}

#[test]
fn times_of_day_are_times_after_the_first_event() {
    let folder = Folder::new();
    let now_ns = gpuprobe_model::clock::monotonic_ns();
    let file = recorded(&folder, |recorder| {
        recorder.record(&malloc(now_ns + 1_000_000_000));
        recorder.record(&malloc(now_ns + 3_000_000_000));
    });
    let report = report_json(&file, &["--analysis", "leakage"]);
    let first = report["memleak"]["processes"][0]["sites"][0]["oldest"]
        .as_str()
        .unwrap();
    // The allocations are 2 s apart: one second after the first.
    let first = chrono::DateTime::parse_from_rfc3339(first).unwrap();
    let between = first + chrono::TimeDelta::seconds(1);
    let count = |words: &[&str]| {
        let asked = [&["--analysis", "watermark"], words].concat();
        let report = report_json(&file, &asked);
        report["findings"]["events"].as_u64().unwrap()
    };
    assert_eq!(count(&[]), 2);
    for option in ["--from", "--to"] {
        assert_eq!(count(&[option, &between.to_rfc3339()]), 1, "{option}");
        let local = between
            .with_timezone(&chrono::Local)
            .naive_local()
            .to_string();
        assert_eq!(count(&[option, &local]), 1, "{option} {local}");
    }
    let later = (between + chrono::TimeDelta::hours(1)).to_rfc3339();
    let done = gpuprobe(&["report", file.to_str().unwrap(), "--from", &later]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("--from is beyond the end of"), "{said}");
}

#[test]
fn single_launches_are_selected_and_counts_are_not() {
    let folder = Folder::new();
    let (a, b) = (key("cuLaunchKernel", 0x5000), key("cuLaunchKernel", 0x6000));
    let file = recorded(&folder, |recorder| {
        recorder.record(&malloc(1_000));
        recorder.record(&name(a, false, "_Z1av"));
        for start_ns in [2_000, 3_000, 4_000] {
            recorder.record(zerocopy::IntoBytes::as_bytes(&launch(a, start_ns)));
        }
        let mut failed = launch(b, 3_010);
        failed.result = 700;
        recorder.record(zerocopy::IntoBytes::as_bytes(&failed));
        recorder.count(a, 3, 0);
    });
    let launches = |range: &[&str]| {
        let found = report_json(&file, &[&["--kernels"], range].concat());
        let kernels = found["cudatrace"]["kernels"].as_array().unwrap().clone();
        let told = kernels
            .iter()
            .map(|one| (one["name"].clone(), one["launches"].clone()));
        told.collect::<Vec<_>>()
    };
    assert_eq!(launches(&[]), [("a()".into(), 3.into())]);
    // After the call that allocates.
    assert_eq!(
        launches(&["--from", "1500ns", "--to", "2500ns"]),
        [("a()".into(), 1.into())]
    );
    assert_eq!(launches(&["--from", "1.9us"]), [("a()".into(), 2.into())]);
    assert_eq!(launches(&["--to", "900ns"]), []);
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection
        .execute("DELETE FROM GPUPROBE_LAUNCHES", [])
        .unwrap();
    assert_eq!(launches(&["--to", "999ns"]), [("a()".into(), 3.into())]);
    let done = gpuprobe(&[
        "report",
        file.to_str().unwrap(),
        "--kernels",
        "--to",
        "999ns",
    ]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("do not select launches"), "{said}");
}
