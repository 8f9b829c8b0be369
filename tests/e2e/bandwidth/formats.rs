//! Output formats of copy reports: those of one recorded run.

use std::fs;

use chrono::DateTime;
use tempfile::TempDir;

use super::COPIES;
use crate::harness::gpuprobe::output_of;
use crate::harness::{Backend, Setup, standin};

/// A recorded run; each format is a replay.
struct Recorded {
    folder: TempDir,
    pid: u32,
}

impl Recorded {
    fn of(commands: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("run.sqlite");
        let mut gpuprobe = Setup::command([standin().program_text(Backend::Driver)])
            .modes(COPIES)
            .env("STANDIN_COPY_GBPS", "0.5")
            .args(["--per-call", "--record", file.to_str().unwrap()])
            .start();
        let pid = gpuprobe.talk.ready();
        for command in commands {
            gpuprobe.talk.say(command);
        }
        gpuprobe.talk.done();
        gpuprobe.final_report();
        Self { folder, pid }
    }

    fn replay(&self, arguments: &[&str]) -> String {
        let file = self.folder.path().join("run.sqlite");
        let words = ["replay", file.to_str().unwrap()];
        output_of(&[&words, arguments].concat())
    }
}

#[test]
fn root_formats_of_directions_are_as_documented() {
    let commands = ["copy h2d 2097152 3", "copy d2d 1048576 4", "set 512 2"];
    let run = Recorded::of(&commands);
    check_text(run.pid, &run.replay(&["--last"]));
    check_csv(run.pid, &run.replay(&["--last", "--format", "csv"]));
    let nothing = Recorded::of(&[]).replay(&["--last"]);
    let lines: Vec<_> = nothing.lines().collect();
    assert!(lines[0].starts_with("no copies so far  "), "{nothing}");
    assert_eq!(lines[1..], ["lost: nothing", ""]);
}

fn check_text(pid: u32, text: &str) {
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

fn check_csv(pid: u32, text: &str) {
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
fn root_formats_of_single_copies_are_as_documented() {
    let run = Recorded::of(&["copy h2d 1048576 2", "copy d2d 512", "set 2048"]);
    check_lines(run.pid, &run.replay(&["--per-call"]));
    check_rows(run.pid, &run.replay(&["--per-call", "--format", "csv"]));
}

fn check_lines(pid: u32, text: &str) {
    let lines: Vec<_> = text.lines().collect();
    let to_device = "cuMemcpyHtoD_v2 H2D sync 1.00 MiB in";
    let within = "cuMemcpyDtoD_v2 D2D async 512 B in";
    let set = "cuMemsetD8_v2 set async 2.00 KiB in";
    for (line, what) in lines.iter().zip([to_device, to_device, within, set]) {
        let (time, rest) = line.split_once(' ').unwrap();
        DateTime::parse_from_rfc3339(time).unwrap();
        let figures = rest.strip_prefix(&format!("{pid}:{pid} {what} "));
        let figures = figures.unwrap_or_else(|| panic!("'{line}' is not about '{what}'"));
        let (microseconds, speed) = figures.split_once(" us  ").unwrap();
        assert!(microseconds.parse::<f64>().unwrap() > 0.0, "{line}");
        if what == to_device {
            let speed = speed.strip_suffix(" GB/s").expect("a throughput");
            assert!(speed.parse::<f64>().unwrap() > 0.0, "{line}");
        } else {
            assert_eq!(speed, "-");
        }
    }
    assert!(text.contains("  3 copies, 1 memory set  "), "{text}");
}

fn check_rows(pid: u32, text: &str) {
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<_> = rows.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<_> = rows.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4, "{text}");
    let to_device = ["cuMemcpyHtoD_v2", "H2D", "sync", "1048576"];
    let within = ["cuMemcpyDtoD_v2", "D2D", "async", "512"];
    let set = ["cuMemsetD8_v2", "set", "async", "2048"];
    let column = |name: &str| header.iter().position(|h| h == name).unwrap();
    for (row, expected) in rows.iter().zip([to_device, to_device, within, set]) {
        let found = ["api", "direction", "mode", "bytes"].map(|name| &row[column(name)]);
        assert_eq!(found, expected);
        assert_eq!(row[column("pid")], pid.to_string());
        assert_eq!(row[column("tid")], pid.to_string());
        DateTime::parse_from_rfc3339(&row[column("time")]).unwrap();
        assert!(row[column("seconds")].parse::<f64>().unwrap() > 0.0);
        let speed = &row[column("bytes_per_second")];
        assert_eq!(speed.is_empty(), expected[2] == "async", "{speed}");
    }
}

/// Live, in text: failed calls are shown.
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
