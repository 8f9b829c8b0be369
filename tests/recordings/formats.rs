//! Reports of recorded runs in text and JSON, for each sort of thing that they list.

use gpuprobe_model::{GpuUsage, Untraced};
use gpuprobe_recording::Player;
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::Folder;
use crate::replay::{PID, call, replay};
use crate::scene::{self, MEMORY, MIB, SECOND, allocate, begin, identity, know, mark, usage};

/// The last report, in this format, of a run that `events` records.
fn last(events: impl Fn(&mut Player), usage: GpuUsage, arguments: &[&str]) -> String {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let mut recorder = begin(&file, MEMORY);
    events(&mut recorder);
    recorder.note(mark(34, false, true, usage));
    recorder.finish();
    replay(&file, &[&["--last"], arguments].concat())
}

fn process(recorder: &mut Player) {
    know(
        recorder,
        PID,
        "python3",
        identity("ada", "python3 train.py", 0),
    );
}

/// 422 allocations of the runtime, three of the driver, and two failures.
fn many(recorder: &mut Player) {
    process(recorder);
    for number in 0..422 {
        let at_ns = SECOND + number * 1000;
        allocate(recorder, PID, "cudaMalloc", 0, MIB, at_ns);
    }
    for number in 0..3 {
        let at_ns = 2 * SECOND + number * 1000;
        allocate(recorder, PID, "cuMemAlloc_v2", 0, 512 << number, at_ns);
    }
    for number in 0..2 {
        let mut failed = call("cudaMalloc", 0, 64, 3 * SECOND + number);
        failed.result = 1;
        recorder.record(failed.as_bytes());
    }
}

#[test]
fn a_thread_lists_ten_allocations_and_every_function() {
    let text = last(many, usage(0), &["--group", "thread"]);
    let listed = text
        .lines()
        .filter(|line| line.ends_with(":gpu_0: 1.00 MiB"));
    assert_eq!(listed.count(), 10, "{text}");
    for line in [
        "    ... and 415 more, 412.00 MiB",
        "total number of `cudaMalloc` calls: 422, `cuMemAlloc_v2` calls: 3",
        "calls that failed: 2",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    let text = last(many, usage(0), &[]);
    let calls = "\ncalls: 422 cudaMalloc, 3 cuMemAlloc_v2, 0 frees, 2 failed\n";
    assert!(text.contains(calls), "{text}");
    let json = last(many, usage(0), &["--top", "2", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let thread = &json["memleak"]["processes"][0]["threads"][0];
    let listed = thread["allocations"].as_array().unwrap().iter();
    let sizes: Vec<_> = listed.map(|one| &one["bytes"]).collect();
    assert_eq!(sizes, [MIB, MIB]);
    assert_eq!(json["memleak"]["live_bytes"], 422 * MIB + 3584);
}

#[test]
fn a_run_in_which_nothing_happened_is_two_lines() {
    let text = last(|_| {}, GpuUsage::default(), &[]);
    let nothing = "no memory call and no process that uses CUDA so far  2026-11-25T15:45:34+07:00";
    assert_eq!(text, format!("{nothing}\nlost: nothing\n\n"));
}

#[test]
fn a_process_from_before_the_attach_has_its_use() {
    let who = Untraced {
        uid: 1001,
        comm: "vllm".to_owned(),
        identity: identity("bob", "vllm serve", 0),
    };
    let before = GpuUsage {
        processes: [(24_142, vec![(0, 2099 * MIB)])].into(),
        untraced: [(24_142, who)].into(),
        ..GpuUsage::default()
    };
    let text = last(|_| {}, before, &[]);
    let held = "2.05 GiB held (nvidia-smi), 0 traced since attach\n";
    assert!(text.contains(held), "{text}");
}

#[test]
fn changes_are_since_the_last_report() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    scene::training(&file);
    let reports = replay(&file, &["--format", "json"]);
    let change = |line: &str| {
        let json: Value = serde_json::from_str(line).unwrap();
        let process = &json["memleak"]["processes"][0];
        let keys = ["change_bytes", "change_bytes_per_minute"];
        let [bytes, per_minute] = keys.map(|key| process[key].as_i64());
        let site = process["sites"][0]["change_bytes"].as_i64();
        [bytes, per_minute, site]
    };
    let changes: Vec<_> = reports.lines().map(change).collect();
    let mib = 1 << 20;
    // Of the first report, there is no earlier one.
    let second = [-64 * mib, -64 * 30 * mib, 32 * mib].map(Some);
    let expected = [[None; 3], second, [Some(0), None, Some(0)]];
    assert_eq!(changes, expected, "{reports}");
}
