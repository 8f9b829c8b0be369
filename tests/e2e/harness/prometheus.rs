//! A real Prometheus.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::child::Guarded;
use super::served::{Answer, request};
use super::{Truth, wait_for, wait_until};

/// The files that are delivered.
pub(crate) fn delivered(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(file)
}

/// A program of Debian's package `prometheus`.
pub(crate) fn program(name: &str) -> Command {
    let found = Command::new(name).arg("--version").output();
    let remedy = "needs Debian's package prometheus: scripts/test.sh installs it, or apt-get install prometheus";
    assert!(
        found.is_ok_and(|output| output.status.success()),
        "{name}: {remedy}"
    );
    Command::new(name)
}

/// A running Prometheus.
pub(crate) struct Prometheus {
    pub(crate) address: String,
    folder: TempDir,
    child: Option<Guarded>,
}

impl Prometheus {
    /// Starts one that scrapes one gpuprobe every second.
    pub(crate) fn start(target: &str) -> Self {
        let config = fs::read_to_string(delivered("prometheus/prometheus.yml")).unwrap();
        let config = config
            .replace("127.0.0.1:9477", target)
            .replace("_interval: 15s", "_interval: 1s");
        assert_eq!(config.matches("_interval: 1s").count(), 2);
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let alerts = delivered("prometheus/alerts.yml");
        fs::copy(alerts, folder.path().join("alerts.yml")).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut this = Self {
            address,
            folder,
            child: None,
        };
        this.spawn();
        this
    }

    fn spawn(&mut self) {
        let folder = self.folder.path().display();
        let mut command = program("prometheus");
        command
            .arg(format!("--config.file={folder}/prometheus.yml"))
            .arg(format!("--storage.tsdb.path={folder}/data"))
            .arg(format!("--web.listen-address={}", self.address))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(Guarded::spawn(&mut command).expect("prometheus starts"));
        self.wait();
    }

    pub(crate) fn restart(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.signal(nix::sys::signal::Signal::SIGTERM);
            child.wait();
        }
        self.spawn();
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
    pub(crate) fn query(&self, expression: &str) -> Vec<Value> {
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
    pub(crate) fn value(&self, expression: &str) -> Option<u64> {
        let result = self.query(expression);
        let value = result.first()?["value"][1].as_str().unwrap().to_owned();
        assert_eq!(result.len(), 1, "{expression}");
        Some(value.parse::<f64>().unwrap() as u64)
    }

    /// Waits until an expression has this value.
    pub(crate) fn wait_for_value(&self, expression: &str, value: Option<u64>) {
        let what = format!("{value:?} of {expression}");
        wait_until(&what, || self.value(expression), |found| *found == value);
    }

    /// Waits for the sums of a workload, or of some together.
    pub(crate) fn assert_truth(&self, truth: &Truth) {
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
