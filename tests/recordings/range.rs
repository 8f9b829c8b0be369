//! `--from` and `--to` with times of day.

use gpuprobe_recording::{Facts, Player};
use zerocopy::IntoBytes;

use crate::scene::{MEMORY, MIB, SECOND, call};
use crate::{Folder, gpuprobe, report_json};

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
