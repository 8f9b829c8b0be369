//! Tensors in each attach mode.

use crate::harness::report::number;
use crate::harness::{OwnCopy, Setup, copy_program, standin};
use crate::tensors::versions::play;
use crate::tensors::{assert_pytorch, pytorch};

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
    let kinds = ["session", "multi", "perf"];
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
