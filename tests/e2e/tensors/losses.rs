//! Lost tensor events are counted, and do not displace memory calls.

use nix::sys::signal::Signal;

use super::truth::snapshot;
use super::{pytorch, running};
use crate::harness::report::number;
use crate::harness::{Setup, alone};
use crate::losses::pause;

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
    // The first event after a loss has the right sums.
    gpuprobe.report_where("the loss", |report| report.lost("tensors") > 0);
    workload.say("tleak backward 2 512");
    let now = snapshot(&mut workload)[0].clone();
    let report = gpuprobe.stop();
    let lost = report.lost("tensors");
    let found = &pytorch(&report, workload.pid)[0];
    let seen = number(found, "alloc_calls") + number(found, "free_calls");
    assert!(lost > 100_000, "{lost} of {seen} lost");
    assert_eq!(
        seen + lost,
        now.mallocs + now.frees - before.mallocs - before.frees
    );
    assert_eq!(number(found, "allocated_bytes"), now.allocated);
    assert_eq!(number(found, "reserved_bytes"), now.reserved);
    assert_eq!(report.lost("memory"), 0);
    let sized = report.allocations(workload.pid).into_iter();
    assert_eq!(sized.filter(|a| a["bytes"] == 12_345).count() as u64, CALLS);
}
