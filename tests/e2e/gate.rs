//! `--fail-on`: memory that was never freed fails the run. What is a leak and what is none:
//! `tests/recordings`.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::{Backend, Setup, standin};

/// Exit status of a run with leaks.
const LEAKED: i32 = 100;

/// Exit status of a run of a shell script, in which `@` is the workload, the messages about leaks, and the report.
fn ending(script: &str, arguments: &[&str]) -> (i32, Vec<String>, String) {
    let script = script.replace('@', &standin().program_text(Backend::Shared));
    let setup = Setup::command(["sh", "-c", &script]);
    let mut gpuprobe = setup.args(arguments.iter().copied()).spawn();
    gpuprobe.talk.close();
    let status = gpuprobe.exit_code();
    let lines = gpuprobe.said().into_iter();
    let lines = lines.filter_map(|line| line.strip_prefix("gpuprobe: ").map(str::to_owned));
    let lines = lines.skip_while(|line| !line.starts_with("leaked: "));
    let report = fs::read_to_string(&gpuprobe.reports).unwrap_or_default();
    (status, lines.collect(), report)
}

#[test]
fn root_leaks_have_a_distinct_exit_status() {
    const LEAK: &str = "@ -c 'alloc 4096 3; exit'";
    let nothing = "leaked: nothing";
    let three = "leaked: 12.00 KiB in 3 allocations at 1 call site";
    let rows = [
        (LEAK, LEAKED, three),
        ("@ -c 'alloc 4096; free 0; exit'", 0, nothing),
        // The failure of the command has priority.
        (
            "@ -c 'alloc 4096; exit 7'",
            7,
            "leaked: 4.00 KiB in 1 allocation",
        ),
        ("true", NOTHING, nothing),
        (
            "@ -c 'alloc 4096; exit'; @ -c 'alloc 8192; exit'",
            LEAKED,
            "leaked: 12.00 KiB in 2 allocations",
        ),
    ];
    for (script, expected, first) in rows {
        let (status, said, _) = ending(script, &["--fail-on", "leak"]);
        assert_eq!(status, expected, "{script}: {said:#?}");
        assert!(said[0].starts_with(first), "{script}: {said:#?}");
    }
    for (rule, expected, applied) in [
        ("leak=12KiB", 0, "(native: never freed)"),
        ("growing", 0, "(native: growing)"),
        ("never-freed", LEAKED, "(native: never freed)"),
    ] {
        let (status, said, _) = ending(LEAK, &["--fail-on", rule]);
        assert_eq!(status, expected, "{rule}: {said:#?}");
        assert!(said[0].ends_with(applied), "{rule}: {said:#?}");
    }
}

#[test]
fn root_a_run_its_report_its_junit_file_and_its_recording_have_the_same_leaks() {
    const LEAKS: &str = "@ -c 'alloc 4096 3; pinned 8192; exit'";
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (junit, recording, baseline) = (file("out.xml"), file("run.sqlite"), file("earlier.json"));
    let outputs = ["--junit", &junit, "--record", &recording];
    let outputs = [&["--fail-on", "leak"], &outputs[..]].concat();
    let (status, said, json) = ending(LEAKS, &outputs);
    assert_eq!(status, LEAKED);
    let leak = &said[1];
    assert!(leak.starts_with("  12.00 KiB in 3 allocations  "), "{leak}");
    assert!(leak.contains("(workload, "), "{leak}");
    let xml = fs::read_to_string(&junit).unwrap();
    for part in [
        "<testsuite name=\"gpuprobe\" tests=\"2\" failures=\"2\"",
        "classname=\"gpuprobe.workload",
        "12.00 KiB in 3 allocations never freed",
        "cudaMalloc of workload in ",
    ] {
        assert!(xml.contains(part), "{part}: {xml}");
    }
    let report = |arguments: &[&str]| {
        let words = [&["report", recording.as_str()], arguments].concat();
        let made = Command::new(BINARY).args(words).output().unwrap();
        let said = String::from_utf8(made.stderr).unwrap();
        (made.status.code().unwrap(), said)
    };
    let (status, again) = report(&["--fail-on", "leak"]);
    // The command line of a short-lived process may be unknown.
    let place = leak.split("  (").next().unwrap();
    assert!(again.contains(place), "{leak} is not in {again}");
    assert_eq!(status, LEAKED);
    assert_eq!(report(&["--fail-on", "leak", "--ignore", "workload"]).0, 0);
    // What the first run had is known in the next.
    fs::write(&baseline, json).unwrap();
    let (status, said, _) = ending(LEAKS, &["--fail-on", "leak", "--baseline", &baseline]);
    assert_eq!(status, 0, "{said:#?}");
    let excused = |line: &String| line.ends_with(" as in the baseline");
    assert!(said.iter().any(excused), "{said:#?}");
}
