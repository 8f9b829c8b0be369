//! Lost tensor events are counted, and do not displace memory calls.

use nix::sys::signal::Signal;

use crate::harness::report::number;
use crate::harness::{Report, Setup, alone};
use crate::losses::pause;
use crate::tensors::truth::{Device, snapshot};
use crate::tensors::{pytorch, running};

/// Tensor events in a report.
fn seen(report: &Report, pid: u32) -> u64 {
    let calls = |device| number(device, "alloc_calls") + number(device, "free_calls");
    pytorch(report, pid).iter().map(calls).sum()
}

#[test]
fn root_tensors_beyond_a_full_ring_are_counted_exactly_and_no_memory_calls() {
    const CALLS: u64 = 5000;
    let _alone = alone();
    let mut workload = running(&[]);
    workload.say("tleak forward 10 512");
    let before = snapshot(&mut workload)[0].clone();
    let mut gpuprobe = Setup::pid(workload.pid).interval("100ms").start();
    pause(&gpuprobe);
    workload.say("tflood 2 140000 4096");
    workload.say(&format!("alloc 12345 {CALLS}"));
    gpuprobe.child.signal(Signal::SIGCONT);
    // All that was not lost has been read: there is room for the next event, which has the right sums.
    let calls = |device: &Device| device.mallocs + device.frees;
    let flooded = calls(&snapshot(&mut workload)[0]) - calls(&before);
    gpuprobe.report_where("the loss", |report| {
        let lost = report.lost("tensors");
        lost > 0 && seen(report, workload.pid) + lost == flooded
    });
    workload.say("tleak backward 2 512");
    let now = snapshot(&mut workload)[0].clone();
    let report = gpuprobe.stop();
    let lost = report.lost("tensors");
    let found = &pytorch(&report, workload.pid)[0];
    let seen = seen(&report, workload.pid);
    assert!(lost > 100_000, "{lost} of {seen} lost");
    assert_eq!(seen + lost, calls(&now) - calls(&before));
    assert_eq!(number(found, "allocated_bytes"), now.allocated);
    assert_eq!(number(found, "reserved_bytes"), now.reserved);
    assert_eq!(report.lost("memory"), 0);
    let sized = report.allocations(workload.pid).into_iter();
    assert_eq!(sized.filter(|a| a["bytes"] == 12_345).count() as u64, CALLS);
}
