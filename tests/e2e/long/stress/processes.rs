//! Large numbers of processes and threads.

use std::time::{Duration, Instant};

use crate::harness::report::Totals;
use crate::harness::{Backend, Setup, alone, standin};
use crate::long::faults::Programs;

/// Time limit of the whole run: 12 ms a process.
const BOUND: Duration = Duration::from_secs(120);

/// Time limit of a process, however busy the machine is.
const LONGEST_MS: u64 = 5000;

#[test]
fn root_ten_thousand_short_processes_are_exact() {
    const FORKS: u64 = 5000;
    const EXECS: u64 = 5000;
    let programs = Programs::built(&["crowd.c", "nothing.c"]);
    let numbers = [FORKS, EXECS].map(|n| n.to_string());
    let words = [programs.text("crowd")]
        .into_iter()
        .chain(numbers)
        .chain([programs.text("nothing")]);
    let start = Instant::now();
    let mut gpuprobe = Setup::command(words).start();
    let printed = gpuprobe.talk.hear();
    let (well, slowest) = printed.rsplit_once(" slowest ").unwrap();
    assert_eq!(well, format!("ended well {}", FORKS + EXECS));
    assert!(slowest.parse::<u64>().unwrap() < LONGEST_MS, "{printed}");
    let report = gpuprobe.final_report();
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    report.assert_no_call_lost();
    let expected = Totals {
        alloc_calls: 2 * FORKS,
        free_calls: FORKS,
        live_bytes: 512 * FORKS,
        live_allocations: FORKS,
        ..Totals::default()
    };
    assert_eq!(report.totals(), expected);
}

#[test]
fn root_a_thousand_threads_are_exact() {
    let _alone = alone();
    let mut gpuprobe = Setup::command([standin().program_text(Backend::Shared)]).start();
    let pid = gpuprobe.talk.ready();
    gpuprobe.talk.say("churn 1000 20 4096 10");
    gpuprobe.talk.say("race 1000 20 512");
    let truth = gpuprobe.talk.done();
    assert_eq!((truth.allocs, truth.live), (40_000, 2000));
    let report = gpuprobe.final_report();
    report.assert_no_call_lost();
    assert_eq!(report.totals(), truth.into());
    report.assert_holds(pid, truth.bytes, truth.live);
    // Each holds the memory that it kept.
    let threads = report.process(pid)["threads"].as_array().unwrap();
    let holding = threads.iter().filter(|t| t["live_allocations"] == 2);
    assert_eq!(holding.count(), 1000);
}
