//! Invalid libraries.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Backend, OwnCopy, Setup, Workload, alone, host_wide, standin};

/// A loadable library of another project, under a name that gpuprobe looks for.
fn unrelated_library(copy: &OwnCopy) -> PathBuf {
    let other = copy.standin().path("libcudart.so.99");
    let libm = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
    ]
    .into_iter()
    .find(|path| fs::metadata(path).is_ok())
    .expect("the C library is here");
    fs::copy(libm, &other).unwrap();
    other
}

#[test]
fn root_a_library_without_the_functions_is_left_alone() {
    let copy = OwnCopy::new();
    let other = unrelated_library(&copy);
    let mut workload = Workload::start(Backend::Dlopen);
    workload.send(&format!("load {}", other.display()));
    assert!(workload.hear().starts_with("error"), "it has no cudaMalloc");
    workload.say(&format!("load {}", copy.standin().runtime()));
    workload.say("freenull");
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 4096 3");
    let report = gpuprobe.stop();
    report.assert_totals(workload.status());
    let said = gpuprobe.said();
    assert!(
        said.iter().any(|l| l.contains("libcudart.so.99")),
        "{said:#?}"
    );
}

#[test]
fn root_the_inode_of_a_library_that_is_left_alone_may_become_a_probed_ones() {
    let _shared = host_wide();
    let copy = OwnCopy::new();
    let library = unrelated_library(&copy);
    let inode = fs::metadata(&library).unwrap().ino();
    let mut gpuprobe = Setup::everything()
        .args(["--api", "runtime"])
        .interval("50ms")
        .start();
    let load = format!("load {}", library.display());
    let mut first = Workload::of(&copy, Backend::Dlopen);
    first.send(&load);
    first.hear();
    gpuprobe.stderr.line_with(&[library.to_str().unwrap()]);
    drop(first);
    // As file systems do that give the number of a deleted file to the next one.
    fs::write(&library, fs::read(copy.standin().runtime()).unwrap()).unwrap();
    assert_eq!(fs::metadata(&library).unwrap().ino(), inode);
    let mut second = Workload::of(&copy, Backend::Dlopen);
    second.say(&load);
    gpuprobe.until_it_sees(second.pid, &mut second);
    gpuprobe.stop();
}

#[test]
fn root_warnings_about_invalid_libraries_are_limited() {
    // A host-wide tracer would use up its warnings, too.
    let _alone = alone();
    const FILES: usize = 40;
    const NAMED: usize = 20;
    let copy = OwnCopy::new();
    let empty = copy.standin().path("empty.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&empty);
    assert!(cc.status().expect("cc can be run").success());
    let mut workload = Workload::start(Backend::Dlopen);
    for number in 0..FILES {
        let other = copy
            .standin()
            .path(&format!("libcudart.so.{}", 100 + number));
        fs::copy(&empty, &other).unwrap();
        workload.send(&format!("load {}", other.display()));
        assert!(workload.hear().starts_with("error"));
    }
    workload.say(&format!("load {}", standin().runtime()));
    workload.say("freenull");
    let mut gpuprobe = Setup::pid_without_stacks(workload.pid).start();
    workload.say("alloc 4096 3");
    gpuprobe.stop().assert_totals(workload.status());
    let said = gpuprobe.said();
    let lines = |text: &str| said.iter().filter(|line| line.contains(text)).count();
    assert_eq!(lines("is not probed: "), NAMED, "{said:#?}");
    assert_eq!(lines("suppressing further warnings"), 1, "{said:#?}");
}
