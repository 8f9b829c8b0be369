//! Profiles against the totals of the workload.

use gpuprobe_report::profile::pprof::proto::Proto;
use gpuprobe_report::profile::pprof::unpack;

use crate::harness::served::Served;
use crate::harness::{Backend, Workload};

fn profile(served: &Served, name: &str) -> Proto {
    let answer = served.get(&format!("/debug/pprof/{name}?seconds=1"));
    assert_eq!(answer.status, 200, "{answer:?}");
    unpack(&answer.body).unwrap()
}

pub(super) fn text(profile: &Proto, index: i64) -> &str {
    &profile.string_table[usize::try_from(index).unwrap()]
}

/// Sum of the values of a type.
pub(super) fn sum(profile: &Proto, kind: &str) -> u64 {
    let types = &profile.sample_type;
    let place = types.iter().position(|one| text(profile, one.kind) == kind);
    let place = place.unwrap_or_else(|| panic!("no {kind} in {types:?}"));
    let values = profile.sample.iter().map(|sample| sample.value[place]);
    u64::try_from(values.sum::<i64>()).unwrap()
}

/// The labels of a sample.
pub(super) fn labels(profile: &Proto, sample: usize) -> Vec<(String, String)> {
    let labels = profile.sample[sample].label.iter();
    let value = |label: &gpuprobe_report::profile::pprof::proto::PprofLabel| match label.str {
        0 => label.num.to_string(),
        index => text(profile, index).to_owned(),
    };
    labels
        .map(|label| (text(profile, label.key).to_owned(), value(label)))
        .collect()
}

#[test]
fn root_profiles_have_the_totals_and_no_address() {
    let mut workload = Workload::start(Backend::Driver);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    workload.play("alloc 1048576 3; alloc 4096; launch 0 100; launch 1 20; free 0");
    let truth = workload.status();
    served.metrics_where("all launches", |metrics| {
        metrics.sum("gpuprobe_node_kernel_launches_total", &[]) == truth.launches
    });
    let in_use = profile(&served, "gpu_inuse");
    assert_eq!(text(&in_use, in_use.default_sample_type), "inuse_space");
    assert_eq!(sum(&in_use, "inuse_space"), truth.bytes);
    assert_eq!(sum(&in_use, "inuse_objects"), truth.live);
    let allocated = profile(&served, "gpu_alloc");
    assert_eq!(
        text(&allocated, allocated.default_sample_type),
        "alloc_space"
    );
    assert_eq!(sum(&allocated, "alloc_objects"), truth.allocs);
    assert_eq!(sum(&allocated, "alloc_space"), (3 << 20) + 4096);
    let launches = profile(&served, "gpu_launches");
    assert_eq!(sum(&launches, "launches"), truth.launches);
    for profile in [&in_use, &allocated, &launches] {
        let labels = labels(profile, 0);
        for (name, value) in [
            ("pid", workload.pid.to_string()),
            ("comm", "workload_driver".to_owned()),
        ] {
            assert!(labels.contains(&(name.to_owned(), value)), "{labels:?}");
        }
        assert!(
            profile
                .location
                .iter()
                .all(|location| location.address == 0)
        );
        let mut strings = profile.string_table.iter();
        assert!(
            !strings.any(|text| text.starts_with("0x")),
            "{:?}",
            profile.string_table
        );
    }
    let functions = &in_use.function;
    let names: Vec<_> = functions
        .iter()
        .map(|one| text(&in_use, one.name))
        .collect();
    assert!(names.contains(&"cuMemAlloc_v2"), "{names:?}");
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

#[test]
fn root_requests_of_parca_and_alloy_are_answered() {
    let mut workload = Workload::start(Backend::Driver);
    let served = Served::start(&["--pid", &workload.pid.to_string()]);
    workload.play("alloc 1048576 3");
    let truth = workload.status();
    served.metrics_where("all allocations", |metrics| {
        metrics.sum("gpuprobe_alloc_calls_total", &[]) == truth.allocs
    });
    for (agent, path) in SCRAPERS {
        let agent = format!("User-Agent: {agent}");
        let headers = [agent.as_str(), "Accept-Encoding: gzip"];
        let answer = served.request(&format!("GET {path}"), &headers);
        assert_eq!(answer.status, 200, "{answer:?}");
        // Alloy takes no other type, and neither undoes two compressions.
        let head = &answer.head;
        assert!(head.contains("content-type: application/octet-stream"));
        assert!(!head.contains("content-encoding"), "{head}");
        let profile = unpack(&answer.body).unwrap();
        assert_eq!(sum(&profile, "inuse_space"), truth.bytes);
        // Parca names a series after it, Pyroscope ends without.
        let period = profile.period_type.expect("a period");
        assert_eq!(text(&profile, period.kind), "space");
        let mut samples = profile.sample.iter();
        assert!(samples.all(|sample| !sample.location_id.is_empty()));
    }
}
