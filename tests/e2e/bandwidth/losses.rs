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
fn root_copy_batches_of_unknown_size_are_counted_as_lost() {
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for function in ["cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2"] {
        // Too many copies in a batch, and elements of an array whose size is unknown.
        workload.say(&format!("copy batch-3d 100000 3 via={function} parts=257"));
        workload.say(&format!("copy batch-3d-array 100000 2 via={function}"));
        workload.say(&format!("copy batch-3d 100000 4 via={function}"));
    }
    let report = gpuprobe.stop();
    assert_eq!(report.lost("copies"), 2 * (3 + 2));
    assert_eq!(
        report.moved(workload.pid),
        [("unknown", "async", 2 * 4, 2 * 4 * 100_000)]
    );
}

#[test]
fn root_the_largest_copy_batch_of_known_size_is_exact() {
    // Number of copies of a batch that the BPF side sums.
    const MOST: u64 = 256;
    let mut workload = workload();
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    let functions = [
        "cuMemcpyBatchAsync",
        "cuMemcpyBatchAsync_v2",
        "cuMemcpy3DBatchAsync",
        "cuMemcpy3DBatchAsync_v2",
    ];
    for function in functions {
        let kind = if function.contains("3D") {
            "batch-3d"
        } else {
            "batch"
        };
        workload.say(&format!(
            "copy {kind} 100000 5 via={function} parts={}",
            MOST + 1
        ));
        workload.say(&format!("copy {kind} 100000 7 via={function} parts={MOST}"));
        workload.say(&format!("copy {kind} 100000 3 via={function} parts=1"));
    }
    let report = gpuprobe.stop();
    assert_eq!(report.lost("copies"), 4 * 5);
    assert_eq!(
        report.moved(workload.pid),
        [("unknown", "async", 4 * 10, 4 * 10 * 100_000)]
    );
}
