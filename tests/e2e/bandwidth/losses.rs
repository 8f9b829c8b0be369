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
    // Number of copies of a batch that the BPF side sends.
    const MOST: u64 = 256;
    let mut workload = workload();
    let host = super::host_address(workload.pid);
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for (kind, function) in [
        ("batch", "cuMemcpyBatchAsync"),
        ("batch", "cuMemcpyBatchAsync_v2"),
        ("batch-3d", "cuMemcpy3DBatchAsync"),
        ("batch-3d", "cuMemcpy3DBatchAsync_v2"),
    ] {
        for (calls, parts) in [(5, MOST + 1), (7, MOST), (3, 1)] {
            workload.say(&format!(
                "copy {kind} 100000 {calls} via={function} parts={parts} src={host}"
            ));
        }
        if kind == "batch-3d" {
            // Elements of an array have an unknown size.
            workload.say(&format!("copy batch-3d-array 100000 2 via={function}"));
        }
    }
    let report = gpuprobe.stop();
    // The last of each that is too long, and each copy to an array.
    assert_eq!(report.lost("copies"), 4 * 5 + 2 * 2 * 4);
    let moved = report.moved(workload.pid);
    let last = 4 * 5 * (100_000 - 100_000 / (MOST + 1) * MOST);
    assert_eq!(moved, [("H2D", "async", 4 * 15, 4 * 15 * 100_000 - last)]);
}
