//! Counts of what a report has no room for: processes that ended long ago, and ranges beyond `--top`.

use std::path::Path;

use gpuprobe_cuda::Modes;
use gpuprobe_model::abi::{RawBatch, record};
use gpuprobe_wire as wire;
use serde_json::Value;
use wire::WireRecord;
use zerocopy::{FromZeros, IntoBytes};

use crate::replay::{PID, replay, task};
use crate::{Folder, report, report_json, scene};

/// Ended processes with GPU activity that a report lists.
const LISTED: u32 = 1024;

const ACTIVITY: Modes = Modes {
    activity: true,
    memleak: false,
    ..scene::MEMORY
};

/// A batch of process `pid`, whose texts are `names`, numbered from 1.
fn batch(pid: u32, names: &[&str], records: &[WireRecord]) -> Vec<u8> {
    let mut writer = wire::BatchWriter::default();
    for (id, name) in (1..).zip(names) {
        let text = wire::Text {
            id,
            ..wire::Text::default()
        };
        assert!(writer.push_record(&WireRecord::Text(text), name.as_bytes()));
    }
    for record in records {
        assert!(writer.push_record(record, b""));
    }
    let header = wire::BatchHeader {
        flags: wire::flags::MONOTONIC,
        cupti_version: 130_000,
        ..wire::BatchHeader::default()
    };
    let records = writer.finish(header);
    let mut batch = RawBatch::new_zeroed();
    (batch.record_type, batch.tgid, batch.process) = (record::BATCH, pid, pid << 10);
    batch.bytes = u32::try_from(records.len()).unwrap();
    [batch.as_bytes(), records].concat()
}

fn last(file: &Path) -> Value {
    serde_json::from_str(&replay(file, &["--last", "--format", "json"])).unwrap()
}

#[test]
fn processes_that_ended_long_ago_are_counted() {
    let folder = Folder::new();
    let file = folder.path("processes.sqlite");
    let mut recorder = scene::begin(&file, ACTIVITY);
    for pid in 1..=LISTED + 3 {
        let mut begun = task(record::PROCESS, "short", 1_000);
        (begun.tgid, begun.tid, begun.process) = (pid, pid, pid << 10);
        recorder.record(begun.as_bytes());
        let kernel = wire::Kernel {
            start_ns: scene::SECOND,
            end_ns: scene::SECOND + 10,
            name: 1,
            ..wire::Kernel::default()
        };
        recorder.record(&batch(pid, &["k"], &[WireRecord::Kernel(kernel)]));
        let mut ended = task(record::EXIT, "short", 2 * scene::SECOND);
        (ended.tgid, ended.tid, ended.process) = (pid, pid, pid << 10);
        recorder.record(ended.as_bytes());
    }
    recorder.note(scene::mark(34, true, true, Default::default()));
    recorder.finish();
    let found = last(&file);
    let activity = &found["activity"];
    assert_eq!(activity["forgotten_processes"], 3);
    let listed = activity["processes"].as_array().unwrap();
    let pids: Vec<_> = listed
        .iter()
        .map(|process| process["pid"].clone())
        .collect();
    assert_eq!(pids, (4..=LISTED + 3).collect::<Vec<_>>());
    let text = replay(&file, &["--last"]);
    assert!(
        text.contains("... and 3 processes that ended long ago"),
        "{text}"
    );
}

/// Ranges of four names, of which two do not end.
pub(crate) fn record_ranges(path: &Path) {
    use wire::marker::{END, START};
    let mut recorder = scene::begin(path, ACTIVITY);
    scene::know(&mut recorder, PID, "python3", Default::default());
    let object = wire::Object {
        kind: 2,
        a: PID,
        b: PID,
        c: 0,
    };
    let mark = |time: u64, flags, id| {
        WireRecord::Marker(wire::Marker {
            time_ns: scene::SECOND + time,
            flags,
            id,
            name: if flags == START { id } else { 0 },
            // The first one's.
            domain: if id == 1 { 5 } else { 0 },
            object,
        })
    };
    let marks = [
        mark(100, START, 1),
        mark(200, START, 2),
        mark(300, END, 2),
        mark(400, END, 1),
        mark(500, START, 3),
        mark(600, START, 4),
    ];
    let names = ["outer", "inner", "open", "open too", "solver"];
    recorder.record(&batch(PID, &names, &marks));
    recorder.note(scene::mark(34, false, true, Default::default()));
    recorder.finish();
}

#[test]
fn ranges_that_are_open_or_beyond_top_are_counted() {
    let folder = Folder::new();
    let file = folder.path("ranges.sqlite");
    record_ranges(&file);
    let all = last(&file)["activity"]["processes"][0].clone();
    assert_eq!(
        (&all["open_ranges"], &all["markers"]),
        (&2.into(), &6.into())
    );
    assert_eq!(all["omitted_ranges"], 0);
    let names = |process: &Value| -> Vec<String> {
        let ranges = process["ranges"].as_array().unwrap();
        let names = ranges.iter().map(|range| range["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    let of_file = report_json(&file, &["--nvtx", "--top", "1"]);
    let first = &of_file["activity"]["processes"][0];
    assert_eq!(names(first), ["outer"]);
    assert_eq!(first["ranges"][0]["domain"], "solver");
    assert_eq!(first["omitted_ranges"], 1, "{first}");
    assert_eq!(first["open_ranges"], 2);
    let text = report(&file, &["--nvtx"]);
    assert!(text.contains("2 ranges"), "{text}");
}
