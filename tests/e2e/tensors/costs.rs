//! What gpuprobe says it costs a program.

use serde_json::Value;

use super::started;
use crate::harness::{Backend, Report, Setup};

/// The cost of a process in a report.
pub(super) fn cost(report: &Value, pid: u32) -> &Value {
    let costs = report["tracing_costs"].as_array();
    let mut costs = costs.into_iter().flatten();
    let found = costs.find(|cost| cost["pid"] == pid);
    found.unwrap_or(&Value::Null)
}

/// The number of hits of a process that the last report is about.
fn hits(report: &Report, pid: u32) -> f64 {
    let seconds = report.process(pid)["traced_seconds"].as_f64();
    let rate = cost(report, pid)["hits_per_second"].as_f64();
    seconds.unwrap() * rate.unwrap()
}

#[test]
fn root_hits_are_those_of_the_program() {
    let launches = Setup::workload(Backend::Driver).without_stacks();
    for (setup, script, expected) in [
        (started(&[]), "tflood 2 50000 4096", 200_000.0),
        (
            launches.modes(["--memleak", "--cudatrace"]),
            "launch 0 100000",
            100_000.0,
        ),
    ] {
        let mut run = setup.run(script);
        let report = run.report();
        let hits = hits(&report, run.pid);
        assert!((hits / expected - 1.0).abs() < 0.02, "{script}: {hits}");
        let share = cost(&report, run.pid)["share_of_thread"].as_f64().unwrap();
        assert!(share > 0.01, "{script}: {share}");
    }
    let run = started(&[]).format("text").run("tflood 1 50000 4096");
    let said = format!(
        "torchlike (pid {}): gpuprobe costs this process about ",
        run.pid
    );
    let text = run.text();
    let line = text.lines().find_map(|line| line.strip_prefix(&said));
    let line = line.unwrap_or_else(|| panic!("no '{said}' in {text}"));
    assert!(line.contains(" % of a thread ("), "{line}");
}
