//! Single records and sums in JSON. `tests/recordings` has text and CSV.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::WORK;
use crate::harness::{Backend, Setup};
use crate::validator::check;

#[test]
fn root_json_of_all_modes_has_each_record_and_matches_the_schema() {
    let all = ["--memleak", "--cudatrace", "--bandwidth-util", "--activity"];
    let setup = Setup::workload(Backend::Shared).modes(all);
    let setup = setup.env("GPUPROBE_CUPTI", &super::cupti("cupti"));
    let setup = setup.args(["--per-call"]);
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
