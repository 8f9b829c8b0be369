//! Attaching to processes that exit meanwhile, and by a perf event for each function.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::attach::has_reported_or_failed_in_one_line;
use crate::harness::{Backend, Setup, Workload};
use crate::{activity, bandwidth, entries, exactness, memory};

#[test]
fn root_calls_are_exact() {
    exactness::started_by_us("perf");
    exactness::attached_late("perf");
    exactness::host_wide_with("perf");
    entries::behind_endbr64("perf");
    memory::attach::is_exact("perf", &[Backend::Shared]);
}

#[test]
fn root_activity_and_copies_are_exact() {
    activity::counts::is_exact("perf", Backend::Driver);
    bandwidth::speed::started_by_us("perf", &[Backend::Driver]);
    bandwidth::speed::attached_late("perf", &[Backend::Shared], "runtime");
}

#[test]
fn root_process_may_exit_during_attach() {
    // Each process exits at another moment of attaching; no moment may cause a hang or a panic.
    for round in 0..24 {
        let mut workload = Workload::start(Backend::Shared);
        workload.send("alloc 512");
        let mut gpuprobe = Setup::pid_without_stacks(workload.pid).spawn();
        let start = Instant::now();
        // A busy loop, so that the moments are spread evenly over the 200 ms that attaching takes.
        while start.elapsed() < Duration::from_millis(round * 8) {
            std::hint::spin_loop();
        }
        workload.child.signal(Signal::SIGKILL);
        if round % 2 == 0 {
            // Otherwise it stays a zombie while gpuprobe looks at it.
            workload.child.wait();
        }
        has_reported_or_failed_in_one_line(&mut gpuprobe);
    }
}
