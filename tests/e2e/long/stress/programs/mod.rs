//! The stress programs' own figures equal gpuprobe's.

mod native;
mod scripts;

use serde_json::Value;

use crate::harness::Setup;
use crate::harness::report::{Report, Totals, list, number};
use crate::harness::talk::Talk;

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
