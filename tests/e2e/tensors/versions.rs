//! Versions of PyTorch, and attach modes.

use std::process::Command;

use serde_json::Value;

use super::truth::{Device, snapshot};
use super::{assert_pytorch, program, pytorch};
use crate::harness::report::number;
use crate::harness::talk::Talk;
use crate::harness::{OwnCopy, Setup, Workload, copy_program, host_wide, standin};

/// Runs every kind of event on one device; returns the expected figures.
fn play(talk: &mut Talk, makes_requests: bool) -> Vec<Value> {
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

/// The program with the allocator of this version of PyTorch.
fn of_version(folder: &str) -> Workload {
    let mut command = Command::new(program());
    Workload::spawn(command.env("LD_LIBRARY_PATH", standin().path(folder)))
}

#[test]
fn root_pytorch_versions_host_wide() {
    let _shared = host_wide();
    let folders = [".", "c10_2_0", "c10_1_10"];
    let mut workloads: Vec<_> = folders.map(of_version).into();
    let mut too_old = vec![of_version("c10_1_9")];
    let mut gpuprobe = Setup::everything().start();
    // Their libraries are already attached to: they are traced from their first call.
    workloads.extend(folders.map(of_version));
    too_old.push(of_version("c10_1_9"));
    let mut uncached = Command::new(program());
    let mut uncached = Workload::spawn(uncached.env("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"));
    let expected: Vec<_> = workloads
        .iter_mut()
        .map(|workload| play(workload, false))
        .collect();
    for workload in &mut too_old {
        play(workload, false);
    }
    uncached.say("tmalloc a 5000 7");
    let report = gpuprobe.stop();
    for (workload, expected) in workloads.iter().zip(&expected) {
        assert_pytorch(&report, workload.pid, expected);
        let found = &pytorch(&report, workload.pid)[0];
        assert!(found.get("sites").is_none(), "no call stacks are taken");
    }
    // PyTorch's CUDA memory is seen independently of the tensors.
    for workload in &mut too_old {
        let reserved = snapshot(workload)[0].reserved;
        let segments = snapshot(workload)[0].segments.len() as u64;
        report.assert_holds(workload.pid, reserved, segments);
        assert_eq!(pytorch(&report, workload.pid), &[] as &[Value]);
    }
    report.assert_holds(uncached.pid, 7 * 5000, 7);
    assert_eq!(pytorch(&report, uncached.pid), &[] as &[Value]);
    let said = gpuprobe.said();
    let about = |line: &&String| line.contains("libc10") && line.contains("is not probed");
    let about: Vec<_> = said.iter().filter(about).collect();
    assert_eq!(about.len(), 1, "{said:#?}");
    assert!(about[0].contains("c10_1_9/libc10.so"), "{about:#?}");
}

/// A copy of the program for a tracer in this attach mode.
fn copy_for(kind: &str) -> OwnCopy {
    let copy = OwnCopy::for_attach(kind);
    for file in ["torchlike", "libc10.so", "libc10_cuda.so"] {
        copy_program(standin().path(file), copy.standin().path(file));
    }
    copy
}

#[test]
fn root_tensors_in_each_attach_mode() {
    let kinds = ["session", "multi", "perf", "offset"];
    let copies = kinds.map(copy_for);
    let traced = kinds.iter().zip(&copies).map(|(kind, copy)| {
        let program = copy.standin().path("torchlike");
        Setup::command([program.to_str().unwrap()])
            .args(["--attach", kind, "--tensors", "requested"])
            .spawn()
    });
    let mut traced: Vec<_> = traced.collect();
    for (kind, gpuprobe) in kinds.iter().zip(&mut traced) {
        let pid = gpuprobe.talk.ready();
        let expected = play(&mut gpuprobe.talk, true);
        gpuprobe.talk.done();
        let report = gpuprobe.final_report();
        assert_pytorch(&report, pid, &expected);
        let requested = number(&pytorch(&report, pid)[0], "requested_bytes");
        assert!(requested > 30_000_000, "{kind}: {requested}");
    }
}
