//! A program with tensors from before the attach: sums are right from the first event on.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::truth::{Block, Device, snapshot};
use super::{EXPANDABLE, assert_pytorch, pytorch, running, settled};
use crate::harness::report::number;
use crate::harness::{Gpuprobe, Setup, Workload};

/// Later tensors have odd sizes.
fn is_from_before(block: &Block) -> bool {
    block.requested.is_multiple_of(2)
}

/// State from before the attach.
struct Before {
    mallocs: u64,
    frees: u64,
    segments: BTreeSet<u64>,
}

impl Before {
    fn of(device: &Device) -> Self {
        Self {
            mallocs: device.mallocs,
            frees: device.frees,
            segments: device
                .segments
                .iter()
                .map(|segment| segment.address)
                .collect(),
        }
    }

    /// The report's figures for it now. Segments from before the attach are unknown.
    fn expected(&self, now: &Device) -> Value {
        let bytes = |blocks: &mut dyn Iterator<Item = &Block>| blocks.map(|b| b.bytes).sum::<u64>();
        let seen = Device {
            segments: now
                .segments
                .iter()
                .filter(|s| !self.segments.contains(&s.address))
                .cloned()
                .collect(),
            ..now.clone()
        };
        let (inside, old) = (
            bytes(&mut seen.live()),
            bytes(&mut now.live().filter(|b| is_from_before(b))),
        );
        let mut expected = seen.expected();
        let new: Vec<_> = now.live().filter(|block| !is_from_before(block)).collect();
        expected["tensors"] = new.len().into();
        expected["requested_bytes"] = new.iter().map(|block| block.requested).sum::<u64>().into();
        expected["before_bytes"] = old.into();
        expected["since_start"] = false.into();
        expected["outside_bytes"] = (now.allocated - old - inside).into();
        expected["alloc_calls"] = (now.mallocs - self.mallocs).into();
        expected["free_calls"] = (now.frees - self.frees).into();
        expected
    }
}

/// The expected figures for the only device, except for unknown frees.
fn now(workload: &mut Workload, before: &Before, old_frees: u64) -> [Value; 1] {
    let devices = snapshot(workload);
    assert_eq!(devices.len(), 1);
    let mut expected = before.expected(&devices[0]);
    expected["unknown_frees"] = old_frees.into();
    [expected]
}

/// Commands before the attach. Sizes of later tensors are odd.
const OLD: &str = "tmalloc old 30000 200; tmalloc old 6000000 8; tmalloc hole 4000000 4; \
     tmalloc old 4000000; tfree hole; tmalloc old 200000000; tmalloc gone 100000000; tfree gone";

/// Tensors come and go; returns the expected figures of the last report.
fn play(
    gpuprobe: &Gpuprobe,
    workload: &mut Workload,
    before: &Before,
    is_expandable: bool,
) -> [Value; 1] {
    let pid = workload.pid;
    // The first event, an allocation or a free, has all sums.
    workload.say("tfree old 1");
    let expected = now(workload, before, 1);
    let mut first = pytorch(&settled(gpuprobe, pid, &expected), pid)[0].clone();
    assert_eq!(first["sites"].take(), json!([]));
    assert_eq!(
        number(&first, "before_bytes"),
        number(&first, "allocated_bytes")
    );

    // Old segments have free blocks, and new segments are needed, too.
    workload.play("tmalloc new 10001 30; tmalloc new 3999999 3; tmalloc new 70000001 2; tmalloc new 20001 200");
    let expected = now(workload, before, 1);
    let report = settled(gpuprobe, pid, &expected);
    let inside = number(&pytorch(&report, pid)[0], "segment_bytes");
    assert_eq!(
        inside > 70_000_000,
        !is_expandable,
        "{inside} bytes of new segments"
    );

    // Memory from before the attach shrinks to nothing.
    let mut old = u64::MAX;
    for (freed, count) in [(1 + 150, 150), (1 + 150 + 55, 55)] {
        workload.say(&format!("tfree old {count}"));
        let expected = now(workload, before, freed);
        let report = settled(gpuprobe, pid, &expected);
        let left = number(&pytorch(&report, pid)[0], "before_bytes");
        assert!(left < old);
        old = left;
    }
    workload.play("tfree old; tfree new 20");
    let freed = 209 + 1;
    let expected = now(workload, before, freed);
    assert_eq!(expected[0]["before_bytes"], 0);
    settled(gpuprobe, pid, &expected);
    expected
}

#[test]
fn root_tensors_after_late_attach() {
    let mut workloads = [running(&[]), running(&[EXPANDABLE])];
    let befores = workloads.each_mut().map(|workload| {
        workload.play(OLD);
        Before::of(&snapshot(workload)[0])
    });
    let pids = workloads.each_ref().map(|workload| workload.pid);
    let all = pids.map(|pid| pid.to_string()).join(",");
    let start = |how: &str| {
        Setup::everything()
            .interval("100ms")
            .args(["--pid", &all, "--tensors", how])
            .start()
    };
    let mut gpuprobe = start("requested");
    let mut off = start("off");
    let first = gpuprobe.next_report();
    let unknown = pids.map(|pid| pytorch(&first, pid).len());
    assert_eq!(unknown, [0, 0], "nothing was heard of yet");
    let mut expected = Vec::new();
    for (index, (workload, before)) in workloads.iter_mut().zip(&befores).enumerate() {
        expected.push(play(&gpuprobe, workload, before, index == 1));
    }
    let report = gpuprobe.stop();
    // With `--tensors off`, only the tensor figures are absent.
    let without = off.stop();
    for (pid, expected) in pids.into_iter().zip(&expected) {
        assert_pytorch(&report, pid, expected);
        assert_eq!(pytorch(&without, pid), &[] as &[Value]);
    }
    assert_eq!(without.totals(), report.totals());
    without.assert_nothing_lost();
}
