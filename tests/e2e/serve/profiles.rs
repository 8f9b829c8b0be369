//! Profiles against the totals of the workload.

use std::io::Read;

use flate2::read::GzDecoder;
use gpuprobe_report::profile::pprof::proto::Proto;
use prost::Message;

use crate::harness::served::Served;
use crate::harness::{Backend, Workload};

fn profile(served: &Served, name: &str) -> Proto {
    let answer = served.get(&format!("/debug/pprof/{name}?seconds=1"));
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut bytes = Vec::new();
    GzDecoder::new(&answer.body[..])
        .read_to_end(&mut bytes)
        .unwrap();
    Proto::decode(&bytes[..]).unwrap()
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
