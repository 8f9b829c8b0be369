//! Recordings of selected processes and kinds of memory.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Recording, analysed, count, written};
use crate::harness::gpuprobe::{BINARY, NOTHING};
use crate::harness::{Backend, Setup, standin, wait_for};

/// Two processes of one command with different names.
const SCRIPT: &str = "printf 'alloc 4096 5\\nfree 0 2\\nlaunch 0 10\\nexit\\n' | \"$0\" & \
    printf 'alloc 64 1\\nlaunch 0 7\\nexit\\n' | \"$1\"; wait";

fn record(recording: &Recording, options: &[&str], status: i32) {
    let programs = [Backend::Shared, Backend::Static].map(|b| standin().program_text(b));
    let output = Command::new(BINARY)
        .args(["record", "-o", &recording.text()])
        .args(options)
        .args(["--", "sh", "-c", SCRIPT])
        .args(programs)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
}

/// Each filter has its row in `filters`.
#[test]
fn root_recording_has_the_selected_processes_only() {
    let name = Backend::Shared.program();
    for (options, allocations, launches) in [
        (["--comm", name], 3, 10),
        (["--exclude", name], 1, 7),
        (["--uid", "4242"], 0, 0),
    ] {
        let recording = Recording::new();
        let all = [&options[..], &["--memleak", "--cudatrace"]].concat();
        record(&recording, &all, if allocations > 0 { 0 } else { NOTHING });
        let live = "(SELECT address, globalPid FROM CUDA_GPU_MEMORY_USAGE_EVENTS \
            GROUP BY 1, 2 HAVING sum(1 - 2 * memoryOperationType) = 1)";
        let has_memory = "sqlite_master WHERE name = 'CUDA_GPU_MEMORY_USAGE_EVENTS'";
        assert_eq!(count(&recording.file, has_memory) > 0, allocations > 0);
        if allocations > 0 {
            assert_eq!(count(&recording.file, live), allocations, "{options:?}");
        }
        let found = count(&recording.file, "GPUPROBE_LAUNCHES");
        assert_eq!(found, launches, "{options:?}");
        let processes = i64::from(allocations > 0);
        let callers = "(SELECT DISTINCT globalTid >> 24 FROM CUPTI_ACTIVITY_KIND_RUNTIME)";
        assert_eq!(count(&recording.file, callers), processes, "{options:?}");
    }
}

#[test]
fn root_recording_has_the_selected_kinds_only() {
    let recording = Recording::new();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)])
        .args(["--record".to_owned(), recording.text()])
        .args(["--kind", "managed,async"])
        .start();
    gpuprobe.talk.ready();
    for line in [
        "alloc 1048576 3",
        "managed 8192",
        "async 1000 2",
        "afree 0",
        "exit",
    ] {
        gpuprobe.talk.say(line);
    }
    let last = gpuprobe.final_report();
    last.assert_nothing_lost();
    let memleak = &last["memleak"];
    let live = json!({"bytes": memleak["live_bytes"], "allocations": memleak["live_allocations"]});
    assert_eq!(live["allocations"], 2, "{memleak}");
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(leaked["totals"]["total"], live);
    let peak = analysed(&recording.file, "watermark");
    assert_eq!(peak["totals"]["total"]["bytes"], memleak["peak_bytes"]);
    let replayed = written(&["replay", &recording.text(), "--last", "--format", "json"]);
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(replayed["memleak"], *memleak);
}

#[test]
fn root_children_of_a_running_process_are_recorded() {
    let recording = Recording::new();
    let program = standin().program_text(Backend::Shared);
    // A live child that does nothing until it is traced.
    let script = "(read go; printf 'alloc 4096 5\\nexit\\n') | \"$0\"";
    let mut parent = Command::new("sh")
        .args(["-c", script, &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut replies = BufReader::new(parent.stdout.take().unwrap());
    let mut ready = String::new();
    replies.read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready"), "{ready}");
    let pid = parent.id().to_string();
    let options = [
        "record",
        "-o",
        &recording.text(),
        "--pid",
        &pid,
        "--children",
    ];
    let mut gpuprobe = Command::new(BINARY)
        .args(options)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(gpuprobe.stderr.take().unwrap());
    let mut line = String::new();
    wait_for("gpuprobe to trace", || {
        said.read_line(&mut line).unwrap();
        line.contains("and its children").then_some(())
    });
    let mut input = parent.stdin.take().unwrap();
    input.write_all(b"go\n").unwrap();
    assert!(parent.wait().unwrap().success());
    assert!(gpuprobe.wait().unwrap().success());
    let leaked = analysed(&recording.file, "leakage");
    assert_eq!(leaked["totals"]["total"]["allocations"], 5);
}
