//! What gpuprobe says it costs a program.

use serde_json::Value;

use super::{running, started};
use crate::harness::served::Served;
use crate::harness::{Backend, Report, Setup, wait_until};
use crate::validator::check;

/// The cost of a process in a report.
fn cost(report: &Value, pid: u32) -> &Value {
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

#[test]
fn root_tensors_that_cost_too_much_are_turned_off_in_serve() {
    let mut workload = running(&[]);
    let mut other = running(&[]);
    let [pid, other_pid] = [workload.pid, other.pid];
    let served = Served::start(&["--pid", &pid.to_string(), "--pid", &other_pid.to_string()]);
    let report = || -> Value {
        let report = serde_json::from_slice(&served.get("/api/v1/report").body).unwrap();
        check(&report);
        report
    };
    let tensors = |report: &Value, pid: u32| {
        let processes = report["memleak"]["processes"].as_array();
        let mut processes = processes.into_iter().flatten();
        let process = processes.find(|process| process["pid"] == pid);
        process.map_or(0, |it| it["pytorch"].as_array().map_or(0, Vec::len))
    };
    for workload in [&mut workload, &mut other] {
        workload.say("tleak forward 10 512");
    }
    let begun = wait_until("tensors", report, |it| {
        tensors(it, pid) == 1 && tensors(it, other_pid) == 1
    });
    assert!(cost(&begun, pid)["tensors_not_recorded"].is_null());
    // On a thread that goes on.
    let flood = || {
        workload.say("trate 1000000 0.1 4096");
        report()
    };
    let off = wait_until("tensors to be off", flood, |it| {
        cost(it, pid)["tensors_not_recorded"].as_f64() > Some(0.03)
    });
    assert_eq!((tensors(&off, pid), tensors(&off, other_pid)), (0, 1));
    assert!(cost(&off, other_pid)["tensors_not_recorded"].is_null());
    workload.play("tleak backward 10 512; alloc 4096 3");
    other.say("tleak backward 10 512");
    let labels = [("pid", &*pid.to_string())];
    let metrics = served.metrics_where("memory", |metrics| {
        let kind = [labels[0], ("kind", "device")];
        metrics.sum("gpuprobe_gpu_memory_allocations", &kind) >= 3
    });
    let series = metrics.series("gpuprobe_tracing_cost_ratio", &labels);
    assert!(matches!(series[..], [(_, 0.03..3.0)]), "{series:?}");
    let pytorch = metrics.series("gpuprobe_pytorch_allocated_bytes", &labels);
    assert!(pytorch.is_empty(), "{pytorch:?}");
    assert_eq!(tensors(&report(), pid), 0);
    let page = served.get("/");
    for line in [
        format!("torchlike (pid {pid}): gpuprobe costs this process about "),
        format!("torchlike (pid {pid}): tensors not recorded: they would cost "),
    ] {
        assert!(page.text().contains(&line), "{line}: {page:?}");
    }
}
