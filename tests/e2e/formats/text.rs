//! Text reports.

use std::fs;

use chrono::{DateTime, FixedOffset};

use super::{ONCE, reports_of};
use crate::harness::{Backend, Setup, standin};

/// The time in a header: 20 dashes, a time with its offset in whole seconds, and 20 dashes.
fn header_time(line: &str) -> DateTime<FixedOffset> {
    let rule = "-".repeat(20);
    let time = line
        .strip_prefix(&format!("{rule} "))
        .and_then(|l| l.strip_suffix(&format!(" {rule}")));
    let time = time.unwrap_or_else(|| panic!("'{line}' is no header"));
    assert_eq!(time.len(), "2026-11-25T15:45:33+07:00".len(), "{time}");
    DateTime::parse_from_rfc3339(time).expect("a time")
}

#[test]
fn root_text_is_laid_out_as_documented() {
    let before = chrono::Local::now().timestamp();
    let (pid, replies, text) = reports_of(
        "text",
        ONCE,
        &["--top", "2", "--group", "thread"],
        &[
            "alloc 1048576 4",
            "alloc 20971520",
            "alloc 100",
            "thread loader",
            "@loader alloc 1536",
            "free 0",
        ],
    );
    let lines: Vec<_> = text.lines().collect();
    let time = header_time(lines[0]);
    assert!((before..=chrono::Local::now().timestamp()).contains(&time.timestamp()));
    assert_eq!(*time.offset(), *chrono::Local::now().offset());
    let loader = lines
        .iter()
        .position(|l| l.trim_start().starts_with("loader:"))
        .unwrap();
    let tid: u32 = lines[loader].rsplit(':').next().unwrap().parse().unwrap();
    assert_ne!(tid, pid);
    let first: Vec<_> = replies[0].split(' ').collect();
    let (large, small) = (&replies[1], &replies[4]);
    let expected = [
        format!("PID: {pid} / UID: 0 (exited)"),
        format!("  workload:{pid}"),
        format!("    {large}:gpu_0: 20.00 MiB"),
        format!("    {}:gpu_0: 1.00 MiB", first[1]),
        "    ... and 3 more, 2.00 MiB".to_owned(),
        format!("  loader:{tid}"),
        format!("    {small}:gpu_0: 1.50 KiB"),
        String::new(),
        "TOTAL LEAKED: 23.00 MiB".to_owned(),
        String::new(),
        "total number of `cudaMalloc` calls: 7".to_owned(),
        "24118884 bytes leaked from 6 cuda memory allocation(s)".to_owned(),
        String::new(),
    ];
    assert_eq!(lines[1..], expected);
}

#[test]
fn root_text_lists_ten_of_a_thread() {
    let (_, _, text) = reports_of("text", ONCE, &["--group", "thread"], &["alloc 1048576 422"]);
    assert_eq!(
        text.lines()
            .filter(|l| l.ends_with(":gpu_0: 1.00 MiB"))
            .count(),
        10
    );
    assert!(
        text.contains("\n    ... and 412 more, 412.00 MiB\n"),
        "{text}"
    );
}

#[test]
fn root_text_names_each_allocating_function() {
    let standin = standin();
    let programs = [Backend::Shared, Backend::Driver].map(|b| standin.program_text(b));
    let script = programs
        .map(|p| format!("{p} -c 'alloc 512 3; exit' >&2"))
        .join(" && ");
    let setup = Setup::command(["sh", "-c", &script]).format("text");
    let mut gpuprobe = setup.args(["--group", "thread"]).start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let line = text
        .lines()
        .find(|l| l.starts_with("total number of "))
        .unwrap();
    let mut counts: Vec<_> = line["total number of ".len()..].split(", ").collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        ["`cuMemAlloc_v2` calls: 3", "`cudaMalloc` calls: 3"]
    );
}

#[test]
fn root_text_reports_no_calls() {
    let (_, _, text) = reports_of("text", ONCE, &[], &[]);
    let lines: Vec<_> = text.lines().collect();
    let nothing = lines[0].strip_prefix("no memory call and no process that uses CUDA so far  ");
    DateTime::parse_from_rfc3339(nothing.expect("that nothing was seen")).expect("a time");
    assert_eq!(lines[1..], ["lost: nothing", ""]);
}

#[test]
fn root_text_shows_failures_and_unknown_frees() {
    let (_, _, text) = reports_of(
        "text",
        ONCE,
        &[],
        &[
            "alloc 512 2",
            "fail cudaMalloc 3 2",
            "alloc 512 3",
            "freeall",
        ],
    );
    assert!(
        text.contains("\ncalls: 2 cudaMalloc, 2 frees, 3 failed\n"),
        "{text}"
    );
    assert!(text.contains("\nTOTAL LEAKED: 0 B\n"), "{text}");
    assert!(
        text.contains("\n0 bytes leaked from 0 cuda memory allocation(s)\n"),
        "{text}"
    );
}
