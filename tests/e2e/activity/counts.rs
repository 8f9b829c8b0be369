//! CUPTI records are counted once, by every API layer and attach mode.

use super::{WORK, agrees, process, setup, sum, traced};
use crate::harness::Backend;
use crate::harness::report::{list, number};

#[test]
fn root_activity_counts_and_bytes_match_the_program() {
    for (backend, kind) in [
        (Backend::Shared, "session"),
        (Backend::Static, "multi"),
        (Backend::Driver, "perf"),
        (Backend::PerThread, "session"),
    ] {
        let (pid, truth, report) = traced(setup(backend).args(["--attach", kind]), &WORK);
        report.assert_nothing_lost();
        let process = process(&report, pid);
        agrees(process, &truth);
        assert_eq!(process["comm"], backend.program());
        assert_eq!(
            (&process["exited"], &process["complete"]),
            (&true.into(), &true.into())
        );
        assert_eq!(process["cupti_version"], 130_001);
    }
}

#[test]
fn root_every_cupti_version_is_decoded() {
    for (version, number) in [
        ("11.8", 18),
        ("12.1", 18),
        ("12.4", 22),
        ("12.8", 26),
        ("13.5", 130_500),
    ] {
        let setup = setup(Backend::Shared).env("STANDIN_CUPTI_VERSION", version);
        let (pid, truth, report) = traced(setup, &WORK);
        report.assert_nothing_lost();
        agrees(process(&report, pid), &truth);
        assert_eq!(process(&report, pid)["cupti_version"], number);
    }
}

#[test]
fn root_concurrent_threads_lose_no_records() {
    let storm = ["module k", "launchstorm 4 3000", "churn 4 300 64 10"];
    let setup = setup(Backend::Shared).env("STANDIN_CUPTI_FAULTS", "threads");
    let (pid, truth, report) = traced(setup, &storm);
    report.assert_nothing_lost();
    let process = process(&report, pid);
    agrees(process, &truth);
    assert!(number(process, "records") >= 2 * truth.launches);
}

#[test]
fn root_activity_times_are_gpu_times() {
    let work = ["module add mul", "launch add 100", "launch mul 50"];
    let (pid, _, report) = traced(setup(Backend::Shared), &work);
    let process = process(&report, pid);
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

#[test]
fn root_only_selected_activity_kinds_are_collected() {
    let only = setup(Backend::Shared).modes(["--activity=memcpy,memset"]);
    let (pid, truth, report) = traced(only, &WORK);
    let process = process(&report, pid);
    assert_eq!(number(process, "records"), truth.copies + truth.sets);
    for empty in ["kernels", "calls", "memory", "contexts"] {
        assert!(list(process, empty).is_empty(), "{empty}");
    }
}

#[test]
fn root_graphs_are_recorded_by_kernel_or_whole() {
    let graph = ["module k", "stream", "graph 3 5"];
    let (pid, truth, report) = traced(setup(Backend::Shared), &graph);
    let kernels = sum(process(&report, pid), "kernels", "count", |_| true);
    assert_eq!(kernels, 3 * truth.graph_launches);
    let whole = setup(Backend::Shared).modes(["--activity=kernel,graph"]);
    let (pid, truth, report) = traced(whole, &graph);
    let process = process(&report, pid);
    assert_eq!(process["graphs"]["count"], truth.graph_launches);
    assert!(list(process, "kernels").is_empty());
}

#[test]
fn root_activity_of_a_commands_child_is_collected() {
    use crate::harness::{Setup, standin};
    let script = "\"$0\" -c 'module k; launch k 3; exit'; \"$0\" -c 'module k; launch k 4; exit'";
    let mut gpuprobe =
        Setup::command(["sh", "-c", script, &standin().program_text(Backend::Shared)])
            .modes(["--activity"])
            .args(["--activity-summary"])
            .env("GPUPROBE_CUPTI", &super::cupti("cupti"))
            .start();
    let report = gpuprobe.final_report();
    let processes = list(&report["activity"], "processes");
    let mut counts: Vec<_> = processes
        .iter()
        .map(|process| sum(process, "kernels", "count", |_| true))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 4]);
}
