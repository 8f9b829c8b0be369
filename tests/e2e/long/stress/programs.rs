//! The programs of scripts/stress, with the stand-in's libcudart: their own figures equal gpuprobe's.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::child::Guarded;
use crate::harness::report::{Report, Totals, list, number};
use crate::harness::talk::Talk;
use crate::harness::{Setup, standin};

const MIB: u64 = 1 << 20;

/// The last line of a program that has exited.
fn statement(talk: &Talk) -> Value {
    let lines = talk.to_end();
    let last = lines.last().expect("a last line");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("'{last}' is no statement: {error}"))
}

/// Asserts that every figure of the report equals the statement's.
fn compare(report: &Report, said: &Value) {
    report.assert_totals(Totals {
        alloc_calls: number(said, "allocs"),
        free_calls: number(said, "frees"),
        failed_calls: number(said, "failed"),
        unknown_frees: 0,
        live_bytes: number(said, "live_bytes"),
        live_allocations: number(said, "live"),
    });
    if number(said, "allocs") > 0 {
        report.assert_calls(&[("cudaMalloc", number(said, "allocs"))]);
    }
    for process in list(said, "processes") {
        let pid = u32::try_from(number(process, "pid")).unwrap();
        report.assert_holds(pid, number(process, "live_bytes"), number(process, "live"));
        for thread in list(process, "threads") {
            if number(thread, "live") > 0 {
                compare_thread(report, pid, thread);
            }
        }
    }
}

fn compare_thread(report: &Report, pid: u32, said: &Value) {
    let tid = u32::try_from(number(said, "tid")).unwrap();
    let thread = report.thread(pid, tid);
    assert_eq!(thread["comm"], said["name"], "name of thread {tid}");
    for (key, of_said) in [("live_bytes", "live_bytes"), ("live_allocations", "live")] {
        assert_eq!(thread[key], said[of_said], "{key} of thread {tid}");
    }
}

/// Runs a command to its exit; returns the last report and the command's statement.
fn traced(command: Vec<String>, settings: &[(&str, &str)]) -> (Report, Value) {
    let mut setup = Setup::command(command);
    for (name, value) in settings {
        setup = setup.env(name, value);
    }
    let mut gpuprobe = setup.start();
    assert_eq!(gpuprobe.exit_code(), 0, "{:#?}", gpuprobe.stderr.so_far());
    let report = gpuprobe.final_report();
    let said = statement(&gpuprobe.talk);
    compare(&report, &said);
    (report, said)
}

/// Asserts that the anomalous thread holds most, and that the anomaly is its largest allocation.
fn check_anomaly(report: &Report, said: &Value) {
    let anomaly = &said["anomaly"];
    assert_eq!(anomaly["bytes"], 2096 * MIB);
    let pid = u32::try_from(number(&said["processes"][0], "pid")).unwrap();
    let top = &list(report.process(pid), "threads")[0];
    assert_eq!(top["tid"], anomaly["tid"]);
    assert_eq!(list(top, "allocations")[0]["bytes"], anomaly["bytes"]);
    assert!(
        list(top, "allocations").len() > 1,
        "there are others in {top}"
    );
}

/// A program of scripts/stress that calls the stand-in's libcudart.
fn script(name: &str, options: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/stress");
    let program = folder.join(name).to_str().unwrap().to_owned();
    let (library, words) = (standin().runtime(), options.split_whitespace());
    let fixed = ["python3", "-B", &program, "--duration", "0"];
    let backend = ["--backend", "runtime", "--libcudart", &library];
    let all = fixed.into_iter().chain(backend).chain(words);
    all.map(str::to_owned).collect()
}

#[test]
fn root_stress_scripts_totals_equal_gpuprobes() {
    let room = (100 * MIB).to_string();
    for (name, options) in [
        (
            "paced.py",
            "--throughput 5000 --calls 2000 --free-ratio 0.5",
        ),
        (
            "paced.py",
            "--throughput 0 --calls 3000 --free-ratio 0 --allocate-size 1M",
        ),
        ("training.py", "--epochs 20 --sleep-ms 0 --compute"),
        (
            "multi_process.py",
            "--procs 2 --iterations 40 --sleep-ms 0 --leak-prob 0.2",
        ),
        (
            "multi_thread.py",
            "--threads 3 --iterations 200 --sleep-ms 0 --memory-cap-mb 200",
        ),
    ] {
        let is_full = options.contains("1M");
        let settings = [("STANDIN_DEVICE_BYTES", room.as_str())];
        let settings = if is_full { &settings[..] } else { &[] };
        let (_, said) = traced(script(name, options), settings);
        assert_eq!(said["ended_by"], "done", "{name}");
        assert!(number(&said, "live") > 0, "{name} leaves something");
        assert_eq!(number(&said, "failed") > 0, is_full, "{name} {options}");
    }
}

const ANOMALY: &str = "--iterations 15 --sleep-ms 0";

#[test]
fn root_stress_scripts_anomaly_is_on_top_of_its_thread() {
    let (report, said) = traced(script("anomaly.py", ANOMALY), &[]);
    check_anomaly(&report, &said);
}

#[test]
fn root_stress_scripts_that_wait_are_seen_from_their_first_call() {
    let options = "--wait --throughput 5000 --calls 2000 --free-ratio 0.5";
    let command = script("paced.py", options);
    let mut program = Command::new(&command[0]);
    program
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = Guarded::spawn(&mut program).expect("the program starts");
    let mut talk = Talk::new(&mut child);
    let mut gpuprobe = Setup::pid(talk.ready()).start();
    talk.send("");
    assert!(child.wait().success());
    compare(&gpuprobe.final_report(), &statement(&talk));
}

#[test]
fn root_stress_scripts_stopped_by_signals_print_their_totals() {
    for (name, options) in [
        ("paced.py", "--throughput 2000 --free-ratio 0.5"),
        ("multi_process.py", "--procs 2 --sleep-ms 1 --leak-prob 0.5"),
    ] {
        let command = script(name, &format!("--wait {options}"));
        let mut gpuprobe = Setup::command(command).interval("20ms").start();
        gpuprobe.talk.ready();
        gpuprobe.talk.send("");
        gpuprobe.report_where("a report with calls", |r| r.totals().alloc_calls > 100);
        gpuprobe.interrupt();
        assert_eq!(gpuprobe.exit_code(), 0);
        let said = statement(&gpuprobe.talk);
        assert_eq!(said["ended_by"], "SIGINT", "{name}");
        compare(&gpuprobe.final_report(), &said);
    }
}
