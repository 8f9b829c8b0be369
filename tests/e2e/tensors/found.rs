//! Blocks that are found in the memory of a program: those from before the attach, and those that wait for a stream.

use serde_json::{Value, json};

use super::truth::{Device, snapshot};
use super::{EXPANDABLE, assert_pytorch, pytorch, running, settled, settled_of};
use crate::harness::gpuprobe::output_of;
use crate::harness::report::{list, number};
use crate::harness::{Nvml, Setup, Workload};

/// What events alone tell.
pub(super) const OF_EVENTS: [&str; 6] = [
    "before_bytes",
    "since_start",
    "alloc_calls",
    "free_calls",
    "unknown_frees",
    "requested_bytes",
];

/// The variable that has the program keep its state as PyTorch does, with fields at places that it chooses.
pub(super) const BLOCKS: &str = "STANDIN_TORCH_BLOCKS";
const OLD: &str = "tmalloc old 30000 200; tmalloc old 6000000 8; tmalloc hole 4000000 4; \
     tmalloc used 5000000 2; tmalloc used 999 3; trecord used; \
     tmalloc old 4000000; tfree hole; tmalloc old 200000000; tmalloc gone 100000000; tfree gone; tfree used";

/// The expected figures for the only device, of whose calls so many were not seen.
fn now(workload: &mut Workload, [mallocs, frees]: [u64; 2], before_bytes: u64) -> [Value; 1] {
    let devices = snapshot(workload);
    let [device] = &devices[..] else {
        panic!("{} devices", devices.len());
    };
    let mut expected = Device::expected(device);
    expected["before_bytes"] = before_bytes.into();
    expected["since_start"] = false.into();
    expected["alloc_calls"] = (device.mallocs - mallocs).into();
    expected["free_calls"] = (device.frees - frees).into();
    [expected]
}

fn found_after_late_attach(seed: &str, settings: &[(&str, &str)]) {
    let mut workload = running(&[&[(BLOCKS, seed)], settings].concat());
    workload.play(OLD);
    let before = snapshot(&mut workload);
    let calls = [before[0].mallocs, before[0].frees];
    let allocated = before[0].allocated;
    let pid = workload.pid;
    let now_only = [
        "--pid",
        &pid.to_string(),
        "--duration",
        "0s",
        "--format",
        "json",
    ];
    let only: Value = serde_json::from_str(&output_of(&now_only)).unwrap();
    let process = &list(&only["memleak"], "processes")[0];
    assert_eq!(process["pytorch"][0]["before_bytes"], allocated);

    let folder = tempfile::TempDir::new().unwrap();
    let recording = folder.path().join("run.sqlite");
    let recording = recording.to_str().unwrap();
    let mut gpuprobe = Setup::pid(pid)
        .interval("100ms")
        .args(["--tensors", "requested", "--record", recording])
        .start();

    // Nothing has happened since.
    let expected = now(&mut workload, calls, allocated);
    assert!(number(&expected[0], "pending_free_bytes") > 10_000_000);
    let report = settled(&gpuprobe, pid, &expected);
    let found = &pytorch(&report, pid)[0];
    let sites = list(found, "sites");
    assert_eq!(sites.len(), 1, "{sites:#?}");
    assert_eq!(
        [
            &sites[0]["api"],
            &sites[0]["live_bytes"],
            &sites[0]["verdict"]
        ],
        [&json!("before attach"), &json!(allocated), &Value::Null]
    );

    // What is freed now is known; some of it by the sizes that were asked for.
    workload.play("tfree old 150; tmalloc new 10001 30; tmalloc new 70000001 2");
    let new = 30 * 10_240 + 2 * 70_000_128;
    let left = snapshot(&mut workload)[0].allocated - new;
    let expected = now(&mut workload, calls, left);
    settled(&gpuprobe, pid, &expected);

    // The stream has passed.
    workload.play("tsync; tfree new 31; tempty");
    let left = snapshot(&mut workload)[0].allocated - 70_000_128;
    let expected = now(&mut workload, calls, left);
    assert_eq!(expected[0]["pending_free_bytes"], 0);
    settled(&gpuprobe, pid, &expected);
    workload.play("tfree old; tfree new");
    let expected = now(&mut workload, calls, 0);
    settled(&gpuprobe, pid, &expected);
    let report = gpuprobe.stop();
    assert_pytorch(&report, pid, &expected);

    let played = output_of(&["report", recording, "--format", "json"]);
    let played: Value = serde_json::from_str(&played).unwrap();
    let processes = list(&played["memleak"], "processes");
    for (key, value) in expected[0].as_object().unwrap() {
        assert_eq!(&processes[0]["pytorch"][0][key], value, "{key}");
    }
}

#[test]
fn root_blocks_of_an_idle_program_are_found() {
    found_after_late_attach("3", &[]);
}

#[test]
fn root_blocks_in_expandable_segments_are_found() {
    found_after_late_attach("11", &[EXPANDABLE]);
}

#[test]
fn root_blocks_of_a_busy_program_are_right_or_not_said() {
    let mut workload = running(&[(BLOCKS, "5")]);
    workload.play("tmalloc old 30000 50; tmalloc old 6000000 3; tchurn 1 50 3");
    let old = 50 * 30_208 + 3 * 6_000_128;
    let pid = workload.pid;
    let gpuprobe = Setup::pid(pid).interval("100ms").start();
    workload.send("tchurn 8 400 7");
    for _ in 0..10 {
        let report = gpuprobe.next_report();
        for device in pytorch(&report, pid) {
            let figures = ["before_bytes", "allocated_bytes"];
            let [before, allocated] = figures.map(|key| number(device, key));
            assert!(before <= allocated);
        }
    }
    workload.hear();
    let device = &snapshot(&mut workload)[0];
    let mut expected = device.expected();
    for key in OF_EVENTS {
        expected.as_object_mut().unwrap().remove(key);
    }
    let report = settled(&gpuprobe, pid, &[expected]);
    assert!(number(&pytorch(&report, pid)[0], "before_bytes") >= old);
}

#[test]
fn root_chunks_from_before_attach_are_found() {
    chunks_after_late_attach("XLA", "xchunk", "4");
    chunks_after_late_attach("TensorFlow", "tchunk", "9");
}

const MIB: u64 = 1 << 20;

fn chunks_after_late_attach(name: &str, command: &str, seed: &str) {
    let framework = &name.to_lowercase();
    let mut workload = running(&[("STANDIN_BFC", seed)]);
    let [first, second] = [16 * MIB, 200 * MIB].map(|bytes| {
        let reply = workload.say(&format!("tregion {bytes}"));
        u64::from_str_radix(reply.trim_start_matches("0x"), 16).unwrap()
    });
    let chunk = |workload: &mut Workload, is_free: bool, address: u64, bytes: u64| {
        let name = ["MemoryAllocation", "MemoryDeallocation"][usize::from(is_free)];
        workload.say(&format!("{command} {name} {address} {bytes}"));
    };
    let now = |workload: &mut Workload, before: u64, [tensors, allocations, frees]: [u64; 3]| {
        let sums = workload.say("xsums");
        let sums: Vec<u64> = sums.split(' ').map(|sum| sum.parse().unwrap()).collect();
        json!({
            "device": 0,
            "allocated_bytes": sums[0],
            "peak_allocated_bytes": sums[1],
            "reserved_bytes": sums[2],
            "requested_bytes": sums[0] - tensors,
            "tensors": tensors,
            "before_bytes": before,
            "segments": 2,
            "segment_bytes": sums[2],
            "outside_bytes": 0,
            "alloc_calls": allocations,
            "free_calls": frees,
            "unknown_frees": 0,
            "since_start": false,
        })
    };
    for n in 0..5 {
        chunk(&mut workload, false, first + n * MIB, MIB);
    }
    chunk(&mut workload, false, second, 150 * MIB);
    chunk(&mut workload, true, second, 150 * MIB);
    chunk(&mut workload, true, first + 2 * MIB, MIB);
    chunk(&mut workload, false, 0x1000, 7 * MIB);
    let pid = workload.pid;
    let folder = tempfile::TempDir::new().unwrap();
    let recording = folder.path().join("run.sqlite");
    let recording = recording.to_str().unwrap();
    let nvml = Nvml::with_gpus(1);
    nvml.says(&[(0, pid, 500 * MIB)]);
    let setup = nvml.given_to(Setup::pid(pid)).interval("100ms");
    let mut gpuprobe = setup.args(["--record", recording]).start();

    // Not the allocator's.
    workload.say("alloc 4096");
    // The first events lead to the allocators, and have their line.
    chunk(&mut workload, false, second + MIB, 3 * MIB);
    chunk(&mut workload, false, 0x100_0000, MIB);
    let expected = now(&mut workload, 4 * MIB, [5, 1, 0]);
    settled_of(&gpuprobe, pid, framework, &[expected]);
    chunk(&mut workload, false, first + 2 * MIB, MIB / 2);
    chunk(&mut workload, true, first, MIB);
    chunk(&mut workload, true, 0x1000, 7 * MIB);
    let expected = [now(&mut workload, 3 * MIB, [5, 2, 1])];
    let report = settled_of(&gpuprobe, pid, framework, &expected);
    let found = &list(report.process(pid), framework)[0];
    let lines = list(found, "sites").iter().map(|site| {
        let mut stack = site["stack"].as_array().into_iter().flatten();
        let is_line = stack.any(|frame| frame["function"] == format!("run_{command}"));
        (number(site, "live_bytes"), is_line)
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [(3 * MIB, false), (3 * MIB + MIB / 2, true)],
        "{found:#}"
    );
    let report = gpuprobe.stop();
    report.assert_nothing_lost_of([pid]);
    let nvml = &report.process(pid)["nvml"];
    assert_eq!(nvml["segment_bytes"], 216 * MIB, "{nvml}");
    let text = output_of(&["replay", recording, "--last"]);
    let line = format!("{name}'s segments from before attach 216.00 MiB + before attach");
    assert!(text.contains(&line), "{text}");

    let played = output_of(&["report", recording, "--format", "json"]);
    let played: Value = serde_json::from_str(&played).unwrap();
    let played = &list(&played["memleak"], "processes")[0][framework.as_str()][0];
    for (key, value) in expected[0].as_object().unwrap() {
        assert_eq!(&played[key], value, "{key}");
    }
}
