//! A real Prometheus: its sums, its checks, the rules and the dashboard that are delivered.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::prometheus::{Prometheus, delivered, program};
use crate::harness::served::Served;
use crate::harness::{Backend, Cgroup, Truth, Workload, host_wide, standin, wait_for};

fn workload_in(cgroup: &Cgroup) -> Workload {
    let words = cgroup.words(&[&standin().program_text(Backend::Driver)]);
    Workload::spawn(Command::new(&words[0]).args(&words[1..]))
}

pub(super) fn work(workload: &mut Workload, round: u64) {
    workload.play(&format!(
        "alloc {} 3; managed 65536; pinned 12288; launch 0 {round}00; launch 1 20; \
         copy h2d 1048576 5; set 4096 6; free 0",
        round << 20
    ));
}

#[test]
fn root_prometheus_has_the_sums_of_workloads_that_come_and_go() {
    let _turn = host_wide();
    let cgroup = Cgroup::new();
    let _loaded = Workload::start(Backend::Driver);
    let served = Served::start(&["--cgroup", &cgroup.path()]);
    let mut prometheus = Prometheus::start(served.address());
    let mut all = Truth::default();
    for round in 1..=3 {
        let mut first = workload_in(&cgroup);
        work(&mut first, round);
        let truth = first.status();
        prometheus.assert_truth(&truth);
        let mut second = workload_in(&cgroup);
        work(&mut second, round + 3);
        let both = truth + second.status();
        prometheus.assert_truth(&both);
        all = all + both;
        first.done();
        second.done();
        prometheus.wait_for_value("sum(gpuprobe_gpu_memory_bytes)", None);
        let launches = "sum(gpuprobe_node_kernel_launches_total)";
        prometheus.wait_for_value(launches, Some(all.launches));
        // A Prometheus that starts does not know which series were there before, and keeps those that are
        // gone for five minutes.
        prometheus.wait_for_value("sum(gpuprobe_kernel_launches_total)", None);
        prometheus.wait_for_value("sum(gpuprobe_copies_total)", None);
    }
    prometheus.restart();
    for (expression, value) in [
        (
            "sum(max_over_time(gpuprobe_kernel_launches_total[1h]))",
            all.launches,
        ),
        (
            "sum(max_over_time(gpuprobe_copies_total[1h]))",
            all.copies + all.sets,
        ),
        ("sum(gpuprobe_node_kernel_launches_total)", all.launches),
        ("sum(gpuprobe_node_copies_total)", all.copies + all.sets),
        ("sum(gpuprobe_alloc_calls_total)", all.allocs),
        ("sum(gpuprobe_lost_events_total)", 0),
        ("sum(resets(gpuprobe_node_kernel_launches_total[1h]))", 0),
    ] {
        prometheus.wait_for_value(expression, Some(value));
    }
    let address = served.address().to_owned();
    drop(served);
    prometheus.wait_for_value("up{job=\"gpuprobe\"}", Some(0));
    let _served = Served::start(&["--cgroup", &cgroup.path(), "--listen", &address]);
    prometheus.wait_for_value("up{job=\"gpuprobe\"}", Some(1));
    let mut again = workload_in(&cgroup);
    work(&mut again, 7);
    let truth = again.status();
    prometheus.assert_truth(&truth);
}

#[test]
fn root_promtool_accepts_metrics_and_rules() {
    let mut workload = Workload::start(Backend::Driver);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    work(&mut workload, 1);
    let metrics = served.get("/metrics");
    let mut promtool = program("promtool");
    promtool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut check = promtool.spawn().unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(&metrics.body)
        .unwrap();
    let checked = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && said.is_empty(), "{said}");
    for (what, file) in [
        ("rules", "prometheus/alerts.yml"),
        ("config", "prometheus/prometheus.yml"),
    ] {
        let mut promtool = program("promtool");
        let checked = promtool.arg("check").arg(what).arg(delivered(file));
        let checked = checked.output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}

/// Panels without data where there is neither NVML nor PyTorch nor Kubernetes.
const EMPTY: [&str; 3] = [
    "GPU memory by pod",
    "Memory of GPUs in use (NVML)",
    "PyTorch: reserved and not allocated",
];

#[test]
fn root_queries_of_the_dashboard_have_results() {
    let mut workload = Workload::start(Backend::Driver);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    let prometheus = Prometheus::start(served.address());
    work(&mut workload, 1);
    let truth = workload.status();
    prometheus.assert_truth(&truth);
    let dashboard = fs::read_to_string(delivered("grafana/gpuprobe.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 12, "{}", panels.len());
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression
                .replace("$__rate_interval", "1m")
                .replace("$instance", ".*");
            if EMPTY.contains(&title) {
                assert!(prometheus.query(&expression).is_empty(), "{title}");
                continue;
            }
            wait_for(&format!("{title}: {expression}"), || {
                (!prometheus.query(&expression).is_empty()).then_some(())
            });
        }
    }
    let by_process = &panels[0]["targets"][0]["expr"];
    let by_process = by_process.as_str().unwrap().replace("$instance", ".*");
    assert_eq!(prometheus.value(&by_process), Some(truth.bytes));
}
