//! Ways to attach that few kernels need: a perf event for each function, by name or by offset.

use crate::harness::Backend;
use crate::{bandwidth, cudatrace, entries, exactness, memory};

#[test]
fn root_calls_are_exact() {
    for kind in ["perf", "offset"] {
        exactness::started_by_us(kind);
        exactness::attached_late(kind);
        exactness::host_wide_with(kind);
        entries::behind_endbr64(kind);
        memory::attach::is_exact(kind, &[Backend::Shared]);
    }
}

#[test]
fn root_launches_and_copies_are_exact() {
    cudatrace::counts::started_by_us("perf");
    cudatrace::counts::attached_late("perf");
    cudatrace::counts::host_wide_with("perf");
    bandwidth::speed::started_by_us("perf", &[Backend::Driver]);
    bandwidth::speed::attached_late("perf", Backend::Shared, "runtime");
}
