//! Recordings agree with the live report.

use std::fs;

use serde_json::Value;

use super::{ALL, Recording, agree, analysed, count, json, recorded, written};
use crate::harness::report::{number, without_costs};
use crate::harness::{Backend, Setup, standin};
use crate::memory::EVERY_KIND;

#[test]
fn root_record_and_live_agree() {
    const WORK: &str = "alloc 8388608 3; launch 0 1000; graph 5 23; copy d2h 1048576 5; \
        set 4096 6; free 0 2; alloc 777 4; exit";
    let recording = Recording::new();
    let run = |backend| {
        let program = standin().program_text(backend);
        let load = match backend {
            Backend::Dlopen => format!("load {}; ", standin().runtime()),
            _ => String::new(),
        };
        format!("{program} -c '{load}{WORK}'")
    };
    let script = Backend::ALL.map(run).join("; ");
    let mut gpuprobe = Setup::command(["sh", "-c", &script])
        .modes(ALL)
        .interval("200ms")
        .args(["--record".to_owned(), recording.text()])
        .start();
    let last = gpuprobe.final_report();
    last.assert_nothing_lost();
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    agree(&recording.file, &last, &text);
    // Every call is recorded once.
    let memleak = &last["memleak"];
    let calls = number(memleak, "alloc_calls") + number(memleak, "free_calls");
    let recorded = "CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId WHERE \
        r.eventClass <> 67 AND s.value IN ('cudaMalloc', 'cudaFree', 'cuMemAlloc_v2', 'cuMemFree_v2')";
    assert_eq!(count(&recording.file, recorded).cast_unsigned(), calls);
    let launched = "GPUPROBE_LAUNCH_COUNTS WHERE launches = 1000 AND isGraph = 0";
    assert_eq!(count(&recording.file, launched), Backend::ALL.len() as i64);
    assert!(!recording.file.with_extension("sqlite-wal").exists());
    let page = json(&["report", &recording.text()]);
    let work = &last["cudatrace"];
    for key in [
        "launches",
        "graph_launches",
        "captured_launches",
        "calls",
        "graphs",
        "processes",
    ] {
        // The tables have neither users nor command lines. Rates of a file are those of the whole run, of a
        // live report those since the last.
        let told = |of: &Value| {
            let mut of = of.clone();
            for process in of.as_array_mut().into_iter().flatten() {
                process["user"].take();
                process["command"].take();
                process["per_second"].take();
            }
            of
        };
        assert_eq!(told(&page["cudatrace"][key]), told(&work[key]), "{key}");
    }
    let copied = |of: &Value| -> Vec<_> {
        let list = of["bandwidth_util"]["directions"]
            .as_array()
            .unwrap()
            .iter();
        let keys = ["direction", "mode", "calls", "bytes", "sizes", "seconds"];
        list.map(|c| keys.map(|key| c[key].to_string())).collect()
    };
    assert_eq!(copied(&page), copied(&last));
}

/// Live memory in a report, without lists: the tables of a recording have no imported memory, and that
/// of graphs at the launch.
fn sums(report: &Value) -> Value {
    let mut memleak = report["memleak"].clone();
    for process in memleak["processes"].as_array_mut().unwrap() {
        process.as_object_mut().unwrap().remove("sites");
        for thread in process["threads"].as_array_mut().unwrap() {
            let thread = thread.as_object_mut().unwrap();
            thread.retain(|key, _| !key.starts_with("omitted") && key != "allocations");
        }
    }
    memleak
}

#[test]
fn root_reports_of_recordings_have_every_sum_of_live_reports() {
    for backend in [Backend::Driver, Backend::Static] {
        let (recording, live, run) = recorded(Setup::workload(backend), EVERY_KIND);
        let file = recording.text();
        for question in [
            &["report", &file][..],
            &["report", &file, "--analysis", "leakage"],
            &["explain", &file],
        ] {
            assert_eq!(sums(&json(question)), sums(&live), "{question:?}");
        }
        let memleak = &live["memleak"];
        let imported = number(memleak, "imported_bytes");
        assert!(imported > 0 && !memleak["kinds"]["graph"].is_null());
        let peak = analysed(&recording.file, "watermark");
        assert_eq!(peak["totals"]["total"]["bytes"], memleak["peak_bytes"]);
        let named = "CUDA_GPU_MEMORY_USAGE_EVENTS WHERE name = 'v' AND bytes = 100";
        assert_eq!(count(&recording.file, named), 1);
        let replayed = written(&["replay", &file, "--format", "json"]);
        assert_eq!(replayed, without_costs(&run.text()));
    }
}
