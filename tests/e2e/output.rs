//! Destinations of reports, interval, time limit; and output files.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::{Backend, Report, Setup, Workload, standin};

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
    let workload = Workload::start(Backend::Shared);
    let mut gpuprobe = Setup::pid(workload.pid)
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
    let mut gpuprobe = Setup::pid(workload.pid)
        .wrapped(ONE_LINE)
        .on_stdout()
        .format("csv")
        .interval("50ms")
        .start();
    // CSV has rows only while memory is held.
    workload.say("alloc 512");
    gpuprobe.wait();
    let said = gpuprobe.said();
    assert!(said[0].starts_with("gpuprobe: tracing "), "{said:#?}");
    assert_eq!(said[1..], [GONE, "status 0"]);
    assert_eq!(gpuprobe.talk.to_end().len(), 1);
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
    let (out, said) = with_a_program(&["--memleak"]);
    assert_eq!(out, ["program"]);
    assert!(said.iter().any(|line| !line.starts_with("gpuprobe: ")));
    // With an explicit option: reports go to standard output all the same, or to a file.
    let json = ["--memleak", "--format", "json"];
    let (out, said) = with_a_program(&[&json[..], &["-o", "-"]].concat());
    assert_eq!(out.iter().filter(is_report).count(), 1, "{out:#?}");
    assert_eq!(said.iter().filter(is_report).count(), 0, "{said:#?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let (out, said) = with_a_program(&[&json[..], &["-o", path]].concat());
    assert_eq!(out, ["program"]);
    assert_eq!(said.iter().filter(is_report).count(), 0, "{said:#?}");
    let written = fs::read_to_string(path).unwrap();
    assert!(Report::parse(written.trim_end()).is_final(), "{written}");
}

#[test]
fn root_reports_come_at_the_interval_until_the_time_limit() {
    let mut workload = Workload::start(Backend::Shared);
    let start = Instant::now();
    let mut gpuprobe = Setup::pid(workload.pid)
        .on_stdout()
        .interval("200ms")
        .args(["--duration", "1500ms"])
        .start();
    workload.say("alloc 512");
    assert_eq!(gpuprobe.exit_code(), 0);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
    // Standard output has data only.
    let lines = gpuprobe.talk.to_end();
    let reports: Vec<_> = lines.iter().map(|line| Report::parse(line)).collect();
    let last = reports.last().unwrap();
    last.assert_holds(workload.pid, 512, 1);
    assert!(last.is_final());
    assert_eq!(reports.iter().filter(|r| r.is_final()).count(), 1);
    // Seven reports and the last; on a busy machine some are skipped, and none is added.
    let count = reports.len();
    assert!((3..=9).contains(&count), "{count} reports in 1.5 s");
}
