//! Reports in text and CSV of a live run, one of each; `tests/recordings/formats.rs` has more. All reports in JSON
//! are checked by their schema.

use std::fs;

use chrono::{DateTime, FixedOffset, Local};

use crate::harness::{Backend, Setup, standin};

/// Runs commands on a workload; returns its PID, its replies, and the reports.
fn reports_of(
    format: &str,
    interval: &str,
    arguments: &[&str],
    commands: &[&str],
) -> (u32, Vec<String>, String) {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)])
        .format(format)
        .interval(interval)
        .args(arguments.iter().copied())
        .start();
    let pid = gpuprobe.talk.ready();
    let replies: Vec<_> = commands.iter().map(|c| gpuprobe.talk.say(c)).collect();
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    (pid, replies, text)
}

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
    let before = Local::now().timestamp();
    let (pid, replies, text) = reports_of(
        "text",
        "1h",
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
    assert!((before..=Local::now().timestamp()).contains(&time.timestamp()));
    assert_eq!(*time.offset(), *Local::now().offset());
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
fn root_csv_has_one_row_per_live_allocation() {
    let (pid, replies, text) =
        reports_of("csv", "50ms", &[], &["alloc 4096 3", "free 1", "sleep 0.3"]);
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let last: Vec<_> = rows
        .iter()
        .filter(|r| &r[column("final")] == "true")
        .collect();
    assert!(rows.len() > last.len(), "periodic reports have rows too");
    let mut found: Vec<_> = last.iter().map(|r| &r[column("address")]).collect();
    found.sort_unstable();
    let addresses: Vec<_> = replies[0].split(' ').collect();
    assert_eq!(found, [addresses[0], addresses[2]]);
    for row in last {
        for (name, value) in [
            ("pid", pid.to_string().as_str()),
            ("uid", "0"),
            ("comm", "workload"),
            ("exited", "true"),
            ("tid", pid.to_string().as_str()),
            ("thread", "workload"),
            ("bytes", "4096"),
            ("device", "0"),
            ("kind", "device"),
            ("api", "cudaMalloc"),
        ] {
            assert_eq!(&row[column(name)], value, "{name}");
        }
        DateTime::parse_from_rfc3339(&row[column("report_time")]).unwrap();
        let made = DateTime::parse_from_rfc3339(&row[column("time")]).unwrap();
        let age = Local::now().signed_duration_since(made).num_seconds();
        assert!((0..60).contains(&age), "made {age} s ago");
    }
}
