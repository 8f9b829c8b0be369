//! A census: blocks are read from memory, and the hooks are probed now and then.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::costs::cost;
use super::found::{BLOCKS, OF_EVENTS};
use super::truth::snapshot;
use super::{assert_pytorch, pytorch, running, settled_of};
use crate::harness::gpuprobe::output_of;
use crate::harness::report::{list, number};
use crate::harness::served::Served;
use crate::harness::{Gpuprobe, Report, Setup, Workload, wait_until};
use crate::validator::check;

fn everything() -> Setup {
    Setup::everything().args(["--comm", "torchlike"])
}

/// The figures of the only device.
fn now(workload: &mut Workload) -> [Value; 1] {
    let mut expected = snapshot(workload)[0].expected();
    for key in OF_EVENTS {
        expected.as_object_mut().unwrap().remove(key);
    }
    [expected]
}

/// The next report that was not begun before.
fn next(gpuprobe: &Gpuprobe) -> Report {
    gpuprobe.next_report();
    gpuprobe.next_report()
}

#[test]
fn root_a_census_is_exact_at_every_report() {
    let mut workload = running(&[(BLOCKS, "7")]);
    let pid = workload.pid;
    workload.play("tmalloc old 30000 200; tmalloc used 6000000 8; trecord used; tfree used 3");
    let before = snapshot(&mut workload)[0].allocated;
    let folder = tempfile::TempDir::new().unwrap();
    let recording = folder.path().join("run.sqlite");
    let recording = recording.to_str().unwrap();
    let setup = everything().args(["--record", recording]);
    let mut gpuprobe = setup.interval("300ms").start();
    let first = next(&gpuprobe);
    assert_pytorch(&first, pid, &now(&mut workload));
    let found = &pytorch(&first, pid)[0];
    assert_eq!([&found["before_bytes"], &found["line_bytes"]], [before, 0]);
    for _ in 0..12 {
        workload.play("tmalloc new 10001 30; tfree new 20; tleak forward 5 4096; tfree old 7");
        workload.play("tmalloc big 70000001 2; tfree big 1; tmalloc old 512; tempty");
        assert_pytorch(&next(&gpuprobe), pid, &now(&mut workload));
    }
    // Windows are a quarter of the time: some have seen a line.
    let line = |report: &Report| {
        let sites = list(&pytorch(report, pid)[0], "sites");
        let mut bytes = sites.iter().filter(|site| {
            let mut stack = list(site, "stack").iter();
            stack.any(|frame| frame["function"] == "leak_backward")
        });
        bytes.next().map(|site| number(site, "live_bytes"))
    };
    let mut seen = None;
    while seen < Some(40 * 4096) {
        let report = gpuprobe.next_report_while(|| {
            drop(workload.play("tleak backward 5 4096; sleep 0.2"));
        });
        seen = line(&report);
        assert!(seen <= number(&pytorch(&report, pid)[0], "line_bytes").into());
    }
    let census = ["--tensors", "census", "--duration", "0s"];
    let text = output_of(&[&["--pid", &pid.to_string()], &census[..]].concat());
    assert!(text.contains("lines are known of 0 B (0.0 %)"), "{text}");
    // What is freed in between is gone, with its line or without.
    workload.play("tfree old; tfree new; tfree forward; tfree backward");
    let expected = now(&mut workload);
    let report = next(&gpuprobe);
    assert_pytorch(&report, pid, &expected);
    assert_eq!(line(&report), None);
    let report = gpuprobe.stop();
    assert_pytorch(&report, pid, &expected);

    let played = output_of(&["report", recording, "--format", "json"]);
    let played: Value = serde_json::from_str(&played).unwrap();
    let mut processes = list(&played["memleak"], "processes").iter();
    let process = processes.find(|process| process["pid"] == pid).unwrap();
    let mut now = pytorch(&report, pid)[0].clone();
    // Ages are of other times.
    let strip = |device: &mut Value| drop(device["sites"].take());
    let mut then = process["pytorch"][0].clone();
    strip(&mut now);
    strip(&mut then);
    assert_eq!(now, then);
}

#[test]
fn root_a_census_of_chunks_is_exact() {
    let mut workload = running(&[("STANDIN_BFC", "4")]);
    let pid = workload.pid;
    let region = workload.say(&format!("tregion {}", 200 << 20));
    let region = u64::from_str_radix(region.trim_start_matches("0x"), 16).unwrap();
    let chunk = |workload: &mut Workload, name: &str, number: u64| {
        let address = region + (number << 20);
        workload.say(&format!("xchunk Memory{name} {address} {}", 1 << 20));
    };
    (0..5).for_each(|number| chunk(&mut workload, "Allocation", number));
    let gpuprobe = everything().interval("300ms").start();
    // The hook names the allocator in the first window.
    wait_until(
        "the allocator",
        || {
            gpuprobe.next_report_while(|| {
                chunk(&mut workload, "Allocation", 7);
                chunk(&mut workload, "Deallocation", 7);
                workload.say("sleep 0.02");
            })
        },
        |report| report.entries(pid).iter().any(|it| it.get("xla").is_some()),
    );
    for number in 10..20 {
        chunk(&mut workload, "Allocation", number);
        if number < 15 {
            chunk(&mut workload, "Deallocation", number - 10);
        }
        let sums = workload.say("xsums");
        let mut sums = sums.split(' ').map(|sum| sum.parse::<u64>().unwrap());
        let expected = serde_json::json!({
            "allocated_bytes": sums.next(),
            "peak_allocated_bytes": sums.next(),
            "reserved_bytes": sums.next(),
        });
        gpuprobe.next_report();
        settled_of(&gpuprobe, pid, "xla", &[expected]);
    }
}

#[test]
fn root_serve_takes_a_census() {
    let mut workload = running(&[(BLOCKS, "3")]);
    let pid = workload.pid;
    let served = Served::start(&["--pid", &pid.to_string()]);
    for round in 1..4 {
        workload.say("tleak forward 10 512");
        let report: Value = serde_json::from_slice(&served.get("/api/v1/report").body).unwrap();
        check(&report);
        let found = &report["memleak"]["processes"][0]["pytorch"][0];
        assert_eq!(found["tensors"], 10 * round, "{report:#}");
        assert!(found["line_bytes"].is_u64());
        // The next is not the same report.
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn root_a_census_takes_two_percent_of_a_thread_at_most() {
    // Of a single device, nothing is asked.
    let mut workload = running(&[(BLOCKS, "5"), ("CUDA_VISIBLE_DEVICES", "0")]);
    let pid = workload.pid;
    workload.say("tleak forward 10 512");
    let setup = Setup::pid(pid).args(["--tensors", "census"]);
    let mut gpuprobe = setup.interval("1s").start();
    let begun = Instant::now();
    let mut calls = 0;
    // On a thread that goes on.
    while begun.elapsed() < Duration::from_secs(15) {
        let reply = workload.say("trate 1000000 0.1 4096");
        let mut counts = reply
            .split(['=', ' '])
            .filter_map(|word| word.parse::<u64>().ok());
        calls += counts.next().unwrap() + counts.next().unwrap();
    }
    let own_rate = calls as f64 / begun.elapsed().as_secs_f64();
    let report = gpuprobe.stop();
    let share = cost(&report, pid)["share_of_thread"].as_f64().unwrap();
    assert!((0.001..0.02).contains(&share), "{share}");
    // Between windows, only what else the program calls is a hit.
    let reports = gpuprobe.reports();
    let events = |report: &Report| {
        pytorch(report, pid)
            .first()
            .map(|it| number(it, "alloc_calls"))
    };
    let closed = reports.windows(2).filter(|two| {
        events(&two[0]).is_some() && events(&two[0]) == events(&two[1]) && !two[1].is_final()
    });
    let rates: Vec<_> = closed
        .map(|two| {
            cost(&two[1], pid)["hits_per_second"]
                .as_f64()
                .unwrap_or(0.0)
        })
        .collect();
    assert!(rates.len() > 3, "{rates:?}");
    let is_low = |rate: &f64| *rate < own_rate / 15.0;
    assert!(rates.iter().all(is_low), "{rates:?} of {own_rate}");
    report.assert_nothing_lost_of([pid]);
}
