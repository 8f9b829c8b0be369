//! Several hosts, which are network namespaces, and one Prometheus.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::prometheus::work;
use crate::harness::gpuprobe::BINARY;
use crate::harness::prometheus::{Prometheus, delivered};
use crate::harness::served::Served;
use crate::harness::{Backend, Truth, Workload};

const HOSTS: u64 = 3;

/// A network namespace with an address that this one reaches. Removed on drop.
struct Host {
    name: String,
    /// Its address and a port.
    address: String,
}

/// Runs `ip`.
fn ip(line: &str) -> bool {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.expect("needs Debian's package iproute2: scripts/test.sh installs it");
    output.status.success()
}

impl Host {
    fn new(number: u64) -> Self {
        let pid = std::process::id();
        let name = format!("gp{pid}n{number}");
        // A network of four addresses for each, which no other process of the tests has.
        let net = format!("10.{}.{}", 200 + pid / 256 % 50, pid % 256);
        let (own, its) = (4 * number + 1, 4 * number + 2);
        let (here, there) = (format!("{name}h"), format!("{name}t"));
        for line in [
            format!("netns add {name}"),
            format!("link add {here} type veth peer name {there} netns {name}"),
            format!("address add {net}.{own}/30 dev {here}"),
            format!("link set {here} up"),
            format!("-n {name} address add {net}.{its}/30 dev {there}"),
            format!("-n {name} link set {there} up"),
        ] {
            assert!(ip(&line), "ip {line}");
        }
        let address = format!("{net}.{its}:9477");
        Self { name, address }
    }

    /// Serves the memory, launches and copies of `workload` there.
    fn serve(&self, workload: &Workload) -> Served {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, BINARY, "serve"]);
        command.args(["--listen", &self.address, "--insecure-listen"]);
        Served::spawn(command.args(["--pid", &workload.pid.to_string()]))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.name));
    }
}

#[test]
fn root_sums_of_the_dashboard_are_of_each_host() {
    let hosts: Vec<_> = (0..HOSTS).map(Host::new).collect();
    let mut truths = Vec::new();
    let mut running = Vec::new();
    for (host, round) in hosts.iter().zip(1..) {
        let mut workload = Workload::start(Backend::Driver);
        let served = host.serve(&workload);
        work(&mut workload, round);
        truths.push(workload.status());
        running.push((workload, served));
    }
    let targets: Vec<_> = hosts.iter().map(|host| host.address.clone()).collect();
    let prometheus = Prometheus::start(&targets.join("\", \""));
    let dashboard = fs::read_to_string(delivered("grafana/gpuprobe.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let query = |title: &str, instance: &str| {
        let mut panels = dashboard["panels"].as_array().unwrap().iter();
        let panel = panels.find(|panel| panel["title"] == title).expect(title);
        let query = panel["targets"][0]["expr"].as_str().unwrap();
        format!("sum({})", query.replace("$instance", instance))
    };
    for (host, truth) in hosts.iter().zip(&truths) {
        let bytes = query("GPU memory by host", &host.address);
        prometheus.wait_for_value(&bytes, Some(truth.bytes));
        let launches = format!(
            "gpuprobe_node_kernel_launches_total{{instance=\"{}\"}}",
            host.address
        );
        prometheus.wait_for_value(&launches, Some(truth.launches));
    }
    let all = truths
        .into_iter()
        .fold(Truth::default(), |sum, one| sum + one);
    let bytes = query("GPU memory by host", ".*");
    assert_eq!(prometheus.value(&bytes), Some(all.bytes));
}
