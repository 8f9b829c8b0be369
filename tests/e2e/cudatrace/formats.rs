//! What reports of launches look like.

use std::fs;

use super::{KERNELS, LAUNCHES, name};
use crate::harness::report::list;
use crate::harness::{Backend, Setup, said, standin};

/// Runs commands under a tracer of another format; gives its id, its replies and the reports.
fn reports_of(format: &str, arguments: &[&str], commands: &[&str]) -> (u32, Vec<String>, String) {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(LAUNCHES)
        .format(format)
        .args(arguments.iter().copied())
        .start();
    let pid = gpuprobe.talk.ready();
    let replies = commands.iter().map(|c| gpuprobe.talk.say(c)).collect();
    gpuprobe.talk.done();
    gpuprobe.wait();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    (pid, replies, text)
}

/// The line is `before`, a number with one decimal, and `after`.
fn check_line(line: &str, before: &str, after: &str) {
    let middle = line
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after));
    let middle = middle.unwrap_or_else(|| panic!("'{line}' is not '{before}', '{after}'"));
    let (_, decimals) = middle.split_once('.').expect("a decimal");
    assert_eq!(decimals.len(), 1, "{line}");
    assert!(middle.trim_start().parse::<f64>().unwrap() > 0.0, "{line}");
}

#[test]
fn root_text_lists_kernels_as_documented() {
    let commands = [
        "launch 0 250 grid=4,5,6 block=7,8,9",
        "launch 1 500",
        "launch 2 250 via=ex",
        "graph 5 23",
    ];
    let (pid, _, text) = reports_of("text", &[], &commands);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("-------------------- "), "{text}");
    assert_eq!(
        lines[1],
        format!("PID: {pid} / UID: 0 workload_driver (exited)")
    );
    assert_eq!(
        lines[2],
        "1000 `cuLaunchKernel`, `cuLaunchKernelEx` calls for 3 kernels"
            .replace("1000 `cuLaunchKernel`, ", "750 `cuLaunchKernel`, 250 ")
    );
    let width = 64;
    let shortened = format!("{}...", &KERNELS[2].1[..width - 3]);
    let rows = [
        (
            "void at::native::vectorized_elementwise_kernel<4, ...>",
            "500 launches   50.0 %",
            "████████          grid 80x1x1 block 128x1x1",
        ),
        (
            shortened.as_str(),
            "250 launches   25.0 %",
            "████              grid 80x1x1 block 128x1x1",
        ),
        (
            name(0),
            "250 launches   25.0 %",
            "████              grid 4x5x6 block 7x8x9",
        ),
    ];
    for (line, (name, counts, rest)) in lines[3..6].iter().zip(rows) {
        let before = format!("        {name:width$}   {counts}  ");
        check_line(line, &before, &format!("/s  {rest}"));
    }
    assert_eq!(
        lines[6..],
        [
            &format!("PID: {pid}: 23 graph launches of 1 graphs"),
            "5 launches were captured into graphs and did not run",
            ""
        ]
    );
}

#[test]
fn root_text_lists_the_most_launched_of_a_process() {
    let commands = ["module generated=12", "launch all 2", "launch 0 7"];
    for (arguments, listed, rest) in [
        (&[][..], 10, "        ... and 3 more, 6 launches"),
        (
            &["--top", "1"][..],
            1,
            "        ... and 12 more, 24 launches",
        ),
        (&["--top", "13"][..], 13, ""),
    ] {
        let (_, _, text) = reports_of("text", arguments, &commands);
        let rows = text.lines().filter(|l| l.contains(" launches  ")).count();
        assert_eq!(rows, listed, "{text}");
        let first = text.lines().find(|l| l.contains(" launches  ")).unwrap();
        assert!(first.trim_start().starts_with(name(0)), "{text}");
        assert!(text.lines().any(|l| l == rest), "{text}");
        assert_eq!(text.contains("... and "), !rest.is_empty());
        assert!(
            text.contains("31 `cuLaunchKernel` calls for 13 kernels"),
            "{text}"
        );
    }
}

#[test]
fn root_top_cuts_the_kernels_of_a_process_in_every_format() {
    let commands = ["module generated=5", "launch all 2", "launch 0 7"];
    let (_, _, text) = reports_of("json", &["--top", "2"], &commands);
    let report: serde_json::Value = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(report["cudatrace"]["launches"], 17);
    let kernels = list(&report["cudatrace"], "kernels");
    assert_eq!(kernels[0]["name"], name(0));
    assert_eq!(kernels.len(), 2, "{kernels:#?}");
    let (_, _, text) = reports_of("csv", &["--top", "2"], &commands);
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn root_text_says_when_nothing_was_launched() {
    let (_, _, text) = reports_of("text", &[], &["alloc 4096"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("-------------------- "), "{text}");
    assert_eq!(lines[1..], ["NO LAUNCH.", ""]);
}

#[test]
fn root_csv_has_one_row_per_kernel() {
    let commands = ["launch 0 3 grid=4,5,6 block=7,8,9", "graph 5 2"];
    let (pid, replies, text) = reports_of("csv", &[], &commands);
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4, "{text}");
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let pid = pid.to_string();
    for (name, value) in [
        ("final", "true"),
        ("pid", &pid),
        ("uid", "0"),
        ("comm", "workload_driver"),
        ("exited", "true"),
        ("name", KERNELS[0].1),
        ("mangled", KERNELS[0].0),
        ("handle", said(&replies[0], "handle")),
        ("launches", "3"),
        ("captured_launches", "2"),
        ("grid", "4x5x6"),
        ("block", "7x8x9"),
        ("api", "cuLaunchKernel"),
    ] {
        assert_eq!(&rows[0][column(name)], value, "{name}");
    }
    assert!(rows[0][column("per_second")].parse::<f64>().unwrap() > 0.0);
    for row in &rows[1..] {
        let counts = [&row[column("launches")], &row[column("captured_launches")]];
        assert_eq!(counts, ["0", "1"]);
        assert_eq!(&row[column("per_second")], "0");
    }
}
