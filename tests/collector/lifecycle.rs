//! Process start and exit, of the traced program and of gpuprobe.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use gpuprobe_wire::{SETTINGS_VARIABLE, TracerId, WireSettings, flags};

use crate::run::{CollectorRun, CollectorSetup, RunningWorkload, of};

/// A workload that takes commands until its input is closed.
fn told(setup: CollectorSetup) -> RunningWorkload {
    let mut setup = setup;
    setup.command().stdin(Stdio::piped());
    setup.start()
}

fn tell(running: &mut RunningWorkload, command: &str) {
    let stdin = running.stdin();
    writeln!(stdin, "{command}").unwrap();
    stdin.flush().unwrap();
}

#[test]
fn killed_program_loses_only_its_last_flush_period() {
    let mut running = told(CollectorSetup::new("workload", ""));
    tell(&mut running, "module k");
    tell(&mut running, "launch k 50");
    running.until(|handed| of!(handed, Kernel).len() == 50);
    running.kill();
    let run = running.end();
    assert!(!run.status.success());
    assert_eq!(run.handed.last().flags & flags::LAST, 0);
}

/// No timer flushes here; only the end of the context does.
#[test]
fn context_destruction_flushes_its_records() {
    for (program, begin, end) in [
        ("workload", "synchronize", "reset"),
        ("workload_driver", "ctx create 0", "ctx destroy 0"),
    ] {
        let mut running = told(CollectorSetup::new(program, "").faults("held"));
        for command in [begin, "module k", "launch k 50", end] {
            tell(&mut running, command);
        }
        running.until(|handed| of!(handed, Kernel).len() == 50);
        running.kill();
        running.end();
    }
}

#[test]
fn forked_child_is_not_collected() {
    let commands = "module k; launch k 5; fork status | freenull; launch k 5";
    let run = CollectorSetup::new("workload", commands).run();
    assert!(run.status.success(), "{}", run.stderr);
    let pids: HashSet<_> = run.handed.headers.iter().map(|header| header.pid).collect();
    assert_eq!(pids.len(), 1);
    assert_eq!(of!(run.handed, Kernel).len(), 10);
    run.handed.complete();
}

#[test]
fn exec_starts_a_new_collector() {
    let workload = crate::harness::standin::standin().path("workload");
    let commands = format!(
        "module k; launch k 5; exec {} -c synchronize",
        workload.display()
    );
    let run = CollectorSetup::new("workload", &commands).run();
    // The new program in the same process starts a new collector. Records that the old one had not
    // delivered are lost with it.
    let last = run
        .handed
        .headers
        .iter()
        .rposition(|header| header.sequence == 0);
    let again = &run.handed.headers[last.unwrap()..];
    assert_ne!(again.last().unwrap().flags & flags::LAST, 0);
    let waits = of!(run.handed, Sync);
    assert!(waits.iter().any(|wait| wait.sync_type == 4));
}

#[test]
fn closed_standard_error_does_not_kill_the_program() {
    let mut setup =
        CollectorSetup::new("workload", "alloc 64").variable(SETTINGS_VARIABLE, "nonsense");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    setup.command().stderr(writer);
    let run = setup.run().unharmed();
    assert_eq!(run.truth("allocs"), 1);
}

fn tracer(pid: u32) -> TracerId {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = &stat[stat.rfind(')').unwrap() + 1..];
    TracerId {
        pid,
        start_ticks: after_name
            .split_whitespace()
            .nth(19)
            .unwrap()
            .parse()
            .unwrap(),
        namespace: fs::metadata("/proc/self/ns/pid").unwrap().ino(),
    }
}

fn traced_by(tracer: TracerId) -> CollectorSetup {
    CollectorSetup::new("workload", "").settings(WireSettings {
        tracer: Some(tracer),
        flush_ms: 20,
        ..WireSettings::default()
    })
}

#[test]
fn collector_stops_when_gpuprobe_exits_and_the_program_goes_on() {
    let mut gpuprobe = Command::new("sleep").arg("1000").spawn().unwrap();
    let setup = traced_by(tracer(gpuprobe.id()));
    let mut running = told(setup);
    tell(&mut running, "module k");
    tell(&mut running, "launch k 5");
    running.until(|handed| of!(handed, Kernel).len() == 5);
    gpuprobe.kill().unwrap();
    gpuprobe.wait().unwrap();
    let mut line = String::new();
    running.read_stderr_line(&mut line);
    assert!(line.contains("gpuprobe has exited"), "{line}");
    tell(&mut running, "launch k 7");
    let run: CollectorRun = running.end().unharmed();
    assert_eq!(run.truth("launches"), 12);
    assert_eq!(of!(run.handed, Kernel).len(), 5);
}

#[test]
fn gpuprobe_in_another_pid_namespace_counts_as_alive() {
    let elsewhere = TracerId {
        namespace: 1,
        ..tracer(std::process::id())
    };
    let mut running = told(traced_by(elsewhere));
    tell(&mut running, "module k");
    tell(&mut running, "launch k 5");
    running.until(|handed| of!(handed, Kernel).len() == 5);
    let run = running.end().unharmed().silent();
    run.handed.complete();
}
