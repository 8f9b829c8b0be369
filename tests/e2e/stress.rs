//! Many calls at once, and many blocks alive.

use std::process::Command;

use crate::harness::report::{Report, number};
use crate::harness::talk::Talk;
use crate::harness::{Backend, OwnCopy, Setup, Truth, Workload, alone, standin};

/// What was seen is exact, or what is missing was counted exactly.
fn check(report: &Report, truth: Truth) {
    let totals = report.totals();
    let lost = report.lost("memory");
    if lost == 0 {
        report.assert_totals(truth);
        return;
    }
    let seen = totals.alloc_calls + totals.free_calls + totals.failed_calls;
    assert_eq!(seen + lost, truth.allocs + truth.frees + truth.failed);
}

/// Two threads, 200,000 pairs each, with addresses reused at once by the other thread.
fn race(backend: Backend, settings: &[(&str, &str)]) {
    let _alone = alone();
    let mut workload = Workload::spawn(&mut Workload::command(backend, settings));
    workload.say("freenull");
    let before = workload.status();
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.say("race 2 200000 4096");
    let truth = workload.status();
    assert_eq!(
        (truth.allocs, truth.frees, truth.live),
        (400_000, 400_000, 0)
    );
    assert_eq!((before.allocs, before.frees), (0, 0));
    let report = gpuprobe.stop();
    check(&report, truth);
    if report.lost("memory") == 0 {
        report.assert_calls(&[(backend.allocates_with(), 400_000)]);
        report.assert_holds(workload.pid, 0, 0);
    }
}

#[test]
fn root_a_race_for_addresses_ends_exact() {
    race(Backend::Shared, &[]);
}

#[test]
fn root_a_race_for_addresses_ends_exact_in_the_driver() {
    race(Backend::Driver, &[]);
}

#[test]
fn root_a_race_for_addresses_of_frees_that_have_not_returned_ends_exact() {
    race(Backend::Shared, &[("STANDIN_FREE_LINGER_NS", "2000")]);
}

#[test]
fn root_frees_by_another_thread_at_full_speed_end_exact() {
    let _alone = alone();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("crossfree 100000 512");
    gpuprobe.talk.say("churn 2 20000 4096 10");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.live), (140_000, 4000));
    let report = gpuprobe.final_report();
    check(&report, truth);
    if report.lost("memory") == 0 {
        report.assert_holds(pid, truth.bytes, truth.live);
    }
}

/// Allocates in steps that the ring can hold, however slow the reader is.
fn allocate_many(talk: &mut Talk, blocks: u64) {
    for _ in 0..blocks / 40_000 {
        talk.say("alloc 512 40000");
    }
}

#[test]
fn root_240_000_live_blocks_are_all_there() {
    let _alone = alone();
    let mut workload = Workload::start(Backend::Shared);
    workload.say("freenull");
    let mut json = Setup::pid(workload.pid).start();
    let mut csv = Setup::pid(workload.pid).format("csv").start();
    allocate_many(&mut workload, 240_000);
    let truth = workload.status();
    assert_eq!(truth.live, 240_000);
    json.interrupt();
    csv.interrupt();
    let report = json.final_report();
    report.assert_totals(truth);
    report.assert_holds(workload.pid, 122_880_000, 240_000);
    let allocations = report.allocations(workload.pid);
    let mut addresses: Vec<_> = allocations
        .iter()
        .map(|a| a["address"].as_str().unwrap())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 240_000, "different addresses");

    assert!(csv.wait().success());
    let mut rows = csv::Reader::from_path(&csv.reports).unwrap();
    let mut from_csv: Vec<_> = rows
        .records()
        .map(|row| {
            let row = row.unwrap();
            assert_eq!(
                (&row[2], &row[9]),
                (workload.pid.to_string().as_str(), "512")
            );
            row[8].to_owned()
        })
        .collect();
    from_csv.sort_unstable();
    assert_eq!(from_csv, addresses);
}

#[test]
fn root_300_short_processes_are_all_named() {
    let child = standin().program_text(Backend::Shared);
    let run = format!("forkexec {child} -c 'alloc 512 2; free 0; exit'");
    let check = |report: &Report, pid: &str| {
        let process = report.process(pid.parse().unwrap());
        assert_eq!(process["comm"], "workload");
        assert_eq!(process["uid"], 0);
        assert_eq!(process["exited"], true);
        assert_eq!(number(process, "live_bytes"), 512);
    };
    let run_all = |talk: &mut Talk| -> Vec<String> {
        (0..300)
            .map(|_| {
                let reply = talk.say(&run);
                let (pid, status) = reply.split_once(' ').unwrap();
                assert_eq!(status, "status=0");
                pid.to_owned()
            })
            .collect()
    };

    let mut gpuprobe = Setup::command([&child]).start();
    gpuprobe.talk.ready();
    let pids = run_all(&mut gpuprobe.talk);
    assert_eq!(gpuprobe.talk.done(), Truth::default());
    let report = gpuprobe.final_report();
    report.assert_totals(Truth {
        live: 300,
        bytes: 300 * 512,
        allocs: 600,
        frees: 300,
        ..Truth::default()
    });
    pids.iter().for_each(|pid| check(&report, pid));

    let _shared = crate::harness::system_wide();
    let mut parent = Workload::spawn(&mut Command::new(&child));
    parent.say("freenull");
    let mut gpuprobe = Setup::everything().start();
    let pids = run_all(&mut parent);
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    pids.iter().for_each(|pid| check(&report, pid));
}

#[test]
fn root_of_many_files_that_are_no_libraries_of_cuda_a_few_are_named() {
    const FILES: usize = 40;
    const NAMED: usize = 20;
    let copy = OwnCopy::new();
    let empty = copy.standin().path("empty.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&empty);
    assert!(cc.status().expect("cc can be run").success());
    let mut workload = Workload::start(Backend::Dlopen);
    for number in 0..FILES {
        let other = copy
            .standin()
            .path(&format!("libcudart.so.{}", 100 + number));
        std::fs::copy(&empty, &other).unwrap();
        workload.send(&format!("load {}", other.display()));
        assert!(workload.hear().starts_with("error"));
    }
    workload.say(&format!("load {}", standin().runtime()));
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid).start();
    workload.say("alloc 4096 3");
    gpuprobe.stop().assert_totals(workload.status());
    let said = gpuprobe.said();
    let lines = |text: &str| said.iter().filter(|line| line.contains(text)).count();
    assert_eq!(lines("is left alone"), NAMED, "{said:#?}");
    assert_eq!(lines("of more, nothing is said"), 1, "{said:#?}");
}
