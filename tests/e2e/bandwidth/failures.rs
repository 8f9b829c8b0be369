//! Failed copies move no bytes.

use std::fs;

use super::{COPIES, check, each_copy};
use crate::harness::{Backend, Setup, Workload, said, standin};

#[test]
fn root_failed_copies_count_as_failed_calls_only() {
    let mut workload = Workload::start(Backend::Driver);
    let (report, copies) = each_copy(&mut workload, &[], |workload| {
        workload.say("fail cuMemcpyHtoD_v2 3 700");
        let reply = workload.say("copy h2d 1048576 5");
        assert_eq!(said(&reply, "failed"), "3");
        workload.say("fail cuMemcpyDtoHAsync_v2 2 700");
        workload.say("copy d2h 1048576 2 via=cuMemcpyDtoHAsync_v2");
        workload.say("fail cuMemsetD8_v2 1 700");
        workload.say("set 4096 4");
    });
    let to_device = ("cuMemcpyHtoD_v2", "H2D", "sync", 1 << 20);
    let set = ("cuMemsetD8_v2", "set", "async", 4096);
    check(
        &report,
        workload.pid,
        &copies,
        &[to_device, to_device, set, set, set],
    );
    assert_eq!(report["bandwidth_util"]["failed_calls"], 6);
    assert_eq!(report["bandwidth_util"]["captured"], 0);
}

#[test]
fn root_failures_in_runtime_and_driver_count_once() {
    for fails in ["cudaMemcpy", "cuMemcpyHtoD_v2"] {
        let mut workload = Workload::start(Backend::Shared);
        let (report, copies) = each_copy(&mut workload, &["--api", "runtime"], |workload| {
            workload.say(&format!("fail {fails} 2 700"));
            workload.say("copy h2d 1048576 3");
        });
        let expected = [("cudaMemcpy", "H2D", "sync", 1 << 20)];
        check(&report, workload.pid, &copies, &expected);
        assert_eq!(report["bandwidth_util"]["failed_calls"], 2, "{fails}");
    }
}

#[test]
fn root_text_shows_failed_copies() {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(COPIES)
        .format("text")
        .start();
    gpuprobe.talk.ready();
    gpuprobe.talk.say("fail cuMemcpyHtoD_v2 2 700");
    gpuprobe.talk.say("copy h2d 1048576 3");
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    assert!(text.contains("  1 copy  "), "{text}");
    assert!(text.contains("\ncalls that failed: 2\n"), "{text}");
}
