//! A real Prometheus: its sums, its checks, the rules and the dashboard that are delivered.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::child::Guarded;
use crate::harness::served::{Answer, Served, request};
use crate::harness::{Backend, Cgroup, Truth, Workload, host_wide, standin, wait_for};

/// The files that are delivered.
pub(super) fn delivered(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file)
}

/// A program of Debian's package `prometheus`.
fn program(name: &str) -> Command {
    let found = Command::new(name).arg("--version").output();
    let remedy = "needs Debian's package prometheus: scripts/test.sh installs it, or apt-get install prometheus";
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "{name}: {remedy}"
    );
    Command::new(name)
}

/// A running Prometheus that scrapes one gpuprobe every second.
pub(super) struct Prometheus {
    address: String,
    folder: TempDir,
    child: Guarded,
}

impl Prometheus {
    pub(super) fn start(target: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let config = fs::read_to_string(delivered("prometheus/prometheus.yml")).unwrap();
        let config = config
            .replace("127.0.0.1:9477", target)
            .replace("_interval: 15s", "_interval: 1s");
        assert_eq!(config.matches("_interval: 1s").count(), 2);
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let alerts = delivered("prometheus/alerts.yml");
        fs::copy(alerts, folder.path().join("alerts.yml")).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let child = Self::spawn(&folder, &address);
        let this = Self {
            address,
            folder,
            child,
        };
        this.wait();
        this
    }

    fn spawn(folder: &TempDir, address: &str) -> Guarded {
        let folder = folder.path().display();
        let mut command = program("prometheus");
        command
            .arg(format!("--config.file={folder}/prometheus.yml"))
            .arg(format!("--storage.tsdb.path={folder}/data"))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Guarded::spawn(&mut command).expect("prometheus starts")
    }

    fn restart(&mut self) {
        self.child.signal(nix::sys::signal::Signal::SIGTERM);
        self.child.wait();
        self.child = Self::spawn(&self.folder, &self.address);
        self.wait();
    }

    fn wait(&self) {
        wait_for("prometheus", || {
            let mut stream = TcpStream::connect(&self.address).ok()?;
            stream
                .write_all(request("GET /-/ready", &[]).as_bytes())
                .ok()?;
            (Answer::read(&mut stream).status == 200).then_some(())
        });
    }

    /// The result of an expression.
    fn query(&self, expression: &str) -> Vec<Value> {
        let escaped: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let line = format!("GET /api/v1/query?query={escaped}");
        stream.write_all(request(&line, &[]).as_bytes()).unwrap();
        let answer = Answer::read(&mut stream);
        // The body may be in chunks.
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let json = &text[text.find('{').expect("JSON")..=text.rfind('}').unwrap()];
        let answer: Value = serde_json::from_str(json).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"]
            .as_array()
            .expect("a vector")
            .clone()
    }

    /// The value of an expression with one result; `None` without any.
    pub(super) fn value(&self, expression: &str) -> Option<u64> {
        let result = self.query(expression);
        let value = result.first()?["value"][1].as_str().unwrap().to_owned();
        assert_eq!(result.len(), 1, "{expression}");
        Some(value.parse::<f64>().unwrap() as u64)
    }

    /// Waits until an expression has this value.
    pub(super) fn wait_for_value(&self, expression: &str, value: Option<u64>) {
        let mut last = None;
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(expression, || {
                last = self.value(expression);
                (last == value).then_some(())
            });
        }));
        assert!(found.is_ok(), "{expression}: {last:?} instead of {value:?}");
    }

    fn assert_truth(&self, truth: &Truth) {
        for (expression, value) in [
            ("sum(gpuprobe_gpu_memory_bytes)", truth.bytes),
            ("sum(gpuprobe_gpu_memory_allocations)", truth.live),
            ("sum(gpuprobe_host_memory_bytes)", truth.host().bytes),
            (
                "sum(gpuprobe_gpu_memory_bytes{kind=\"managed\"})",
                truth.kind("managed").bytes,
            ),
            ("sum(gpuprobe_kernel_launches_total)", truth.launches),
            ("sum(gpuprobe_copies_total)", truth.copies + truth.sets),
        ] {
            self.wait_for_value(expression, Some(value));
        }
    }
}

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
