//! Single records and sums in every output format.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::{WORK, setup};
use crate::harness::{Backend, Setup, Truth, standin};
use crate::validator::check;

/// The report of a run of `WORK` in `format`, with or without single records.
fn written(format: &str, singles: bool) -> (u32, Truth, String) {
    let mut setup = Setup::command([standin().program_text(Backend::Shared)])
        .modes(["--activity"])
        .env("GPUPROBE_CUPTI", &super::cupti("cupti"))
        .format(format);
    if singles {
        setup = setup.args(["--per-record"]);
    }
    let mut gpuprobe = setup.start();
    let pid = gpuprobe.talk.ready();
    WORK.iter()
        .for_each(|command| drop(gpuprobe.talk.say(command)));
    let truth = gpuprobe.talk.done();
    gpuprobe.wait();
    (pid, truth, fs::read_to_string(&gpuprobe.reports).unwrap())
}

/// Number of lines by first word.
fn first_words(text: &str) -> BTreeMap<&str, u64> {
    let mut words = BTreeMap::new();
    for word in text.lines().filter_map(|line| line.split(' ').next()) {
        *words.entry(word).or_insert(0) += 1;
    }
    words
}

#[test]
fn root_text_has_every_activity_record_and_the_sums() {
    let (pid, truth, text) = written("text", true);
    let words = first_words(&text);
    assert_eq!(words["KERNEL"], truth.launches, "{text}");
    assert_eq!(words["MEMCPY"], truth.copies);
    assert_eq!(words["MEMSET"], truth.sets);
    assert_eq!(words["MEMORY"], truth.allocs + truth.frees);
    assert_eq!(
        (words["DEVICE"], words["CONTEXT"], words["STREAM"]),
        (1, 1, 1)
    );
    assert!(
        text.starts_with(&format!("workload  pid {pid}\n")),
        "{text}"
    );
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("RUNTIME_API cudaMalloc [ ").contains(&format!("process {pid}, thread {pid}")));
    assert!(line("KERNEL \"add\" [ ").contains("] device 0, context 1, stream 7, correlation"));
    assert!(line("MEMCPY HtoD [ ").contains(", size 4096, correlation "));
    let times = line("KERNEL").split(['[', ']']).nth(1).unwrap();
    let (start, end) = times.trim().split_once(" - ").unwrap();
    let (start, end): (u64, u64) = (start.parse().unwrap(), end.parse().unwrap());
    assert_eq!(end - start, 1500);
    assert!(
        start < 600_000_000_000,
        "not from the start of the trace: {start}"
    );
    let shares = text
        .lines()
        .find(|line| line.contains("GPU 0 NVIDIA H200  kernels "));
    let shares = shares.unwrap();
    for part in [" %, copies ", " %, idle ", " % of "] {
        assert!(shares.contains(part), "no {part} in {shares}");
    }
    let copies = text
        .lines()
        .find(|line| line.trim_start().starts_with("H2D "));
    assert!(copies.unwrap().contains(" async "), "{text}");
    assert!(!text.contains("LOST"), "{text}");
    let (pid, _, sums) = written("text", false);
    assert!(!first_words(&sums).contains_key("KERNEL"), "{sums}");
    assert!(sums.contains(&format!("workload  pid {pid} ")), "{sums}");
    assert!(sums.contains(" GPU records"), "{sums}");
}

#[test]
fn root_json_has_a_line_for_each_record() {
    let (pid, truth, text) = written("json", true);
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let records = lines.iter().filter_map(|line| line.get("record"));
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for record in records {
        assert_eq!(record["pid"], pid);
        *kinds.entry(record["kind"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(kinds["kernel"], truth.launches);
    assert_eq!(kinds["memcpy"], truth.copies);
    assert_eq!(kinds["memset"], truth.sets);
    let last = lines.last().unwrap();
    assert_eq!(last["final"], true);
    assert_eq!(last["activity"]["records"], kinds.values().sum::<u64>());
}

#[test]
fn root_json_of_all_modes_matches_the_schema() {
    let all = ["--memleak", "--cudatrace", "--bandwidth-util", "--activity"];
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)])
        .modes(all)
        .args(["--per-call", "--per-record"])
        .env("GPUPROBE_CUPTI", &super::cupti("cupti"))
        .interval("50ms")
        .start();
    gpuprobe.talk.ready();
    WORK.iter()
        .for_each(|command| drop(gpuprobe.talk.say(command)));
    let modes = all.map(|mode| mode.trim_start_matches('-').replace('-', "_"));
    let is_whole = |line: &Value, is_final: bool| {
        line["final"] == is_final && modes.iter().all(|mode| line[mode].is_object())
    };
    gpuprobe.next_report();
    gpuprobe.talk.done();
    gpuprobe.final_report();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    lines.iter().for_each(check);
    for is_final in [false, true] {
        assert!(lines.iter().any(|line| is_whole(line, is_final)), "{text}");
    }
    for single in ["copy", "record"] {
        assert!(lines.iter().any(|line| line[single].is_object()), "{text}");
    }
}

#[test]
fn root_csv_has_a_row_for_each_record_or_sum() {
    let (_, truth, text) = written("csv", true);
    let mut rows = csv_rows(&text);
    let header = rows.remove(0);
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    assert!(rows.iter().all(|row| row.len() == header.len()));
    let kernels = rows.iter().filter(|row| row[column("kind")] == "kernel");
    assert_eq!(kernels.count() as u64, truth.launches);
    let (_, truth, text) = written("csv", false);
    let mut rows = csv_rows(&text);
    let header = rows.remove(0);
    let column = |name: &str| header.iter().position(|column| column == name).unwrap();
    let kernels = rows.iter().filter(|row| row[column("kind")] == "kernel");
    let runs: u64 = kernels
        .map(|row| row[column("count")].parse::<u64>().unwrap())
        .sum();
    assert_eq!(runs, truth.launches);
    let _ = setup(Backend::Shared);
}

/// Splits without regard to quotes: no name here needs them.
fn csv_rows(text: &str) -> Vec<Vec<String>> {
    let fields = |line: &str| line.split(',').map(str::to_owned).collect();
    text.lines().map(fields).collect()
}
