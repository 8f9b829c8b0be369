//! CUPTI records are counted once, by every API layer, attach mode and version of CUPTI.

use serde_json::Value;

use super::{WORK, agrees, process, recorded, setup, sum, traced};
use crate::harness::report::{list, number};
use crate::harness::{Backend, Session};

const GRAPH: &str = "module k; stream; graph 3 5";

#[test]
fn root_activity_counts_and_bytes_match_the_program() {
    use Backend::{Driver, PerThread, Shared, Static};
    const VERSIONS: [(&str, u64); 5] = [
        ("STANDIN_CUPTI_VERSION=11.8", 18),
        ("STANDIN_CUPTI_VERSION=12.1", 18),
        ("STANDIN_CUPTI_VERSION=12.4", 22),
        ("STANDIN_CUPTI_VERSION=12.8", 26),
        ("STANDIN_CUPTI_VERSION=13.5", 130_500),
    ];
    let backends = [Shared, Static, Driver, PerThread];
    let mut rows = Vec::new();
    rows.extend(backends.map(|backend| ("", backend, WORK)));
    rows.extend(VERSIONS.map(|(version, _)| (version, Shared, WORK)));
    let threads = "module k; launchstorm 4 3000; churn 4 300 64 10";
    rows.push(("STANDIN_CUPTI_FAULTS=threads", Shared, threads));
    let timed = "module add mul; launch add 100; launch mul 50";
    rows.push(("", Shared, timed));
    rows.push(("", Shared, GRAPH));
    // A forked child is not collected and not harmed.
    let forked = "module k; launch k 4; fork launch k 100; launch k 5";
    rows.push(("", Shared, forked));
    let (report, _, ended) = Session::table(recorded, &rows);
    report.assert_nothing_lost();
    let all: Vec<_> = ended.iter().map(|e| process(&report, e.pid)).collect();
    for (process, ended) in all.iter().zip(&ended).take(10) {
        agrees(process, &ended.truth);
        assert_eq!(process["exited"], true);
        assert_eq!(process["complete"], true);
    }
    for (process, backend) in all.iter().zip(backends) {
        assert_eq!(process["comm"], backend.program());
        assert_eq!(process["cupti_version"], 130_001);
    }
    for (process, (_, number)) in all[4..].iter().zip(VERSIONS) {
        assert_eq!(process["cupti_version"], number);
    }
    assert!(number(all[9], "records") >= 2 * ended[9].truth.launches);
    check_times(all[10]);
    let kernels = |process: &Value| sum(process, "kernels", "count", |_| true);
    assert_eq!(kernels(all[11]), 3 * ended[11].truth.graph_launches);
    assert_eq!(kernels(all[12]), 9);
}

#[test]
fn root_activity_is_exact_in_another_attach_mode() {
    is_exact("multi", Backend::Static);
}

pub(crate) fn is_exact(attach: &str, backend: Backend) {
    let (pid, truth, report) = traced(setup(backend).args(["--attach", attach]), WORK);
    report.assert_nothing_lost();
    agrees(process(&report, pid), &truth);
}

/// Asserts that the times are those of the GPU.
fn check_times(process: &Value) {
    // The stand-in's kernels take 1500 ns each.
    for (name, count) in [("add", 100), ("mul", 50)] {
        let mut kernels = list(process, "kernels").iter();
        let kernel = kernels.find(|kernel| kernel["name"] == name).unwrap();
        assert_eq!(kernel["count"], count);
        assert_eq!(kernel["total_ns"], count * 1500);
        assert_eq!(
            (&kernel["min_ns"], &kernel["max_ns"]),
            (&1500.into(), &1500.into())
        );
        let share = kernel["share"].as_f64().unwrap();
        assert!((share - f64::from(count) / 150.0).abs() < 1e-9, "{share}");
    }
    let [device] = list(process, "devices") else {
        panic!("not one device in {process:#}");
    };
    assert_eq!(device["name"], "NVIDIA H200");
    let (busy, gaps) = (number(device, "busy_ns"), &device["gaps"]);
    assert!((1..=150 * 1500).contains(&busy), "{busy}");
    let by_length = list(gaps, "by_length").iter();
    let counted: u64 = by_length.map(|slot| slot[1].as_u64().unwrap()).sum();
    assert_eq!(counted, number(gaps, "count"));
    let observed = process["observed_seconds"].as_f64().unwrap() * 1e9;
    assert!((busy + number(gaps, "total_ns")) as f64 <= observed);
}
