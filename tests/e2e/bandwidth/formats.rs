//! Output formats of copy reports.

use std::fs;

use serde_json::json;

use super::COPIES;
use crate::harness::{Backend, Setup, Workload, standin};

fn reports_of(format: &str, commands: &[&str]) -> (u32, String) {
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
        .modes(COPIES)
        .env("STANDIN_COPY_GBPS", "0.5")
        .format(format)
        .start();
    let pid = gpuprobe.talk.ready();
    for command in commands {
        gpuprobe.talk.say(command);
    }
    gpuprobe.talk.done();
    gpuprobe.wait();
    (pid, fs::read_to_string(&gpuprobe.reports).unwrap())
}

const COMMANDS: [&str; 3] = ["copy h2d 2097152 3", "copy d2d 1048576 4", "set 512 2"];

#[test]
fn root_text_lists_directions_as_documented() {
    let (pid, text) = reports_of("text", &COMMANDS);
    let lines: Vec<_> = text.lines().collect();
    let who = format!("workload_driver  pid {pid} root  7 copies, 2 memory sets  ");
    assert!(lines[0].starts_with(&who), "{text}");
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let headings = "DIRECTION MODE CALLS BYTES GB/S PEAK NOW TIMED BY GB/S OF WALL TIME";
    assert_eq!(words(lines[1]), words(headings));
    let copied = words(lines[2]);
    assert_eq!(copied[..5], ["H2D", "sync", "3", "6.00", "MiB"]);
    let mean: f64 = copied[5].parse().unwrap();
    assert!((0.1..=0.5).contains(&mean), "{text}");
    for figure in &copied[6..8] {
        assert!(figure.parse::<f64>().unwrap() > 0.0, "{text}");
    }
    assert_eq!(copied[8..10], ["the", "calls"]);
    for (line, before) in lines[3..5]
        .iter()
        .zip(["D2D async 4 4.00 MiB", "set async 2 1.00 KiB"])
    {
        let found = words(line);
        assert_eq!(found[..5], words(before)[..]);
        assert!(found[5].parse::<f64>().unwrap() >= 0.0);
        assert_eq!(found.len(), 6, "{text}");
    }
    assert!(
        lines[5].contains("calls return before the transfer ends"),
        "{text}"
    );
    assert_eq!(lines[6..], ["lost: nothing", ""]);
}

#[test]
fn root_text_reports_no_copies() {
    let (_, text) = reports_of("text", &[]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("no copies so far  "), "{text}");
    assert_eq!(lines[1..], ["lost: nothing", ""]);
}

#[test]
fn root_csv_has_one_row_per_direction() {
    let (pid, text) = reports_of("csv", &COMMANDS);
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    let mut found: Vec<_> = rows
        .iter()
        .map(|row| ["direction", "mode", "calls", "bytes"].map(|name| &row[column(name)]))
        .collect();
    found.sort_unstable();
    let expected = [
        ["D2D", "async", "4", "4194304"],
        ["H2D", "sync", "3", "6291456"],
        ["set", "async", "2", "1024"],
    ];
    assert_eq!(found, expected);
    for row in &rows {
        let is_sync = &row[column("mode")] == "sync";
        assert_eq!(row[column("pid")], pid.to_string());
        assert_eq!(&row[column("final")], "true");
        for name in ["seconds", "bytes_per_second", "peak_bytes_per_second"] {
            assert_eq!(row[column(name)].parse::<f64>().is_ok(), is_sync, "{row:?}");
        }
        assert!(row[column("wall_bytes_per_second")].parse::<f64>().unwrap() > 0.0);
    }
}

#[test]
fn root_csv_of_two_tables_is_refused() {
    for modes in [
        ["--memleak", "--cudatrace"],
        ["--memleak", "--bandwidth-util"],
        ["--cudatrace", "--bandwidth-util"],
    ] {
        let mut gpuprobe = Setup::command(["true"]).modes(modes).format("csv").spawn();
        assert_eq!(gpuprobe.exit_code(), 2);
        let said = gpuprobe.said().join("\n");
        assert!(said.contains("csv holds one table"), "{said}");
    }
}

#[test]
fn root_copy_sizes_are_a_power_of_two_histogram() {
    let mut workload = Workload::start(Backend::Driver);
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid).modes(COPIES).start();
    for (bytes, calls) in [
        (0, 1),
        (1, 2),
        (1023, 3),
        (1024, 4),
        (2047, 5),
        (2048, 6),
        (1 << 20, 7),
    ] {
        workload.say(&format!("copy d2d {bytes} {calls}"));
    }
    let report = gpuprobe.stop();
    let sizes = &report.direction(workload.pid, "D2D", "async")["sizes"];
    let expected = json!([
        [1, 1],
        [2, 2],
        [1024, 3],
        [2048, 9],
        [4096, 6],
        [2 << 20, 7]
    ]);
    assert_eq!(*sizes, expected);
}
