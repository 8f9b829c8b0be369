//! The HTML report: the figures in it, compared with those of JSON.

mod browser;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use gpuprobe_model::abi::record;
use serde_json::{Value, json};
use zerocopy::IntoBytes;

use crate::scene::{MEMORY, MIB, SECOND, allocate, begin, call, identity, introduce, task};
use crate::{Folder, gpuprobe, report_json};

/// Writes the HTML report of `file`, and returns it.
pub(crate) fn html(file: &Path, arguments: &[&str]) -> String {
    let page = file.with_extension("html");
    let mut words = vec![
        "report",
        file.to_str().unwrap(),
        "--html",
        page.to_str().unwrap(),
    ];
    words.extend(arguments);
    let done = gpuprobe(&words);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(done.stdout.is_empty());
    fs::read_to_string(page).unwrap()
}

/// The document in a page.
pub(crate) fn document(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let compressed = STANDARD.decode(data.trim()).unwrap();
    let mut text = String::new();
    GzDecoder::new(&compressed[..])
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

fn run(file: &Path) -> Value {
    document(&html(file, &[]))["runs"][0].take()
}

fn numbers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_i64().unwrap())
        .collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Bytes and number of allocations.
type Amount = [i64; 2];

/// Figures of GPU memory in a range of bins, as the page computes them.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    never_freed: Amount,
    at_peak: Amount,
    peak_ns: i64,
    /// Never freed by process and call site.
    sites: BTreeMap<(u64, u64), Amount>,
}

fn add(sum: &mut Amount, bytes: i64, allocations: i64) {
    *sum = [sum[0] + bytes, sum[1] + allocations];
}

/// The figures of the bins from `first` to before `last`.
fn figures(run: &Value, first: usize, last: usize) -> Figures {
    let peaks: Vec<_> = list(&run["memory"]["bins"]).iter().map(numbers).collect();
    let mut bin = first;
    for next in first..last {
        if peaks[next][1] > peaks[bin][1] {
            bin = next;
        }
    }
    let mut all = Figures {
        peak_ns: peaks[bin][0],
        ..Figures::default()
    };
    for stack in list(&run["memory"]["paths"]) {
        if stack["host"] == true {
            continue;
        }
        let mut kept = [0, 0];
        for change in numbers(&stack["changes"]).chunks(9) {
            let &[of, made, count, freed, frees, held, holds, peak, peaks] = change else {
                panic!("{change:?}");
            };
            let of = usize::try_from(of).unwrap();
            if of < last {
                add(&mut kept, made - freed, count - frees);
            }
            if of < bin {
                add(&mut all.at_peak, made - freed - held, count - frees - holds);
            } else if of == bin {
                add(&mut all.at_peak, peak, peaks);
            }
        }
        add(&mut all.never_freed, kept[0], kept[1]);
        if kept[1] > 0 {
            let key = (
                stack["pid"].as_u64().unwrap(),
                stack["site"].as_u64().unwrap(),
            );
            add(all.sites.entry(key).or_default(), kept[0], kept[1]);
        }
    }
    all
}

/// The same of JSON reports.
fn reported(file: &Path, selection: &[&str]) -> Figures {
    let ask = |analysis| report_json(file, &[&["--analysis", analysis], selection].concat());
    let total = |report: &Value| {
        let total = &report["totals"]["total"];
        [&total["bytes"], &total["allocations"]].map(|n| n.as_i64().unwrap())
    };
    let (leakage, watermark) = (ask("leakage"), ask("watermark"));
    let mut sites = BTreeMap::new();
    for process in list(&leakage["memleak"]["processes"]) {
        for site in list(&process["sites"]) {
            let [bytes, count] =
                ["live_bytes", "live_allocations"].map(|key| site[key].as_i64().unwrap());
            let key = (
                process["pid"].as_u64().unwrap(),
                site["id"].as_u64().unwrap(),
            );
            if count > 0 {
                add(sites.entry(key).or_default(), bytes, count);
            }
        }
    }
    Figures {
        never_freed: total(&leakage),
        at_peak: total(&watermark),
        peak_ns: watermark["time_ns"].as_i64().unwrap(),
        sites,
    }
}

/// Options that select the bins from `first` to before `last`.
fn selected(edges: &[i64], first: usize, last: usize) -> Vec<String> {
    let mut words = Vec::new();
    if first > 0 {
        words.extend(["--from".to_owned(), format!("{}ns", edges[first])]);
    }
    if last + 1 < edges.len() {
        words.extend(["--to".to_owned(), format!("{}ns", edges[last] - 1)]);
    }
    words
}

/// Compares the whole run, and many ranges; returns the number of bins.
fn compare(file: &Path) -> usize {
    let run = run(file);
    let edges = numbers(&run["edges_ns"]);
    let bins = edges.len() - 1;
    assert_eq!(list(&run["memory"]["bins"]).len(), bins);
    let mut ranges = vec![(0, bins), (0, 1), (bins / 2, bins)];
    ranges.extend((0..12).step_by(3).map(|n| {
        let first = n * bins / 13;
        (first, (first + 1 + n * n * bins / 150).min(bins))
    }));
    for (first, last) in ranges {
        if first > 0 && edges[first] <= 0 {
            continue;
        }
        let words = selected(&edges, first, last);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        assert_eq!(
            figures(&run, first, last),
            reported(file, &words),
            "{words:?}"
        );
    }
    bins
}

#[test]
fn memory_of_each_range_is_that_of_reports() {
    let folder = Folder::new();
    for file in [folder.real_export(), folder.scene("training")] {
        assert!(compare(&file) > 100);
    }
}

/// Records `calls` allocations and frees of two processes, one of which ends, at `sites` call sites.
fn random_calls(folder: &Folder, calls: u64, stacks: u64) -> PathBuf {
    let file = folder.path("random.sqlite");
    let mut recorder = begin(&file, MEMORY);
    for pid in [600, 700] {
        let who = identity("ada", "/srv/train", 0);
        introduce(&mut recorder, pid, "train", who);
    }
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut live: Vec<(u32, u64)> = Vec::new();
    for number in 0..calls {
        let at_ns = SECOND + number * 1_000 + random(900);
        let pid = if number < calls * 2 / 3 && random(2) == 0 {
            600
        } else {
            700
        };
        let free = random(3) == 0 && !live.is_empty();
        let mut call = match free {
            true => {
                let (owner, address) =
                    live.swap_remove(usize::try_from(random(live.len() as u64)).unwrap());
                let mut call = call("cudaFree", address, 0, at_ns);
                call.tgid = owner;
                call
            }
            false => {
                let address = (number + 1) << 20;
                live.push((pid, address));
                let mut call = call("cudaMalloc", address, MIB + random(MIB), at_ns);
                call.tgid = pid;
                call
            }
        };
        (call.tid, call.stack, call.device) = (call.tgid, 1 + random(stacks), 0);
        recorder.record(call.as_bytes());
        if number == calls * 2 / 3 {
            let mut exit = task(record::EXIT, "train", at_ns + 950);
            (exit.tgid, exit.tid) = (600, 600);
            recorder.record(exit.as_bytes());
            live.retain(|(owner, _)| *owner != 600);
        }
    }
    recorder.finish();
    file
}

#[test]
fn memory_of_many_calls_is_that_of_reports() {
    let folder = Folder::new();
    let file = random_calls(&folder, 1_500, 6);
    assert_eq!(compare(&file), 256);
    let run = run(&file);
    let paths = list(&run["memory"]["paths"]).iter();
    let rows = paths.flat_map(|path| {
        let changes = numbers(&path["changes"]);
        changes.chunks(9).map(|row| row[6]).collect::<Vec<_>>()
    });
    assert!(rows.sum::<i64>() > 20, "held when their process ended");
}

#[test]
fn call_sites_of_copies_are_those_of_reports() {
    let folder = Folder::new();
    let file = folder.scene("copies");
    let report = report_json(&file, &["--analysis=copies"]);
    let sites = &report["bandwidth_util"]["sites"];
    assert_eq!(run(&file)["copy_sites"], *sites);
    assert_eq!(list(sites).len(), 5);
}

#[test]
fn work_is_that_of_reports() {
    let folder = Folder::new();
    let file = folder.real_export();
    let run = run(&file);
    let report = report_json(&file, &["--analysis=kernels"]);
    let known = |value: &Value, keys: [&str; 2]| -> BTreeMap<String, Amount> {
        let key = |one: &Value| one["name"].as_str().unwrap().to_owned();
        list(value)
            .iter()
            .map(|one| (key(one), keys.map(|k| one[k].as_i64().unwrap())))
            .collect()
    };
    let kernels = known(&run["kernels"], ["launches", "total_ns"]);
    assert_eq!(
        kernels,
        known(
            &report["activity"]["processes"][0]["kernels"],
            ["count", "total_ns"]
        )
    );
    for kernel in list(&run["kernels"]) {
        let changes = numbers(&kernel["changes"]);
        let runs: i64 = changes.chunks(3).map(|change| change[1]).sum();
        assert_eq!(runs, kernel["launches"].as_i64().unwrap());
    }
    let mut copies: BTreeMap<String, Amount> = BTreeMap::new();
    let report = report_json(&file, &["--analysis=copies"]);
    // Sets of memory have no mode.
    let mode = |one: &Value| one["mode"].as_str().unwrap_or_default().to_owned();
    let key = |one: &Value| format!("{} {}", one["direction"], mode(one));
    for copy in list(&report["activity"]["processes"][0]["copies"]) {
        let [count, bytes] = ["count", "bytes"].map(|k| copy[k].as_i64().unwrap());
        add(copies.entry(key(copy)).or_default(), count, bytes);
    }
    let mut shown: BTreeMap<String, Amount> = BTreeMap::new();
    for one in list(&run["copies"]) {
        for row in numbers(&one["changes"]).chunks(4) {
            add(shown.entry(key(one)).or_default(), row[1], row[2]);
        }
    }
    assert_eq!(shown, copies);
    let gpu = &run["gpus"][0];
    for (bins, whole) in [
        ("busy", "busy_ns"),
        ("kernels", "kernel_ns"),
        ("copies", "copy_ns"),
    ] {
        let sum: i64 = numbers(&gpu["bins"][bins]).iter().sum();
        assert_eq!(sum, gpu[whole].as_i64().unwrap(), "{bins} of {gpu}");
    }
}

#[test]
fn tensors_are_those_of_reports() {
    let folder = Folder::new();
    let file = folder.scene("tensors");
    let run = run(&file);
    let shown = &run["tensors"][0];
    let report = report_json(&file, &["--analysis", "leakage"]);
    let pytorch = &report["memleak"]["processes"][0]["pytorch"][0];
    assert_eq!(
        shown["report"]["allocated_bytes"],
        pytorch["allocated_bytes"]
    );
    let mut live = BTreeMap::new();
    let mut net = vec![0; list(&shown["bins"]).len()];
    for site in list(&shown["paths"]) {
        let mut sum = [0, 0];
        for change in numbers(&site["changes"]).chunks(9) {
            add(&mut sum, change[1] - change[3], change[2] - change[4]);
            let bin = usize::try_from(change[0]).unwrap();
            net[bin] += change[1] - change[3] - change[5];
        }
        if sum[1] > 0 {
            let id = site["site"].to_string();
            let key = format!("{}:{id}", site["pid"]);
            let label = shown["sites"][&key].to_string();
            live.insert((id, label), sum);
        }
    }
    let wanted = list(&pytorch["sites"]).iter().map(|site| {
        let amount = ["live_bytes", "live_allocations"].map(|key| site[key].as_i64().unwrap());
        ((site["id"].to_string(), site["label"].to_string()), amount)
    });
    assert_eq!(live, wanted.collect());
    let (mut used, mut all) = (0, 0);
    for segment in list(&shown["segments"]) {
        let blocks = numbers(&segment["blocks"]);
        let bytes: i64 = blocks.chunks(4).map(|block| block[1]).sum();
        assert_eq!(
            bytes,
            segment["bytes"].as_i64().unwrap(),
            "blocks fill their segment"
        );
        used += blocks
            .chunks(4)
            .filter(|block| block[2] >= 0)
            .map(|block| block[1])
            .sum::<i64>();
        all += bytes;
    }
    assert_eq!(json!(used), pytorch["allocated_bytes"]);
    assert_eq!(json!(all), pytorch["segment_bytes"]);
    let mut live = 0;
    for (bin, net) in list(&shown["bins"]).iter().zip(net) {
        live += net;
        assert!(
            numbers(bin)[1] >= live,
            "the highest total of a bin is no less than its end"
        );
    }
    let highest = |values: &Value, of: fn(&Value) -> &Value| {
        let values = list(values).iter();
        values.map(|value| of(value).as_u64().unwrap()).max()
    };
    let peak = highest(&shown["bins"], |bin| &bin[1]);
    assert_eq!(peak, pytorch["peak_allocated_bytes"].as_u64());
    let reserved = highest(&shown["reserved"], |bytes| bytes);
    assert_eq!(reserved, pytorch["peak_reserved_bytes"].as_u64());
}

#[test]
fn names_are_no_html() {
    let folder = Folder::new();
    let file = folder.path("run.sqlite");
    let evil = "</script><script>alert(1)</script>";
    let mut recorder = begin(&file, MEMORY);
    introduce(&mut recorder, 600, "<script>x", identity("ada", evil, 0));
    allocate(&mut recorder, 600, "cudaMalloc", 1, MIB, SECOND);
    recorder.finish();
    let page = html(&file, &[]);
    assert!(!page.contains("alert(1)") && !page.contains("<script>x"));
    assert!(page.contains("Content-Security-Policy"));
    let text = document(&page).to_string();
    assert!(text.contains("<script>x"), "it is in the data");
}

#[test]
fn two_runs_are_side_by_side() {
    let folder = Folder::new();
    let [before, after] = ["training", "tensors"].map(|name| folder.scene(name));
    let document = document(&html(&before, &["--diff", after.to_str().unwrap()]));
    assert_eq!(document["runs"][0]["file"], "training.sqlite");
    assert_eq!(document["runs"][1]["file"], "tensors.sqlite");
    let diff = report_json(
        &before,
        &["--diff", after.to_str().unwrap(), "--group", "stack"],
    );
    assert_eq!(document["diff"]["leaked"], diff["leaked"]);
    assert_eq!(document["diff"]["watermark"], diff["watermark"]);
}

#[test]
fn recordings_without_memory_have_a_page() {
    let folder = Folder::new();
    let file = folder.scene("launches");
    let run = run(&file);
    assert!(run["memory"].is_null());
    let traced = run["traced"].as_str().unwrap();
    let missing = "memory (--memleak), copies (--bandwidth-util), GPU times (--activity)";
    assert!(
        traced.ends_with(&format!(" Not recorded: {missing}.")),
        "{traced}"
    );
    assert!(run["processes"][0]["copies"].is_null());
    let report = report_json(&file, &["--analysis=kernels"]);
    let launches = |kernels: &Value| -> u64 {
        list(kernels)
            .iter()
            .map(|kernel| kernel["launches"].as_u64().unwrap())
            .sum()
    };
    assert!(launches(&run["kernels"]) > 0);
    assert_eq!(
        launches(&run["kernels"]),
        launches(&report["cudatrace"]["kernels"])
    );
    assert!(
        list(&run["kernels"])
            .iter()
            .all(|kernel| kernel["changes"].is_null())
    );
}
