//! Programs that gpuprobe starts: all tensors are seen.

use serde_json::Value;

use super::truth::{Device, snapshot};
use super::{EXPANDABLE, assert_pytorch, pytorch, settled, started};
use crate::harness::report::{list, number};
use crate::harness::{Gpuprobe, Report};

/// Functions of the program that keep tensors, with counts and sizes.
const LEAKS: [(&str, u64, u64); 4] = [
    ("forward", 300, 5000),
    ("backward", 3, 3_000_000),
    ("optimizer", 40, 70_000),
    ("loader", 2, 30_000_000),
];

fn expected(devices: &[Device]) -> Vec<Value> {
    devices.iter().map(Device::expected).collect()
}

/// Asserts that each of [`LEAKS`] is a call site with its bytes as the allocator rounds them.
fn check_sites(report: &Report, pid: u32) {
    let sites = list(&pytorch(report, pid)[0], "sites");
    let mut before = String::new();
    for (name, count, bytes) in LEAKS {
        let function = format!("leak_{name}");
        let is_here = |site: &&Value| {
            let stack = list(site, "stack");
            stack.iter().any(|frame| frame["function"] == *function)
        };
        let mut found = sites.iter().filter(is_here);
        let site = found
            .next()
            .unwrap_or_else(|| panic!("no {function} in {sites:#?}"));
        assert!(found.next().is_none(), "{function} is one site");
        let rounded = bytes.next_multiple_of(512);
        let sums = [
            "live_allocations",
            "live_bytes",
            "alloc_calls",
            "alloc_bytes",
            "free_calls",
        ];
        let sums = sums.map(|key| number(site, key));
        assert_eq!(
            sums,
            [count, count * rounded, count, count * rounded, 0],
            "{function}"
        );
        let [oldest, newest] = ["oldest", "newest"].map(|key| site[key].as_str().unwrap());
        assert!(
            before.as_str() < oldest && oldest <= newest,
            "{function}: {oldest} to {newest}"
        );
        newest.clone_into(&mut before);
    }
}

/// Freed blocks are free: the allocator gives their segments back.
fn check_empty_cache(gpuprobe: &mut Gpuprobe, pid: u32) {
    let before = snapshot(&mut gpuprobe.talk);
    let report = settled(gpuprobe, pid, &expected(&before));
    let promised: Vec<_> = pytorch(&report, pid)
        .iter()
        .map(|device| number(device, "empty_cache_bytes"))
        .collect();
    assert!(promised.iter().any(|&bytes| bytes > 0), "something is free");
    gpuprobe.talk.say("tempty");
    let after = snapshot(&mut gpuprobe.talk);
    let given = before
        .iter()
        .zip(&after)
        .map(|(before, after)| before.reserved - after.reserved);
    assert_eq!(given.collect::<Vec<_>>(), promised);
    settled(gpuprobe, pid, &expected(&after));
}

/// Runs every command of the program.
fn everything(settings: &[(&str, &str)]) {
    let (mut gpuprobe, pid) = started(settings)
        .env("STANDIN_DEVICES", "2")
        .interval("100ms")
        .args(["--tensors", "requested"])
        .started();
    for (name, count, bytes) in LEAKS {
        gpuprobe.talk.say(&format!("tleak {name} {count} {bytes}"));
    }
    // Large blocks that come and go, with a small one left in each segment; then address reuse.
    gpuprobe.talk.play(
        "tmalloc a 100 20000; tfree a 19000; tmalloc b 200 9000; tmalloc c 19000000 6; \
         tmalloc d 700000 9 stream=1; tmalloc e 1500000 9 stream=2; tfree c 3; tfree d 8; tfree e 8",
    );
    let now = snapshot(&mut gpuprobe.talk);
    let mut report = settled(&gpuprobe, pid, &expected(&now));
    // A report does not wait for slow names: they are in a later one.
    let all = |report: &Report| {
        let text = pytorch(report, pid)[0]["sites"].to_string();
        LEAKS
            .iter()
            .all(|(name, ..)| text.contains(&format!("leak_{name}")))
    };
    for _ in 0..50 {
        if !all(&report) {
            report = settled(&gpuprobe, pid, &expected(&now));
        }
    }
    check_sites(&report, pid);
    // The other device, and frees by other threads.
    gpuprobe.talk.play(
        "thread x; thread y; @x setdevice 1; @x tmalloc f 3000 100; @y tfree f 60; \
         @x tmalloc g 50000000 2; @y tfree g 1; @y tfree c 1",
    );
    check_empty_cache(&mut gpuprobe, pid);
    gpuprobe.talk.say("tchurn 3 6000 7");
    check_empty_cache(&mut gpuprobe, pid);
    // Requested bytes are unknown for some tensors, then known for all.
    gpuprobe.talk.play("tfree churn; tmalloc raw 7000 3 raw");
    let mut some = expected(&snapshot(&mut gpuprobe.talk));
    some[0]["requested_bytes"].take();
    settled(&gpuprobe, pid, &some);
    gpuprobe.talk.play("tfree raw; tmalloc h 4096 5");
    let last = snapshot(&mut gpuprobe.talk);
    let truth = gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    assert_pytorch(&report, pid, &expected(&last));
    check_sites(&report, pid);
    // The program's CUDA memory is that, and no tensor is counted twice.
    let reserved: u64 = last.iter().map(|device| device.reserved).sum();
    report.assert_holds(
        pid,
        reserved + truth.bytes,
        number(report.process(pid), "live_allocations"),
    );
}

#[test]
fn root_tensors_of_a_command() {
    everything(&[]);
}

#[test]
fn root_tensors_in_expandable_segments() {
    everything(&[EXPANDABLE]);
}
