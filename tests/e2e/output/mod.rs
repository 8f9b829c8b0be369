//! Destinations of reports, interval, time limit; and output files.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::{Backend, Setup, Workload, host_wide, standin};

#[test]
fn root_an_unwritable_file_fails_before_anything_is_traced() {
    let mut gpuprobe = Setup::command(["touch", "/tmp/never-made-by-the-tests-of-gpuprobe"])
        .on_stdout()
        .args(["-o", "/nonexistent/folder/reports"])
        .spawn();
    assert_ne!(gpuprobe.exit_code(), 0);
    let said = gpuprobe.said();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].starts_with("gpuprobe: error: "), "{said:#?}");
    assert!(said[0].contains("/nonexistent/folder/reports"), "{said:#?}");
    assert!(fs::metadata("/tmp/never-made-by-the-tests-of-gpuprobe").is_err());
}

#[test]
fn root_a_full_disk_is_one_clear_line() {
    let _shared = host_wide();
    let mut gpuprobe = Setup::everything()
        .on_stdout()
        .args(["-o", "/dev/full"])
        .interval("50ms")
        .start();
    assert_ne!(gpuprobe.exit_code(), 0);
    let said = gpuprobe.said();
    let errors: Vec<_> = said
        .iter()
        .filter(|l| !l.starts_with("gpuprobe: tracing"))
        .collect();
    assert_eq!(errors.len(), 1, "{said:#?}");
    assert!(
        errors[0].starts_with("gpuprobe: error: cannot write the report"),
        "{said:#?}"
    );
}

/// Message after the reader of the reports has closed its end.
const GONE: &str = "gpuprobe: output closed; stopping";

/// Runs gpuprobe for a reader that closes after one line; returns the exit status.
const ONE_LINE: [&str; 3] = [
    "sh",
    "-c",
    "{ \"$0\" \"$@\"; echo \"status $?\" >&2; } | head -n 1",
];

#[test]
fn root_a_closed_pipe_ends_the_run_quietly() {
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    for format in ["text", "json", "csv"] {
        let mut gpuprobe = Setup::pid(workload.pid)
            .wrapped(ONE_LINE)
            .on_stdout()
            .format(format)
            .interval("50ms")
            .start();
        // CSV has rows only while memory is held.
        workload.say("alloc 512");
        gpuprobe.wait();
        let said = gpuprobe.said();
        assert!(said[0].starts_with("gpuprobe: tracing "), "{said:#?}");
        assert_eq!(said[1..], [GONE, "status 0"], "{format}");
        assert_eq!(gpuprobe.talk.to_end().len(), 1);
    }
}

#[test]
fn root_a_closed_pipe_does_not_end_the_command() {
    let script = format!("exec {} >&2", standin().program_text(Backend::Shared));
    let mut gpuprobe = Setup::command(["sh", "-c", &script])
        .wrapped(ONE_LINE)
        .on_stdout()
        .interval("50ms")
        .start();
    gpuprobe.stderr.line_starting(GONE);
    gpuprobe.talk.send("alloc 512");
    gpuprobe.stderr.line_starting("ok");
    gpuprobe.talk.send("exit 6");
    gpuprobe.stderr.line_starting("status 6");
    gpuprobe.wait();
    assert_eq!(gpuprobe.talk.to_end().len(), 1);
}

#[test]
fn root_standard_output_has_data_only() {
    let workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .on_stdout()
        .interval("50ms")
        .args(["--duration", "300ms"])
        .start();
    assert_eq!(gpuprobe.exit_code(), 0);
    let lines = gpuprobe.talk.to_end();
    assert!(lines.len() >= 2, "{lines:#?}");
    let reports: Vec<_> = lines
        .iter()
        .map(|l| crate::harness::Report::parse(l))
        .collect();
    assert!(reports.last().unwrap().is_final());
    assert_eq!(reports.iter().filter(|r| r.is_final()).count(), 1);
}

/// The command's standard output, gpuprobe's reports, and standard error, with these options.
fn with_a_program(options: &[&str]) -> (Vec<String>, Vec<String>) {
    crate::harness::require_bpf();
    let output = std::process::Command::new(crate::harness::gpuprobe::BINARY)
        .args(options)
        .args(["--", "sh", "-c", "echo program"])
        .output()
        .unwrap();
    let lines = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    (lines(output.stdout), lines(output.stderr))
}

#[test]
fn root_standard_output_belongs_to_the_command() {
    let is_report = |line: &&String| line.starts_with('{');
    let json = ["--memleak", "--format", "json"];
    let (out, said) = with_a_program(&json);
    assert_eq!(out, ["program"]);
    let reports: Vec<_> = said.iter().filter(is_report).collect();
    assert!(crate::harness::Report::parse(reports[reports.len() - 1]).is_final());
    let (out, said) = with_a_program(&["--memleak"]);
    assert_eq!(out, ["program"]);
    assert!(said.iter().any(|line| !line.starts_with("gpuprobe: ")));
    // With an explicit option: reports go to standard output all the same, or to a file.
    let (out, said) = with_a_program(&[&json[..], &["-o", "-"]].concat());
    assert_eq!(out.iter().filter(is_report).count(), 1, "{out:#?}");
    assert_eq!(said.iter().filter(is_report).count(), 0, "{said:#?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let (out, said) = with_a_program(&[&json[..], &["-o", path]].concat());
    assert_eq!(out, ["program"]);
    assert_eq!(said.iter().filter(is_report).count(), 0, "{said:#?}");
    assert!(!fs::read(path).unwrap().is_empty());
}

#[test]
fn root_a_time_limit_ends_the_run() {
    let mut workload = Workload::start(Backend::Shared);
    let start = Instant::now();
    let mut gpuprobe = Setup::pid(workload.pid)
        .args(["--duration", "1500ms"])
        .start();
    workload.say("alloc 512");
    let report = gpuprobe.final_report();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    report.assert_holds(workload.pid, 512, 1);
    assert_eq!(gpuprobe.exit_code(), 0);
}

#[test]
fn root_reports_come_at_the_interval() {
    let workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
        .interval("200ms")
        .args(["--duration", "2s"])
        .start();
    gpuprobe.final_report();
    // Nine reports and the last; on a busy machine some are skipped, and none is added.
    let reports = gpuprobe.reports().len();
    assert!((4..=11).contains(&reports), "{reports} reports in 2 s");
}

#[test]
fn root_invalid_durations_are_refused() {
    for time in ["0", "-1s", "2 parsecs", "soon", "1..2s"] {
        for option in ["--interval", "--duration"] {
            let mut gpuprobe = Setup::command(["true"]).args([format!("{option}={time}")]);
            if option == "--interval" {
                gpuprobe = gpuprobe.no_interval();
            }
            let mut gpuprobe = gpuprobe.spawn();
            assert_eq!(gpuprobe.exit_code(), 2, "{option}={time}");
            let said = gpuprobe.said().join("\n");
            assert!(said.contains(time) && said.contains(option), "{said}");
        }
    }
}

#[test]
fn root_run_without_a_mode_is_an_error() {
    crate::harness::require_bpf();
    let output = std::process::Command::new(crate::harness::gpuprobe::BINARY)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--memleak"));
}
