//! A real nsys export: a program like it is in `tests/gpu`, the figures are from its run.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;

use crate::{Folder, allocations, gpuprobe, report, report_json, sites};

const MIB: u64 = 1 << 20;

#[test]
fn watermark() {
    let folder = Folder::new();
    let full = ["--analysis", "watermark", "--full-stacks"];
    let found = report_json(&folder.real_export(), &full);
    assert_eq!(
        found["totals"]["total"],
        json!({"bytes": 25 * MIB, "allocations": 4})
    );
    assert_eq!(
        found["totals"]["valid"],
        json!({"bytes": 24 * MIB, "allocations": 3})
    );
    assert_eq!(
        found["totals"]["invalid"],
        json!({"bytes": MIB, "allocations": 1})
    );
    assert_eq!(found["totals"]["driver"]["allocations"], 0);
    assert_eq!(found["time_ns"], 17_017_141);
    assert_eq!(found["time"], "2026-11-20T20:34:23+00:00");
    let all = allocations(&found);
    let first = &all[0];
    assert_eq!((&first["pid"], &first["tid"]), (&json!(999), &json!(999)));
    assert_eq!(first["api"], "cudaMalloc");
    let stack = first["stack"].as_array().unwrap();
    let functions: Vec<_> = stack
        .iter()
        .map(|frame| frame["function"].as_str().unwrap())
        .collect();
    assert_eq!(functions.len(), 9);
    assert_eq!(functions[4..6], ["cudaMalloc", "main"]);
    assert_eq!(functions[7..], ["__libc_start_main", "_start"]);
    let pooled = all.iter().find(|one| one["api"] == "cudaMallocAsync");
    let pooled = pooled.unwrap();
    assert_eq!(
        (&pooled["kind"], &pooled["trace"]),
        (&json!("async"), &json!("invalid"))
    );
    assert_eq!(found["memleak"]["peak_bytes"], 25 * MIB);
    assert_eq!(found["memleak"]["live_bytes"], 25 * MIB);
    // Five frames of CUDA itself are not the user's.
    let found = report_json(&folder.real_export(), &full[..2]);
    assert_eq!(allocations(&found)[0]["stack"][0]["function"], "main");
}

#[test]
fn leakage() {
    let folder = Folder::new();
    let file = folder.real_export();
    let found = report_json(&file, &["--analysis", "leakage"]);
    assert_eq!(
        found["totals"]["total"],
        json!({"bytes": 25_165_824, "allocations": 3})
    );
    assert_eq!(found["findings"]["events"], 27);
    assert_eq!(found["findings"]["host_events"], 2);
    assert_eq!(found["findings"]["unmatched_frees"], 0);
    let grouped = report_json(&file, &["--analysis", "leakage", "--group"]);
    let sites = sites(&grouped);
    assert_eq!(sites[0]["live_bytes"], 25_165_824);
    assert_eq!(sites.len(), 1);
    assert_eq!(grouped["memleak"]["live_bytes"], 25_165_824);
}

#[test]
fn usage() {
    let folder = Folder::new();
    let file = folder.real_export();
    let table = report(&file, &["--analysis", "usage", "--format", "tsv"]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "time\ttotal\tvalid\tinvalid\tdriver");
    assert_eq!(lines[1], "0\t8388608\t8388608\t0\t0");
    // Without the two of pinned memory.
    assert_eq!(lines.len(), 1 + 25);
    assert_eq!(lines[14], "17017141\t26214400\t25165824\t1048576\t0");
    assert!(lines[25].ends_with("\t25165824\t25165824\t0\t0"));
    let with_host = report(&file, &["--analysis", "usage", "--format", "tsv", "--host"]);
    assert_eq!(with_host.lines().count(), 1 + 27);
    let json = report_json(&file, &["--analysis", "usage"]);
    assert_eq!(json["points"].as_array().unwrap().len(), 25);
}

#[test]
fn launches_and_copies() {
    let folder = Folder::new();
    let page = report_json(&folder.real_export(), &[]);
    let process = &page["activity"]["processes"][0];
    assert_eq!(process["graphs"]["count"], 23);
    let launches: Vec<_> = process["kernels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| k["count"].clone())
        .collect();
    assert_eq!(launches, [103, 101]);
    let per_second = process["kernels"][0]["per_second"].as_f64().unwrap();
    let seconds = 103.0 / per_second;
    assert!((0.01..60.0).contains(&seconds), "{per_second} a second");
    let text = report(&folder.real_export(), &["--kernels"]);
    let first = "kernels: 204 launches of 2 kernels, 23 graph launches\n";
    assert!(text.starts_with(first), "{text}");
    let mut counted: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for copies in process["copies"].as_array().unwrap() {
        let sum = counted
            .entry(copies["direction"].as_str().unwrap())
            .or_default();
        sum.0 += copies["count"].as_u64().unwrap();
        sum.1 += copies["bytes"].as_u64().unwrap();
    }
    assert_eq!(
        counted.into_iter().collect::<Vec<_>>(),
        [
            ("D2H", (13, 104 * MIB)),
            ("H2D", (37, 296 * MIB)),
            ("set", (19, 152 * MIB))
        ]
    );
    assert_eq!(page["watermark"]["totals"]["total"]["bytes"], 25 * MIB);
    assert_eq!(page["session"]["gpus"]["0"], "NVIDIA H200");
}

#[test]
fn classic_tables() {
    let folder = Folder::new();
    let tables = folder.path("tables");
    report(
        &folder.real_export(),
        &["--export-tsv", tables.to_str().unwrap()],
    );
    let read = |name: &str| fs::read_to_string(tables.join(name)).unwrap();
    let (valid, invalid, driver) = (read("valid.tsv"), read("invalid.tsv"), read("driver.tsv"));
    let counts = [&valid, &invalid, &driver].map(|table| table.lines().count() - 1);
    assert_eq!(counts, [21, 6, 0]);
    let header = "PID\taddress\tstart_time\tbytes\tmem_kind\tmem_op_type\tvar_name\tcall_stack";
    assert_eq!(valid.lines().next(), Some(header));
    let row: Vec<_> = valid.lines().nth(1).unwrap().split('\t').collect();
    assert_eq!(row[..4], ["999", "140376417501184", "544541957", "8388608"]);
    assert_eq!(row[4], "CUDA_MEMOPR_MEMORY_KIND_DEVICE");
    assert_eq!(row[5], "CUDA_DEV_MEM_EVENT_OPR_ALLOCATION");
    assert!(
        row[7].contains("[main] (/home/user/app/all_shared) -> [0x"),
        "{}",
        row[7]
    );
    assert!(
        invalid
            .lines()
            .nth(1)
            .unwrap()
            .ends_with("\tSTACK_NOT_FOUND")
    );
}

#[test]
fn selections() {
    let folder = Folder::new();
    let file = folder.real_export();
    let bytes = |arguments: &[&str]| {
        let mut words = vec!["--analysis", "watermark"];
        words.extend(arguments);
        report_json(&file, &words)["totals"]["total"]["bytes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(bytes(&["--pid", "999"]), 25 * MIB);
    assert_eq!(bytes(&["--device", "0"]), 25 * MIB);
    assert_eq!(bytes(&["--to", "1ms"]), 24 * MIB);
    assert_eq!(bytes(&["--from", "30ms"]), 25 * MIB);
    // An empty window: its peak is the memory live at its start.
    assert_eq!(bytes(&["--from", "40ms", "--to", "41ms"]), 24 * MIB);
}

#[test]
fn nothing_grew_in_the_same_run() {
    let folder = Folder::new();
    let file = folder.real_export();
    let same = report_json(&file, &["--diff", file.to_str().unwrap()]);
    assert_eq!(same["watermark"], json!([25 * MIB, 25 * MIB]));
    let deltas = same["never_freed"].as_array().unwrap();
    assert!(
        deltas
            .iter()
            .all(|grown| grown["bytes"][0] == grown["bytes"][1])
    );
}

#[test]
fn window_without_events() {
    let folder = Folder::new();
    let file = folder.real_export();
    // An empty window: its allocations are those live before.
    let quiet = ["--analysis", "watermark", "--from", "40ms", "--to", "41ms"];
    let found = report_json(&file, &quiet);
    assert_eq!(found["totals"]["total"]["bytes"], 25_165_824);
    assert_eq!(found["time_ns"], 40_000_000);
    assert_eq!(found["findings"]["events"], 0);
    assert!(report(&file, &quiet).contains("note: no memory event in what was selected"));
    let quiet = ["--analysis", "usage", "--from", "40ms", "--to", "41ms"];
    let usage = report(&file, &[&quiet[..], &["--format", "csv"]].concat());
    assert_eq!(usage, "time,total,valid,invalid,driver\n");
    let file = file.to_str().unwrap();
    let said = |words: &[&str]| {
        let output = gpuprobe(words);
        String::from_utf8(output.stderr).unwrap()
    };
    let backwards = said(&["report", file, "--from", "2s", "--to", "1s"]);
    assert_eq!(backwards, "gpuprobe: error: --from is later than --to\n");
    let picture = folder.path("x.svg");
    let plot = said(&[
        "plot",
        file,
        "--from",
        "40ms",
        "--to",
        "41ms",
        "-o",
        picture.to_str().unwrap(),
    ]);
    assert!(
        plot.contains("no memory event in what was selected"),
        "{plot}"
    );
}
