//! Many tensors at once.

use serde_json::json;

use crate::harness::alone;
use crate::harness::promises::resident_bytes;
use crate::tensors::{assert_pytorch, settled, started};

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
