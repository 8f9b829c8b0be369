//! A program that calls the probed function itself with arbitrary arguments.

use serde_json::{Value, json};

use crate::harness::promises::resident_bytes;
use crate::harness::report::{list, number};
use crate::harness::{Setup, alone};
use crate::tensors::truth::snapshot;
use crate::tensors::{assert_pytorch, pytorch, running, settled, started};

/// Calls with made-up arguments.
const GARBAGE: u64 = 300_000;

/// The report's figures for the device with this number.
fn device(devices: &[Value], number: u64) -> &Value {
    let mut found = devices.iter().filter(|device| device["device"] == number);
    found
        .next()
        .unwrap_or_else(|| panic!("no device {number} in {devices:#?}"))
}

/// Asserts these figures in a report of `device`.
fn assert_figures(devices: &[Value], number: u64, figures: &[(&str, u64)]) {
    let found = device(devices, number);
    for (key, expected) in figures {
        assert_eq!(found[key], *expected, "{key} of {found}");
    }
}

#[test]
fn root_invalid_tensor_events_are_counted_by_cause() {
    // Others that trace the host would count these losses.
    let _alone = alone();
    // A segment's size, and the last reported sum.
    const SEGMENT: u64 = 700_448_768;
    const SUM: u64 = SEGMENT + 8192;
    let mut gpuprobe = started(&[]).start();
    let pid = gpuprobe.talk.ready();
    // A segment with one block; then blocks outside any segment, one of them freed, one twice as
    // large.
    let block = gpuprobe.talk.say(&format!("tmalloc a {SEGMENT}"));
    gpuprobe.talk.play(
        "treport 0x1000 4096 700452864 800000000 1 0; treport 0x3000 512 700453376 800000000 1 0; \
         treport 0x3000 -512 700452864 800000000 1 0; treport 0x1000 8192 700456960 800000000 1 0; \
         treport 0x5000 -512 700456960 800000000 1 0; treport 0 0 700456960 800000000 1 0; \
         treport 0 0 700456960 800000000 1 0; treport 0 0 700456960 800000000 1 0; \
         treport 0 -512 700456960 800000000 1 0",
    );
    // On no GPU; on the highest device number; on none.
    gpuprobe.talk.play(
        "treport 0x1000 4096 1 1 0 0; treport 0x2000 -4096 1 1 6 3; \
         treport 0x7000 -512 7 8 1 239; treport 0x7000 9223372036854775807 9 9 1 239; \
         treport 0x7000 512 7 8 1 240; treport 0x7000 512 7 8 1 240; treport 0x7000 512 7 8 1 255",
    );
    // Maximum sizes, and sizes around the segment.
    gpuprobe.talk.play(&format!(
        "treport 0x10 9223372036854775807 5 5 1 1; treport 0x20 9223372036854775807 5 5 1 1; \
         treport 0xfffffffffffffff0 9223372036854775807 5 5 1 1; \
         treport 0x10 -9223372036854775808 5 5 1 1; treport {block} 9223372036854775807 6 6 1 2"
    ));
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_eq!(report.lost("tensors"), 3);
    let devices = pytorch(&report, pid);
    let numbers: Vec<_> = devices
        .iter()
        .map(|device| number(device, "device"))
        .collect();
    assert_eq!(numbers, [0, 1, 2, 239]);
    assert_figures(
        devices,
        0,
        &[
            ("allocated_bytes", SUM),
            ("reserved_bytes", 800_000_000),
            // Without the earlier block at 0x1000.
            ("tensors", 2),
            ("outside_bytes", 8192),
            ("before_bytes", SUM - SEGMENT - 8192),
            ("alloc_calls", 7),
            ("free_calls", 3),
            ("unknown_frees", 1),
            ("segments", 1),
            ("largest_free_bytes", 0),
        ],
    );
    assert_figures(
        devices,
        1,
        &[("tensors", 2), ("free_calls", 1), ("unknown_frees", 0)],
    );
    assert_figures(
        devices,
        2,
        &[("tensors", 1), ("segments", 1), ("largest_free_bytes", 0)],
    );
    assert_figures(
        devices,
        239,
        &[
            ("allocated_bytes", 9),
            ("free_calls", 1),
            ("unknown_frees", 1),
        ],
    );
    // None of it is GPU memory.
    let truth = number(&report["memleak"], "live_bytes");
    assert_eq!(truth, SEGMENT);
}

#[test]
fn root_random_tensor_events_do_no_harm() {
    let _alone = alone();
    let mut workload = running(&[]);
    let mut json = Setup::pid(workload.pid)
        .args(["--tensors", "requested"])
        .start();
    let mut text = Setup::pid(workload.pid)
        .format("text")
        .args(["--allocations"])
        .start();
    workload.play("tmalloc a 5000 100; alloc 4096 3");
    workload.say(&format!("tgarbage {GARBAGE} 11"));
    workload.play("tmalloc a 5000 20; tfree a 60; free 0 1");
    let truth = workload.status();
    let expected = &snapshot(&mut workload)[0];
    let report = json.stop();
    report.assert_holds(
        workload.pid,
        truth.bytes + expected.reserved,
        truth.live + expected.segments.len() as u64,
    );
    assert_eq!(report.lost("memory"), 0);
    let devices = pytorch(&report, workload.pid);
    let calls: u64 = devices
        .iter()
        .map(|d| number(d, "alloc_calls") + number(d, "free_calls"))
        .sum();
    assert!(
        devices.len() > 3 && calls > 1000,
        "{calls} calls, {} devices",
        devices.len()
    );
    let found = device(devices, 0);
    // The last word is printed by the allocator.
    assert_eq!(number(found, "allocated_bytes"), expected.allocated);
    assert_eq!(number(found, "reserved_bytes"), expected.reserved);
    let of_program = |site: &&Value| {
        list(site, "stack")
            .iter()
            .any(|frame| frame["function"] == "run_tmalloc")
    };
    let kept: u64 = list(found, "sites")
        .iter()
        .filter(of_program)
        .map(|s| number(s, "live_allocations"))
        .sum();
    assert_eq!(kept, 60);
    text.interrupt();
    assert_eq!(text.exit_code(), 0);
}

#[test]
fn root_a_million_tensors_take_little_memory() {
    const COUNT: u64 = 1_000_000;
    const PARTS: u64 = 10;
    const BYTES: u64 = 512;
    let _alone = alone();
    let mut gpuprobe = started(&[]).interval("100ms").start();
    let pid = gpuprobe.talk.ready();
    let expected = |live: u64, pairs: u64| {
        let calls = live + pairs;
        let sum = live * BYTES;
        [
            json!({"tensors": live, "allocated_bytes": sum, "alloc_calls": calls, "free_calls": pairs}),
        ]
    };
    // Both call paths are known before the flood: of an unknown one, 4,000 stacks a second are copied.
    gpuprobe.talk.say(&format!("tleak forward 1000 {BYTES}"));
    gpuprobe.talk.say(&format!("tleak backward 1000 {BYTES}"));
    settled(&gpuprobe, pid, &expected(2000, 0));
    let before = resident_bytes(gpuprobe.child.pid());
    // As many at once as the ring holds.
    for count in 1..=PARTS {
        let part = COUNT / PARTS;
        gpuprobe.talk.say(&format!("tleak backward {part} {BYTES}"));
        settled(&gpuprobe, pid, &expected(2000 + count * part, 0));
    }
    let each = (resident_bytes(gpuprobe.child.pid()) - before) / COUNT;
    assert!((40..160).contains(&each), "{each} bytes for each");
    // So is the flood's.
    gpuprobe.talk.say("tflood 1 500 5000");
    settled(&gpuprobe, pid, &expected(2000 + COUNT, 500));
    gpuprobe.talk.say("tflood 1 50000 5000");
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_pytorch(&report, pid, &expected(2000 + COUNT, 50_500));
}
