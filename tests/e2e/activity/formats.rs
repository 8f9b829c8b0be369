//! Single records and sums in every output format. `tests/recordings` has the text of sums.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::{WORK, setup};
use crate::harness::gpuprobe::Run;
use crate::harness::{Backend, Setup};
use crate::validator::check;

fn live() -> Setup {
    let activity = Setup::workload(Backend::Shared).modes(["--activity"]);
    activity.env("GPUPROBE_CUPTI", &super::cupti("cupti"))
}

/// A run of `WORK` with single records.
fn written(format: &str) -> Run {
    live().format(format).args(["--per-call"]).run(WORK)
}

#[test]
fn root_text_has_every_activity_record_and_the_sums() {
    let run = written("text");
    let (pid, truth, text) = (run.pid, run.truth, run.text());
    let mut words: BTreeMap<&str, u64> = BTreeMap::new();
    for word in text.lines().filter_map(|line| line.split(", ").next()) {
        *words.entry(word).or_default() += 1;
    }
    for (word, count) in [
        ("kernel", truth.launches),
        ("memcpy", truth.copies),
        ("memset", truth.sets),
        ("memory", truth.allocs + truth.frees),
        ("device", 1),
        ("context", 1),
        ("stream", 1),
    ] {
        assert_eq!(words[word], count, "{word}: {text}");
    }
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(
        line(&format!("call, runtime, pid {pid}, cudaMalloc")).contains(&format!(", tid {pid}, "))
    );
    assert!(
        line(&format!("kernel, pid {pid}, add, "))
            .contains(", device 0, context 1, stream 7, correlation")
    );
    assert!(line("memcpy, H2D, pid ").contains(", bytes 4096, "));
    let time = |name: &str| -> u64 {
        let (_, rest) = line(&format!("kernel, pid {pid}, add, "))
            .split_once(name)
            .unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    };
    let (start, end) = (time("start ns "), time("end ns "));
    assert_eq!(end - start, 1500);
    let of_trace = 0..600_000_000_000;
    assert!(of_trace.contains(&start), "since the start of the trace");
    let shares = "GPU 0 H200  kernels ";
    let shares = text.lines().find(|line| line.contains(shares)).unwrap();
    for part in [" %, copies ", " %, idle ", " % of "] {
        assert!(shares.contains(part), "no {part} in {shares}");
    }
    assert!(!text.contains("LOST"), "{text}");
}

#[test]
fn root_json_of_all_modes_has_each_record_and_matches_the_schema() {
    let all = ["--memleak", "--cudatrace", "--bandwidth-util", "--activity"];
    let setup = live().modes(all).args(["--per-call"]);
    let (mut gpuprobe, pid) = setup.interval("50ms").started();
    gpuprobe.talk.play(WORK);
    let modes = all.map(|mode| mode.trim_start_matches('-').replace('-', "_"));
    let is_whole = |line: &Value, is_final: bool| {
        line["final"] == is_final && modes.iter().all(|mode| line[mode].is_object())
    };
    gpuprobe.next_report();
    let truth = gpuprobe.talk.done();
    gpuprobe.final_report();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<_> = lines.map(|line| line.expect("a line of JSON")).collect();
    lines.iter().for_each(check);
    for is_final in [false, true] {
        assert!(lines.iter().any(|line| is_whole(line, is_final)), "{text}");
    }
    assert!(lines.iter().any(|line| line["copy"].is_object()), "{text}");
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for record in lines.iter().filter_map(|line| line.get("record")) {
        assert_eq!(record["pid"], pid);
        *kinds.entry(record["kind"].as_str().unwrap()).or_default() += 1;
    }
    let found = ["kernel", "memcpy", "memset"].map(|kind| kinds[kind]);
    assert_eq!(found, [truth.launches, truth.copies, truth.sets]);
    let last = lines.last().unwrap();
    assert_eq!(last["activity"]["records"], kinds.values().sum::<u64>());
}

#[test]
fn root_csv_has_a_row_for_each_record_or_sum() {
    for (run, sums) in [
        (written("csv"), false),
        (setup(Backend::Shared).format("csv").run(WORK), true),
    ] {
        let text = run.text();
        let mut rows = csv::Reader::from_reader(text.as_bytes());
        let header = rows.headers().unwrap().clone();
        let column = |name: &str| header.iter().position(|column| column == name).unwrap();
        let rows = rows.records().map(|row| row.expect("as many fields"));
        let kernels = rows.filter(|row| &row[column("kind")] == "kernel");
        let count = |row: csv::StringRecord| match sums {
            true => row[column("count")].parse().unwrap(),
            false => 1,
        };
        assert_eq!(kernels.map(count).sum::<u64>(), run.truth.launches);
    }
}
