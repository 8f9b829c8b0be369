//! `--from` and `--to` select kernels, copies, calls, waits, NVTX ranges and launches.

use std::collections::BTreeMap;
use std::path::Path;

use gpuprobe_recording::{Facts, Player};
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::scene::{MEMORY, MIB, SECOND, call};
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
        let names = "name function kind range domain direction mode source destination";
        let names: Vec<_> = names.split(' ').collect();
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
fn times_of_day_are_times_after_the_first_event() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let now_ns = gpuprobe_model::clock::monotonic_ns();
    let mut recorder = Player::recording(&file, Facts::now(MEMORY)).unwrap();
    for seconds in [1, 3] {
        let call = call("cudaMalloc", seconds << 20, MIB, now_ns + seconds * SECOND);
        recorder.record(call.as_bytes());
    }
    recorder.finish();
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
