//! Metrics, reports and profiles against the totals of workloads.

use std::io::Read;

use flate2::read::GzDecoder;
use gpuprobe_views::profile::pprof::proto::{PprofLabel, Proto};
use prost::Message;
use serde_json::Value;

use crate::harness::served::{Answer, Metrics, Served};
use crate::harness::{Backend, Cgroup, Truth, Workload, host_wide};
use crate::validator::check;

/// Kinds of GPU memory that the workload of [`work`] holds.
const ON_GPU: [&str; 2] = ["device", "managed"];

/// Allocates, launches and copies; some of it fails.
fn work(workload: &mut Workload) {
    workload.play(
        "alloc 1048576 3; alloc 4096; managed 65536; pinned 12288; launch 0 100; launch 1 20; \
         copy h2d 1048576 5; set 4096 6; free 0",
    );
}

fn check_truth(metrics: &Metrics, truth: &Truth, pid: u32) {
    let pid = pid.to_string();
    let own = [("pid", pid.as_str()), ("comm", "workload_driver")];
    for kind in ON_GPU {
        let labels = [&own[..], &[("kind", kind)]].concat();
        let held = truth.kind(kind);
        assert!(held.bytes > 0, "{kind}");
        let bytes = metrics.sum("gpuprobe_gpu_memory_bytes", &labels);
        let allocations = metrics.sum("gpuprobe_gpu_memory_allocations", &labels);
        assert_eq!(
            (bytes, allocations),
            (held.bytes, held.allocations),
            "{kind}"
        );
    }
    assert_eq!(metrics.sum("gpuprobe_gpu_memory_bytes", &own), truth.bytes);
    assert_eq!(
        metrics.sum("gpuprobe_host_memory_bytes", &own),
        truth.host().bytes
    );
    assert_eq!(
        metrics.sum("gpuprobe_memory_owner_bytes", &own),
        truth.bytes
    );
    assert_eq!(metrics.sum("gpuprobe_memory_site_bytes", &own), truth.bytes);
    let launches = metrics.sum("gpuprobe_kernel_launches_total", &own);
    assert_eq!(launches, truth.launches);
    let copied = [&own[..], &[("direction", "H2D")]].concat();
    let sets = [&own[..], &[("direction", "set")]].concat();
    for (bytes, calls) in [
        ("gpuprobe_copy_bytes_total", "gpuprobe_copies_total"),
        (
            "gpuprobe_copy_site_bytes_total",
            "gpuprobe_copy_site_calls_total",
        ),
    ] {
        assert_eq!(metrics.sum(bytes, &copied), 5 << 20);
        assert_eq!(metrics.sum(calls, &sets), truth.sets);
    }
}

#[test]
fn root_documents_equal_the_totals_of_the_workload() {
    let mut workload = Workload::start(Backend::Driver);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    work(&mut workload);
    let truth = workload.status();
    let metrics = served.metrics_where("all launches", |metrics| {
        metrics.sum("gpuprobe_node_kernel_launches_total", &[]) == truth.launches
            && metrics.sum("gpuprobe_node_copies_total", &[]) == truth.copies + truth.sets
    });
    check_truth(&metrics, &truth, workload.pid);
    assert_eq!(metrics.sum("gpuprobe_alloc_calls_total", &[]), truth.allocs);
    assert_eq!(metrics.sum("gpuprobe_free_calls_total", &[]), truth.frees);
    let failed = metrics.sum("gpuprobe_failed_calls_total", &[]);
    assert_eq!(failed, truth.failed);
    metrics.assert_nothing_lost();
    let kernel = [("kernel", "vecAdd")];
    assert_eq!(metrics.sum("gpuprobe_kernel_launches_total", &kernel), 100);
    let all: String = metrics.0.keys().cloned().collect();
    for secret in ["0x", "/workload", "standin"] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
    formats_are_negotiated(&served);
    reports_have_the_truth(&served, &truth, workload.pid);
    profiles_have_the_truth(&served, &truth, workload.pid);
}

fn formats_are_negotiated(served: &Served) {
    let older = served.get("/metrics");
    let content = "content-type: text/plain; version=0.0.4";
    assert!(older.head.contains(content), "{older:?}");
    let accept = ["Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5"];
    let newer = served.request("GET /metrics", &accept);
    let content = "content-type: application/openmetrics-text; version=1.0.0";
    assert!(newer.head.contains(content), "{newer:?}");
    assert!(newer.text().ends_with("# EOF\n") && !older.text().contains("# EOF"));
    let names = |text: &str| -> Vec<String> { Metrics::parse(text).0.into_keys().collect() };
    assert_eq!(names(older.text()), names(newer.text()));
}

fn reports_have_the_truth(served: &Served, truth: &Truth, pid: u32) {
    let document = |path: &str| -> Value {
        let answer = served.get(path);
        let is_json = answer.head.contains("content-type: application/json");
        assert!(is_json, "{answer:?}");
        let document = serde_json::from_slice(&answer.body).unwrap();
        check(&document);
        document
    };
    let report = document("/api/v1/report");
    assert_eq!(report["memleak"]["live_bytes"], truth.bytes);
    assert_eq!(report["cudatrace"]["launches"], truth.launches);
    let process = &report["memleak"]["processes"][0];
    assert_eq!(process["pid"], pid);
    assert!(process["command"].is_null(), "{process}");
    let stack = process["sites"][0]["stack"].as_array().unwrap();
    let mut addresses = stack.iter().map(|frame| &frame["address"]);
    assert!(addresses.all(|address| address == "0x0"), "{stack:#?}");
    let verdicts = &document("/api/v1/explain")["explain"]["verdicts"];
    assert!(!verdicts.as_array().unwrap().is_empty());
    let page = served.get("/");
    assert!(page.head.contains("content-type: text/html"), "{page:?}");
    for shown in [
        format!("<td class=\"n\">{pid}</td>"),
        "<td>nothing</td>".into(),
    ] {
        assert!(page.text().contains(&shown), "{shown} in {page:?}");
    }
}

fn unpack(answer: &Answer) -> Proto {
    let mut bytes = Vec::new();
    let mut packed = GzDecoder::new(&answer.body[..]);
    packed.read_to_end(&mut bytes).unwrap();
    Proto::decode(&bytes[..]).unwrap()
}

fn profile(served: &Served, name: &str) -> Proto {
    let answer = served.get(&format!("/debug/pprof/{name}?seconds=1"));
    assert_eq!(answer.status, 200, "{answer:?}");
    unpack(&answer)
}

fn text(profile: &Proto, index: i64) -> &str {
    &profile.string_table[usize::try_from(index).unwrap()]
}

/// Sum of the values of a type.
fn sum(profile: &Proto, kind: &str) -> u64 {
    let types = &profile.sample_type;
    let place = types.iter().position(|one| text(profile, one.kind) == kind);
    let place = place.unwrap_or_else(|| panic!("no {kind} in {types:?}"));
    let values = profile.sample.iter().map(|sample| sample.value[place]);
    u64::try_from(values.sum::<i64>()).unwrap()
}

/// The labels of a sample.
fn labels(profile: &Proto, sample: usize) -> Vec<(String, String)> {
    let labels = profile.sample[sample].label.iter();
    let value = |label: &PprofLabel| match label.str {
        0 => label.num.to_string(),
        index => text(profile, index).to_owned(),
    };
    labels
        .map(|label| (text(profile, label.key).to_owned(), value(label)))
        .collect()
}

/// Headers of the scrapers' requests, by program: `pkg/scrape/scrape.go` of parca-dev/parca,
/// `internal/component/pyroscope/scrape` of grafana/alloy. Go's client adds `Accept-Encoding`.
const SCRAPERS: [(&str, &str); 2] = [
    ("conprof/v0.24.0", "/debug/pprof/gpu_alloc"),
    (
        "Alloy/v1.10.0 (linux; deb)",
        "/debug/pprof/gpu_inuse?seconds=14",
    ),
];

/// Each profile has the totals and no address, and scrapers get what they can read.
fn profiles_have_the_truth(served: &Served, truth: &Truth, pid: u32) {
    let in_use = profile(served, "gpu_inuse");
    assert_eq!(text(&in_use, in_use.default_sample_type), "inuse_space");
    assert_eq!(sum(&in_use, "inuse_space"), truth.bytes);
    assert_eq!(sum(&in_use, "inuse_objects"), truth.live);
    let allocated = profile(served, "gpu_alloc");
    let default = text(&allocated, allocated.default_sample_type);
    assert_eq!(default, "alloc_space");
    // All but the pinned memory, which is the host's. The copies and sets have allocated a buffer each.
    assert_eq!(sum(&allocated, "alloc_objects"), truth.allocs - 1);
    let buffers = (1 << 20) + 4096;
    let allocated_bytes = (3 << 20) + 4096 + 65_536 + buffers;
    assert_eq!(sum(&allocated, "alloc_space"), allocated_bytes);
    let launches = profile(served, "gpu_launches");
    assert_eq!(sum(&launches, "launches"), truth.launches);
    let own = [("pid", pid.to_string()), ("comm", "workload_driver".into())];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    for profile in [&in_use, &allocated, &launches] {
        let labels = labels(profile, 0);
        assert!(own.iter().all(|one| labels.contains(one)), "{labels:?}");
        let mut locations = profile.location.iter();
        assert!(locations.all(|location| location.address == 0));
        let strings = &profile.string_table;
        assert!(!strings.iter().any(|s| s.starts_with("0x")), "{strings:?}");
    }
    let mut names = in_use.function.iter().map(|one| text(&in_use, one.name));
    assert!(names.any(|name| name == "cuMemAlloc_v2"));
    for (agent, path) in SCRAPERS {
        let agent = format!("User-Agent: {agent}");
        let headers = [agent.as_str(), "Accept-Encoding: gzip"];
        let answer = served.request(&format!("GET {path}"), &headers);
        assert_eq!(answer.status, 200, "{answer:?}");
        // Alloy takes no other type, and neither undoes two compressions.
        let head = &answer.head;
        assert!(head.contains("content-type: application/octet-stream"));
        assert!(!head.contains("content-encoding"), "{head}");
        let profile = unpack(&answer);
        assert_eq!(sum(&profile, "inuse_space"), truth.bytes);
        // Parca names a series after it, Pyroscope ends without.
        let period = profile.period_type.expect("a period");
        assert_eq!(text(&profile, period.kind), "space");
        let mut samples = profile.sample.iter();
        assert!(samples.all(|sample| !sample.location_id.is_empty()));
    }
}

#[test]
fn root_series_of_ended_processes_go_and_totals_stay() {
    let _turn = host_wide();
    let cgroup = Cgroup::new();
    // Its library is probed at once; the first calls of the first process to load one may be missed.
    let _loaded = Workload::start(Backend::Driver);
    let served = Served::start(&["--cgroup", &cgroup.path()]);
    let container = [("container_id", cgroup.id.as_str())];
    let (mut launches, mut copied) = (0, 0);
    let mut last = Metrics::default();
    for round in 1..=2 {
        let program = crate::harness::standin().program_text(Backend::Driver);
        let words = cgroup.words(&[&program]);
        let mut command = std::process::Command::new(&words[0]);
        let mut workload = Workload::spawn(command.args(&words[1..]));
        let pid = workload.pid.to_string();
        work(&mut workload);
        let truth = workload.status();
        launches += truth.launches;
        copied += truth.copy_bytes;
        let metrics = served.metrics_where("the launches of this round", |metrics| {
            metrics.sum("gpuprobe_node_kernel_launches_total", &[]) == launches
                && metrics.sum("gpuprobe_node_copies_total", &[("direction", "H2D")]) == 5 * round
        });
        check_truth(&metrics, &truth, workload.pid);
        let held = metrics.sum("gpuprobe_gpu_memory_bytes", &container);
        assert_eq!(held, truth.bytes, "of this process only, in its container");
        workload.done();
        let gone = served.metrics_where("the end", |metrics| {
            metrics
                .series("gpuprobe_copies_total", &[("pid", &pid)])
                .is_empty()
        });
        assert!(gone.series("gpuprobe_gpu_memory_bytes", &[]).is_empty());
        let total = gone.sum("gpuprobe_node_copy_bytes_total", &[]);
        assert!(copied > 0 && total >= (5 * round) << 20, "{total}");
        gone.assert_nothing_lost();
        for (name, value) in &last.0 {
            let now = gone.0.get(name).or(metrics.0.get(name));
            let is_counter = name.contains("_total");
            assert!(!is_counter || now.is_none_or(|now| now >= value), "{name}");
        }
        last = gone;
    }
}
