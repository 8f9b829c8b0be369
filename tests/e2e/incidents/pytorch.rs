//! PyTorch's allocator frees its cache and retries before it gives up: that is one incident.

use serde_json::Value;

use super::{MIB, counts, incidents, short};
use crate::harness::report::number;
use crate::harness::{Gpuprobe, Report, standin};
use crate::tensors::truth::snapshot;
use crate::tensors::{EXPANDABLE, started};

/// Allocated and reserved bytes, as PyTorch passes them.
fn sums(gpuprobe: &mut Gpuprobe) -> [Value; 2] {
    let device = &snapshot(&mut gpuprobe.talk)[0];
    [device.allocated.into(), device.reserved.into()]
}

fn only(report: &Report) -> &Value {
    let [one] = incidents(report) else {
        panic!("{:#?}", incidents(report));
    };
    one
}

#[test]
fn root_a_cache_that_is_freed_is_a_retry() {
    let (mut gpuprobe, _) = started(&[]).started();
    gpuprobe
        .talk
        .play("tmalloc a 1048576 4; tmalloc b 33554432; tfree b");
    let before = sums(&mut gpuprobe);
    gpuprobe
        .talk
        .play("fail cudaMalloc 1 2; tmalloc c 67108864");
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    let one = only(&report);
    assert_eq!(
        short(incidents(&report)),
        [("cudaMalloc", 64 * MIB, 1, "retried")]
    );
    let pytorch = &one["pytorch"];
    // The state when CUDA refused, with the cache.
    assert_eq!(
        [&pytorch["allocated_bytes"], &pytorch["reserved_bytes"]],
        [&before[0], &before[1]]
    );
    assert!(pytorch["gave_up_on_bytes"].is_null());
    assert_eq!(pytorch["largest_free_bytes"], 32 * MIB);
    assert_eq!(pytorch["empty_cache_bytes"], 32 * MIB);
    assert_eq!(pytorch["sites"][0]["bytes"], 4 * MIB);
    // Each call that succeeded has made a segment, the last one after the retry.
    let calls = number(&report["memleak"]["calls"], "cudaMalloc");
    assert_eq!(number(pytorch, "segments") + 1, calls);
    assert_eq!(pytorch["segment_bytes"], before[1]);
    assert_eq!(pytorch["largest_fit_bytes"], 32 * MIB);
}

#[test]
fn root_pytorch_out_of_memory_is_one_incident() {
    for (settings, refuses) in [(&[][..], "cudaMalloc"), (&[EXPANDABLE], "cuMemCreate")] {
        let (mut gpuprobe, pid) = started(settings).started();
        gpuprobe
            .talk
            .play("tmalloc a 1048576 4; tmalloc b 33554432; tfree b");
        gpuprobe.talk.say(&format!("fail {refuses} 2 2"));
        gpuprobe.talk.send("tmalloc c 104857600");
        assert!(gpuprobe.talk.hear().starts_with("error out of memory"));
        let after = sums(&mut gpuprobe);
        gpuprobe.talk.play("tmalloc d 1000");
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        let one = only(&report);
        assert_eq!(counts(&report), [2, 1], "{settings:?}");
        assert_eq!(
            (&one["api"], &one["attempts"]),
            (&refuses.into(), &2.into())
        );
        assert_eq!(
            (&one["outcome"], &one["pid"]),
            (&"continued".into(), &pid.into())
        );
        let pytorch = &one["pytorch"];
        assert_eq!(pytorch["gave_up_on_bytes"], 100 * MIB);
        assert_eq!(
            [&pytorch["allocated_bytes"], &pytorch["reserved_bytes"]],
            [&after[0], &after[1]]
        );
        let said = super::said(&mut gpuprobe);
        // PyTorch's request, not the segment that it requested from CUDA.
        let headline = [
            "was refused 100.00 MiB on GPU 0",
            "PyTorch gave up; the program went on",
        ];
        assert!(
            headline.iter().all(|part| said[0].contains(part)),
            "{said:#?}"
        );
        report.assert_nothing_lost();
    }
}

#[test]
fn root_older_pytorch_reports_out_of_memory() {
    let folder = standin().path("c10_1_10");
    let older = [("LD_LIBRARY_PATH", folder.to_str().unwrap())];
    let (mut gpuprobe, _) = started(&older).started();
    gpuprobe.talk.say("fail cudaMalloc 2 2");
    gpuprobe.talk.send("tmalloc c 104857600");
    assert!(gpuprobe.talk.hear().starts_with("error out of memory"));
    gpuprobe.talk.done();
    let report = gpuprobe.final_report();
    let one = only(&report);
    assert_eq!(one["outcome"], "ended");
    assert_eq!(one["pytorch"]["gave_up_on_bytes"], 100 * MIB);
}
