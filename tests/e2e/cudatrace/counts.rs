//! Every launch is counted once, by every API layer. `exactness.rs` has the attach modes.

use super::{check_kernels, table};
use crate::harness::Backend;

/// Every launch function of the driver, with one kernel for each group of functions, and a fourth kernel by several.
const OF_DRIVER: &str = "launch 0 10 via=kernel grid=1,2,3 block=4,5,6; \
    launch 1 20 via=ex grid=7,8,9 block=10,11,9; launch 2 30 via=coop grid=13,14,15 block=16,17,3; \
    launch 0 40 via=ptsz; launch 1 50 via=ex-ptsz; launch 2 60 via=coop-ptsz; \
    launch 3 1 via=ex grid=19,20,21 block=22,23,2; launch 3 9 via=ex grid=9,9,9 block=9,9,9";

/// Every launch function of the runtime.
pub(super) const OF_RUNTIME: &str = "launch 0 10 via=kernel grid=1,2,3 block=4,5,6; \
    launch 1 20 via=ex grid=7,8,9 block=10,11,9; launch 2 30 via=coop grid=13,14,15 block=16,17,3; \
    launch 3 40 via=nvcc grid=19,20,21 block=22,23,2; launch 0 50 via=ptsz; launch 1 60 via=ex-ptsz; \
    launch 2 70 via=coop-ptsz; launch 3 80 via=nvcc-ptsz";

#[test]
fn root_every_launch_function_is_seen_in_the_driver() {
    let rows = [
        ("", Backend::Driver, OF_DRIVER),
        ("", Backend::Shared, OF_RUNTIME),
    ];
    for arguments in [&[][..], &["--api", "driver"]] {
        let (report, ended) = table(arguments, &rows);
        report.assert_launch_calls(&[
            ("cuLaunchKernel", 50 + 180),
            ("cuLaunchKernelEx", 70 + 10 + 80),
            ("cuLaunchCooperativeKernel", 90 + 100),
        ]);
        let counts = [
            (50, 70, 90, (10, "cuLaunchKernelEx")),
            (60, 80, 100, (120, "cuLaunchKernel")),
        ];
        for (ended, (plain, ex, cooperative, (fourth, by))) in ended.iter().zip(counts) {
            let expected = [
                (0, plain, "cuLaunchKernel", [1, 2, 3], [4, 5, 6]),
                (1, ex, "cuLaunchKernelEx", [7, 8, 9], [10, 11, 9]),
                (2, cooperative, COOPERATIVE, [13, 14, 15], [16, 17, 3]),
                // The shape is the first launch's.
                (3, fourth, by, [19, 20, 21], [22, 23, 2]),
            ];
            check_kernels(&report, ended.pid, &expected);
        }
    }
}

const COOPERATIVE: &str = "cuLaunchCooperativeKernel";
