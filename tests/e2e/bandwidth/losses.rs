//! Copies that cannot be decoded are counted as lost.

use super::COPIES;
use crate::harness::{Backend, Setup, Workload};

const SETTINGS: [(&str, &str); 1] = [("STANDIN_COPY_GBPS", "0")];

pub(crate) fn workload() -> Workload {
    let mut workload = Workload::spawn(&mut Workload::command(Backend::Driver, &SETTINGS));
    workload.say("freenull");
    workload
}

#[test]
fn root_copy_batches_of_unknown_size_are_counted_as_lost_and_the_largest_is_exact() {
    // Number of copies of a batch that the BPF side sums.
    const MOST: u64 = 256;
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for (kind, function) in [
        ("batch", "cuMemcpyBatchAsync"),
        ("batch", "cuMemcpyBatchAsync_v2"),
        ("batch-3d", "cuMemcpy3DBatchAsync"),
        ("batch-3d", "cuMemcpy3DBatchAsync_v2"),
    ] {
        for (calls, parts) in [(5, MOST + 1), (7, MOST), (3, 1)] {
            workload.say(&format!(
                "copy {kind} 100000 {calls} via={function} parts={parts}"
            ));
        }
        if kind == "batch-3d" {
            // Elements of an array have an unknown size.
            workload.say(&format!("copy batch-3d-array 100000 2 via={function}"));
        }
    }
    let report = gpuprobe.stop();
    assert_eq!(report.lost("copies"), 4 * 5 + 2 * 2);
    let moved = report.moved(workload.pid);
    assert_eq!(moved, [("unknown", "async", 4 * 10, 4 * 10 * 100_000)]);
}
