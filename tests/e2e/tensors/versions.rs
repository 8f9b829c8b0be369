//! Versions of PyTorch.

use std::process::Command;

use serde_json::Value;

use super::truth::{Device, snapshot};
use super::{assert_pytorch, program, pytorch};
use crate::harness::talk::Talk;
use crate::harness::{Setup, Workload, host_wide, standin};

/// Runs every kind of event on one device; returns the expected figures.
pub(crate) fn play(talk: &mut Talk, makes_requests: bool) -> Vec<Value> {
    talk.play(
        "tmalloc a 1000 200; tmalloc b 900000 9 stream=3; tfree a 60; tmalloc c 30000000 3; \
         tfree c 2; thread x; @x tfree b 8; tmalloc a 2000 5; tempty; tmalloc a 3000",
    );
    let mut expected: Vec<_> = snapshot(talk).iter().map(Device::expected).collect();
    assert_eq!(expected.len(), 1);
    if !makes_requests {
        expected[0]["requested_bytes"].take();
    }
    expected
}

/// The program with the hooks of this version of PyTorch.
fn of_version(folder: &str) -> Workload {
    let mut command = Command::new(program());
    Workload::spawn(command.env("LD_LIBRARY_PATH", standin().path(folder)))
}

#[test]
fn root_pytorch_versions_host_wide() {
    let _shared = host_wide();
    let folders = [".", "c10_1_10"];
    let mut workloads: Vec<_> = folders.map(of_version).into();
    let mut too_old = vec![of_version("c10_1_9")];
    let mut gpuprobe = Setup::everything().args(["--tensors", "on"]).start();
    // Their libraries are already attached to: they are traced from their first call.
    workloads.extend(folders.map(of_version));
    too_old.push(of_version("c10_1_9"));
    let expected: Vec<_> = workloads
        .iter_mut()
        .map(|workload| play(workload, false))
        .collect();
    for workload in &mut too_old {
        play(workload, false);
    }
    let report = gpuprobe.stop();
    for (workload, expected) in workloads.iter().zip(&expected) {
        assert_pytorch(&report, workload.pid, expected);
    }
    // PyTorch's CUDA memory is seen independently of the tensors.
    for workload in &mut too_old {
        let reserved = snapshot(workload)[0].reserved;
        let segments = snapshot(workload)[0].segments.len() as u64;
        report.assert_holds(workload.pid, reserved, segments);
        assert_eq!(pytorch(&report, workload.pid), &[] as &[Value]);
    }
    let said = gpuprobe.said();
    let about = |line: &&String| line.contains("libc10") && line.contains("is not probed");
    let about: Vec<_> = said.iter().filter(about).collect();
    assert_eq!(about.len(), 1, "{said:#?}");
    assert!(about[0].contains("c10_1_9/libc10.so"), "{about:#?}");
}
