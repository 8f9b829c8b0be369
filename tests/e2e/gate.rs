//! `--fail-on-leak` on a live run; `tests/recordings/gate.rs` has what it says of each sort of memory.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::{Backend, Setup, standin};

/// Exit status of a run with leaks.
const LEAKED: i32 = 100;

/// Exit status of a run of `script`, where `@` is the workload, with these options, and the messages about leaks.
fn ending(script: &str, options: &[&str]) -> (i32, Vec<String>) {
    let script = script.replace('@', &standin().program_text(Backend::Shared));
    let setup = Setup::command(["sh", "-c", &script]).args(["--fail-on-leak"]);
    let mut gpuprobe = setup.args(options.iter().copied()).spawn();
    let status = gpuprobe.exit_code();
    let lines = gpuprobe.said().into_iter();
    let lines = lines.filter_map(|line| line.strip_prefix("gpuprobe: ").map(str::to_owned));
    let lines = lines.skip_while(|line| !line.starts_with("leaked: "));
    (status, lines.collect())
}

#[test]
fn root_leaks_of_a_command_and_its_children_have_a_distinct_exit_status() {
    let folder = TempDir::new().unwrap();
    let [recording, junit] = ["run.sqlite", "out.xml"].map(|name| folder.path().join(name));
    let (recording, junit) = (recording.to_str().unwrap(), junit.to_str().unwrap());
    let script = "@ -c 'alloc 4096 3; pinned 100; free 1; exit'; @ -c 'alloc 4096; exit'";
    let (status, said) = ending(script, &["--record", recording, "--junit", junit]);
    assert_eq!(status, LEAKED, "{said:#?}");
    assert!(
        said[0].starts_with("leaked: 12.10 KiB in 4 allocations at "),
        "{said:#?}"
    );
    assert!(said[1].contains("(workload, workload "), "{said:#?}");
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("classname=\"gpuprobe.workload"), "{xml}");
    // The recording has the same leaks.
    for (more, expected) in [(&[][..], LEAKED), (&["--ignore", "workload"], 0)] {
        let words = [&["report", recording, "--fail-on-leak"], more].concat();
        let made = Command::new(BINARY).args(words).output().unwrap();
        assert_eq!(made.status.code(), Some(expected));
        let text = String::from_utf8(made.stderr).unwrap();
        // The command line of a short-lived process may be unknown.
        let leak = said[1].split("  (").next().unwrap();
        assert_eq!(text.contains(leak), expected == LEAKED, "{text}");
    }
}

#[test]
fn root_failure_of_the_command_overrides_the_leak_status() {
    let (status, said) = ending("exec @ -c 'alloc 4096; exit 7'", &[]);
    assert_eq!((status, said.len()), (7, 2), "{said:#?}");
    let (status, said) = ending("exec @ -c 'alloc 4096; free 0; exit'", &[]);
    assert_eq!((status, &*said[0], said.len()), (0, "leaked: nothing", 1));
    let (status, said) = ending("exit 0", &[]);
    assert_eq!((status, said.len()), (NOTHING, 1), "{said:#?}");
}

#[test]
fn root_an_invalid_baseline_is_reported_before_the_command_starts() {
    let folder = TempDir::new().unwrap();
    let [baseline, witness] = ["earlier.json", "witness"].map(|name| folder.path().join(name));
    fs::write(&baseline, "PID: 7").unwrap();
    let touch = Setup::command(["touch", witness.to_str().unwrap()]);
    let with = ["--fail-on-leak", "--baseline", baseline.to_str().unwrap()];
    let mut gpuprobe = touch.args(with).spawn();
    assert_eq!(gpuprobe.exit_code(), 1);
    let said = gpuprobe.said();
    assert!(said[0].contains("is no report in JSON"), "{said:#?}");
    assert!(!witness.exists());
}
