//! Calls that cannot be followed, and batches that are none: each is counted as lost.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use tempfile::TempDir;

use super::{cc, program, source};
use crate::harness::report::{Report, number};
use crate::harness::{Setup, alone, standin};

/// Open calls of a thread that are followed.
const FRAMES: u64 = 8;

/// The report on `lost HOW COUNT`, and its losses.
fn traced(how: &str, count: u64, mode: &'static str) -> (Report, BTreeMap<String, u64>) {
    // A host-wide tracer would count the losses, too.
    let _alone = alone();
    standin();
    let folder = TempDir::new().unwrap();
    let library = folder.path().join("libcuda.so.1");
    let flags = ["-DLIBRARY", "-shared", "-fPIC", "-o"].map(OsStr::new);
    let source = source("lost.c");
    cc(&[&flags[..], &[library.as_ref(), source.as_ref()]].concat());
    let program = program(folder.path(), "lost", &[&source]);
    let words = [
        program.to_str().unwrap(),
        library.to_str().unwrap(),
        how,
        &count.to_string(),
    ];
    let mut gpuprobe = Setup::command(words).modes([mode]).start();
    assert_eq!(gpuprobe.exit_code(), 0, "{:#?}", gpuprobe.said());
    let report = gpuprobe.final_report();
    let counts = report["lost"].as_object().unwrap().iter();
    let counts = counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap()));
    let lost = counts.filter(|(_, count)| *count > 0).collect();
    (report, lost)
}

#[test]
fn root_calls_nested_too_deeply_are_lost() {
    let (report, lost) = traced("deep", FRAMES + 4, "--memleak");
    assert_eq!(lost, [("memory".to_owned(), 4)].into());
    assert_eq!(number(&report["memleak"], "alloc_calls"), FRAMES);
}

#[test]
fn root_calls_with_unreadable_results_are_lost() {
    let (report, lost) = traced("vanish", 5, "--memleak");
    assert_eq!(lost, [("memory".to_owned(), 5)].into());
    assert_eq!(number(&report["memleak"], "alloc_calls"), 0);
}

#[test]
fn root_batches_that_are_none_are_not_understood() {
    let (report, lost) = traced("batch", 3, "--activity");
    assert_eq!(lost, [("undecodable".to_owned(), 3)].into());
    assert_eq!(report["activity"]["records"], 0);
}
