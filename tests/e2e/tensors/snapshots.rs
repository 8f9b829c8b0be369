//! Snapshots for PyTorch's viewers equal the allocator's own, block by block.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use gpuprobe_model::text::size;
use serde_json::{Value, json};

use super::recording::assert_recorded;
use super::truth::{Device, snapshot};
use super::{EXPANDABLE, assert_pytorch, running, started};
use crate::harness::gpuprobe::{BINARY, output_of};
use crate::harness::report::{list, number, without_costs};
use crate::harness::served::Served;
use crate::harness::{Gpuprobe, Setup};
use crate::recording::Recording;

/// The stream number of memory outside PyTorch.
const NO_STREAM: i64 = -2;

/// The program's own snapshots and its other replies.
fn output(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (written, said) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{written}{said}");
    (written, said)
}

/// Exports a recording and checks what viewers require; returns the snapshot, and the messages.
fn export(file: &Path) -> (Value, String) {
    let snapshot = file.with_extension("pickle");
    let mut export = Command::new(BINARY);
    export.args(["export", "--format", "torch", "-o"]);
    let (_, said) = output(export.args([&*snapshot, file]));
    (loaded(&snapshot), said)
}

/// A snapshot that viewers and Python can read.
pub(super) fn loaded(snapshot: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/torch_viz_check.py");
    output(Command::new("python3").arg("-B").args([&*script, snapshot]));
    let load = "import json, pickle, sys; print(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))";
    let (json, _) = output(Command::new("python3").args(["-c", load]).arg(snapshot));
    serde_json::from_str(&json).unwrap()
}

/// Segments of PyTorch in a snapshot.
fn of_torch(snapshot: &Value) -> Vec<&Value> {
    let all = list(snapshot, "segments").iter();
    all.filter(|segment| segment["stream"] != NO_STREAM)
        .collect()
}

/// The segments of all devices, as a snapshot should have them.
fn expected(devices: &[Device]) -> Vec<Value> {
    let mut all = Vec::new();
    for device in devices {
        let mut segments: Vec<_> = device.segments.iter().collect();
        segments.sort_by_key(|segment| segment.address);
        for segment in segments {
            let blocks = segment.blocks.iter().map(|block| {
                let state = match (block.is_live, block.is_pending) {
                    (true, _) => "active_allocated",
                    (_, true) => "active_pending_free",
                    _ => "inactive",
                };
                json!([block.address, block.bytes, block.requested, state])
            });
            all.push(json!({
                "device": device.number,
                "address": segment.address,
                "total_size": segment.bytes,
                "stream": segment.stream,
                "segment_type": if segment.is_small { "small" } else { "large" },
                "is_expandable": segment.is_expandable,
                "blocks": blocks.collect::<Vec<_>>(),
            }));
        }
    }
    all
}

/// The segment of a snapshot in the same form.
fn found(segment: &Value) -> Value {
    let blocks = list(segment, "blocks").iter();
    let blocks = blocks.map(|b| json!([b["address"], b["size"], b["requested_size"], b["state"]]));
    let mut found = json!({ "blocks": blocks.collect::<Vec<_>>() });
    for key in [
        "device",
        "address",
        "total_size",
        "stream",
        "segment_type",
        "is_expandable",
    ] {
        found[key] = segment[key].clone();
    }
    found
}

/// Records all tensor events.
fn record(setup: Setup, file: &Path) -> Gpuprobe {
    let options = ["--tensors", "requested", "--record", file.to_str().unwrap()];
    setup.interval("50ms").args(options).start()
}

/// Blocks of a program that is not traced.
const RUNNING: &str = "tmalloc a 5000000 12; tmalloc used 700 3; tmalloc used 3000000; trecord used; \
    tmalloc b 30000000 2 stream=7; tfree b; tchurn 4 300 42; tmalloc c 400 1; tfree used; \
    setdevice 1; tmalloc d 2500000 3; tmalloc e 300 stream=9";

fn check_running(settings: &[(&str, &str)]) {
    let recording = Recording::new();
    let file = recording.file.with_extension("pickle");
    let settings = [
        settings,
        &[("STANDIN_TORCH_BLOCKS", "9"), ("STANDIN_DEVICES", "2")],
    ]
    .concat();
    let mut workload = running(&settings);
    workload.play(RUNNING);
    let truth = snapshot(&mut workload);
    let pid = workload.pid.to_string();
    let mut command = Command::new(BINARY);
    let (_, said) = output(command.args(["snapshot", "--pid", &pid, "-o"]).arg(&file));
    let sums = |device: &Device| [device.allocated, device.reserved].map(size);
    for device in &truth {
        let [allocated, reserved] = sums(device);
        let line = format!(
            "cuda:{}: {allocated} allocated of {reserved} reserved",
            device.number
        );
        assert!(said.contains(&line), "{said}");
    }
    let all: Vec<_> = list(&loaded(&file), "segments").iter().map(found).collect();
    assert_eq!(all, expected(&truth));
    check_page(&file.with_extension("html"), &pid, &truth);

    // In a recording that begins later, they are there, too.
    let file = &*recording.file;
    let options = ["--record", file.to_str().unwrap()];
    let mut gpuprobe = Setup::pid(workload.pid).args(options).start();
    gpuprobe.stop();
    let told = output_of(&["report", file.to_str().unwrap()]);
    assert!(told.contains("PyTorch cuda:1"), "{told}");
    let (exported, _) = export(file);
    let blocks = list(&exported, "segments").iter();
    let blocks = blocks.flat_map(|segment| list(segment, "blocks"));
    let live = blocks.filter(|block| block["state"] == "active_allocated");
    let live = live.map(|b| json!([b["address"], b["size"], b["requested_size"], b["state"]]));
    let expected = truth.iter().flat_map(Device::live);
    let expected = expected.map(|b| json!([b.address, b.bytes, b.requested, "active_allocated"]));
    let by_address = |blocks: &mut dyn Iterator<Item = Value>| {
        let all = blocks.map(|block| (block[0].as_u64().unwrap(), block));
        all.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(by_address(&mut { live }), by_address(&mut { expected }));
}

/// Writes the page of the process as it is, and compares its map of the segments.
fn check_page(file: &Path, pid: &str, truth: &[Device]) {
    output(Command::new(BINARY).args(["snapshot", "--pid", pid, "-o", file.to_str().unwrap()]));
    let page = fs::read_to_string(file).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let packed = STANDARD.decode(data.trim()).unwrap();
    let document: Value = serde_json::from_reader(GzDecoder::new(&packed[..])).unwrap();
    let devices = list(&document["runs"][0], "tensors");
    assert_eq!(devices.len(), truth.len());
    for (found, device) in devices.iter().zip(truth) {
        let report = &found["report"];
        assert_eq!(report["allocated_bytes"], device.allocated);
        assert_eq!(report["reserved_bytes"], device.reserved);
        let mut in_use = BTreeSet::new();
        for segment in list(found, "segments") {
            let address = segment["address"]
                .as_str()
                .unwrap()
                .trim_start_matches("0x");
            let address = u64::from_str_radix(address, 16).unwrap();
            let numbers: Vec<_> = list(segment, "blocks").iter().map(Value::as_i64).collect();
            for block in numbers.chunks_exact(4).filter(|block| block[2] != Some(-2)) {
                let [offset, bytes] = [0, 1].map(|at| block[at].unwrap().cast_unsigned());
                in_use.insert((address + offset, bytes, block[2] == Some(-3)));
            }
        }
        let expected = device.in_use();
        let expected = expected.map(|block| (block.address, block.bytes, block.is_pending));
        assert_eq!(in_use, expected.collect());
    }
}

#[test]
fn root_a_snapshot_is_taken_when_memory_runs_out() {
    let folder = tempfile::TempDir::new().unwrap();
    let setup = started(&[("STANDIN_TORCH_BLOCKS", "4")]);
    let setup = setup.wrapped(["env", "-C", folder.path().to_str().unwrap()]);
    let (mut gpuprobe, pid) = setup.args(["--on-oom", "snapshot"]).started();
    let talk = &mut gpuprobe.talk;
    talk.play("tmalloc a 1048576 4; tmalloc b 33554432 2; tmalloc d 700 9");
    let truth = snapshot(talk);
    talk.say("fail cudaMalloc 2 2");
    talk.send("tmalloc c 104857600");
    assert!(talk.hear().starts_with("error out of memory"));
    let said = gpuprobe.stderr.line_starting("gpuprobe: PyTorch's memory");
    let name = format!("gpuprobe-oom-{pid}-1.pickle");
    assert!(said.ends_with(&format!("is in {name}")), "{said}");
    gpuprobe.talk.play("tfree a; tempty");
    gpuprobe.talk.done();
    gpuprobe.final_report();
    let snapshot = loaded(&folder.path().join(name));
    let all: Vec<_> = list(&snapshot, "segments").iter().map(found).collect();
    assert_eq!(all, expected(&truth));
}

#[test]
fn root_snapshots_of_running_processes_are_the_allocators_own() {
    check_running(&[]);
    check_running(&[EXPANDABLE]);
}

#[test]
fn root_snapshots_are_served_with_the_lines_that_were_traced() {
    let mut workload = running(&[("STANDIN_TORCH_BLOCKS", "9"), ("STANDIN_DEVICES", "2")]);
    workload.play(RUNNING);
    let pid = workload.pid;
    let mut other = running(&[("STANDIN_TORCH_BLOCKS", "3")]);
    other.play("tmalloc a 1000");
    let options = ["--snapshots", "--tensors", "on", "--pid"];
    let served = Served::start(&[&options[..], &[&pid.to_string()]].concat());
    let get = |query: &str| served.get(&format!("/api/v1/snapshot{query}"));
    let old = snapshot(&mut workload);
    workload.play("tmalloc f 3000000 4; tmalloc f 900 5; setdevice 0; tmalloc f 1234");
    let truth = snapshot(&mut workload);
    let answer = get(&format!("?pid={pid}"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("now.pickle");
    fs::write(&file, &answer.body).unwrap();
    let snapshot = loaded(&file);
    let segments = list(&snapshot, "segments").iter();
    let all: Vec<_> = segments.clone().map(found).collect();
    assert_eq!(all, expected(&truth));
    let place = |b: &Value| (number(b, "address"), number(b, "size"));
    let lines = segments.flat_map(|segment| list(segment, "blocks"));
    let mut lines: Vec<_> = lines
        .filter(|block| {
            let mut frames = list(block, "frames").iter();
            frames.any(|frame| frame["name"] == "run_tmalloc")
        })
        .map(place)
        .collect();
    lines.sort_unstable();
    let live = |devices: &[Device]| -> BTreeSet<_> {
        let blocks = devices.iter().flat_map(Device::live);
        blocks.map(|block| (block.address, block.bytes)).collect()
    };
    let new: Vec<_> = live(&truth).difference(&live(&old)).copied().collect();
    assert_eq!((lines.len(), lines), (10, new));

    let other = format!("?pid={}", other.pid);
    for (query, status) in [("", 400), ("?pid=x", 400), ("?pid=1", 404), (&other, 404)] {
        let answer = get(query);
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
}

fn check(settings: &[(&str, &str)]) {
    let recording = Recording::new();
    let file = &*recording.file;
    let devices = [("STANDIN_DEVICES", "2")];
    let mut gpuprobe = record(started(&[settings, &devices].concat()), file);
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.play(
        "alloc 33554432 2; vexpand 2097152 3; tmalloc a 5000000 12; tleak forward 30 5000; \
         tmalloc b 30000000 2 stream=7; tfree b; tchurn 4 3000 42; free 0 1; tempty",
    );
    // Memory of the second device goes, and its address is the first one's.
    gpuprobe.talk.play(
        "setdevice 1; tmalloc e 300 stream=9; tfree e; tempty; \
         setdevice 0; tmalloc c 300 5 stream=7; setdevice 1; tmalloc d 2500000 3",
    );
    let truth = snapshot(&mut gpuprobe.talk);
    gpuprobe.talk.done();
    let figures: Vec<_> = truth.iter().map(Device::expected).collect();
    assert_pytorch(&gpuprobe.final_report(), pid, &figures);
    assert_recorded(file, &truth);
    let replayed = output_of(&["replay", file.to_str().unwrap(), "--format", "json"]);
    let live = fs::read_to_string(&gpuprobe.reports).unwrap();
    assert_eq!(replayed, without_costs(&live));
    let (exported, said) = export(file);
    let all: Vec<_> = of_torch(&exported).into_iter().map(found).collect();
    for (found, expected) in all.iter().zip(&expected(&truth)) {
        assert_eq!(found, expected);
    }
    assert_eq!(all.len(), expected(&truth).len());
    // One of two is freed.
    let others = list(&exported, "segments").iter();
    let others: Vec<_> = others.filter(|s| s["stream"] == NO_STREAM).collect();
    assert_eq!(others.len(), 1, "{others:#?}");
    assert_eq!(number(others[0], "active_size"), 33_554_432);
    let is_others = |event: &&Value| event["category"] == "torchlike" && event["action"] == "alloc";
    let trace = exported["device_traces"][0].as_array().unwrap();
    assert_eq!(trace.iter().filter(is_others).count(), 5);
    let tensors = truth.iter().map(|device| device.mallocs).sum::<u64>();
    assert!(said.contains(&format!(": {tensors} tensors\n")), "{said}");
    assert!(!said.contains("cuda:"), "{said}");
}

#[test]
fn root_snapshot_and_recording_match_the_allocator() {
    check(&[]);
    check(&[EXPANDABLE]);
}

#[test]
fn root_snapshot_after_late_attach_has_the_seen_blocks() {
    let recording = Recording::new();
    let file = &*recording.file;
    let mut workload = running(&[]);
    // Later tensors have odd sizes.
    workload.play("tmalloc a 5000000 12; tmalloc s 1000 40; tfree a 6");
    let mut gpuprobe = record(Setup::pid(workload.pid), file);
    workload.play("tmalloc b 3000001 20; tfree s 10; tmalloc c 701 30; tfree b 4");
    let now = snapshot(&mut workload);
    gpuprobe.stop().assert_nothing_lost();
    let (exported, said) = export(file);
    let blocks = of_torch(&exported)
        .into_iter()
        .flat_map(|segment| list(segment, "blocks"));
    let mut live: Vec<_> = blocks
        .filter(|block| block["state"] == "active_allocated")
        .map(|block| (number(block, "address"), number(block, "size")))
        .collect();
    live.sort_unstable();
    let new = now[0].live().filter(|block| block.requested % 2 == 1);
    let mut expected: Vec<_> = new.map(|block| (block.address, block.bytes)).collect();
    expected.sort_unstable();
    assert_eq!(live, expected);
    let old = now[0].live().filter(|block| block.requested % 2 == 0);
    let missing = format!(
        "cuda:0: {} in tensors created before tracing are not in the snapshot",
        size(old.map(|block| block.bytes).sum())
    );
    assert!(said.contains(&missing), "{said}");
    assert!(!said.contains("match no known memory"), "{said}");
}
